"""Rules by tags: for clients (`from`), and for destinations that are only known by `kuma.io/service`.

See docs/concepts/rules-by-tags.md.

The space of all tags is divided into parts (`partition`), and each part that some item is for has a rule. The list of
rules is Kuma's, in Kuma's order, and the first rule that fits counts. Confs are merged when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cp.model.remembered import remembered
from cp.resources.dataplane import SERVICE_TAG
from cp.rules.combined import CombinedConf, MergeCache
from cp.rules.items import PolicyItem, Tags
from cp.rules.partition import Part, TagCondition, parts

MATCHES_TAG: Final = "__rule-matches-hash__"
"""Stands for the matches of a route among tags, for policies that name the route at their top level."""


@dataclass(frozen=True, slots=True)
class TaggedItem:
    """An item with the tags that a client or destination needs for it."""

    item: PolicyItem
    tags: Tags


class SubsetRule:
    """What holds for every client or destination whose tags fit the conditions."""

    def __init__(self, matchers: tuple[TagCondition, ...], items: tuple[PolicyItem, ...], cache: MergeCache) -> None:
        self.matchers = matchers
        self._items = items
        self._cache = cache

    @remembered
    def combined(self) -> CombinedConf:
        return self._cache.combine(self._items)

    def fits(self, tags: Mapping[str, str]) -> bool:
        return fits(self.matchers, tags)


def fits(matchers: Sequence[TagCondition], tags: Mapping[str, str]) -> bool:
    """Whether tags meet all conditions. A client or destination without tags fits only a rule without conditions."""
    if not tags:
        return not matchers
    return all((tags.get(condition.key) == condition.value) is not condition.is_not for condition in matchers)


class SubsetRules:
    """A list of rules, of which the first that fits counts."""

    def __init__(self, tagged: Sequence[TaggedItem], cache: MergeCache, *, negations: bool) -> None:
        self.tagged = tagged
        """The items themselves, from the weakest to the strongest.

        A policy that can say "these clients, except those" reads them in place of the rules.
        """

        self._cache = cache
        self._negations = negations
        self._rule_by_part: dict[Part, SubsetRule | None] = {}
        """The rules that were asked for; None for a part that no item is for."""

    def of(self, tags: Mapping[str, str]) -> SubsetRule | None:
        """The rule for a client or destination with these tags."""
        service = tags.get(SERVICE_TAG, "")
        if self._only_services:
            is_named = bool(service) and (SERVICE_TAG, service) in self._item_indexes
            return self._rule((TagCondition(SERVICE_TAG, service),) if is_named else ())
        # A rule that fits asks for this service or for none, so no others need to be looked at.
        candidates = (self._rule_indexes.get(name, ()) for name in dict.fromkeys((service, "")))
        fitting = (next((index for index in indexes if self.rules[index].fits(tags)), None) for indexes in candidates)
        first = min((index for index in fitting if index is not None), default=None)
        return None if first is None else self.rules[first]

    @remembered
    def rules(self) -> tuple[SubsetRule, ...]:
        """All rules. Those that ask for the most tags come first; equals stay in the order of the parts."""
        rules = [rule for part in self._parts or () if (rule := self._rule(part)) is not None]
        return tuple(sorted(rules, key=lambda rule: -_specificity(rule.matchers)))

    @property
    def has_too_many_parts(self) -> bool:
        """Whether the items make more parts than `partition` allows: then there are no rules at all."""
        return self._parts is None

    @remembered
    def _parts(self) -> tuple[Part, ...] | None:
        return parts([tagged.tags for tagged in self.tagged], negations=self._negations)

    @remembered
    def _only_services(self) -> bool:
        """Whether items ask for services only: then the rule of one service can be made without the other rules."""
        return not self._negations and all(key == SERVICE_TAG for tagged in self.tagged for key, _ in tagged.tags)

    def _rule(self, part: Part) -> SubsetRule | None:
        if part not in self._rule_by_part:
            required = _required(part)
            items = tuple(tagged.item for tagged in self._candidates(required) if tagged.tags <= required)
            self._rule_by_part[part] = SubsetRule(part, items, self._cache) if items else None
        return self._rule_by_part[part]

    def _candidates(self, required: Tags) -> Iterable[TaggedItem]:
        """The items that can be for these tags, in their order: those indexed by one of the tags or by none."""
        indexes = [index for tag in (None, *required) for index in self._item_indexes.get(tag, ())]
        return (self.tagged[index] for index in sorted(indexes))

    @remembered
    def _item_indexes(self) -> Mapping[tuple[str, str] | None, list[int]]:
        """The indexes of items, each under one of its tags; an item without tags under None.

        One tag is enough, because an item is for nobody who lacks it. The service is taken where an item asks for
        one: services are many, so few items are under each.
        """
        indexes: dict[tuple[str, str] | None, list[int]] = {}
        for index, tagged in enumerate(self.tagged):
            service = next((tag for tag in tagged.tags if tag[0] == SERVICE_TAG), None)
            indexes.setdefault(service or min(tagged.tags, default=None), []).append(index)
        return indexes

    @remembered
    def _rule_indexes(self) -> Mapping[str, list[int]]:
        """The indexes of rules by the service that they ask for, empty for none."""
        indexes: dict[str, list[int]] = {}
        for index, rule in enumerate(self.rules):
            asked_for = (condition for condition in rule.matchers if not condition.is_not)
            services = (condition.value for condition in asked_for if condition.key == SERVICE_TAG)
            indexes.setdefault(next(services, ""), []).append(index)
        return indexes


def _specificity(matchers: Sequence[TagCondition]) -> int:
    """The number of tags that the conditions ask for."""
    return sum(1 for condition in matchers if not condition.is_not)


def _required(matchers: Sequence[TagCondition]) -> Tags:
    """The tags that the conditions ask for, without those that they rule out."""
    return frozenset((condition.key, condition.value) for condition in matchers if not condition.is_not)
