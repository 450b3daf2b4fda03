"""Warnings about what still works and should be written in another way, shared by many policies."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cp.model.violation import Violation, at
from cp.resources.kinds import DocumentMeta
from cp.resources.spec import PolicySpec
from cp.resources.targets import GATEWAY, HTTP_ROUTE, misspelt_tags

_BY_LABELS = frozenset({"MeshSubset", "MeshService", "MeshServiceSubset"})


def top_kind(spec: PolicySpec) -> Iterator[Violation]:
    """Warnings about the old kinds of target at the top of a policy."""
    kind = spec.top.kind
    if kind in _BY_LABELS:
        hint = "choose proxies with the kind Dataplane, by `labels`"
        yield Violation("spec.targetRef.kind", f"the kind {kind} is deprecated here", hint)
    if kind == HTTP_ROUTE:
        hint = f"write the {HTTP_ROUTE} in `to[].targetRef`, and what it held under `to` as that item's `default`"
        yield Violation("spec.targetRef.kind", f"the kind {kind} is deprecated here", hint)
    if kind in {"MeshSubset", "MeshServiceSubset", GATEWAY}:
        yield from at("spec.targetRef.tags", misspelt_tags(spec.top.tags))


def several_destinations(spec: PolicySpec) -> Iterator[Violation]:
    """The warning about a route with several items in `to` (document 000, record 0024)."""
    if len(spec.items("to")) > 1:
        yield Violation("spec.to", "more than one item is deprecated in a route", "write a route for each destination")


def from_list(spec: PolicySpec, hint: str = "write its items as `rules`, without `targetRef`") -> Iterator[Violation]:
    """Warnings about `from`, which selects clients by tags. `rules` select them by identity."""
    if spec.items("from"):
        yield Violation("spec.from", "is deprecated", hint)
    for index, item in enumerate(spec.items("from")):
        yield from at(f"spec.from[{index}].targetRef.tags", misspelt_tags(item.target_ref.tags))


_DNS_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def dns_name(meta: DocumentMeta) -> Iterator[Violation]:
    """The warning about a name that cannot be part of a host name."""
    if _DNS_NAME.fullmatch(meta.display_name) is None:
        hint = "begin with a letter, use lower case letters, digits and `-`, 63 at most"
        yield Violation("name", f"`{meta.display_name}` as the name of a {meta.type} is deprecated", hint)
