"""Groups of tag sets that can all meet: in a group, no tag has two different values.

Tag sets are the nodes of a graph, and two of them are joined if one client or destination could carry both. A group is
a maximal clique of that graph, as in Kuma: only sets of one group are combined with each other, because a combination
of sets from different groups would ask for one tag with two values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from cp.rules.budget import StepBudget
from cp.rules.items import Tags

_Graph = Mapping[Tags, frozenset[Tags]]
"""For each tag set, the sets that it can meet."""


def cliques(tag_sets: Sequence[Tags], budget: StepBudget) -> Iterator[frozenset[Tags]]:
    """The maximal groups, each once. No tag set may occur twice. Raises `TooManySteps`.

    Building the graph compares every set with every other. But sets that ask for different services never meet, so the
    sets are first divided by such a tag: the work then grows with the number of services and not with its square.
    Each division leaves smaller groups, because the tag has several values.
    """
    key = _dividing_key(tag_sets)
    if key is None:
        yield from _maximal(_graph(tag_sets, budget), budget)
        return
    for group in _divided(tag_sets, key):
        yield from cliques(group, budget)


def _dividing_key(tag_sets: Sequence[Tags]) -> str | None:
    """A tag that every set but the empty one asks for, with more than one value among them; None if there is none."""
    tags_by_key = [dict(tags) for tags in tag_sets if tags]
    common = set(tags_by_key[0]).intersection(*tags_by_key) if tags_by_key else set()
    return next((key for key in sorted(common) if len({tags[key] for tags in tags_by_key}) > 1), None)


def _divided(tag_sets: Sequence[Tags], key: str) -> Iterable[list[Tags]]:
    """The sets for each value of a tag. The empty set, which meets every other, is in each group."""
    empty = [tags for tags in tag_sets if not tags]
    groups: dict[str, list[Tags]] = {}
    for tags in tag_sets:
        if tags:
            groups.setdefault(dict(tags)[key], list(empty)).append(tags)
    return groups.values()


def _graph(tag_sets: Sequence[Tags], budget: StepBudget) -> _Graph:
    budget.spend(sum(map(len, tag_sets)) * len(tag_sets))
    return {
        tags: frozenset(neighbour for neighbour in tag_sets if neighbour is not tags and _can_meet(tags, neighbour))
        for tags in tag_sets
    }


def _can_meet(tags: Tags, neighbour: Tags) -> bool:
    values = dict(tags)
    return all(values.get(key, value) == value for key, value in neighbour)


def _maximal(graph: _Graph, budget: StepBudget) -> Iterator[frozenset[Tags]]:
    """The maximal cliques of a graph, by the algorithm of Bron and Kerbosch with pivots.

    A graph of n nodes can have 3^(n/3) of them, so nothing but the budget bounds the work. An explicit stack takes the
    place of recursion, which would be as deep as the largest clique.
    """
    # Each entry is a clique, the nodes that can still join it, and the nodes whose cliques have all been found already.
    stack: list[tuple[frozenset[Tags], set[Tags], set[Tags]]] = [(frozenset(), set(graph), set())]
    while stack:
        clique, candidates, done = stack.pop()
        # About as many steps as choosing a pivot and intersecting the sets below take.
        budget.spend(len(clique) + len(candidates) * (len(candidates) + len(done)))
        if not candidates and not done:
            yield clique  # no node can join it; were `done` not empty, a larger clique would have been found before
            continue
        # A maximal clique contains the pivot or a node that is no neighbour of it: its neighbours need no try here.
        for node in candidates - graph[_pivot(graph, candidates, done)] if candidates else ():
            stack.append((clique | {node}, candidates & graph[node], done & graph[node]))
            candidates = candidates - {node}
            done = done | {node}


def _pivot(graph: _Graph, candidates: Collection[Tags], done: Collection[Tags]) -> Tags:
    """The node with the most neighbours among the candidates, so that the fewest candidates are left to try."""
    return max((*candidates, *done), key=lambda node: len(graph[node].intersection(candidates)))
