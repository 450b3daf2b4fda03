"""Dependencies by name: what is kept over a change is what none of its names concerns."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from cp.model.dependency import EVERYTHING, ChangeScope, DependentValues, Name

NAMES = st.tuples(st.sampled_from(["MeshService", "kuma.io/service"]), st.sampled_from("abc"))
SCOPES = st.builds(ChangeScope, st.frozensets(NAMES, max_size=2), st.sampled_from([False, False, False, True]))
KEYS = range(6)
NAMES_OF_KEYS = st.lists(st.frozensets(NAMES, max_size=3), min_size=len(KEYS), max_size=len(KEYS))
GENERATIONS = st.lists(st.tuples(st.lists(st.sampled_from(KEYS), max_size=6), SCOPES), max_size=6)


@given(NAMES_OF_KEYS, GENERATIONS)
def test_a_change_takes_away_exactly_the_values_that_it_concerns(
    names: list[frozenset[Name]], generations: list[tuple[list[int], ChangeScope]]
) -> None:
    values = DependentValues[int, object]()
    expected: dict[int, object] = {}
    for keys, scope in generations:
        for key in set(keys) - expected.keys():
            expected[key] = object()
            values.put(key, expected[key], names[key])
        before, values = values, values.after(scope)
        assert {key: before.get(key) for key in expected} == expected
        expected = {key: value for key, value in expected.items() if not scope.concerns(names[key])}
        assert [values.get(key) for key in KEYS] == [expected.get(key) for key in KEYS]


@given(SCOPES, SCOPES, st.frozensets(NAMES))
def test_two_changes_concern_whom_either_concerns(
    scope: ChangeScope, other: ChangeScope, names: frozenset[Name]
) -> None:
    assert (scope | other).concerns(names) == (scope.concerns(names) or other.concerns(names))
    assert bool(scope | other) == (bool(scope) or bool(other))


def test_a_change_of_everything_concerns_what_depends_on_nothing() -> None:
    assert EVERYTHING.concerns(frozenset())
    assert not ChangeScope(frozenset({("MeshService", "a")})).concerns(frozenset())


def test_a_value_that_is_put_while_a_change_is_looked_at_is_not_kept_over_it() -> None:
    values = DependentValues[str, str]()
    name = ("MeshService", "a")
    kept: list[DependentValues[str, str]] = []

    def names_while_a_change_is_looked_at() -> Iterator[Name]:
        kept.append(values.after(ChangeScope(frozenset([name]))))  # as another thread does
        yield name
        kept.append(values.after(ChangeScope(frozenset([name]))))

    values.put("key", "value", names_while_a_change_is_looked_at())

    assert [after.get("key") for after in kept] == [None, None]
    assert values.get("key") == "value"


def test_values_are_put_while_those_of_a_name_are_left_out() -> None:
    values = DependentValues[object, str]()
    name = ("MeshService", "a")

    class Key:
        """Whoever looks it up is interrupted by a thread that puts another value."""

        is_watched = False

        def __hash__(self) -> int:
            if self.is_watched:
                values.put(object(), "later", [name])
            return 1

    keys = [Key(), Key()]
    for key in keys:
        values.put(key, "value", [name])
    Key.is_watched = True

    kept = values.after(ChangeScope(frozenset([name])))
    Key.is_watched = False
    assert [kept.get(key) for key in keys] == [None, None]
