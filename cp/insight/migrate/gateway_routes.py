"""MeshGatewayRoutes as MeshHTTPRoutes and MeshTCPRoutes on the MeshGateways whose listeners they select.

Both kinds choose listeners by the same tags. Of two MeshGatewayRoutes with the same matches the newest holds, however
specific its selector is; a target is the stronger the more tags it has. So a newer route has tags as many as an older
one, if need be some that every gateway has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cp.insight.migrate.documents import PolicyDraft
from cp.insight.migrate.facts import MeshFacts
from cp.insight.migrate.selection import Tags
from cp.resources.dataplane import SERVICE_TAG, ZONE_TAG
from cp.resources.kinds import LegacyConf
from cp.resources.legacy.gateway_route import conf_of_route
from cp.resources.resource import Resource
from cp.resources.targets import GATEWAY
from cp.resources.world import World
from cp.rules.legacy.gateway_routes import GATEWAY_ROUTE
from cp.rules.legacy.selectors import ANY, Rank, age, best_rank, selectors_of
from cp.rules.matching.profile import listeners, tags_of_listeners

_CARRIED_BY_ALL: Final = (SERVICE_TAG, ZONE_TAG)
"""The tags that every gateway has."""


def drafts(facts: MeshFacts, routes: Sequence[Resource]) -> list[PolicyDraft]:
    """A policy for each route, selector and MeshGateway of which it can select a listener."""
    by_name: dict[str, list[Resource]] = {}
    for gateway in facts.world.table(GATEWAY, facts.mesh):
        by_name.setdefault(gateway.display_name, []).append(gateway)
    return [draft for name, gateways in sorted(by_name.items()) for draft in _of_gateways(name, gateways, routes)]


def _of_gateways(name: str, gateways: Sequence[Resource], routes: Sequence[Resource]) -> Iterator[PolicyDraft]:
    """Those for the MeshGateways of one name, the weakest first, each with no fewer tags than those before."""
    selecting = [(route, tags) for route in routes for tags in _selectors(gateways, route)]
    most: dict[str, int] = {}
    for route, tags in sorted(selecting, key=lambda selection: _strength(selection[0])):
        conf = conf_of_route(route.data)
        if conf is not None:
            chosen = _with_tags(tags, most.get(conf.kind, 0))
            most[conf.kind] = len(chosen)
            yield _draft(name, route, conf, chosen)


def _strength(route: Resource) -> str:
    """The newest is the strongest, and of equally old ones the last by name."""
    return f"{age(route)} {route.name}"


def _selectors(gateways: Sequence[Resource], route: Resource) -> Iterator[Tags]:
    """The selectors of a route that can fit a listener of some gateways, whatever else their proxies carry."""
    known = [tags for gateway in gateways for tags in _known_tags(gateway)]
    for selector in selectors_of(route.data, "selectors"):
        if any(_can_fit(selector, tags) for tags in known):
            yield tuple(sorted(selector.items()))


def _known_tags(gateway: Resource) -> Iterator[Mapping[str, str]]:
    """What a MeshGateway says of the tags of its listeners: theirs, its own, and those by which it chooses proxies."""
    for of_proxy in selectors_of(gateway.data, "selectors") or [{}]:
        for listener in listeners(gateway):
            yield {**of_proxy, **(gateway.data.get("tags") or {}), **(listener.get("tags") or {})}


def _can_fit(selector: Mapping[str, str], known: Mapping[str, str]) -> bool:
    return all(value == ANY or known.get(name, ANY) in {ANY, value} for name, value in selector.items())


def routes_of_proxy(world: World, dataplane: Resource) -> Iterator[Resource]:
    """The MeshGatewayRoutes that select a listener of a builtin gateway."""
    tags = tags_of_listeners(world, dataplane)
    for route in world.table(GATEWAY_ROUTE, dataplane.mesh):
        if best_rank(selectors_of(route.data, "selectors"), tags) is not None:
            yield route


def _with_tags(tags: Tags, least: int) -> Tags:
    """Some tags, and as many of those that every gateway has as are needed."""
    named = {name for name, _ in tags}
    free = [(name, ANY) for name in _CARRIED_BY_ALL if name not in named]
    return tuple(sorted((*tags, *free[: max(0, least - len(tags))])))


def _draft(gateway: str, route: Resource, conf: LegacyConf, tags: Tags) -> PolicyDraft:
    target = {"kind": GATEWAY, "name": gateway, **({"tags": dict(tags)} if tags else {})}
    item = {"targetRef": {"kind": "Mesh"}, **_item(conf.conf)}
    strength = Rank(), _strength(route)
    return PolicyDraft(conf.kind, tags, strength, route.key, {"targetRef": target, "to": [item]})


def _item(conf: Mapping[str, Any]) -> dict[str, Any]:
    if "rules" not in conf:
        return {"rules": [dict(conf)]}
    hostnames = {"hostnames": conf["hostnames"]} if "hostnames" in conf else {}
    return {**hostnames, "rules": list(reversed(conf["rules"]))}
