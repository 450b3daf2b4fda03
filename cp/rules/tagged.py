"""`to` items by tags: for destinations that are known by `kuma.io/service`, with the routes of old.

See docs/concepts/rules-by-tags.md#which-items.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cp.resources.dataplane import SERVICE_TAG
from cp.resources.resource import Resource
from cp.resources.targets import HTTP_ROUTE, ROUTE_KINDS
from cp.resources.world import Table
from cp.rules.items import PolicyItem, Tags, items, tags_of
from cp.rules.matches import matches_hash
from cp.rules.matching import routes_at_top, top_of
from cp.rules.subsets import MATCHES_TAG, TaggedItem


def by_tags(policy_items: Iterable[PolicyItem]) -> Iterator[TaggedItem]:
    """The items whose targets choose by tags, each with its tags."""
    for item in policy_items:
        tags = tags_of(item)
        if tags is not None:
            yield TaggedItem(item.for_whole or item, tags)  # a tag means a service as a whole


def to_by_tags(routes: Table, policy: Resource) -> Iterator[TaggedItem]:
    """The `to` items of one policy, for destinations by tags.

    A policy that names routes in `to` is for real destinations altogether (docs/concepts/rules-by-tags.md#which-items).
    """
    if top_of(policy).kind == HTTP_ROUTE:
        for route in routes_at_top(routes, policy):
            yield from _of_route(route, policy)
    elif not any(item.target.kind in ROUTE_KINDS for item in items(policy).to):
        yield from by_tags(items(policy).to)


def _of_route(route: Resource, policy: Resource) -> Iterator[TaggedItem]:
    """A policy that names a route at its top level: its items, for the matches of that route's rules.

    See docs/concepts/rules-by-tags.md#policies-that-name-a-route.
    """
    for to in route.data.get("to") or ():
        for rule in to.get("rules") or ():
            tags = frozenset({*_destination(to), (MATCHES_TAG, matches_hash(rule.get("matches") or ()))})
            yield from (TaggedItem(item, tags) for item in items(policy).to)


def _destination(to: Mapping[str, Any]) -> Tags:
    target = to.get("targetRef") or {}
    return (
        frozenset()
        if target.get("kind") in {"Mesh", "MeshSubset"}
        else frozenset({(SERVICE_TAG, target.get("name") or "")})
    )
