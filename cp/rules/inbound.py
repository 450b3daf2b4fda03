"""What holds on an inbound: `rules` with their matches, and `from` where it means the same.

See docs/concepts/matching-and-merging.md#which-clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cp.model.remembered import remembered
from cp.resources.resource import Resource
from cp.rules.combined import CombinedConf, MergeCache
from cp.rules.items import PolicyItem, items
from cp.rules.matching import top_of
from cp.rules.matching.order import Strength, attributes, names, role
from cp.rules.merging import Origin


@dataclass(frozen=True, slots=True, eq=False)
class InboundRule:
    """One item, for the connections of one of its matches; for all where it has none."""

    item: PolicyItem
    match: Mapping[str, Any] | None
    combined: CombinedConf

    @property
    def origin(self) -> Origin:
        return self.item.origin


class InboundRules:
    """The rules of one inbound: those with matches first, the most specific in front; then those for everybody."""

    def __init__(self, policies: Iterable[Resource], shelf: MergeCache) -> None:
        self._shelf = shelf
        self._items = _ordered(policies)

    @remembered
    def rules(self) -> tuple[InboundRule, ...]:
        found = [
            InboundRule(item, match, self._shelf.combine((item,)))
            for item in self._items
            for match in item.matches or (None,)
        ]
        return tuple(sorted(found, key=lambda rule: specificity(rule.match)))

    @remembered
    def for_all(self) -> CombinedConf | None:
        """What holds for every connection: all rules without matches, merged."""
        found = tuple(item for item in self._items if not item.matches)
        return self._shelf.combine(found) if found else None

    @property
    def for_some(self) -> Sequence[InboundRule]:
        """The rules with a match, the most specific first."""
        return [rule for rule in self.rules if rule.match is not None]


def specificity(match: Mapping[str, Any] | None) -> tuple[int, int, int]:
    """A match by client identity comes first, an exact one before a prefix; then one by server name."""
    spiffe = (match or {}).get("spiffeID")
    exact = spiffe is not None and spiffe.get("type") != "Prefix"
    return (0 if spiffe is not None else 1, 0 if exact else 1, 0 if (match or {}).get("sni") is not None else 1)


def _ordered(policies: Iterable[Resource]) -> list[PolicyItem]:
    """From the weakest to the strongest; items of one policy in their order."""
    strength = sorted(policies, key=_strength, reverse=True)
    return [item for policy in strength for item in items(policy).rules]


def _strength(policy: Resource) -> Strength:
    return (*attributes(policy, top_of(policy)), role(policy), *names(policy))
