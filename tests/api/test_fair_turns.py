"""Preflights take turns, and neither one caller nor one mesh can keep the others out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cp.api.fair_turns import MOST_OF_MESH, FairTurns, MeshBusy

Queued = tuple[str, Sequence[str]]


def order_of(turns: FairTurns, queued: Sequence[Queued]) -> list[int]:
    """Queue all at once, and return the order in which they have their turns."""
    stacks = {place: ExitStack() for place in range(len(queued))}
    begun = {place: stacks[place].enter_context(turns.queued(*each)) for place, each in enumerate(queued)}
    return list(_ended(stacks, begun))


def _ended(stacks: dict[int, ExitStack], begun: dict[int, asyncio.Event]) -> Iterator[int]:
    while begun:
        (place,) = [place for place, event in begun.items() if event.is_set()]
        del begun[place]
        stacks[place].close()
        yield place


@pytest.mark.parametrize(
    "greedy",
    [
        [("eve", ["a"])] * 6,
        [("eve", [f"m{number}"]) for number in range(6)],
        [(f"eve-{number}", ["a"]) for number in range(6)],
        [("victim", ["a"])] * 6,
    ],
    ids=["one-caller-and-mesh", "one-caller", "one-mesh", "same-caller-in-another-mesh"],
)
def test_newcomer_has_the_next_turn(greedy: list[Queued]) -> None:
    assert order_of(FairTurns(), [*greedy, ("victim", ["b"])])[1] == len(greedy)


def test_turns_are_equal_in_the_long_run() -> None:
    queued = [("eve", ["a"])] * 6 + [("ann", ["b"])] * 3

    assert order_of(FairTurns(), queued) == [0, 6, 1, 7, 2, 8, 3, 4, 5]


def test_past_turns_count_for_one_turn() -> None:
    turns = FairTurns()
    order_of(turns, [("ann", ["a"])] * 8)

    assert order_of(turns, [("x", ["x"]), ("ann", ["a"]), ("eve", ["b"]), ("eve", ["b"])]) == [0, 2, 1, 3]
    assert len(turns._rounds) <= 4


def test_mesh_waits_for_so_many_turns() -> None:
    turns = FairTurns()
    with ExitStack() as stack:
        for number in range(MOST_OF_MESH):
            stack.enter_context(turns.queued(f"user {number}", ["a"]))
        with pytest.raises(MeshBusy, match="8 preflights of mesh a are under way"):
            stack.enter_context(turns.queued("ann", ["b", "a"]))
        stack.enter_context(turns.queued("ann", ["b"]))
    assert turns.waiting == 0
    with turns.queued("ann", ["a"]) as turn:
        assert turn.is_set()


def test_leaver_frees_its_place_at_once() -> None:
    turns = FairTurns()
    with turns.queued("ann", ["a"]):
        with turns.queued("eve", ["b"]):
            assert turns.waiting == 1
        assert turns.waiting == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["ann", "eve"]), st.lists(st.sampled_from("abcdef"), unique=True, max_size=2)),
        max_size=8,
    )
)
def test_everybody_has_a_turn(queued: list[Queued]) -> None:
    assert sorted(order_of(FairTurns(), queued)) == list(range(len(queued)))
