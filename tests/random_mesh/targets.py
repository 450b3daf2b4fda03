"""Whom a policy is for: at the top, in the items of `to`, and as clients in those of `from`."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from tests.random_mesh.words import (
    DATAPLANES,
    GATEWAYS,
    MISSING,
    NAME_LABEL,
    NAMESPACES,
    ROUTES,
    SERVICES,
    TCP_ROUTES,
    TEAMS,
    ZONE_LABEL,
    ZONES,
    Data,
    apart,
    sometimes,
    team,
    weighted,
)

PROXIES: Final = ("Mesh", "MeshSubset", "Dataplane", "MeshService", "MeshServiceSubset")
REAL: Final = ("MeshService", "MeshExternalService", "MeshMultiZoneService")
_SECTIONS: Final = ("port-80", "port-81", "80", "81", "nosuch")


def top(chance: Random, kinds: tuple[str, ...] = PROXIES, *, sidecars: bool = False) -> Data:
    """The `targetRef` of a policy, or none, which is for every proxy. Most are for many, so that policies meet."""
    kind = chance.choice(["", "", "Mesh", "MeshSubset", *kinds])
    if not kind and not sidecars:
        return {}
    return {"targetRef": _top_of(chance, kind or "Mesh") | _types(kind or "Mesh", chance, sidecars=sidecars)}


def _types(kind: str, chance: Random, *, sidecars: bool) -> Data:
    if kind not in {"Mesh", "MeshSubset"}:
        return {}
    if sidecars:
        return {"proxyTypes": ["Sidecar"]}
    return sometimes(chance, 0.15, {"proxyTypes": [chance.choice(["Sidecar", "Gateway"])]})


def _top_of(chance: Random, kind: str) -> Data:
    makes: dict[str, Callable[[], Data]] = {
        "Mesh": dict,
        "MeshSubset": lambda: {"tags": team(chance)},
        "Dataplane": lambda: _dataplane(chance),
        "MeshService": lambda: {"name": chance.choice(SERVICES)},
        "MeshServiceSubset": lambda: {"name": chance.choice(SERVICES), "tags": team(chance)},
        "MeshGateway": lambda: {"name": chance.choice(GATEWAYS), **sometimes(chance, 0.3, {"tags": team(chance)})},
        "MeshHTTPRoute": lambda: {"name": chance.choice(ROUTES)},
    }
    return {"kind": kind, **makes[kind]()}


def _dataplane(chance: Random) -> Data:
    chosen: list[Data] = [{}, {"labels": {"app": "web"}}, {"name": chance.choice(DATAPLANES)}]
    return chance.choice(chosen)


def sections_of_inbounds(chance: Random) -> Data:
    """A target for one inbound of the proxies, for policies about what comes in."""
    section: str = chance.choice(["in-9000", "9000", "9001", "nosuch"])
    return {"targetRef": {"kind": "Dataplane", "sectionName": section}}


def called(chance: Random) -> Data:
    """A real service of some kind, or a part of one: by name and sometimes with where it is, or by labels."""
    target: Data = weighted([(6, _service), (1, _outside), (1, _of_several_zones), (1, _by_labels)])(chance)
    return target


def called_inside(chance: Random) -> Data:
    """A whole service that has proxies, which may be in several zones."""
    return {"kind": chance.choice(["MeshService", "MeshService", REAL[2]]), "name": chance.choice(SERVICES)}


def _service(chance: Random) -> Data:
    target: Data = {"kind": "MeshService", "name": chance.choice([*SERVICES, *SERVICES, *SERVICES, MISSING])}
    target |= sometimes(chance, 0.15, {"namespace": chance.choice(NAMESPACES)})
    target |= sometimes(chance, 0.35, {"sectionName": chance.choice(_SECTIONS)})
    return target if target.keys() > {"kind", "name"} else {**target, **_old_name(apart(chance), target["name"])}


def _old_name(chance: Random, name: str) -> Data:
    """Now and then the name of a service of a namespace as it was written before, with or without a port."""
    port = chance.choice(["", "_80", "_81"])
    return sometimes(chance, 0.15, {"name": f"{name}_{chance.choice(NAMESPACES)}_svc{port}"})


def _outside(chance: Random) -> Data:
    return {"kind": "MeshExternalService", "name": chance.choice(SERVICES)}


def _of_several_zones(chance: Random) -> Data:
    return {"kind": "MeshMultiZoneService", "name": chance.choice(SERVICES)}


def _by_labels(chance: Random) -> Data:
    labels = chance.choice([team(chance), {NAME_LABEL: chance.choice(SERVICES)}, {ZONE_LABEL: chance.choice(ZONES)}])
    return {"kind": chance.choice(REAL), "labels": labels}


def route(chance: Random) -> Data:
    return {"kind": "MeshHTTPRoute", "name": chance.choice([*ROUTES, *ROUTES, MISSING])}


def tcp_route(chance: Random) -> Data:
    return {"kind": "MeshTCPRoute", "name": chance.choice(TCP_ROUTES)}


def clients(chance: Random) -> Data:
    """Whose calls an item of `from` is about."""
    chosen: list[Data] = [
        {"kind": "Mesh"},
        {"kind": "MeshSubset", "tags": {"team": chance.choice(TEAMS)}},
        {"kind": "MeshService", "name": chance.choice(SERVICES)},
        {"kind": "MeshServiceSubset", "name": chance.choice(SERVICES), "tags": team(chance)},
    ]
    return chance.choice(chosen)
