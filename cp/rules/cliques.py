"""Groups of tag sets of which each can meet each other one: no tag has two values among them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from cp.rules.budget import StepBudget
from cp.rules.items import Tags

_Graph = Mapping[Tags, frozenset[Tags]]


def cliques(sets: Sequence[Tags], budget: StepBudget) -> Iterator[frozenset[Tags]]:
    """The largest groups, each once. The sets must be different ones. Raises `TooMuch`.

    Sets that ask for different services never meet: they are told apart first, so that the work grows with their number
    and not with its square.
    """
    key = _dividing(sets)
    if key is None:
        yield from _maximal(_graph(sets, budget), budget)
        return
    for group in _divided(sets, key):
        yield from cliques(group, budget) if len(group) < len(sets) else _maximal(_graph(group, budget), budget)


def _dividing(sets: Sequence[Tags]) -> str | None:
    """A tag that all sets but those for everybody have, with several values; None if there is none."""
    asking = [dict(tags) for tags in sets if tags]
    common = set(asking[0]).intersection(*asking) if asking else set()
    return next((key for key in sorted(common) if len({tags[key] for tags in asking}) > 1), None)


def _divided(sets: Sequence[Tags], key: str) -> Iterable[list[Tags]]:
    """The sets for each value of a tag, with those for everybody in each."""
    general = [tags for tags in sets if not tags]
    parts: dict[str, list[Tags]] = {}
    for tags in sets:
        if tags:
            parts.setdefault(dict(tags)[key], list(general)).append(tags)
    return parts.values()


def _graph(sets: Sequence[Tags], budget: StepBudget) -> _Graph:
    budget.spend(sum(map(len, sets)) * len(sets))
    return {one: frozenset(other for other in sets if other is not one and _meet(one, other)) for one in sets}


def _meet(one: Tags, other: Tags) -> bool:
    values = dict(one)
    return all(values.get(key, value) == value for key, value in other)


def _maximal(graph: _Graph, budget: StepBudget) -> Iterator[frozenset[Tags]]:
    """Bron and Kerbosch's algorithm, with pivots."""
    stack: list[tuple[frozenset[Tags], set[Tags], set[Tags]]] = [(frozenset(), set(graph), set())]
    while stack:
        clique, candidates, done = stack.pop()
        budget.spend(len(clique) + len(candidates) * (len(candidates) + len(done)))
        if not candidates and not done:
            yield clique
            continue
        for one in candidates - graph[_pivot(graph, candidates, done)] if candidates else ():
            stack.append((clique | {one}, candidates & graph[one], done & graph[one]))
            candidates = candidates - {one}
            done = done | {one}


def _pivot(graph: _Graph, candidates: Collection[Tags], done: Collection[Tags]) -> Tags:
    """The one that meets the most candidates: those need not be tried."""
    return max((*candidates, *done), key=lambda one: len(graph[one].intersection(candidates)))
