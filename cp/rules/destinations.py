"""What holds for a destination, and for one route to it: from the mesh to the route, field by field (record 0007)."""

from __future__ import annotations

from typing import TypeAlias

from cp.model.names import Destination, Identity
from cp.resources.dataplane import SERVICE_TAG
from cp.rules.build import PolicyRules
from cp.rules.calls import names_of_call
from cp.rules.combined import CombinedConf
from cp.rules.merging import NOTHING, MergedConf
from cp.rules.outbound import ResourceRule, ToRules
from cp.rules.subsets import MATCHES_TAG

Via: TypeAlias = tuple[Identity, ...]
"""The routes that contribute to one route rule of a destination, the strongest first."""


def effective(rules: PolicyRules, destination: Destination, via: Via = (), matches: str = "") -> MergedConf:
    """The conf of a destination with the confs of routes to it over it, field by field. It lacks the policy's defaults.

    `matches` is the hash of the route's matches. Policies for destinations by tags that name the route at their top
    level are found by it.
    """
    call = (destination, via, matches)
    conf = rules.calls.get(call)
    if conf is None:
        conf = _effective(rules, destination, via, matches)
        rules.calls.put(call, conf, names_of_call(call))
    return conf


def levels(rules: PolicyRules, destination: Destination, via: Via = (), matches: str = "") -> tuple[CombinedConf, ...]:
    """The merged confs of a destination and of the routes to it, one for each level, the most general first."""
    of_routes = (level for route in reversed(via) for level in _of_route(rules, destination, route))
    return tuple(level for level in (of_service(rules, destination, matches), *of_routes) if level is not None)


def _effective(rules: PolicyRules, destination: Destination, via: Via, matches: str) -> MergedConf:
    return _overlaid(rules, tuple(level.conf for level in levels(rules, destination, via, matches)))


def _overlaid(rules: PolicyRules, levels: tuple[MergedConf, ...]) -> MergedConf:
    confs = tuple(conf for conf in levels if conf is not NOTHING)
    return confs[0] if len(confs) == 1 else rules.lay(confs)


def at_gateway(rules: PolicyRules, via: Via = (), service: Destination | None = None) -> MergedConf:
    """The conf of a listener of a builtin gateway with the confs of routes on it over it, field by field.

    A gateway's listener is no destination, so items for the whole mesh hold for it, and under the confs of routes to
    one `service` those of that service. `rules` are those of the listener alone (`PolicyRules.at_listeners`).
    """
    return _overlaid(rules, tuple(level.conf for level in gateway_levels(rules, via, service)))


def gateway_levels(rules: PolicyRules, via: Via = (), service: Destination | None = None) -> tuple[CombinedConf, ...]:
    """The merged confs of a gateway's listener, of a service and of the routes there, the most general first."""
    of_routes = (level for route in reversed(via) for level in _of_real_route(rules, rules.to_at_gateway, route))
    return tuple(level for level in (*_under_routes(rules, service), *of_routes) if level is not None)


def _under_routes(rules: PolicyRules, service: Destination | None) -> tuple[CombinedConf | None, ...]:
    """What holds at a gateway whichever route a call takes.

    Rules by tags lack the items of policies that name routes: those for the mesh come in between, in their order.
    """
    if service is not None and service.identity is not None:
        return (_combined(rules.to_at_gateway.rule(service.identity)),)
    of_mesh = _combined(rules.to_at_gateway.mesh)
    own = None if service is None else of_service(rules, service)
    if of_mesh is None or own is None:
        return of_mesh, own
    all_items = {*own.items, *of_mesh.items}
    return (own if len(all_items) == len(own.items) else rules.combine(rules.in_order(all_items)),)


def of_service(rules: PolicyRules, destination: Destination, matches: str = "") -> CombinedConf | None:
    """What holds for a destination, whatever route leads there."""
    if destination.identity is not None:
        return _combined(rules.to.rule(destination.identity))
    tags = {SERVICE_TAG: destination.service, **dict(destination.tags)}
    if matches and (route_rule := rules.to_subsets.of({**tags, MATCHES_TAG: matches})) is not None:
        return route_rule.combined
    service_rule = rules.to_subsets.of(tags)
    return None if service_rule is None else service_rule.combined


def _of_route(rules: PolicyRules, destination: Destination, route: Identity) -> tuple[CombinedConf | None, ...]:
    """What policies say of the route itself: by items that name it, over policies that name it at their top.

    See docs/concepts/matching-and-merging.md#the-old-way-to-name-a-route.

    For a destination by tags, the rules by tags contain the old way, as in Kuma.
    """
    at_top, by_item = _of_real_route(rules, rules.to, route)
    return at_top if destination.is_real else None, by_item


def _of_real_route(rules: PolicyRules, to: ToRules, route: Identity) -> tuple[CombinedConf | None, ...]:
    at_top = to.items_at_top(route)
    return rules.combine(at_top) if at_top else None, _combined(to.route(route))


def _combined(rule: ResourceRule | None) -> CombinedConf | None:
    return None if rule is None else rule.combined
