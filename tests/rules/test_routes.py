"""Routes: which apply to a destination, whose they are, and in which order they are tried."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cp.model.names import Destination
from cp.rules import RouteRule, by_specificity, matches_hash, routes, specificity
from tests.rules.texts import MESH, Data, ms, policy, proxy, route, service, subset, text
from tests.rules.worlds import rules_of, to_service, to_tag, world_of

WEB = proxy(inbounds=[{"port": 80, "tags": {"kuma.io/service": "web", "team": "a"}}])
BACKEND = to_service("backend")


def table(*some: Data, to: Destination = BACKEND, kind: str = "MeshHTTPRoute") -> tuple[RouteRule, ...]:
    return routes(rules_of(world_of(text(MESH, WEB, service("backend"), *some)), kind), to) or ()


def paths(found: tuple[RouteRule, ...]) -> list[tuple[str, str]]:
    return [(rule.matches[0]["path"]["value"], rule.owner.name) for rule in found]


def http(name: str, *rules: tuple[str, Data], **rest: Any) -> Data:
    found = [{"matches": [{"path": {"type": "Exact", "value": path}}], "default": default} for path, default in rules]
    return policy("MeshHTTPRoute", name, to=[{"targetRef": ms("backend"), "rules": found}], **rest)


def backends(*names: str) -> Data:
    return {"backendRefs": [{"kind": "MeshService", "name": name} for name in names]}


def test_without_a_route_there_is_no_rule() -> None:
    assert table() == ()


def test_rules_of_the_most_specific_policy_come_first_each_in_its_own_order() -> None:
    some = [http("a", ("/1", {}), ("/2", {})), http("b", ("/3", {}), ("/4", {}), top=subset(team="a"))]

    assert paths(table(*some)) == [("/3", "b"), ("/4", "b"), ("/1", "a"), ("/2", "a")]


def test_within_one_policy_the_first_of_equal_matches_wins() -> None:
    (found,) = table(http("a", ("/1", backends("first")), ("/1", backends("second"))))

    assert [one["name"] for one in found.default["backendRefs"]] == ["first"]


def test_rules_with_equal_matches_are_merged_and_belong_to_the_strongest() -> None:
    filters = {"filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": ["x"]}}]}
    weak, strong = http("z", ("/1", backends("of-z"))), http("a", ("/1", filters))
    (found,) = table(weak, strong)

    assert sorted(found.default) == ["backendRefs", "filters"]
    assert (found.owner.name, found.backends.identity.name) == ("a", "z")


FILTER: Data = {"filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": ["x"]}}]}

CONTRIBUTORS: dict[str, tuple[Data, Data, list[str]]] = {
    "the strong one says nothing": (backends("of-weak"), {}, ["strong", "weak"]),
    "each says something": (backends("of-weak"), FILTER, ["strong", "weak"]),
    "both say the same field": (backends("of-weak"), backends("of-strong"), ["strong"]),
    "of two fields one is left": (backends("of-weak") | FILTER, backends("of-strong"), ["strong", "weak"]),
    "the weak one says nothing": ({}, backends("of-strong"), ["strong"]),
    "neither says anything": ({}, {}, ["strong"]),
    "the strong one removes it": (backends("of-weak"), {"backendRefs": None}, ["strong"]),
}
"""What two routes say of the same matches, and which of them contribute to the rule."""


@pytest.mark.parametrize("case", CONTRIBUTORS)
def test_every_route_of_which_something_is_left_contributes(case: str) -> None:
    of_weak, of_strong, expected = CONTRIBUTORS[case]
    weak, strong = http("weak", ("/1", of_weak)), http("strong", ("/1", of_strong), top=subset(team="a"))
    (found,) = table(weak, strong)

    assert [route.name for route in found.contributors] == expected


def test_rows_to_which_others_contribute_have_names_of_their_own() -> None:
    weak = http("weak", ("/1", backends("of-weak")))
    strong = http("strong", ("/1", FILTER), ("/2", FILTER), top=subset(team="a"))
    first, second = table(weak, strong)

    assert first.owner == second.owner
    assert first.name != second.name


def test_a_route_without_rules_is_there_and_no_route_is_not() -> None:
    empty = policy("MeshHTTPRoute", "r", to=[{"targetRef": ms("backend"), "rules": []}])
    worlds = [world_of(text(MESH, WEB, service("backend"), *some)) for some in ((), (empty,))]

    assert [routes(rules_of(world, "MeshHTTPRoute"), BACKEND) for world in worlds] == [None, ()]


def test_where_a_consumer_and_a_producer_match_the_same_the_consumer_s_route_takes_precedence() -> None:
    """See docs/concepts/routes.md#policies-on-a-route."""
    labels = {"kuma.io/policy-role": "producer"}
    of_consumer = {"kuma.io/policy-role": "consumer", "k8s.kuma.io/namespace": "ns"}
    web = proxy(labels={"k8s.kuma.io/namespace": "ns"})
    to = [
        {
            "targetRef": ms("backend"),
            "rules": [{"matches": [{"path": {"type": "Exact", "value": "/1"}}], "default": {}}],
        }
    ]
    producer = policy("MeshHTTPRoute", "a", to=to, labels=labels)
    consumer = policy(
        "MeshHTTPRoute",
        "b",
        labels=of_consumer,
        to=[to[0] | {"targetRef": {"kind": "MeshService", "labels": {"app": "x"}}}],
    )
    some = [MESH, web, service("backend", labels={"app": "x"}), producer, consumer]

    (found,) = routes(rules_of(world_of(text(*some)), "MeshHTTPRoute"), BACKEND) or ()
    assert found.owner.name == "b"


