"""What the checker of histories calls right and wrong: each fault that a store can have is one that it finds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from random import Random
from typing import Any

import pytest

from tests.linear.checker import faults
from tests.linear.history import ABSENT, GONE, LogEntry, Operation, Outcome, Sighting

Span = tuple[float, float]


def write(span: Span, value: str, revision: int | None = None, name: str = "a", **more: Any) -> Operation:
    return writes(span, {name: value}, revision, **more)


def writes(
    span: Span, values: dict[str, str], revision: int | None = None, outcome: Outcome = Outcome.DONE, **more: Any
) -> Operation:
    return Operation("w", *span, outcome, values, revision, **more)


def cut(span: Span, value: str, name: str = "a") -> Operation:
    """A write whose client was not answered."""
    return writes((span[0], math.inf), {name: value}, outcome=Outcome.UNCERTAIN)


def read(span: Span, **values: str) -> Operation:
    saw = {name: Sighting(value) if value else GONE for name, value in values.items()}
    return Operation("r", *span, Outcome.DONE, saw=saw)


def log(*values: str, name: str = "a") -> list[LogEntry]:
    """A write for each value."""
    return [LogEntry(revision, name, value) for revision, value in enumerate(values, 1)]


ONE, TWO = write((0, 1), "one", 1), write((2, 3), "two", 2)
REFUSED = Outcome.REFUSED


GOOD: dict[str, tuple[Sequence[Operation], Sequence[LogEntry]]] = {
    "nothing happened": ([], []),
    "one after the other": ([ONE, read((1, 2), a="one"), TWO, read((3, 4), a="two")], log("one", "two")),
    "who reads during a write sees either": (
        [ONE, TWO, read((2, 3), a="one"), read((2, 3), a="two")],
        log("one", "two"),
    ),
    "at once, in the order of revisions": (
        [write((0, 9), "one", 2), write((0, 9), "two", 1), read((9, 10), a="one")],
        log("two", "one"),
    ),
    "unanswered, and made late": (
        [ONE, cut((1, 2), "late"), read((5, 6), a="one"), read((7, 8), a="late")],
        log("one", "late"),
    ),
    "unanswered, and never made": ([ONE, cut((1, 2), "lost"), read((5, 6), a="one")], log("one")),
    "unanswered, and deleted": (
        [ONE, cut((1, 2), ""), read((3, 4), a="one"), read((5, 6), a="")],
        log("one", ""),
    ),
    "a refusal, and nothing of it": ([ONE, write((1, 2), "no", outcome=REFUSED), read((3, 4), a="one")], log("one")),
    "a conflict tells what was there": (
        [ONE, TWO, write((2, 4), "no", outcome=REFUSED, saw={"a": Sighting(revision=2)})],
        log("one", "two"),
    ),
    "based on what was there": ([ONE, write((2, 3), "two", 2, based_on=1)], log("one", "two")),
    "created, deleted and created": (
        [
            write((0, 1), "one", 1, based_on=ABSENT),
            write((1, 2), "", 2),
            read((1, 3), a=""),
            write((2, 3), "two", 3, based_on=ABSENT),
        ],
        log("one", "", "two"),
    ),
    "two deletions at once, of which one had nothing to do": (
        [ONE, write((1, 4), "", 2), write((1, 4), "", 2), read((4, 5), a="")],
        log("one", ""),
    ),
    "two documents in one write": (
        [writes((0, 2), {"a": "one", "b": "one"}, 1), read((0, 2), a="", b=""), read((0, 2), a="one", b="one")],
        [LogEntry(1, "a", "one"), LogEntry(1, "b", "one")],
    ),
    "somebody else's revision": ([write((0, 1), "one", 2)], [LogEntry(1, "other", "x"), LogEntry(2, "a", "one")]),
}


BAD: dict[str, tuple[Sequence[Operation], Sequence[LogEntry], str]] = {
    "a stale read": ([ONE, TWO, read((4, 5), a="one")], log("one", "two"), "was answered before"),
    "a read that goes back": (
        [ONE, cut((2, 3), "two"), read((4, 5), a="two"), read((6, 7), a="one")],
        log("one", "two"),
        "was seen before",
    ),
    "a read from the future": ([read((0, 1), a="one"), write((2, 3), "one", 1)], log("one"), "was seen before"),
    "revisions against the clock": (
        [write((0, 1), "one", 2), write((2, 3), "two", 1)],
        log("two", "one"),
        "was answered before",
    ),
    "revisions of two documents against the clock": (
        [write((0, 1), "one", 2), write((2, 3), "two", 1, name="b")],
        [LogEntry(1, "b", "two"), LogEntry(2, "a", "one")],
        "was answered before",
    ),
    "an answered write is lost": ([ONE, TWO], log("one"), "it was answered with 2, and is in the log at []"),
    "an answered deletion is lost": ([ONE, write((2, 3), "", 1)], log("one"), "nothing of the kind ever was"),
    "a refused write was made": ([write((0, 1), "no", outcome=REFUSED)], log("no"), "has what was refused"),
    "a write made twice": ([ONE, TWO, cut((1, 2), "again")], log("one", "again", "two", "again"), "made at each of"),
    "answered with another revision": ([write((0, 1), "one", 2)], log("one"), "it was answered with 2"),
    "what nobody wrote": ([ONE], log("one", "else"), "nobody wrote it"),
    "what nobody deleted": ([ONE], log("one", ""), "nobody wrote it"),
    "what was never there was seen": ([ONE, read((1, 2), a="else")], log("one"), "nothing of the kind ever was"),
    "an update is lost": (
        [ONE, write((2, 4), "two", 2, based_on=1), write((2, 4), "three", 3, based_on=1)],
        log("one", "two", "three"),
        "needed a at 1, and it was at 2",
    ),
    "created twice": (
        [write((0, 4), "one", 1, based_on=ABSENT), write((0, 4), "two", 2, based_on=ABSENT)],
        log("one", "two"),
        "needed a at 0, and it was at 1",
    ),
    "a conflict with what was gone long since": (
        [ONE, TWO, write((4, 5), "no", outcome=REFUSED, saw={"a": Sighting(revision=1)})],
        log("one", "two"),
        "was answered before",
    ),
    "half of a write": ([writes((0, 1), {"a": "one", "b": "one"}, 1)], log("one"), "and not what was written"),
    "half of a write is seen": (
        [writes((0, 4), {"a": "one", "b": "one"}, 1), read((0, 4), a="one", b="")],
        [LogEntry(1, "a", "one"), LogEntry(1, "b", "one")],
        "nothing of the kind ever was",
    ),
    "a gap": ([ONE], [LogEntry(1, "a", "one"), LogEntry(3, "other", "x")], "nothing at revision 2"),
    "gone for one who comes after its creation": ([ONE, read((2, 3), a="")], log("one"), "was answered before"),
    "a value and a revision that do not belong together": (
        [ONE, TWO, Operation("r", 2, 3, Outcome.DONE, saw={"a": Sighting("one", 2)})],
        log("one", "two"),
        "nothing of the kind ever was",
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_is_passed(name: str) -> None:
    history, told = GOOD[name]

    assert faults(history, told) == []


@pytest.mark.parametrize("name", GOOD)
def test_nothing_depends_on_who_is_asked_first(name: str) -> None:
    history, told = GOOD[name]

    assert not any(faults(shuffled, told) for shuffled in permutations(history))


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_found_out(name: str) -> None:
    history, told, reason = BAD[name]

    found = faults(history, told)

    assert any(reason in fault for fault in found), found


@pytest.mark.parametrize("seed", range(20))
def test_what_happened_at_one_moment_each_is_passed(seed: int) -> None:
    assert faults(*run_of_a_right_store(Random(seed), 200)) == []


def test_it_says_of_small_histories_what_trying_every_order_says() -> None:
    """Right ones, and such in which two clients have one another's times, of which some are right too."""
    chance, verdicts = Random(1), list[bool]()
    for _ in range(600):
        history, told = run_of_a_right_store(chance, 5)
        history = with_times_swapped(history, chance)

        verdict = faults(history, told) == []

        assert verdict == any(explains(order, told) for order in orders(history)), (history, told)
        verdicts.append(verdict)
    assert 100 < sum(verdicts) < 500


