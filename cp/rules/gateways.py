"""The rules of builtin gateways: which routes each hostname of a listener has.

A listener is for one pattern of hostnames, and so is each route on it. A request is for the narrowest hostname that it
fits, and there the routes of the narrowest pattern are tried first
(docs/concepts/routes.md#routes-of-builtin-gateways).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cp.model.hosts import ANY_HOST, common, covering
from cp.resources.resource import Resource
from cp.rules.build import PolicyRules
from cp.rules.combined import CombinedConf
from cp.rules.items import PolicyItem, items, recipe, tags_of
from cp.rules.merging import groups_of

RoutesByHost = Mapping[str, CombinedConf]
"""The routes for each pattern of hostnames that some route names; `*` for those that name none."""


@dataclass(frozen=True, slots=True)
class HostRoutes:
    """The routes for one hostname of a listener, pattern by pattern, the narrowest first."""

    hostname: str
    levels: tuple[CombinedConf, ...]


def routes_by_host(rules: PolicyRules) -> RoutesByHost:
    """The routes of the policies that selected some listeners, for each pattern of hostnames."""
    of_policies = (entry for match in rules.matched for entry in match.policy.derived(_items_by_pattern))
    return _combined(rules, of_policies)


def entries_within(rules: PolicyRules, hostname: str) -> Iterator[tuple[str, PolicyItem]]:
    """The items of routes that fit some request for a listener's hostname, each with its pattern: an empty one for any.

    There can be a thousand listeners, and a thousand patterns of which each listener takes one.
    """
    exact = () if "*" in hostname else tuple("" if name == ANY_HOST else name for name in covering(hostname))
    for match in rules.matched:
        by_pattern = match.policy.derived(_by_pattern)
        for pattern in exact or by_pattern:
            if exact or common(hostname, pattern or ANY_HOST) is not None:
                yield from ((pattern, item) for item in by_pattern.get(pattern, ()))


def routes_of_entries(rules: PolicyRules, entries: Iterable[tuple[str, PolicyItem]]) -> RoutesByHost:
    """What some items of routes come to, for each of their patterns."""
    return _combined(rules, entries)


def route_items(rules: PolicyRules) -> Iterator[PolicyItem]:
    """The items of routes that are for some listeners, the weakest first."""
    return (item for match in rules.matched for item in match.policy.derived(_items_of_gateways))


def _combined(rules: PolicyRules, by_pattern: Iterable[tuple[str, PolicyItem]]) -> RoutesByHost:
    items_of: dict[str, list[PolicyItem]] = {}
    for pattern, item in by_pattern:
        items_of.setdefault(pattern, []).append(item)
    return {pattern or ANY_HOST: rules.combine_group(pattern, tuple(chosen)) for pattern, chosen in items_of.items()}


def _items_of_gateways(policy: Resource) -> tuple[PolicyItem, ...]:
    return tuple(item for item in items(policy).to if tags_of(item) == frozenset())


def _items_by_pattern(policy: Resource) -> tuple[tuple[str, PolicyItem], ...]:
    """The items of a route that are for a gateway, each with the patterns that it names; an empty one for none."""
    return tuple((pattern, item) for item in policy.derived(_items_of_gateways) for pattern in _patterns(item))


def _by_pattern(policy: Resource) -> Mapping[str, list[PolicyItem]]:
    items_of: dict[str, list[PolicyItem]] = {}
    for pattern, item in policy.derived(_items_by_pattern):
        items_of.setdefault(pattern, []).append(item)
    return items_of


def _patterns(item: PolicyItem) -> Iterable[str]:
    groups = groups_of(item.layer, recipe(item.shape))
    return dict.fromkeys("" if pattern == ANY_HOST else pattern.lower() for pattern in groups)


def patterns_of_listeners(hostnames: Collection[str], routes: RoutesByHost) -> Mapping[str, list[str]]:
    """The patterns that belong to each of some listeners: to the narrowest that covers them."""
    own: dict[str, list[str]] = {}
    for pattern in routes:
        owner = next((hostname for hostname in covering(pattern) if hostname in hostnames), None)
        if owner is not None:
            own.setdefault(owner, []).append(pattern)
    return own


def hosts_of_listener(hostname: str, patterns: Iterable[str], routes: RoutesByHost) -> Iterator[HostRoutes]:
    """The hostname of a listener, whether or not it has routes, and the patterns that belong to it."""
    for host in dict.fromkeys((hostname, *patterns)):
        yield HostRoutes(host, tuple(routes[pattern] for pattern in covering(host) if pattern in routes))


def listeners_alike(count: int, tables: Sequence[PolicyRules]) -> tuple[tuple[int, ...], ...]:
    """The indexes of the listeners that the same policies select, group by group."""
    chosen: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for kind, rules in enumerate(tables):
        for number, listeners in enumerate(rules.listener_sets):
            for index in listeners:
                chosen[index].append((kind, number))
    groups: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for index, by in enumerate(chosen):
        groups.setdefault(tuple(by), []).append(index)
    return tuple(map(tuple, groups.values()))
