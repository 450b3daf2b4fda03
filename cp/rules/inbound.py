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
    """One item with one of its matches: it is for the connections that match, or for all where there is no match."""

    item: PolicyItem
    match: Mapping[str, Any] | None
    combined: CombinedConf

    @property
    def origin(self) -> Origin:
        return self.item.origin


class InboundRules:
    """The rules of one inbound. Those with a match come first, the most specific of them in front."""

    def __init__(self, policies: Iterable[Resource], cache: MergeCache) -> None:
        self._cache = cache
        self._items = _ordered(policies)

    @remembered
    def rules(self) -> tuple[InboundRule, ...]:
        inbound_rules = [
            InboundRule(item, match, self._cache.combine((item,)))
            for item in self._items
            for match in item.matches or (None,)
        ]
        return tuple(sorted(inbound_rules, key=lambda rule: specificity(rule.match)))

    @remembered
    def for_all(self) -> CombinedConf | None:
        """What holds for every connection: the items without matches, merged."""
        general_items = tuple(item for item in self._items if not item.matches)
        return self._cache.combine(general_items) if general_items else None

    @property
    def with_matches(self) -> Sequence[InboundRule]:
        """The rules with a match, the most specific first."""
        return [rule for rule in self.rules if rule.match is not None]


def specificity(match: Mapping[str, Any] | None) -> tuple[int, int, int]:
    """The sort key of a match: by client identity first, exact before prefix; then by server name; then none."""
    spiffe = (match or {}).get("spiffeID")
    exact = spiffe is not None and spiffe.get("type") != "Prefix"
    return (0 if spiffe is not None else 1, 0 if exact else 1, 0 if (match or {}).get("sni") is not None else 1)


def _ordered(policies: Iterable[Resource]) -> list[PolicyItem]:
    """The items from the weakest policy to the strongest, those of one policy in their order."""
    strength = sorted(policies, key=_strength, reverse=True)
    return [item for policy in strength for item in items(policy).rules]


def _strength(policy: Resource) -> Strength:
    return (*attributes(policy, top_of(policy)), role(policy), *names(policy))