def run_of_a_right_store(chance: Random, length: int) -> tuple[list[Operation], list[LogEntry]]:
    """Each operation happens at one moment, at which it is known what there is."""
    held: dict[str, Sighting] = {}
    history, told = list[Operation](), list[LogEntry]()
    for moment in range(1, length + 1):
        span = moment - chance.expovariate(1), moment + chance.expovariate(1)
        name = chance.choice("ab")
        if chance.random() < 0.4:
            history.append(Operation("r", *span, Outcome.DONE, saw={name: held.get(name, GONE)}))
            continue
        value = "" if chance.random() < 0.3 else f"{moment}"
        if value or held.get(name, GONE) != GONE:
            told.append(LogEntry(len(told) + 1, name, value))
        held[name] = Sighting(value, len(told)) if value else GONE
        history.append(write(span, value, len(told), name) if chance.random() < 0.8 else cut(span, value, name))
    return history, told


def with_times_swapped(history: Sequence[Operation], chance: Random) -> list[Operation]:
    """The same with the times of two operations that were answered exchanged."""
    swapped = list(history)
    places = [place for place, operation in enumerate(history) if operation.is_over]
    if len(places) > 1:
        one, other = chance.sample(places, 2)
        swapped[one] = replace(history[one], began=history[other].began, ended=history[other].ended)
        swapped[other] = replace(history[other], began=history[one].began, ended=history[one].ended)
    return swapped


def orders(history: Sequence[Operation]) -> Iterator[Sequence[Operation]]:
    """Every order of what was done and of some of what is uncertain, in which nobody is before who had ended before."""
    certain = [operation for operation in history if operation.is_over]
    uncertain = [operation for operation in history if not operation.is_over]
    for count in range(len(uncertain) + 1):
        for some in combinations(uncertain, count):
            for order in permutations([*certain, *some]):
                if not any(later.ended < earlier.began for earlier, later in combinations(order, 2)):
                    yield order


def explains(order: Sequence[Operation], told: Sequence[LogEntry]) -> bool:
    """Whether a store that does one operation after the other answers all of this, and has this log."""
    held: dict[str, Sighting] = {}
    made = list[LogEntry]()
    for operation in order:
        for name, value in operation.writes.items():
            if value or held.get(name, GONE) != GONE:
                made.append(LogEntry(len(made) + 1, name, value))
            held[name] = Sighting(value, len(made)) if value else GONE
        if operation.writes and operation.outcome is Outcome.DONE and operation.revision != len(made):
            return False
        if any(held.get(name, GONE) != sighting for name, sighting in operation.saw.items()):
            return False
    return made == list(told)
