"""Memos: equal to working everything out again, with objects that stay the same for as long as they are equal."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeAlias
from weakref import ref

from hypothesis import given
from hypothesis import strategies as st

import cp
from cp.model.memo import ByIdentity, IdentityDict, Memo, SharingMemo

Facts: TypeAlias = Mapping[str, int]
"""A generation of data. A value is made of what a key says, without the last digit."""

GENERATIONS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abc"), st.integers(0, 39)),
        st.lists(st.sampled_from("abcd"), max_size=6),
    ),
    max_size=8,
)


class Tens(Memo[Facts, str, tuple[int, ...]]):
    worked_out = 0

    def basis(self, source: Facts, key: str) -> object:
        return source.get(key)

    def work_out(self, source: Facts, key: str) -> tuple[int, ...]:
        self.worked_out += 1
        return tens(source, key)


class SharedTens(SharingMemo[Facts, str, tuple[int, ...]]):
    def basis(self, source: Facts, key: str) -> object:
        return source.get(key)

    def work_out(self, source: Facts, key: str) -> tuple[int, ...]:
        return tens(source, key)


class Sums(Memo[Mapping[str, Facts], str, int]):
    """It shows what it is told of the generation before."""

    def basis(self, source: Mapping[str, Facts], key: str) -> object:
        return tuple(source[key].items())

    def work_out(self, source: Mapping[str, Facts], key: str) -> int:
        return sum(source[key].values()) + 1000 * (self.earlier(key) or 0)


def tens(facts: Facts, key: str) -> tuple[int, ...]:
    return (facts.get(key, 0) // 10,)


@given(GENERATIONS)
def test_a_memo_has_what_working_out_again_has(generations: list[tuple[Facts, list[str]]]) -> None:
    memo, shared = Tens({}), SharedTens({})
    for facts, keys in generations:
        memo, shared = Tens(facts, memo), SharedTens(facts, shared)
        for key in keys:
            assert memo.get(facts, key) == shared.get(facts, key) == tens(facts, key)


@given(GENERATIONS)
def test_an_equal_value_is_the_same_object_as_in_the_generation_before(
    generations: list[tuple[Facts, list[str]]],
) -> None:
    memo = Tens({})
    before: dict[str, tuple[int, ...]] = {}
    for facts, keys in generations:
        memo = Tens(facts, memo)
        values = {key: memo.get(facts, key) for key in keys}
        for key in values.keys() & before.keys():
            assert (values[key] is before[key]) == (values[key] == before[key])
        before = values


@given(GENERATIONS)
def test_a_sharing_memo_has_one_object_for_equal_values(generations: list[tuple[Facts, list[str]]]) -> None:
    memo = SharedTens({})
    before: list[tuple[int, ...]] = []
    for facts, keys in generations:
        memo = SharedTens(facts, memo)
        values = [memo.get(facts, key) for key in keys]
        for value in values:
            assert all(value is known for known in (*before, *values) if value == known)
        before = values


def test_a_value_is_worked_out_once_for_a_generation_and_again_only_if_its_basis_differs() -> None:
    facts = {"a": 10, "b": 10}
    first = Tens(facts)
    assert [first.get(facts, key) for key in "aab"] == [(1,)] * 3
    assert first.worked_out == 2

    changed = {"a": 10, "b": 20}
    second = Tens(changed, first)
    assert [second.get(changed, key) for key in "aab"] == [(1,), (1,), (2,)]
    assert second.worked_out == 1


def test_a_value_can_be_worked_out_from_the_one_before() -> None:
    first, second = {"a": {"x": 1}}, {"a": {"x": 2}}
    memo = Sums(first)
    assert memo.get(first, "a") == 1
    later = Sums(second, memo)
    assert (later.earlier("a"), later.earlier("b")) == (1, None)
    assert later.get(second, "a") == 1002


class Box:
    pass


class Boxes(Memo[Collection[str], str, Box]):
    def basis(self, source: Collection[str], key: str) -> object:  # nothing but the key
        return None

    def work_out(self, source: Collection[str], key: str) -> Box:  # nothing at all
        return Box()


class BoxesOfSource(Boxes):
    def is_alive(self, generation: Collection[str], key: str) -> bool:
        return key in generation


def test_an_entry_for_which_a_generation_does_not_ask_is_dropped_with_the_next() -> None:
    memo = Boxes("ab")
    box = ref(memo.get("ab", "a"))
    memo = Boxes("ab", memo)
    memo.get("ab", "b")
    assert box() is not None
    memo = Boxes("ab", memo)
    assert box() is None


def test_an_entry_is_kept_for_as_long_as_its_key_is_alive() -> None:
    memo = BoxesOfSource("ab")
    box = ref(memo.get("ab", "a"))
    for _ in range(5):
        memo = BoxesOfSource("ab", memo)
        memo.get("ab", "b")
    assert memo.get("ab", "a") is box()
    for _ in range(3):
        memo = BoxesOfSource("b", memo)
    assert box() is None


def test_a_memo_does_not_keep_its_source_alive() -> None:
    class Generation(dict[str, int]):
        pass

    facts = Generation(a=10)
    memo = Tens(facts)
    assert memo.get(facts, "a") == (1,)
    gone = ref(facts)
    del facts
    assert gone() is None


def test_keys_by_identity_tell_equal_objects_apart_and_keep_them_alive() -> None:
    class EqualBox:
        def __eq__(self, other: object) -> bool:
            return isinstance(other, EqualBox)

        __hash__ = None  # type: ignore[assignment]  # as dicts have none

    one, other = EqualBox(), EqualBox()
    values = {ByIdentity(one): 1, ("of", ByIdentity(other)): 2}
    assert one == other
    assert values[ByIdentity(one)] == 1
    assert values["of", ByIdentity(other)] == 2
    assert ByIdentity(other) not in values
    assert ByIdentity(one) != one

    alive = ref(one)
    del one
    assert alive() is not None
    values.clear()
    assert alive() is None


def test_a_dictionary_by_identity_tells_equal_keys_apart_and_keeps_them_alive() -> None:
    values = IdentityDict[list[int], str]()
    one, other = [1], [1]
    values.put(one, "one")
    values.put(other, "other")
    assert (values.get(one), values.get(other), values.get([1])) == ("one", "other", None)
    assert list(values.values()) == ["one", "other"]

    box = Box()
    boxes, alive = IdentityDict[Box, int](), ref(box)
    boxes.put(box, 1)
    del box
    assert alive() is not None
    del boxes
    assert alive() is None


LOCAL = {"merge.py", "tree.py"}
"""Their dictionaries by `id()` live no longer than one call, and nor do the objects."""


def test_nothing_that_is_kept_is_keyed_by_the_number_of_an_object() -> None:
    rooms = [Path(cp.__file__).parent / room for room in ("model", "resources", "rules", "translate")]
    sources = [path for room in rooms for path in room.rglob("*.py") if path.name not in LOCAL]

    assert [path.name for path in sources if re.search(r"\bid\(", path.read_text())] == ["memo.py"]


class Kept(Tens):
    """While it takes over from the memo before, threads that still ask that one add to it."""

    def is_alive(self, generation: tuple[Facts, Tens], key: str) -> bool:
        facts, asked = generation
        asked.get(facts, f"{key}{len(asked.entries)}")
        return key in facts


def test_a_memo_is_asked_while_the_next_but_one_takes_over() -> None:
    facts = {"a": 10, "b": 10}
    first = Tens(facts)
    values = [first.get(facts, key) for key in facts]
    third = Kept((facts, first), Tens(facts, first))

    assert [third.get(facts, key) for key in facts] == values
    assert third.worked_out == 0


class Interrupted(Boxes):
    """While it works out a value, another thread asks for the same."""

    seen: Box | None = None

    def work_out(self, source: Collection[str], key: str) -> Box:
        if self.seen is None:
            self.seen = Box()
            self.seen = self.get(source, key)
        return Box()


def test_threads_that_ask_for_a_value_at_once_get_the_same_object() -> None:
    memo = Interrupted("")
    assert memo.get("", "a") is memo.seen is memo.get("", "a")
