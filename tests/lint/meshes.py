"""Random meshes in which policies of every shape meet: with lists, with one conf, for clients, and the old way."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from cp.model.document import Document
from cp.model.names import Key
from cp.policies import kinds
from cp.resources.world import World
from tests.random_mesh import MESH, document, random_document
from tests.snapshots import policies

Data = dict[str, Any]

_TEAMS: Final = ("red", "blue")
_SERVICES: Final = ("a", "b", "c")
_ROUTES: Final = ("r1", "r2")
_BUILT_IN: Final[Data] = {"http": {"requestTimeout": "15s"}}


def random_world(chance: Random) -> World:
    """A World without anything invalid, and with a Dataplane."""
    made = [random_document(chance) for _ in range(chance.randrange(4, 20))]
    made += [_policy(chance) for _ in range(chance.randrange(8))]
    documents: dict[Key, Document] = {one.key: one for one in (MESH, _dataplane(chance), *made)}
    world = World.of(documents.values(), kinds(policies()))
    assert not [str(one) for one in world.findings if one.severity == "error"]
    return world


def _dataplane(chance: Random) -> Document:
    made = random_document(chance)
    return made if made.key.type == "Dataplane" else _dataplane(chance)


def _policy(chance: Random) -> Document:
    kind, make = chance.choice(list(_MADE.items()))
    shadow = {"labels": {"kuma.io/effect": "shadow"}} if chance.random() < 0.1 else {}
    return document(kind, f"q-{chance.randrange(3)}", **shadow, spec=make(chance))


def _top(chance: Random) -> Data:
    tags = {"team": chance.choice(_TEAMS)}
    chosen: list[Data] = [{}, {"targetRef": {"kind": "MeshSubset", "tags": tags}}]
    return chance.choice([*chosen, {"targetRef": {"kind": "Dataplane", "name": f"dp-{chance.randrange(4)}"}}])


def _clients(chance: Random) -> Data:
    chosen: list[Data] = [
        {"kind": "Mesh"},
        {"kind": "MeshSubset", "tags": {"team": chance.choice(_TEAMS)}},
        {"kind": "MeshService", "name": chance.choice(_SERVICES)},
    ]
    return chance.choice(chosen)


def _permission(chance: Random) -> Data:
    def item() -> Data:
        return {"targetRef": _clients(chance), "default": {"action": chance.choice(["Allow", "Deny"])}}

    return {**_top(chance), "from": [item() for _ in range(chance.randrange(1, 3))]}


def _faults(chance: Random) -> Data:
    """For some clients by their identity, or for all."""

    def rule() -> Data:
        spiffe = {"type": "Exact", "value": f"spiffe://default/{chance.choice(_SERVICES)}"}
        matches = {"matches": [{"spiffeID": spiffe}]} if chance.random() < 0.7 else {}
        status = chance.choice([500, 503])
        return {**matches, "default": {"http": [{"abort": {"httpStatus": status, "percentage": 1}}]}}

    return {**_top(chance), "rules": [rule() for _ in range(chance.randrange(1, 3))]}


def _passthrough(chance: Random) -> Data:
    """One conf for a proxy, with a list to which everybody adds."""
    mode = {"passthroughMode": chance.choice(["All", "None", "Matched", None])} if chance.random() < 0.7 else {}
    some = {"appendMatch": [{"type": "IP", "value": f"10.0.0.{chance.randrange(3)}", "protocol": "tcp", "port": 80}]}
    return {**_top(chance), "default": {**mode, **(some if chance.random() < 0.6 else {})}}


def _check(chance: Random) -> Data:
    """Objects that say something by being there, and nulls over each other."""
    default: Data = {
        chance.choice(["http", "tcp", "grpc"]): chance.choice([{}, {"disabled": True}, {}, None]),
        "interval": "5s",
    }
    return {**_top(chance), "to": [{"targetRef": _service(chance), "default": default}]}


def _breaker(chance: Random) -> Data:
    """Few fields and few values, so that several say the same, and nulls over nulls."""
    names = chance.sample(["maxConnections", "maxRetries"], chance.randrange(1, 3))
    limits: Data = {name: chance.choice([1, 2, None]) for name in names}
    default: Data = {
        "connectionLimits": chance.choice([limits, limits, None]),
        "outlierDetection": {"detectors": {"totalFailures": {}}},
    }
    return {**_top(chance), "to": [{"targetRef": _service(chance), "default": default} for _ in range(2)]}


def _service(chance: Random) -> Data:
    return chance.choice([{"kind": "Mesh"}, {"kind": "MeshService", "name": chance.choice(_SERVICES)}])


def _timeout(chance: Random) -> Data:
    """The old way to name a route; and what holds anyway."""
    if chance.random() < 0.5:
        top = {"targetRef": {"kind": "MeshHTTPRoute", "name": chance.choice(_ROUTES)}}
        value = f"{chance.randrange(3)}s"
        return {**top, "to": [{"targetRef": {"kind": "Mesh"}, "default": {"http": {"requestTimeout": value}}}]}
    nothing: Data = {"http": {"requestTimeout": None, "streamIdleTimeout": "30m"}}
    default: Data = chance.choice([_BUILT_IN, nothing])
    return {**_top(chance), "to": [{"targetRef": _service(chance), "default": default}]}


_MADE: Final[dict[str, Callable[[Random], Data]]] = {
    "MeshTrafficPermission": _permission,
    "MeshFaultInjection": _faults,
    "MeshPassthrough": _passthrough,
    "MeshHealthCheck": _check,
    "MeshCircuitBreaker": _breaker,
    "MeshTimeout": _timeout,
}
