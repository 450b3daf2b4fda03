"""Which routes each hostname of a gateway's listener has, and which listeners are alike."""

from __future__ import annotations

from typing import Any

from cp.rules import PolicyRules, at_gateway
from cp.rules.gateways import hosts_of_listener, listeners_alike, patterns_of_listeners, routes_by_host
from cp.rules.routes import routes_of
from tests.rules.texts import MESH, Data, policy, text, timeout
from tests.rules.worlds import rules_of, world_of

EDGE = {
    "type": "Dataplane",
    "mesh": "default",
    "name": "web",
    "networking": {"address": "127.0.0.1", "gateway": {"type": "BUILTIN", "tags": {"kuma.io/service": "edge"}}},
}


def gateway(*tags: Data) -> Data:
    """A MeshGateway with a listener for each of these tags."""
    listeners = [{"port": 8080 + at, "protocol": "HTTP", "tags": of_listener} for at, of_listener in enumerate(tags)]
    selectors = [{"match": {"kuma.io/service": "edge"}}]
    fields = {"selectors": selectors, "conf": {"listeners": listeners}}
    return {"type": "MeshGateway", "mesh": "default", "name": "edge", **fields}


def route(name: str, *items: tuple[list[str], str], **tags: str) -> Data:
    """A route with an item for each of some hostnames and a path."""
    target: Data = {"kind": "MeshGateway", "name": "edge", **({"tags": tags} if tags else {})}
    to = [
        {"targetRef": {"kind": "Mesh"}, **({"hostnames": hosts} if hosts else {}), "rules": [_rule(path)]}
        for hosts, path in items
    ]
    return policy("MeshHTTPRoute", name, top=target, to=to)


def _rule(path: str) -> Data:
    matches = [{"path": {"type": "PathPrefix", "value": path}}]
    return {"matches": matches, "default": {"backendRefs": [{"kind": "MeshService", "name": "web"}]}}


def rules(*documents: Data, listeners: tuple[Data, ...] = ({},)) -> PolicyRules:
    return rules_of(world_of(text(MESH, EDGE, gateway(*listeners), *documents)), "MeshHTTPRoute")


def levels(found: PolicyRules, hostname: str) -> dict[str, list[list[str]]]:
    """The paths of each level of each hostname of a listener."""
    routes = routes_by_host(found)
    patterns = patterns_of_listeners({hostname}, routes).get(hostname, ())
    return {
        host.hostname: [_paths(level) for level in host.levels]
        for host in hosts_of_listener(hostname, patterns, routes)
    }


def _paths(level: Any) -> list[str]:
    return [f"{rule.owner.name} {rule.matches[0]['path']['value']}" for rule in routes_of(level.conf)]


def test_a_hostname_has_the_routes_of_its_own_pattern_and_then_those_of_wider_ones() -> None:
    found = rules(route("r", ([], "/all"), (["*.test"], "/wild"), (["a.test"], "/exact"), (["b.com"], "/other")))

    assert levels(found, "*.test") == {
        "*.test": [["r /wild"], ["r /all"]],
        "a.test": [["r /exact"], ["r /wild"], ["r /all"]],
    }
    assert levels(found, "a.test") == {"a.test": [["r /exact"], ["r /wild"], ["r /all"]]}


def test_a_listener_has_its_own_hostname_even_without_any_route() -> None:
    assert levels(rules(route("r", (["b.com"], "/"))), "*.test") == {"*.test": []}


def test_hostnames_are_compared_without_case_and_no_hostname_is_every_hostname() -> None:
    found = rules(route("r", (["A.Test", "a.test"], "/a"), (["*"], "/star"), ([], "/none")))

    assert levels(found, "*") == {"*": [["r /none", "r /star"]], "a.test": [["r /a"], ["r /none", "r /star"]]}


def test_the_routes_of_a_pattern_are_those_of_all_policies_the_strongest_first() -> None:
    found = rules(
        route("b", (["a.test"], "/b")),
        route("a", (["a.test"], "/a")),
        route("z", (["a.test"], "/z"), at="x"),
        listeners=({"at": "x"},),
    )

    assert levels(found, "a.test") == {"a.test": [["z /z", "a /a", "b /b"]]}


def test_origin_at_gateway_counts_before_tags() -> None:
    edge = {"kind": "MeshGateway", "name": "edge"}
    of_zone = timeout("zonal", {"kind": "Mesh"}, 1, top=edge, labels={"kuma.io/origin": "zone"})
    tagged = timeout("tagged", {"kind": "Mesh"}, 2, top=edge | {"tags": {"at": "x"}})
    world = world_of(text(MESH, EDGE, gateway({"at": "x"}), of_zone, tagged))

    conf = at_gateway(rules_of(world, "MeshTimeout").at_listeners((0,)))

    assert conf.value["http"]["requestTimeout"] == "1s"
    assert len(conf.fields["http.requestTimeout"].losers) == 1


def test_rules_with_the_same_matches_are_merged_within_a_pattern_alone() -> None:
    found = rules(route("a", (["a.test"], "/same")), route("b", (["a.test", "*.test"], "/same")))

    assert levels(found, "a.test") == {"a.test": [["a /same"], ["b /same"]]}


def test_a_listener_has_the_routes_that_select_it() -> None:
    found = rules(route("r", ([], "/r"), at="x"), route("s", ([], "/s")), listeners=({"at": "x"}, {"at": "y"}))

    assert [levels(found.at_listeners((index,)), "*")["*"] for index in (0, 1)] == [[["r /r", "s /s"]], [["s /s"]]]


def test_listeners_are_alike_if_the_same_policies_select_them() -> None:
    tags: tuple[Data, ...] = ({"at": "x"}, {"at": "y"}, {"at": "x"}, {})
    found = rules(route("r", ([], "/r"), at="x"), route("s", ([], "/s")), listeners=tags)

    assert listeners_alike(4, [found]) == ((0, 2), (1, 3))
    assert listeners_alike(2, []) == ((0, 1),)


def test_a_pattern_belongs_to_the_narrowest_listener_that_covers_it() -> None:
    table = rules(route("r", (["a.b.example", "*.b.example", "b.example", "*.other"], "/r")))

    own = patterns_of_listeners({"*.example", "*.b.example", "a.example"}, routes_by_host(table))
    assert own == {"*.b.example": ["a.b.example", "*.b.example"], "*.example": ["b.example"]}
