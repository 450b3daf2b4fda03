"""Rules by tags: for clients (`from`), and for destinations that are only known by `kuma.io/service`.

See docs/concepts/rules-by-tags.md.

Kuma divides the space of all tags so that each client or destination falls into one part, by combining the tags of
items that can meet. The list that comes of it is the same here, in the same order; confs are merged on demand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cp.model.remembered import remembered
from cp.rules.combined import CombinedConf, MergeCache
from cp.rules.items import SERVICE_TAG, PolicyItem, Tags
from cp.rules.partition import Part, TagCondition, parts

MATCHES_TAG: Final = "__rule-matches-hash__"
"""Stands for the matches of a route among tags, for policies that name the route at their top level."""


@dataclass(frozen=True, slots=True)
class TaggedItem:
    """An item with the tags of those it is for."""

    item: PolicyItem
    tags: Tags


class SubsetRule:
    """What holds for all whose tags fit."""

    def __init__(self, matchers: tuple[TagCondition, ...], items: tuple[PolicyItem, ...], shelf: MergeCache) -> None:
        self.matchers = matchers
        self._items = items
        self._shelf = shelf

    @remembered
    def combined(self) -> CombinedConf:
        return self._shelf.combine(self._items)

    def fits(self, tags: Mapping[str, str]) -> bool:
        return fits(self.matchers, tags)


def fits(matchers: Sequence[TagCondition], tags: Mapping[str, str]) -> bool:
    """Whether a client or destination with these tags is meant. Without any tag, it is only by a rule for all."""
    if not tags:
        return not matchers
    return all((tags.get(one.key) == one.value) is not one.is_not for one in matchers)


class SubsetRules:
    """A list of rules of which the first that fits is taken."""

    def __init__(self, tagged: Sequence[TaggedItem], shelf: MergeCache, *, negations: bool) -> None:
        self.tagged = tagged
        """The items themselves, from the weakest to the strongest: for who has a way to say "this, but not that"."""

        self._shelf = shelf
        self._negations = negations
        self._made: dict[tuple[TagCondition, ...], SubsetRule | None] = {}

    def of(self, tags: Mapping[str, str]) -> SubsetRule | None:
        service = tags.get(SERVICE_TAG, "")
        if self._only_services:
            named = bool(service) and (SERVICE_TAG, service) in self._places
            return self._rule((TagCondition(SERVICE_TAG, service),) if named else ())
        places = (self._by_service.get(wanted, ()) for wanted in dict.fromkeys((service, "")))
        first = (next((place for place in some if self.rules[place].fits(tags)), None) for some in places)
        found = min((place for place in first if place is not None), default=None)
        return None if found is None else self.rules[found]

    @remembered
    def rules(self) -> tuple[SubsetRule, ...]:
        """All rules, those that ask for the most tags first."""
        found = [rule for part in self._parts or () if (rule := self._rule(part)) is not None]
        return tuple(sorted(found, key=lambda rule: -_asked(rule.matchers)))

    @property
    def is_too_much(self) -> bool:
        """Whether the items tell apart more sorts of clients than can be told apart: then there are no rules at all."""
        return self._parts is None

    @remembered
    def _parts(self) -> tuple[Part, ...] | None:
        return parts([one.tags for one in self.tagged], negations=self._negations)

    @remembered
    def _only_services(self) -> bool:
        """Whether nothing but services is told apart: then the rule of one can be had without all others."""
        return not self._negations and all(key == SERVICE_TAG for one in self.tagged for key, _ in one.tags)

    def _rule(self, matchers: tuple[TagCondition, ...]) -> SubsetRule | None:
        if matchers not in self._made:
            wanted = frozenset((one.key, one.value) for one in matchers if not one.is_not)
            items = tuple(one.item for one in self._candidates(wanted) if one.tags <= wanted)
            self._made[matchers] = SubsetRule(matchers, items, self._shelf) if items else None
        return self._made[matchers]

    def _candidates(self, wanted: Tags) -> Iterable[TaggedItem]:
        """The items that can be for those tags, in their order: those for one of them and those for everybody."""
        places = [place for tag in (None, *wanted) for place in self._places.get(tag, ())]
        return (self.tagged[place] for place in sorted(places))

    @remembered
    def _places(self) -> Mapping[tuple[str, str] | None, list[int]]:
        """The places of items by one of their tags, the service if they have it: who lacks that is not meant."""
        found: dict[tuple[str, str] | None, list[int]] = {}
        for place, one in enumerate(self.tagged):
            service = next((tag for tag in one.tags if tag[0] == SERVICE_TAG), None)
            found.setdefault(service or min(one.tags, default=None), []).append(place)
        return found

    @remembered
    def _by_service(self) -> Mapping[str, list[int]]:
        """The places of rules that ask for a service, by the service; of the others under the empty one."""
        found: dict[str, list[int]] = {}
        for place, rule in enumerate(self.rules):
            asked = (one.value for one in rule.matchers if one.key == SERVICE_TAG and not one.is_not)
            found.setdefault(next(asked, ""), []).append(place)
        return found


def _asked(matchers: Sequence[TagCondition]) -> int:
    return sum(1 for one in matchers if not one.is_not)
