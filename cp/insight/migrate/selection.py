"""Which legacy policy holds, as a list of choices in one order: the strongest that fits is the one that holds.

A legacy policy holds for a proxy by the best of its selectors. Written with a pair of selectors each, policies of one
kind are a list in which nothing has to be compared but the place: ranks add up, so the best of all pairs is the pair of
the best (record 0076).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from cp.resources.dataplane import SERVICE_TAG
from cp.resources.resource import Resource
from cp.rules.legacy.selectors import ANY, Rank, age, rank, selectors_of

T = TypeVar("T")

Tags: TypeAlias = tuple[tuple[str, str], ...]
"""The tags that a proxy or one of its inbounds has to have, sorted."""

Strength: TypeAlias = tuple[Rank, str]
"""The rank of a choice, and the age of its policy. Of equally strong ones the first by name holds."""

_Place: TypeAlias = tuple[Strength, int]

ALL: Final = "*"
MOST: Final = 10_000
"""The most choices of a kind that are written: each becomes a policy, or several items."""

MOST_ITEMS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Choice:
    """A legacy policy, by one pair of its selectors."""

    policy: Resource
    tags: Tags
    """Those of the proxies, or of the inbounds, for which it is."""

    service: str
    """The service for which it is; `*` is every service."""

    rank: Rank

    @property
    def strength(self) -> Strength:
        return self.rank, age(self.policy)


class TooManyPolicies(Exception):
    """What legacy policies come to is more than anybody can look through."""


def tags_of(selector: Mapping[str, str], carried: Sequence[Mapping[str, str]]) -> Iterator[Tags]:
    """The sets of tags that fit a selector: for tags with `*` one set for each of their values that are carried.

    Everything in a mesh has a service, so any service is no condition.
    """
    fixed = {name: value for name, value in selector.items() if value != ANY}
    names = open_names(selector)
    values = {tuple(tags[name] for name in names) for tags in carried if all(name in tags for name in names)}
    for chosen in sorted(values) if names else [()]:
        yield tuple(sorted({**fixed, **dict(zip(names, chosen, strict=True))}.items()))


def open_names(selector: Mapping[str, str]) -> list[str]:
    """The tags of a selector that need any value."""
    return [name for name, value in selector.items() if value == ANY and name != SERVICE_TAG]


def bounded(items: Iterable[T], most: int) -> Iterator[T]:
    """The same, up to a number. Raises `TooManyPolicies` behind that."""
    for number, item in enumerate(items):
        if number == most:
            raise TooManyPolicies
        yield item


def outbound_choices(policies: Iterable[Resource], carried: Sequence[Mapping[str, str]]) -> tuple[Choice, ...]:
    """The choices of policies for what proxies call."""
    choices = (
        Choice(policy, tags, destination.get(SERVICE_TAG, ALL), _sum(source, destination))
        for policy in policies
        for source in selectors_of(policy.data, "sources")
        for destination in selectors_of(policy.data, "destinations")
        if not destination.keys() - {SERVICE_TAG}
        for tags in tags_of(source, carried)
    )
    return tuple(bounded(choices, MOST))


def _sum(source: Mapping[str, str], destination: Mapping[str, str]) -> Rank:
    return rank(source).plus(rank(destination))


def choices_by(policies: Iterable[Resource], field: str, carried: Sequence[Mapping[str, str]]) -> tuple[Choice, ...]:
    """The choices of policies for proxies or inbounds that one field selects. Without selectors all are meant."""
    choices = (
        Choice(policy, tags, ALL, rank(selector))
        for policy in policies
        for selector in selectors_of(policy.data, field) or [{}]
        for tags in tags_of(selector, carried)
    )
    return tuple(bounded(choices, MOST))


class Contest:
    """Choices of which one holds for a service, of a proxy of which nothing is known but that it has some tags.

    They are found by one of their tags: few choices can be for a proxy, however many there are.
    """

    def __init__(self, choices: Sequence[Choice]) -> None:
        self._best: dict[Tags, dict[str, tuple[_Place, Choice]]] = {}
        for number, choice in enumerate(choices):
            # Choices stand in the order of the names of their policies, and of equals the first holds.
            entry = ((choice.strength, -number), choice)
            of_tags = self._best.setdefault(choice.tags, {})
            of_tags[choice.service] = max(of_tags.get(choice.service, entry), entry, key=lambda ranked: ranked[0])
        often = Counter(tag for tags in self._best for tag in tags)
        self._by_tag: dict[tuple[str, str] | None, list[Tags]] = {}
        for tags in self._best:
            rarest = min(tags, key=lambda tag: (often[tag], tag), default=None)
            self._by_tag.setdefault(rarest, []).append(tags)

    @property
    def tags(self) -> list[Tags]:
        """The sets of tags for which there are choices."""
        return sorted(self._best)

    def services(self, tags: Tags) -> AbstractSet[str]:
        """The services for which there are choices with just these tags."""
        return self._best[tags].keys()

    def weaker(self, tags: Tags) -> list[Tags]:
        """The sets of tags of choices for all that has these tags, themselves among them."""
        known = frozenset(tags)
        return [of for tag in (None, *tags) for of in self._by_tag.get(tag, ()) if known.issuperset(of)]

    def winner(self, tags: Tags, service: str = ALL) -> Choice | None:
        fitting = (
            self._best[of][name] for of in self.weaker(tags) for name in {ALL, service} if name in self._best[of]
        )
        return max(fitting, key=lambda ranked: ranked[0], default=(None, None))[1]
