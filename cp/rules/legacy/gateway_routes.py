"""The routes that MeshGatewayRoutes give to a listener of a builtin gateway: a second way into the routes by hostname.

They are selected by the tags of the listener, all of them hold, and rules with the same matches are those of the
newest. Where a MeshHTTPRoute or MeshTCPRoute is for the listener they are not asked (record 0075).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from cp.model.failure import Failure
from cp.model.hosts import ANY_HOST
from cp.model.memo import Memo
from cp.model.names import Key
from cp.resources.kinds import LegacyConf
from cp.resources.legacy.gateway_route import MESH_GATEWAY_ROUTE, conf_of_route
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.combined import CombinedConf
from cp.rules.gateways import RoutesByHost
from cp.rules.items import recipe
from cp.rules.legacy.policy_confs import failure_of_policy
from cp.rules.legacy.selectors import age, best_rank, selectors_of
from cp.rules.merging import Layer, Origin, merge_group

GATEWAY_ROUTE: Final = MESH_GATEWAY_ROUTE.name
TCP: Final = "tcp"

_Group: TypeAlias = tuple[str, str, tuple[Key, ...]]
"""The kind of route with a targetRef that says the same, a pattern of hostnames, and the routes, the oldest first."""


def selected_routes(world: World, mesh: str, tags: Mapping[str, str], kind: str) -> tuple[Resource, ...]:
    """The MeshGatewayRoutes for listeners with some tags, the oldest first, which come to one kind of route.

    Later ones lie over earlier ones. Of equally old ones the first by name is the last here, as it holds elsewhere too;
    in Kuma nothing decides between routes with the same matches.
    """
    chosen = [
        route
        for route in world.table(GATEWAY_ROUTE, mesh)
        if is_selected(route, tags) and (conf := _conf(route)) is not None and conf.kind == kind
    ]
    chosen.reverse()
    return tuple(sorted(chosen, key=age))


def is_selected(route: Resource, tags: Mapping[str, str]) -> bool:
    """Whether a MeshGatewayRoute is for listeners with some tags."""
    return best_rank(selectors_of(route.data, "selectors"), [tags]) is not None


def legacy_routes_by_host(world: World, mesh: str, tags: Mapping[str, str], kind: str) -> RoutesByHost:
    """The routes for each pattern of hostnames. The same objects for as long as the routes are the same."""
    of_pattern: dict[str, list[Key]] = {}
    for route in selected_routes(world, mesh, tags, kind):
        conf = _conf(route)
        hostnames = () if conf is None else conf.conf.get("hostnames") or ()
        for pattern in dict.fromkeys("" if name == ANY_HOST else name.lower() for name in hostnames or ("",)):
            of_pattern.setdefault(pattern, []).append(route.key)
    return {
        pattern or ANY_HOST: world.recall(_Combined, (kind, pattern, tuple(keys)))
        for pattern, keys in of_pattern.items()
    }


def place_of_rule(route: Resource, matches: Sequence[Mapping[str, Any]]) -> str:
    """The path in a MeshGatewayRoute of the rule with some matches; of several, the first counts."""
    return next(places_of_rules(route, matches), f"conf.{TCP}.rules[0]")


def places_of_rules(route: Resource, matches: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The paths of all rules of a MeshGatewayRoute for HTTP with some matches, in their order."""
    conf = _conf(route)
    rules = () if conf is None else conf.conf.get("rules") or ()
    for position, rule in reversed(list(enumerate(rules))):  # they stand from the last to the first
        if conf is not None and list(rule["matches"]) == list(matches):
            yield str(conf.places[f"rules[{position}]"])


def failing_routes(world: World, mesh: str) -> Iterator[tuple[Resource, Failure]]:
    """The MeshGatewayRoutes of which it could not be worked out what they come to: they give no routes."""
    for route in world.table(GATEWAY_ROUTE, mesh):
        if (failure := route.derived(_read).failure) is not None:
            yield route, failure


def failures_at(world: World, mesh: str, tags: Mapping[str, str]) -> Iterator[Failure]:
    """Those among them that are for listeners with some tags."""
    failing = failing_routes(world, mesh)
    return (failure for route, failure in failing if is_selected(route, tags))


class _Reading(NamedTuple):
    """What a route comes to; or why that could not be worked out, by a fault of ours."""

    conf: LegacyConf | None
    failure: Failure | None = None


def _conf(route: Resource) -> LegacyConf | None:
    return route.derived(_read).conf


def _read(route: Resource) -> _Reading:
    try:
        return _Reading(conf_of_route(route.data))
    except Exception as error:  # noqa: BLE001  # whatever it is, it is this route's
        return _Reading(None, failure_of_policy(route, error))


class _Combined(Memo[World, _Group, CombinedConf]):
    def basis(self, source: World, key: _Group) -> tuple[Resource | None, ...]:
        return tuple(map(source.get, key[2]))

    def work_out(self, source: World, key: _Group) -> CombinedConf:
        kind, pattern, _ = key
        shape = source.kinds[kind].policy
        assert shape is not None  # noqa: S101  # narrows the type
        layers = [layer for route in self.basis(source, key) if route is not None for layer in _layers(route)]
        return CombinedConf((), (merge_group(layers, recipe(shape), pattern),))


def _layers(route: Resource) -> list[Layer]:
    conf = _conf(route)
    if conf is None:
        return []
    origin = Origin(route.key, route.identity, "conf", path="conf", source=route.source)
    return [Layer(conf.conf, origin, "conf", conf.conf, conf.places)]
