"""Rules by tags: how the space of tags is divided, and which rule is taken."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cp.rules import SubsetRules, TagCondition, fits, matches_hash
from cp.rules.budget import StepBudget
from cp.rules.cliques import cliques
from tests.rules.texts import MESH, WHOLE_MESH, Data, hr, ms, policy, proxy, route, service, subset, text, timeout
from tests.rules.worlds import rules_of, world_of

ACTIONS = ("Allow", "Deny", "AllowWithShadowDeny")


def permission(name: str, *items: tuple[Data, str], **rest: Any) -> Data:
    found = [{"targetRef": target, "default": {"action": action}} for target, action in items]
    return policy("MeshTrafficPermission", name, from_=found, **rest)


def from_rules(*items: tuple[Data, str]) -> SubsetRules:
    world = world_of(text(MESH, proxy(), permission("p", *items)))
    return rules_of(world, "MeshTrafficPermission").from_(0)


def shown(rules: SubsetRules) -> list[str]:
    return [f"{matchers(rule.matchers)}: {rule.combined.conf.value['action']}" for rule in rules.rules]


def matchers(found: tuple[TagCondition, ...]) -> str:
    return " ".join(f"{one.key}{'!=' if one.is_not else '='}{one.value}" for one in found) or "all"


def action(rules: SubsetRules, **tags: str) -> str | None:
    found = rules.of({name.replace("_", "/"): value for name, value in tags.items()})
    return None if found is None else str(found.combined.conf.value["action"])


def test_clients_are_divided_so_that_each_falls_into_one_part() -> None:
    assert shown(from_rules((WHOLE_MESH, "Deny"), (subset(env="dev"), "Allow"))) == ["env=dev: Allow", "env!=dev: Deny"]


def test_parts_for_which_nothing_is_said_have_no_rule() -> None:
    assert shown(from_rules((subset(env="dev"), "Allow"))) == ["env=dev: Allow"]


def test_a_later_item_wins_where_both_hold() -> None:
    rules = from_rules((subset(env="dev"), "Allow"), (subset(zone="east"), "Deny"))

    assert action(rules, env="dev", zone="east") == "Deny"
    assert action(rules, env="dev", zone="west") == "Allow"
    assert action(rules, env="dev") == "Allow"
    assert action(rules, env="prod") is None


def tag_sets() -> st.SearchStrategy[Data]:
    tags = st.dictionaries(st.sampled_from(["env", "zone", "team"]), st.sampled_from(["1", "2"]), max_size=2)
    return tags.map(lambda found: subset(**found) if found else WHOLE_MESH)


@given(st.lists(st.tuples(tag_sets(), st.sampled_from(ACTIONS)), min_size=1, max_size=4))
def test_whoever_is_meant_by_an_item_gets_a_rule_and_only_of_items_that_mean_it(items: list[tuple[Data, str]]) -> None:
    rules = from_rules(*items)
    for tags in clients():
        found = rules.of(tags)
        meant = [index for index, (target, _) in enumerate(items) if is_for(target, tags)]
        taken = [] if found is None else [item.index for item in found.combined.items]
        assert set(taken) <= set(meant)
        assert bool(taken) or not meant or not tags


def clients() -> Iterator[dict[str, str]]:
    for values in itertools.product(["", "1", "2", "3"], repeat=3):
        yield {key: value for key, value in zip(("env", "zone", "team"), values, strict=True) if value}


def is_for(target: Data, tags: Mapping[str, str]) -> bool:
    return all(tags.get(key) == value for key, value in target.get("tags", {}).items())


@given(st.lists(st.tuples(tag_sets(), st.sampled_from(ACTIONS)), min_size=1, max_size=4))
def test_looking_up_is_taking_the_first_that_fits(items: list[tuple[Data, str]]) -> None:
    rules = from_rules(*items)

    for tags in clients():
        assert rules.of(tags) is next((rule for rule in rules.rules if rule.fits(tags)), None)


def test_who_has_no_tags_is_only_meant_by_a_rule_for_all() -> None:
    assert fits((), {})
    assert not fits((TagCondition("env", "dev", is_not=True),), {})


def test_items_that_contradict_each_other_never_meet() -> None:
    a, b, general = frozenset({("env", "dev")}), frozenset({("env", "prod")}), frozenset[tuple[str, str]]()

    groups = {frozenset(group) for group in cliques([a, b, general], StepBudget(1_000))}
    assert groups == {
        frozenset({a, general}),
        frozenset({b, general}),
    }


TAGS = st.frozensets(st.tuples(st.sampled_from("abc"), st.sampled_from("12")), max_size=3)


@given(st.lists(TAGS.filter(lambda tags: len(dict(tags)) == len(tags)), min_size=1, max_size=7, unique=True))
def test_cliques_are_all_groups_that_can_meet_and_cannot_grow(sets: list[frozenset[tuple[str, str]]]) -> None:
    def meet(group: tuple[frozenset[tuple[str, str]], ...]) -> bool:
        keys = [key for key, _ in frozenset[tuple[str, str]]().union(*group)]
        return len(keys) == len(set(keys))

    groups = [frozenset(g) for n in range(1, len(sets) + 1) for g in itertools.combinations(sets, n) if meet(g)]
    largest = {group for group in groups if not any(group < other for other in groups)}

    found = list(cliques(sets, StepBudget(1_000_000)))
    assert len(found) == len(set(found))
    assert set(found) == largest


def many(count: int) -> Data:
    return subset(**{f"tag-{index:02}": "x" for index in range(count)})


@pytest.mark.parametrize("count", [3, 30])
def test_an_item_may_ask_for_many_tags(count: int) -> None:
    rules = from_rules((WHOLE_MESH, "Deny"), (many(count), "Allow"))
    all_tags = many(count)["tags"]

    found = rules.of(all_tags)
    assert found is not None
    assert found.combined.conf.value == {"action": "Allow"}
    for missing in all_tags:
        some = {name: value for name, value in all_tags.items() if name != missing}
        assert next(rule for rule in rules.rules if rule.fits(some)).combined.conf.value == {"action": "Deny"}


def test_parts_that_are_left_together_do_not_overlap() -> None:
    rules = from_rules((WHOLE_MESH, "Deny"), (many(12), "Allow"), (subset(**{"tag-00": "x", "other": "y"}), "Deny"))

    for count in range(13):
        for other in ({}, {"other": "y"}):
            tags = {**many(count).get("tags", {}), **other, "any": "x"}
            assert len([rule for rule in rules.rules if rule.fits(tags)]) == 1


def test_items_that_tell_apart_too_many_sorts_of_clients_hold_up_nobody() -> None:
    rules = from_rules(*((subset(**{f"tag-{index}": value}), "Allow") for index in range(30) for value in "xy"))

    assert rules.has_too_many_parts
    assert rules.rules == ()
    assert rules.of({"tag-1": "x"}) is None


# --- destinations by tags ---------------------------------------------------------------------------------------------


def to_rules(*some: Data) -> SubsetRules:
    return rules_of(world_of(text(MESH, proxy(), *some)), "MeshTimeout").to_subsets


def seconds(rules: SubsetRules, **tags: str) -> str | None:
    found = rules.of({name.replace("_", "/", 1): value for name, value in tags.items()})
    return None if found is None else str(found.combined.conf.value["http"]["requestTimeout"])


def test_a_service_is_known_by_its_tag_and_falls_back_to_the_mesh() -> None:
    rules = to_rules(timeout("t", [(WHOLE_MESH, 1), (ms("backend"), 2)]))

    assert seconds(rules, **{"kuma.io/service": "backend"}) == "2s"
    assert seconds(rules, **{"kuma.io/service": "other"}) == "1s"


def test_a_real_resource_is_no_tag() -> None:
    assert to_rules(timeout("t", {"kind": "MeshExternalService", "name": "x"}, 1)).rules == ()


def test_a_policy_that_names_a_route_in_to_is_for_real_destinations_altogether() -> None:
    items = [(WHOLE_MESH, {"http": {"requestTimeout": "1s"}}), (hr("r"), {"http": {"requestTimeout": "2s"}})]

    assert to_rules(route("r"), service("backend"), timeout("t", items)).rules == ()


@pytest.mark.parametrize(("path", "expected"), [("/v1", "1s"), ("/v2", "2s")])
def test_a_route_at_the_top_is_for_its_matches(path: str, expected: str) -> None:
    """The service's conf is mixed in (docs/concepts/rules-by-tags.md#policies-that-name-a-route)."""
    of_route = timeout("a", WHOLE_MESH, {"http": {"requestTimeout": "1s"}}, top=hr("r"))
    of_service = timeout("b", ms("backend"), {"http": {"requestTimeout": "2s", "streamIdleTimeout": "9s"}})
    world = world_of(text(MESH, proxy(), route("r", "backend", "/v1"), of_route, of_service))
    rules = rules_of(world, "MeshTimeout").to_subsets
    tags = {"kuma.io/service": "backend", "__rule-matches-hash__": hashed(path)}

    found = rules.of(tags)
    assert found is not None
    assert found.combined.conf.value["http"] == {"requestTimeout": expected, "streamIdleTimeout": "9s"}


def hashed(path: str) -> str:
    return matches_hash([{"path": {"type": "PathPrefix", "value": path}}])