def test_a_destination_by_tags_has_the_routes_for_its_tag() -> None:
    assert paths(table(http("a", ("/1", {})), to=to_tag("backend"))) == [("/1", "a")]


def test_a_tcp_route_has_one_rule_without_matches() -> None:
    rules = [{"default": {"backendRefs": [{"kind": "MeshService", "name": "other", "weight": 3}]}}]
    tcp = policy("MeshTCPRoute", "t", to=[{"targetRef": ms("backend"), "rules": rules}])
    (found,) = table(tcp, kind="MeshTCPRoute")

    assert (found.owner.name, found.matches, found.default["backendRefs"][0]["weight"]) == ("t", (), 3)


def test_a_route_for_two_services_is_a_route_of_each() -> None:
    items = [
        {"targetRef": ms(name), "rules": [{"matches": [{"method": "GET"}], "default": {}}]}
        for name in ("backend", "other")
    ]
    some = [service("other"), policy("MeshHTTPRoute", "r", to=items)]

    assert [rule.owner.name for rule in (*table(*some), *table(*some, to=to_service("other")))] == ["r", "r"]


LESS_AND_LESS: list[Data] = [
    {"path": {"type": "Exact", "value": "/"}},
    {"path": {"type": "PathPrefix", "value": "/long"}, "method": "GET"},
    {"path": {"type": "PathPrefix", "value": "/long"}},
    {"path": {"type": "RegularExpression", "value": "/very/long.*"}},
    {"path": {"type": "RegularExpression", "value": "/.*"}},
    {"path": {"type": "PathPrefix", "value": "/"}, "method": "GET", "headers": [{"name": n} for n in "abc"]},
    {"method": "GET", "headers": [{"name": "a"}, {"name": "b"}]},
    {"method": "GET", "headers": [{"name": "a"}], "queryParams": [{"name": "q"}, {"name": "r"}]},
    {"method": "GET", "queryParams": [{"name": "q"}]},
    {"method": "GET"},
    {"headers": [{"name": "a"}]},
    {"queryParams": [{"name": "q"}]},
    {},
]


@given(st.permutations(LESS_AND_LESS))
def test_the_more_specific_match_is_tried_first(some: list[Data]) -> None:
    assert sorted(some, key=specificity) == LESS_AND_LESS


def test_matches_of_one_rule_are_tried_apart_and_equals_in_the_order_of_the_rules() -> None:
    rules = [{"matches": [{"path": {"type": "PathPrefix", "value": path}} for path in ("/", "/a")], "default": {}}]
    some = policy("MeshHTTPRoute", "r", to=[{"targetRef": ms("backend"), "rules": rules}])

    found = by_specificity(table(some, route("s", "backend", "/b")))
    assert [match["path"]["value"] for match, _ in found] == ["/a", "/b", "/"]


@pytest.mark.parametrize(
    ("matches", "expected"),
    [
        ([{"path": {"type": "PathPrefix", "value": "/"}}], "9Zuf5Tg79OuZcQITwBbQykxAk2u4fRKrwYn3//AL4Yo="),
        ([{"path": {"value": "/", "type": "Exact"}}], "JNNc6//C3P17nUsOJm5f4kqG+U3v8pXhS0od9C3+oss="),
    ],
)
def test_the_hash_of_matches_is_kuma_s(matches: list[Data], expected: str) -> None:
    assert matches_hash(matches) == expected
