"""How the space of all tags is divided, so that each client or destination falls into a part.

See docs/concepts/rules-by-tags.md#how-tags-are-divided.

The parts, and their order, are Kuma's. They may be many: with each tag that items of one group ask for, a group has
twice as many. Where that would be too many, parts between which nothing differs are left together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Final, TypeAlias

from cp.rules.budget import StepBudget, TooManySteps
from cp.rules.cliques import cliques
from cp.rules.items import Tags

_MANY_TAGS: Final = 10
"""From here on a group is not divided by each tag."""

_MOST: Final = 10_000
_MOST_EACH: Final = 100
"""More parts than this, and this for each item, are not worked out: one policy shall not hold up all others."""

_MOST_WORK: Final = 2_000_000
"""Steps of dividing, each of some hundred nanoseconds."""


@dataclass(frozen=True, slots=True, order=True)
class TagCondition:
    """One tag that a rule asks for, or rules out."""

    key: str
    value: str
    is_not: bool = False


Part: TypeAlias = tuple[TagCondition, ...]


def parts(tagged: Sequence[Tags], *, negations: bool) -> tuple[Part, ...] | None:
    """Every part that items with these tags make, in Kuma's order; None if there are too many."""
    keys = {key for tags in tagged for key, _ in tags}
    if len(keys) <= 1 and not negations:
        return tuple(tuple(_asks(tags)) for tags in dict.fromkeys(tagged))
    most = _MOST + _MOST_EACH * len(tagged)
    budget = StepBudget(_MOST_WORK)
    try:
        groups = tuple(islice(cliques(list(dict.fromkeys(tagged)), budget), most + 1))
        if len(groups) > most:
            return None
        found = tuple(islice((one for group in _ordered(groups, tagged) for one in _divided(group, budget)), most + 1))
    except TooManySteps:
        return None
    return None if len(found) > most else found


def _asks(tags: Tags) -> Iterator[TagCondition]:
    return (TagCondition(key, value) for key, value in sorted(tags))


def _ordered(groups: Sequence[frozenset[Tags]], tagged: Sequence[Tags]) -> list[frozenset[Tags]]:
    """Kuma's order of groups: by the places of their items as texts, descending."""
    places: dict[Tags, list[int]] = {}
    for place, tags in enumerate(tagged):
        places.setdefault(tags, []).append(place)

    def text(group: frozenset[Tags]) -> str:
        return ":".join(map(str, sorted(place for tags in group for place in places[tags])))

    return sorted(groups, key=text, reverse=True)


def _divided(group: frozenset[Tags], budget: StepBudget) -> Iterator[Part]:
    """The parts of one group. Within it no key has two values."""
    tags = sorted(frozenset[tuple[str, str]]().union(*group))
    return _by_each(tags) if len(tags) < _MANY_TAGS else _where_it_matters(sorted(map(sorted, group)), budget)


def _by_each(tags: Sequence[tuple[str, str]]) -> Iterator[Part]:
    """Each tag asked for or ruled out, in every combination; the first key changes fastest.

    The combination that asks for all comes last: there the wheel turns over.
    """
    first, *rest = product((False, True), repeat=len(tags))
    for choice in (*rest, first):
        yield tuple(TagCondition(key, value, no) for (key, value), no in zip(tags, reversed(choice), strict=True))


def _where_it_matters(asking: list[list[tuple[str, str]]], budget: StepBudget) -> Iterator[Part]:
    """Divide by the next tag that some item still asks for. Who lacks it is no longer asked for that item's others.

    Items may ask for more tags than Python lets a function call itself, so what is left to divide is kept in a list.
    """
    left: list[tuple[Part, list[list[tuple[str, str]]]]] = [((), asking)]
    while left:
        part, asking = left.pop()
        budget.spend(len(part) + sum(map(len, asking)))
        tag = next((tags[0] for tags in asking if tags), None)
        if tag is None:
            yield part
            continue
        lacking = [tags for tags in asking if tag not in tags]
        having = [[one for one in tags if one != tag] for tags in asking]
        left += [((*part, TagCondition(*tag, is_not=True)), lacking), ((*part, TagCondition(*tag)), having)]
