"""How the space of all tags is divided into parts, so that each client or destination falls into one.

See docs/concepts/rules-by-tags.md#how-tags-are-divided.

A part is a list of conditions on tags. Kuma's parts are taken over, in Kuma's order (`BuildRules` in its
`pkg/plugins/policies/core/rules`), because where several parts fit, the first one counts.

Their number is bounded in three ways:

- Only tag sets that can meet are combined (`cliques`), not all of them.
- A group of few tags has one part for each combination, 2^n for n tags. A group of many tags is divided only where some
  item still asks for a tag, so parts between which nothing differs stay together.
- What is still too much is given up: the number of parts and the steps of the computation each have a limit.
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
"""A group with this number of distinct tags, or more, is divided only where it matters."""

_MOST_PARTS: Final = 10_000
_MOST_PARTS_PER_ITEM: Final = 100
"""The limit of parts is both together. Past it there are no rules at all: one policy must not hold up all others."""

_MOST_STEPS: Final = 2_000_000
"""The budget of one division. A step takes some hundred nanoseconds."""


@dataclass(frozen=True, slots=True, order=True)
class TagCondition:
    """A tag value that a rule asks for or, with `is_not`, rules out."""

    key: str
    value: str
    is_not: bool = False


Part: TypeAlias = tuple[TagCondition, ...]


def parts(tag_sets: Sequence[Tags], *, negations: bool) -> tuple[Part, ...] | None:
    """Every part that items with these tags make, in Kuma's order; None if there are too many.

    `negations` is for clients, who must fall into one part each, so that parts have to rule tags out. Destinations
    need no such parts as long as the items ask for one tag key only, such as `kuma.io/service`.
    """
    keys = {key for tags in tag_sets for key, _ in tags}
    if len(keys) <= 1 and not negations:
        return tuple(tuple(_conditions(tags)) for tags in dict.fromkeys(tag_sets))
    most = _MOST_PARTS + _MOST_PARTS_PER_ITEM * len(tag_sets)
    budget = StepBudget(_MOST_STEPS)
    try:
        # Groups have to be sorted, so all of them are needed before the first part. `islice` stops one past the limit.
        groups = tuple(islice(cliques(list(dict.fromkeys(tag_sets)), budget), most + 1))
        if len(groups) > most:
            return None
        divided = (part for group in _ordered(groups, tag_sets) for part in _divided(group, budget))
        all_parts = tuple(islice(divided, most + 1))
    except TooManySteps:
        return None
    return None if len(all_parts) > most else all_parts


def _conditions(tags: Tags) -> Iterator[TagCondition]:
    return (TagCondition(key, value) for key, value in sorted(tags))


def _ordered(groups: Sequence[frozenset[Tags]], tag_sets: Sequence[Tags]) -> list[frozenset[Tags]]:
    """Kuma's order of groups: descending by the indexes of their items, compared as one text such as `0:10:2`."""
    indexes: dict[Tags, list[int]] = {}
    for index, tags in enumerate(tag_sets):
        indexes.setdefault(tags, []).append(index)

    def text(group: frozenset[Tags]) -> str:
        return ":".join(map(str, sorted(index for tags in group for index in indexes[tags])))

    return sorted(groups, key=text, reverse=True)


def _divided(group: frozenset[Tags], budget: StepBudget) -> Iterator[Part]:
    """The parts of one group, in which no key has two values."""
    tags = sorted(frozenset[tuple[str, str]]().union(*group))
    return (
        _by_every_combination(tags) if len(tags) < _MANY_TAGS else _where_it_matters(sorted(map(sorted, group)), budget)
    )


def _by_every_combination(tags: Sequence[tuple[str, str]]) -> Iterator[Part]:
    """Each tag asked for or ruled out, in every combination; the first key changes fastest.

    Kuma counts up from 1, so the combination 0, which asks for every tag, comes last.
    """
    asks_for_all, *combinations = product((False, True), repeat=len(tags))
    for ruled_out in (*combinations, asks_for_all):
        # `product` changes its last element fastest.
        conditions = zip(tags, reversed(ruled_out), strict=True)
        yield tuple(TagCondition(key, value, is_not) for (key, value), is_not in conditions)


def _where_it_matters(asking: list[list[tuple[str, str]]], budget: StepBudget) -> Iterator[Part]:
    """Divide by the next tag that some item still asks for, until no item asks for any.

    A client that lacks the tag cannot be meant by that item, so in its part the item's other tags are not asked for.
    `asking` has the tags of each item of the group that are not decided yet. Items may have more tags than Python
    allows nested calls, so a stack takes the place of recursion.
    """
    undivided: list[tuple[Part, list[list[tuple[str, str]]]]] = [((), asking)]
    while undivided:
        part, asking = undivided.pop()
        budget.spend(len(part) + sum(map(len, asking)))
        tag = next((tags[0] for tags in asking if tags), None)
        if tag is None:
            yield part
            continue
        lacking = [tags for tags in asking if tag not in tags]
        having = [[pair for pair in tags if pair != tag] for tags in asking]
        undivided += [((*part, TagCondition(*tag, is_not=True)), lacking), ((*part, TagCondition(*tag)), having)]
