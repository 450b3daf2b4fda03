"""What holds on inbounds: `rules`, and `from` where it means the same."""

from __future__ import annotations

from typing import Any

import msgspec

from cp.rules import meets
from cp.translate.inbound import rules_side_by_side
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
    assert [one.match for one in rules.for_some] == [one.match for one in rules.rules[:2]]


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


def sni(value: str, **beside: Any) -> Data:
    return {**beside, "sni": {"type": "Exact", "value": value}}


def held(*some: Data, uris: tuple[str, ...] = (), server_name: str = "", inbound: int = 0) -> Data:
    """What holds for a client: of all that hold for some the first that it meets."""
    rules = rules_of(world_of(text(MESH, WEB, *some)), "MeshTimeout").inbound(inbound)
    met = (one.combined for one in rules.for_some if meets(one.match, uris, server_name))
    conf = next(met, rules.for_all)
    return {} if conf is None else dict(conf.conf.value["http"])


def idle(seconds: int, *matches: Data) -> Data:
    return {"matches": list(matches), "default": {"http": {"streamIdleTimeout": f"{seconds}s"}}}


def test_a_client_gets_all_rules_that_it_meets_and_the_narrower_wins() -> None:
    some = with_rules(
        "t",
        item(1),
        item(2, spiffe("Exact", "spiffe://a/b")),
        item(3, spiffe("Prefix", "spiffe://a/")),
        idle(4, spiffe("Prefix", "spiffe://a/")),
        item(5, sni("x")),
        idle(6, sni("x")),
    )

    assert held(some) == {"requestTimeout": "1s"}
    assert held(some, uris=("spiffe://b/",)) == {"requestTimeout": "1s"}
    assert held(some, uris=("spiffe://a/c",)) == {"requestTimeout": "3s", "streamIdleTimeout": "4s"}
    assert held(some, uris=("kuma://x/y", "spiffe://a/b")) == {"requestTimeout": "2s", "streamIdleTimeout": "4s"}
    assert held(some, server_name="x") == {"requestTimeout": "5s", "streamIdleTimeout": "6s"}
    assert held(some, uris=("spiffe://a/b",), server_name="x") == {"requestTimeout": "2s", "streamIdleTimeout": "4s"}


def test_who_meets_two_rules_of_which_neither_is_the_narrower_gets_both() -> None:
    some = with_rules("t", item(1, spiffe("Exact", "spiffe://a/b")), idle(2, sni("x")))

    assert held(some, uris=("spiffe://a/b",), server_name="x") == {"requestTimeout": "1s", "streamIdleTimeout": "2s"}
    assert held(some, uris=("spiffe://a/b",)) == {"requestTimeout": "1s"}
    assert held(some, server_name="x") == {"streamIdleTimeout": "2s"}


def test_of_two_prefixes_the_longer_one_wins_whichever_policy_it_is_in() -> None:
    long, short = item(1, spiffe("Prefix", "spiffe://a/b")), item(2, spiffe("Prefix", "spiffe://a/"))

    for policies in ((with_rules("a", long), with_rules("b", short)), (with_rules("a", short), with_rules("b", long))):
        assert held(*policies, uris=("spiffe://a/bc",)) == {"requestTimeout": "1s"}
        assert held(*policies, uris=("spiffe://a/c",)) == {"requestTimeout": "2s"}


def test_of_two_policies_with_one_match_the_stronger_wins_field_by_field() -> None:
    match = spiffe("Exact", "spiffe://a/b")
    some = (with_rules("a", item(1, match)), with_rules("b", item(2, match), idle(3, match)))

    assert held(*some, uris=("spiffe://a/b",)) == {"requestTimeout": "1s", "streamIdleTimeout": "3s"}


def test_sets_of_clients_that_meet_the_same_rules_are_one() -> None:
    some = with_rules("t", item(1, spiffe("Exact", "spiffe://a/b"), spiffe("Prefix", "spiffe://a/"), sni("x")))
    rules = rules_of(world_of(text(MESH, WEB, some)), "MeshTimeout").inbound(0)

    assert len({msgspec.json.encode(one.match) for one in rules.for_some}) == len(rules.for_some) == 5


def test_very_many_rules_for_some_clients_are_not_put_together() -> None:
    many = with_rules(
        "many",
        {"default": {"http": {"streamIdleTimeout": "9s"}}},
        *(item(n, spiffe("Prefix", f"spiffe://default/{'x' * n}")) for n in range(1, 100)),
        *(item(n, {"sni": {"type": "Exact", "value": f"s{n}"}}) for n in range(1, 100)),
    )

    rules = rules_of(world_of(text(MESH, WEB, many)), "MeshTimeout").inbound(0).for_some

    assert len(rules) == 2 * 99
    assert all(some.combined.conf.value["http"].keys() == {"requestTimeout", "streamIdleTimeout"} for some in rules)


def test_rules_side_by_side_leave_out_removed_items() -> None:
    clients = ("api", "db")
    rules = [{"default": {"allow": [spiffe("Exact", f"spiffe://default/{name}")]}} for name in clients]
    permission = policy("MeshTrafficPermission", "p", rules=rules)
    found_rules = rules_of(world_of(text(MESH, WEB, permission)), "MeshTrafficPermission")

    left = [combined.conf.value for _, combined in rules_side_by_side(found_rules, 0, lambda item: item.index == 0)]

    assert left == [rules[1]["default"]]
