"""MeshProxyPatches, and what else writes over what other policies write."""

from __future__ import annotations

from random import Random
from typing import Final

from tests.random_mesh import targets
from tests.random_mesh.words import SERVICES, Data, Home, several, sometimes, weighted

NAMES: Final = ("patch-a", "patch-b")
_ORIGINS: Final = ("inbound", "outbound")


def patch(chance: Random) -> Data:
    changes = several(chance, weighted([(3, _cluster), (3, _virtual_host), (1, _listener)]), 1, 2)
    spec = {**targets.top(chance), "default": {"appendModifications": changes}}
    return Home().named("MeshProxyPatch", chance.choice(NAMES), {}, spec=spec)


def _match(chance: Random) -> Data:
    origin = sometimes(chance, 0.4, {"origin": chance.choice(_ORIGINS)})
    match = origin | sometimes(chance, 0.2, {"name": chance.choice([*SERVICES, "localhost:8000"])})
    return {"match": match} if match else {}


def _cluster(chance: Random) -> Data:
    timeout = chance.choice(["connectTimeout: 7s", "connectTimeout: 8s", "perConnectionBufferLimitBytes: 1000"])
    return {"cluster": {"operation": "Patch", **_match(chance), "value": timeout}}


def _listener(chance: Random) -> Data:
    return {"listener": {"operation": "Patch", **_match(chance), "value": "perConnectionBufferLimitBytes: 1000"}}


def _virtual_host(chance: Random) -> Data:
    """Of rows values, which the row may have already or not, and of the whole its retries."""
    place, field = chance.choice(["0", "1"]), chance.choice(["timeout", "idleTimeout"])
    operation = chance.choice(["add", "replace"])
    changes: list[Data] = [
        {"jsonPatches": [{"op": operation, "path": f"/routes/{place}/route/{field}", "value": "77s"}]},
        {"value": "retryPolicy: {retryOn: 5xx, numRetries: 4}"},
    ]
    origin = sometimes(chance, 0.4, {"match": {"origin": chance.choice(_ORIGINS)}})
    return {"virtualHost": {"operation": "Patch", **origin, **chance.choice(changes)}}
