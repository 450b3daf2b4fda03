"""What holds on inbounds: `rules`, and `from` where it means the same."""

from __future__ import annotations

from typing import Any

from tests.rules.texts import MESH, WHOLE_MESH, Data, inbound, policy, proxy, subset, text
from tests.rules.worlds import rules_of, world_of

WEB = proxy(inbounds=[inbound(80, "main", team="a"), inbound(81, "admin")])


def with_rules(name: str, *items: Data, **rest: Any) -> Data:
    return policy("MeshTimeout", name, rules=list(items), **rest)


def item(seconds: int, *matches: Data) -> Data:
    return {**({"matches": list(matches)} if matches else {}), "default": {"http": {"requestTimeout": f"{seconds}s"}}}


def spiffe(kind: str, value: str) -> Data:
    return {"spiffeID": {"type": kind, "value": value}}


def found(index: int, *some: Data) -> list[tuple[str, str]]:
    """Each rule of an inbound: its policy, and its timeout."""
    rules = rules_of(world_of(text(MESH, WEB, *some)), "MeshTimeout").inbound(index).rules
    return [(one.origin.policy.name, one.combined.conf.value["http"]["requestTimeout"]) for one in rules]


def test_each_item_is_a_rule_of_its_own_from_the_weakest_to_the_strongest() -> None:
    assert found(0, with_rules("a", item(1), item(2)), with_rules("b", item(3))) == [
        ("b", "3s"),
        ("a", "1s"),
        ("a", "2s"),
    ]


def test_a_policy_is_for_the_inbounds_that_it_selects() -> None:
    some = with_rules("t", item(1), top=subset(team="a"))

    assert (found(0, some), found(1, some)) == ([("t", "1s")], [])


def test_from_counts_as_rules_without_matches() -> None:
    old = policy("MeshTimeout", "t", from_=[{"targetRef": WHOLE_MESH, "default": {"http": {"requestTimeout": "1s"}}}])

    assert found(0, old) == [("t", "1s")]


def test_old_and_new_policies_both_count() -> None:
    old = policy("MeshTimeout", "a", from_=[{"targetRef": WHOLE_MESH, "default": {"http": {"requestTimeout": "1s"}}}])

    assert found(0, old, with_rules("b", item(2))) == [("b", "2s"), ("a", "1s")]


def test_every_match_is_a_rule_of_its_own_and_the_exact_ones_come_first() -> None:
    some = with_rules("t", item(1), item(2, spiffe("Prefix", "spiffe://a"), spiffe("Exact", "spiffe://a/b")))
    rules = rules_of(world_of(text(MESH, WEB, some)), "MeshTimeout").inbound(0)

    assert [None if one.match is None else one.match["spiffeID"]["type"] for one in rules.rules] == [
        "Exact",
        "Prefix",
        None,
    ]
    assert [one.match for one in rules.with_matches] == [one.match for one in rules.rules[:2]]


def test_what_holds_for_all_is_the_rules_without_matches_merged() -> None:
    first = {"default": {"connectionTimeout": "9s", "http": {"requestTimeout": "1s"}}}
    some = with_rules("t", first, item(2), item(3, spiffe("Exact", "spiffe://a/b")))
    rules = rules_of(world_of(text(MESH, WEB, some)), "MeshTimeout").inbound(0)

    assert rules.for_all is not None
    assert rules.for_all.conf.value == {"connectionTimeout": "9s", "http": {"requestTimeout": "2s"}}


def test_a_policy_with_one_conf_holds_for_the_whole_proxy() -> None:
    trace = {"backends": [{"type": "Zipkin", "zipkin": {"url": "http://jaeger:9411/api/v2/spans"}}]}
    some = [
        policy("MeshTrace", name, default=trace | {"tags": [{"name": "by", "literal": name}]}) for name in ("a", "b")
    ]
    rules = rules_of(world_of(text(MESH, WEB, *some)), "MeshTrace")

    assert rules.proxy is not None
    assert rules.proxy.conf.value["tags"] == [{"name": "by", "literal": "a"}]
    assert rules.proxy.conf.fields["tags"].winner.origin.part == "default"
