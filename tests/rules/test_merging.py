"""Merging: RFC 7386 over confs in order, and what is remembered of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cp.model.names import Identity, Key
from cp.model.paths import step
from cp.model.source import read_documents
from cp.rules.combined import MergeCache
from cp.rules.merging import Layer, MergedConf, MergeOptions, Origin, Setting, merge, merge_groups, overlay

Conf = dict[str, Any]

SCALARS = (
    st.integers(0, 3) | st.booleans() | st.sampled_from(["", "x", "15s"]) | st.lists(st.integers(0, 2), max_size=2)
)
NAMES = st.sampled_from(["a", "b", "c"])


def confs(*, nulls: bool = True) -> st.SearchStrategy[Conf]:
    leaves = SCALARS | st.none() if nulls else SCALARS
    inner = st.dictionaries(NAMES, leaves, max_size=3)
    return st.dictionaries(NAMES, leaves | inner | st.dictionaries(NAMES, leaves | inner, max_size=2), max_size=3)


def shaped() -> st.SearchStrategy[Conf]:
    """Confs of one schema: what is an object in one is an object in all."""
    inner = st.dictionaries(NAMES, SCALARS, max_size=3)
    return st.fixed_dictionaries({}, optional={"a": SCALARS, "b": SCALARS, "http": inner, "tcp": inner})


def layer(conf: Conf, name: str = "p", **origin: Any) -> Layer:
    key = Key("MeshTimeout", "default", name)
    return Layer(conf, Origin(key, Identity(*(key.type, key.mesh, key.name)), "to", **origin), "spec.to[0].default")


def layers(given: Sequence[Conf]) -> list[Layer]:
    return [layer(conf, f"p{index}", index=index) for index, conf in enumerate(given)]


def merged(*given: Conf) -> Mapping[str, Any]:
    return merge(layers(given)).value


def says_nothing(value: Any) -> bool:
    """Whether it is an object with nothing but nulls in it."""
    return isinstance(value, dict) and bool(value) and all(one is None or says_nothing(one) for one in value.values())


def patched(target: Any, patch: Any) -> Any:
    """RFC 7386, section 2, but that an object of nulls makes no object."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif not says_nothing(value) or isinstance(target.get(name), dict):
            target[name] = patched(target.get(name), value)
    return target


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Every leaf of plain data by its path; an empty object is one, but not the whole."""
    if not isinstance(value, dict) or (not value and path):
        return {path: value}
    return {at: leaf for name, inner in value.items() for at, leaf in leaves(inner, step(path, name)).items()}


def said_by(conf: MergedConf, path: str) -> tuple[str, list[str]]:
    field = conf.fields[path]
    return field.winner.origin.policy.name, [one.origin.policy.name for one in field.losers]


def test_the_worked_example_of_the_documentation() -> None:
    first = {"conf": 1, "sub": {"array": [1, 2, 3], "other": 50, "other-array": [3, 4, 5]}}
    second = {"sub": {"array": [], "other": None, "other-array": [5, 6], "extra": 2}}

    assert merged(first, second) == {"conf": 1, "sub": {"array": [], "other-array": [5, 6], "extra": 2}}


@given(st.lists(confs(), max_size=4))
def test_a_merge_is_rfc_7396_but_for_objects_of_nulls(some: list[Conf]) -> None:
    wanted: Any = {}
    for conf in some:
        wanted = patched(wanted, conf)

    assert merged(*some) == wanted


@given(st.lists(confs(), max_size=3), confs())
def test_merging_the_same_conf_twice_changes_nothing(before: list[Conf], conf: Conf) -> None:
    assert merged(*before, conf, conf) == merged(*before, conf)


@given(shaped(), shaped(), shaped())
def test_without_nulls_the_grouping_of_confs_does_not_matter(a: Conf, b: Conf, c: Conf) -> None:
    assert merged(a, dict(merged(b, c))) == merged(a, b, c)


def test_with_a_null_the_grouping_matters_so_no_partial_merge_may_be_kept() -> None:
    a, b, c = {"x": {"y": 1}}, {"x": {"y": None}}, {"x": {"z": 2}}

    assert merged(a, b, c) == {"x": {"z": 2}}
    assert merged(a, dict(merged(b, c))) == {"x": {"y": 1, "z": 2}}


@given(st.lists(confs(), max_size=4))
def test_the_winner_of_every_leaf_has_its_value(some: list[Conf]) -> None:
    conf = merge(layers(some))

    assert {path: field.value for path, field in conf.fields.items()} == leaves(conf.value)


@given(st.lists(confs(), max_size=4))
def test_the_winner_wrote_the_value_there(some: list[Conf]) -> None:
    for path, field in merge(layers(some)).fields.items():
        written = leaves(some[field.winner.origin.index])
        assert field.value == {} or written[path] == field.value


def test_losers_come_the_strongest_first() -> None:
    conf = merge(layers([{"a": 1}, {"a": 2}, {"b": 0}, {"a": 3}]))

    assert said_by(conf, "a") == ("p3", ["p1", "p0"])


def test_a_null_that_removes_a_value_is_remembered() -> None:
    conf = merge(layers([{"http": {"requestTimeout": "1s"}}, {"http": {"requestTimeout": None}}]))
    (field,) = conf.removed.values()

    assert conf.value == {"http": {}}
    assert field.path == "http.requestTimeout"
    assert (field.winner.origin.policy.name, [one.value for one in field.losers]) == ("p1", ["1s"])


def test_a_null_for_a_whole_object_takes_away_each_of_its_fields() -> None:
    conf = merge(layers([{"http": {"a": 1, "b": 2}}, {"http": None}]))

    assert conf.value == {}
    assert sorted(conf.removed) == ["http.a", "http.b"]


def test_a_value_set_after_a_null_remembers_the_values_before_it() -> None:
    conf = merge(layers([{"http": {"a": 1}}, {"http": None}, {"http": {"a": 3}}]))

    field = conf.fields["http.a"]
    assert conf.value == {"http": {"a": 3}}
    assert [(one.value, removed_by(one)) for one in field.losers] == [(1, "p1")]
    assert [(one.null.origin.policy.name, len(one.removed)) for one in field.removals] == [("p1", 1)]


def removed_by(setting: Setting) -> str:
    return "" if setting.removed_by is None else setting.removed_by.origin.policy.name


def test_a_null_for_nothing_takes_nothing_away() -> None:
    conf = merge(layers([{"a": None}]))

    assert (conf.value, dict(conf.removed)) == ({}, {})
    assert [one.removed for one in conf.nulls["a"].removals] == [()]


def test_an_object_of_nulls_is_no_object() -> None:
    assert merged({"http": {"retryOn": None}}) == {}
    assert merged({"http": {"backOff": {"baseInterval": None}}}) == {}
    assert merged({"http": {}}) == {"http": {}}


LEVELS: Final = ("mesh", "service", "section", "route")


def by_level(some: Sequence[tuple[str, Conf]]) -> MergedConf:
    """Items in the order of merging, each with its level."""
    return merge([layer(conf, f"p{index}", index=index, level=level) for index, (level, conf) in enumerate(some)])


NULLS: Final[dict[str, tuple[list[tuple[str, Any]], Any]]] = {
    "a section's uncovers the service's": ([("service", 3), ("section", 4), ("section", None)], 3),
    "a section's for nothing leaves the service's": ([("service", 3), ("section", None)], 3),
    "a service's uncovers the mesh's": ([("mesh", 1), ("service", 3), ("service", None)], 1),
    "a service's for nothing leaves the mesh's": ([("mesh", 1), ("service", None)], 1),
    "a service's takes a weaker section's away": ([("mesh", 1), ("section", 4), ("service", None)], 1),
    "the mesh's takes everything weaker away": ([("mesh", 1), ("service", 3), ("section", 4), ("mesh", None)], None),
    "of two sections the stronger value stands": ([("section", None), ("section", 4)], 4),
    "a stronger mesh item beats a section's": ([("section", 4), ("mesh", 1)], 1),
    "and uncovers it with nothing": ([("section", 4), ("mesh", 1), ("mesh", None)], None),
    "a section's null does not reach a stronger service's": ([("section", 4), ("section", None), ("service", 3)], 3),
}
"""Items from the weakest to the strongest, and the result (docs/concepts/matching-and-merging.md#what-is-merged)."""


@pytest.mark.parametrize("name", NULLS)
def test_a_null_uncovers_what_the_next_wider_level_says(name: str) -> None:
    some, expected = NULLS[name]
    conf = by_level([(level, {"http": {"requestTimeout": value}}) for level, value in some])

    assert (conf.value.get("http") or {}).get("requestTimeout") == expected


def levelled(some: Sequence[tuple[str, Conf]]) -> dict[str, Any]:
    """What holds of each leaf, told one by one: its writes in turn, of which nulls strike those of their reach."""
    values: dict[str, list[tuple[int, Any]]] = {}
    for level, conf in some:
        reach = LEVELS.index(level)
        for path, value in leaves(conf).items():
            if value is not None and not isinstance(value, dict):
                values.setdefault(path, []).append((reach, value))
            for struck in [at for at in values if value is None and f"{at}.".startswith(f"{path}.")]:
                values[struck] = [one for one in values[struck] if one[0] < reach]
    return {path: left[-1][1] for path, left in values.items() if left}


def shaped_with_nulls() -> st.SearchStrategy[Conf]:
    """As `shaped`, with nulls in the place of values and of objects."""
    inner = st.dictionaries(NAMES, SCALARS | st.none(), max_size=3) | st.none()
    return st.fixed_dictionaries({}, optional={"a": SCALARS | st.none(), "http": inner, "tcp": inner})


@given(st.lists(st.tuples(st.sampled_from(LEVELS), shaped_with_nulls()), max_size=6))
def test_nulls_of_several_levels_merge_leaf_by_leaf_as_documented(some: list[tuple[str, Conf]]) -> None:
    found = leaves(by_level(some).value)

    assert {path: value for path, value in found.items() if not isinstance(value, dict)} == levelled(some)


@given(st.lists(st.tuples(st.sampled_from(LEVELS), shaped_with_nulls()), max_size=6))
def test_whatever_does_not_hold_is_told_with_who_took_it_away_or_who_is_stronger(some: list[tuple[str, Conf]]) -> None:
    conf = by_level(some)

    for field in (*conf.fields.values(), *conf.removed.values()):
        taken = {(one.origin.index, by.null.origin.index) for by in field.removals for one in by.removed}
        assert {(one.origin.index, one.removed_by.origin.index) for one in field.losers if one.removed_by} == taken
        assert field.value is not None or all(one.removed_by for one in field.losers)


def test_an_empty_object_that_somebody_wrote_is_a_value() -> None:
    conf = merge(layers([{"detectors": {"totalFailures": {}}}]))

    assert said_by(conf, "detectors.totalFailures") == ("p0", [])


@pytest.mark.parametrize("value", [0, "0s", False, "", []])
def test_a_value_that_looks_like_nothing_overrides(value: Any) -> None:
    assert merged({"a": 1}, {"a": value}) == {"a": value}


def test_lists_whose_name_starts_with_append_are_appended_to() -> None:
    conf = merge(layers([{"appendMatch": [1, 2]}, {"appendMatch": None}, {"appendMatch": [3]}]))

    assert conf.value == {"appendMatch": [1, 2, 3]}
    assert said_by(conf, "appendMatch[2]") == ("p2", [])


ROUTES = MergeOptions(by_key={"rules": "matches"})


def rule(path: str, **default: Any) -> Conf:
    return {"matches": [{"path": {"type": "Exact", "value": path}}], "default": default}


def test_entries_with_equal_keys_are_merged_in_the_place_of_the_last() -> None:
    some = [{"rules": [rule("/a", x=1), rule("/b", x=1)]}, {"rules": [rule("/a", y=2)]}]

    assert merge(layers(some), ROUTES).value == {"rules": [rule("/b", x=1), rule("/a", x=1, y=2)]}


def test_the_order_of_fields_in_a_key_does_not_matter() -> None:
    one, other = {"matches": [{"a": 1, "b": 2}]}, {"matches": [{"b": 2, "a": 1}]}

    assert len(merge(layers([{"rules": [one]}, {"rules": [other]}]), ROUTES).value["rules"]) == 1


def test_an_entry_belongs_to_the_strongest_who_wrote_its_key() -> None:
    some = [{"rules": [rule("/a", x=1)]}, {"rules": [rule("/a")]}]
    (entry,) = merge(layers(some), ROUTES).entries("rules")

    assert (entry.owner.policy.name, [one.policy.name for one in entry.origins]) == ("p1", ["p0", "p1"])


def test_fields_of_entries_are_found_by_their_final_place() -> None:
    recipe = MergeOptions(by_key={"rules": "matches"}, finish=lambda value: {**value, "rules": value["rules"][::-1]})
    conf = merge(layers([{"rules": [rule("/a", x=1), rule("/b", x=2)]}]), recipe)

    assert conf.fields["rules[0].default.x"].value == conf.value["rules"][0]["default"]["x"] == 2
    assert [entry.path for entry in conf.entries("rules")] == ["rules[0]", "rules[1]"]


def test_a_setting_knows_where_it_stands_in_the_document() -> None:
    text = "type: MeshTimeout\nname: x\nspec:\n  to:\n  - default:\n\n      http:\n        requestTimeout: 1s\n"
    source = read_documents(text, "timeouts.yaml").documents[0].source
    conf = merge([layer({"http": {"requestTimeout": "1s"}}, source=source)])
    setting = conf.fields["http.requestTimeout"].winner

    assert (setting.path, setting.origin.file, setting.line) == (
        "spec.to[0].default.http.requestTimeout",
        "timeouts.yaml",
        8,
    )


def test_confs_are_merged_separately_for_each_group() -> None:
    some: list[Conf] = [{"hosts": ["a", "b"], "x": 1}, {"hosts": ["b"], "y": 2}, {"z": 3}]
    found = merge_groups(layers(some), MergeOptions(group_by="hosts"))

    assert [one.value for one in found] == [
        {"hosts": ["a"], "x": 1},
        {"hosts": ["b"], "x": 1, "y": 2},
        {"z": 3},
    ]


@given(confs(nulls=False), confs(nulls=False))
def test_an_overlay_is_a_merge_of_levels(general: Conf, specific: Conf) -> None:
    below, above = merge([layer(general, "below")]), merge([layer(specific, "above")])

    assert overlay([below, above]).value == patched(below.value, above.value)


@given(st.lists(st.lists(confs(), max_size=2), max_size=3))
def test_every_leaf_of_an_overlay_has_a_winner_and_it_is_the_value(levels: list[list[Conf]]) -> None:
    conf = overlay([merge(layers(some)) for some in levels])

    assert {path: field.value for path, field in conf.fields.items()} == leaves(conf.value)


def test_an_overlay_remembers_the_levels_below() -> None:
    below = merge([layer({"a": 1}, "mesh", level="mesh"), layer({"a": 2}, "service", level="service")])
    above = merge([layer({"a": 3}, "weak", level="route"), layer({"a": 4}, "strong", level="route")])
    field = overlay([below, above]).fields["a"]

    assert [(one.origin.level, one.value) for one in (field.winner, *field.losers)] == [
        ("route", 4),
        ("route", 3),
        ("service", 2),
        ("mesh", 1),
    ]


def test_what_a_null_took_away_on_one_level_the_level_below_says() -> None:
    below = merge([layer({"http": {"requestTimeout": "10s"}}, "service")])
    above = merge(layers([{"http": {"requestTimeout": "1s"}}, {"http": {"requestTimeout": None}}]))

    assert overlay([below, above]).value == {"http": {"requestTimeout": "10s"}}


def test_no_layers_come_to_nothing() -> None:
    assert (merge([]).value, dict(merge([]).fields)) == ({}, {})


def test_equal_values_have_equal_canonical_forms() -> None:
    assert merge(layers([{"a": 1}, {"b": 2}])).canonical == merge(layers([{"b": 2}, {"a": 1}])).canonical


def test_merge_cache_merges_a_group_once_for_each_text() -> None:
    cache = MergeCache()
    first, same, other = (cache.combine_group(text, ()) for text in ("a.example", "a.example", "b.example"))

    assert first is same
    assert first is not other
    assert cache.merged == 2
