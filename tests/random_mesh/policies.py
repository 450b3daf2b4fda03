"""Policies of every shape: with lists, with one conf, for proxies by every kind of target, and the old way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.random_mesh import confs, targets
from tests.random_mesh.targets import PROXIES
from tests.random_mesh.words import (
    NAMESPACE_LABEL,
    NAMESPACES,
    ROLE_LABEL,
    Data,
    Make,
    home,
    in_kubernetes,
    several,
    sometimes,
)

NAMES: Final = ("p-1", "p-2", "p-3", "p-4")
OLD: Final = "MeshHTTPRoute"
GATEWAY: Final = "MeshGateway"


@dataclass(frozen=True)
class Shape:
    """What the policies of one kind may have."""

    top: tuple[str, ...] = PROXIES
    to: Make | None = None
    called: Make = targets.called
    to_route: Make | None = None
    to_tcp_route: Make | None = None
    of_gateway: Make | None = None
    """The conf of an item for `kind: Mesh`, where the policy is for a gateway."""

    from_: Make | None = None
    from_targets: Make = lambda _: {"kind": "Mesh"}
    rules: Make | None = None
    rules_of_clients: Make | None = None
    default: Make | None = None
    varied: Callable[[Data], Data] | None = None
    """Another spec for some. It draws from what was drawn, so that what comes later is as it would be without it."""

    sidecars: bool = False
    """Whether what comes in is nothing that a gateway has."""


SHAPES: Final[dict[str, Shape]] = {
    "MeshTimeout": Shape(
        top=(*PROXIES, GATEWAY, OLD),
        to=confs.timeouts,
        to_route=confs.timeouts_of_route,
        to_tcp_route=confs.timeouts_of_tcp_route,
        of_gateway=confs.timeouts_of_route,
        from_=confs.timeouts,
        rules=confs.timeouts,
        rules_of_clients=confs.timeouts_of_clients,
    ),
    "MeshRetry": Shape(
        top=(*PROXIES, GATEWAY, OLD),
        to=confs.retries,
        to_route=confs.retries_of_route,
        to_tcp_route=confs.retries_of_tcp_route,
        of_gateway=confs.retries_of_route,
    ),
    "MeshCircuitBreaker": Shape(
        to=confs.breaker, from_=confs.breaker, rules=confs.breaker, varied=confs.as_good_as_none
    ),
    "MeshHealthCheck": Shape(to=confs.check),
    "MeshLoadBalancingStrategy": Shape(to=confs.balancing, called=targets.called_inside, to_route=confs.hashes),
    "MeshAccessLog": Shape(
        to=confs.logged,
        to_route=confs.logged,
        from_=confs.logged,
        rules=confs.logged,
        rules_of_clients=confs.logged,
        varied=confs.as_good_as_none,
    ),
    "MeshTrafficPermission": Shape(from_=confs.action, from_targets=targets.clients, varied=confs.permissions),
    "MeshTLS": Shape(top=("Mesh", "MeshSubset", "Dataplane"), from_=confs.tls, varied=confs.versions),
    "MeshFaultInjection": Shape(
        rules=confs.faults,
        rules_of_clients=confs.faults,
        from_=confs.faults,
        from_targets=targets.clients,
        sidecars=True,
        varied=confs.as_good_as_none,
    ),
    "MeshRateLimit": Shape(
        rules=confs.limit, rules_of_clients=confs.limit_of_requests, sidecars=True, varied=confs.as_good_as_none
    ),
    "MeshTrace": Shape(default=confs.collected),
    "MeshPassthrough": Shape(top=("Mesh", "MeshSubset", "Dataplane"), default=confs.passthrough),
}


def policy(chance: Random, kind: str) -> Data:
    """One of Universal's in most cases; some are in a namespace, with a role or in the form of Kubernetes."""
    shape, name, origin = SHAPES[kind], chance.choice(NAMES), home(chance)
    if origin.namespace and shape.to is not None and chance.random() < 0.5:
        spec = {**targets.top(chance, PROXIES), "to": [_item(chance, shape)]}
        return in_kubernetes(kind, name, origin.namespace, {}, spec)
    labels = sometimes(chance, 0.05, {"kuma.io/effect": "shadow"}) | sometimes(chance, 0.05, _consumer(chance))
    system = ROLE_LABEL not in labels
    spec = _spec(chance, shape, shape.top if system else PROXIES[:3])
    return origin.named(kind, name, labels, spec=shape.varied(spec) if shape.varied else spec)


def _consumer(chance: Random) -> dict[str, str]:
    return {ROLE_LABEL: "consumer", NAMESPACE_LABEL: chance.choice(NAMESPACES)}


def _spec(chance: Random, shape: Shape, kinds: tuple[str, ...]) -> Data:
    top = targets.top(chance, kinds, sidecars=shape.sidecars)
    kind = top.get("targetRef", {}).get("kind", "Mesh")
    if kind == OLD or (kind == GATEWAY and shape.of_gateway is not None):
        conf = shape.to_route if kind == OLD else shape.of_gateway
        assert conf is not None
        return {**top, "to": [{"targetRef": {"kind": "Mesh"}, "default": conf(chance)}]}
    parts = _parts(chance, shape)
    if parts.keys() <= {"from", "rules"} and chance.random() < 0.2:
        top = targets.sections_of_inbounds(chance)
    return {**top, **parts}


def _parts(chance: Random, shape: Shape) -> Data:
    """Items of `to`, `from` and `rules`, as they may stand together, or the one conf."""
    if shape.default is not None:
        return {"default": shape.default(chance)}
    if shape.rules is not None and (shape.to is None or chance.random() < 0.2) and chance.random() < 0.7:
        return {"rules": several(chance, lambda drawn: _rule(drawn, shape), 1, 2)}
    spec: Data = {}
    if shape.to is not None:
        spec["to"] = several(chance, lambda drawn: _item(drawn, shape), 1, 3)
    if shape.from_ is not None and (not spec or chance.random() < 0.2):
        spec["from"] = several(chance, lambda drawn: _from(drawn, shape), 1, 2)
    return spec or {"rules": [_rule(chance, shape)]}


def _item(chance: Random, shape: Shape) -> Data:
    assert shape.to is not None
    pick = chance.random()
    if shape.to_route is not None and pick < 0.25:
        return {"targetRef": targets.route(chance), "default": shape.to_route(chance)}
    if shape.to_tcp_route is not None and pick < 0.35:
        return {"targetRef": targets.tcp_route(chance), "default": shape.to_tcp_route(chance)}
    target = {"kind": "Mesh"} if pick > 0.8 else shape.called(chance)
    return {"targetRef": target, "default": shape.to(chance)}


def _from(chance: Random, shape: Shape) -> Data:
    assert shape.from_ is not None
    return {"targetRef": shape.from_targets(chance), "default": shape.from_(chance)}


def _rule(chance: Random, shape: Shape) -> Data:
    assert shape.rules is not None
    if shape.rules_of_clients is not None and chance.random() < 0.5:
        return {"matches": [confs.client(chance)], "default": shape.rules_of_clients(chance)}
    return {"default": shape.rules(chance)}
