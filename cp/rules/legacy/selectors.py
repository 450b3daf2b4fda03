"""Selectors of legacy policies: which tags they fit, and which of two is the more specific."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from cp.resources.dataplane import SERVICE_TAG
from cp.resources.resource import Resource

T = TypeVar("T")

ANY: Final = "*"


class Rank(NamedTuple):
    """How specific a selector is: first the number of its tags counts, then how many of them have a value."""

    tags: int = 0
    exact: int = 0

    def plus(self, other: Rank) -> Rank:
        return Rank(self.tags + other.tags, self.exact + other.exact)


NO_RANK: Final = Rank()


def selectors_of(data: Mapping[str, Any], side: str) -> list[Mapping[str, str]]:
    """The selectors in `sources`, `destinations` or `selectors`. An empty one fits everything."""
    return [selector.get("match") or {} for selector in data.get(side) or ()]


def rank(selector: Mapping[str, str]) -> Rank:
    return Rank(len(selector), sum(1 for value in selector.values() if value != ANY))


def fits(selector: Mapping[str, str], tags: Mapping[str, str]) -> bool:
    """Whether tags have all that a selector asks for; `*` asks for any value."""
    return all(name in tags and value in {tags[name], ANY} for name, value in selector.items())


def best_rank(selectors: Iterable[Mapping[str, str]], tag_sets: Iterable[Mapping[str, str]]) -> Rank | None:
    """The rank of the most specific selector that fits one of several sets of tags; None if none does."""
    known = list(tag_sets)
    fitting = (rank(selector) for selector in selectors if any(fits(selector, tags) for tags in known))
    return max(fitting, default=None)


def age(policy: Resource) -> str:
    """When a policy was made: of equals the newest holds. Of equally old ones it is the first by name, as in Kuma.

    They stand in the order of their names, and neither `max` nor `sorted` changes that.
    """
    return policy.source.created


def strongest(ranked: Iterable[tuple[Rank, str, T]]) -> T | None:
    """Of things with a rank and an age the one with the highest rank, and of equals the newest; None if there is none.

    Of equally old ones it is the first: they are given in the order of their names, as in Kuma.
    """
    return max(ranked, key=lambda entry: entry[:2], default=(NO_RANK, "", None))[2]


class ByService(Generic[T]):
    """What has selectors, by the services that these name, so that not everything is compared with a set of tags."""

    def __init__(self, entries: Iterable[tuple[T, Iterable[Mapping[str, str]]]]) -> None:
        self._by_service: dict[str, list[tuple[int, T]]] = {}
        for place, (entry, selectors) in enumerate(entries):
            for service in dict.fromkeys(selector.get(SERVICE_TAG, ANY) for selector in selectors):
                self._by_service.setdefault(service, []).append((place, entry))

    def candidates(self, services: Iterable[str]) -> tuple[T, ...]:
        """What can be for one of some services, in the order of all: no other selector fits their tags."""
        placed = dict(entry for service in {ANY, *services} for entry in self._by_service.get(service, ()))
        return tuple(placed[place] for place in sorted(placed))
