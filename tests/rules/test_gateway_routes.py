"""The routes that MeshGatewayRoutes give to a listener of a builtin gateway."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from cp.model.document import Document, Source
from cp.model.names import Key
from cp.policies import kinds
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.legacy.gateway_routes import legacy_routes_by_host
from cp.rules.routes import routes_of
from cp.translate.compiler import Compiler
from tests.snapshots import policies

HTTP: Final = "MeshHTTPRoute"
TAGS: Final = {"kuma.io/service": "edge", "port": "http"}


def route(
    name: str, *rules: dict[str, Any], match: dict[str, str] | None = None, created: str = "", **http: Any
) -> Document:
    key = Key("MeshGatewayRoute", "default", name)
    data = {"type": key.type, "mesh": "default", "name": name, "conf": {"http": {"rules": list(rules), **http}}}
    selectors = [{"match": match or {"kuma.io/service": "edge"}}]
    return Document(key, {**data, "selectors": selectors}, Source(created=created))


def to(service: str, path: str = "/", *filters: dict[str, Any]) -> dict[str, Any]:
    backends = [{"destination": {"kuma.io/service": service}}]
    matches = [{"path": {"match": "PREFIX", "value": path}}]
    return {"matches": matches, "backends": backends, "filters": list(filters)}


def world(*documents: Document) -> World:
    mesh = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})
    made = World.of([mesh, *documents], kinds(policies()))
    assert not list(made.findings)
    return made


def table(of: World, tags: dict[str, str] = TAGS) -> dict[str, list[tuple[str, str]]]:
    """For each pattern of hostnames the paths in the order of the rules, each with the service that it leads to."""
    by_host = legacy_routes_by_host(of, "default", tags, HTTP)
    return {
        host: [(rule.matches[0]["path"]["value"], rule.default["backendRefs"][0]["name"]) for rule in routes_of(c.conf)]
        for host, c in by_host.items()
    }


def test_all_routes_hold_whose_selectors_fit_the_tags_of_the_listener() -> None:
    of_all, of_http = route("all", to("a", "/a")), route("http", to("b", "/b"), match={**TAGS})
    other = route("other", to("c", "/c"), match={"kuma.io/service": "edge", "port": "other"})

    assert set(table(world(of_all, of_http, other))["*"]) == {("/a", "a"), ("/b", "b")}


def test_of_two_rules_with_the_same_matches_those_of_the_newest_route_hold_whole() -> None:
    added = {"requestHeader": {"set": [{"name": "a", "value": "b"}]}}
    old = route("z", to("old", "/", added), created="2024-01-01T00:00:00Z")
    new = route("a", to("new"), created="2025-01-01T00:00:00Z")
    (conf,) = legacy_routes_by_host(world(old, new), "default", TAGS, HTTP).values()
    (rule,) = routes_of(conf.conf)

    assert (rule.owner.name, rule.default["backendRefs"][0]["name"], rule.default["filters"]) == ("a", "new", [])


def test_of_equally_old_routes_with_the_same_matches_the_first_by_name_holds() -> None:
    names = ("b", "a", "c")

    assert table(world(*(route(name, to(name)) for name in names))) == {"*": [("/", "a")]}


def test_of_equally_old_routes_of_tcp_the_first_by_name_holds() -> None:
    rules = [{"backends": [{"destination": {"kuma.io/service": name}}]} for name in ("a", "b")]
    routes = [route(name) for name in ("a", "b")]
    of_tcp = [
        replace(each, data={**each.data, "conf": {"tcp": {"rules": [rule]}}})
        for each, rule in zip(routes, rules, strict=True)
    ]
    (conf,) = legacy_routes_by_host(world(*of_tcp), "default", TAGS, "MeshTCPRoute").values()

    assert conf.conf.value["default"]["backendRefs"][0]["name"] == "a"


def test_in_one_route_the_first_of_two_such_rules_holds() -> None:
    assert table(world(route("one", to("first"), to("second")))) == {"*": [("/", "first")]}


def test_routes_are_apart_by_the_hostnames_that_they_name() -> None:
    named = route("named", to("a"), hostnames=["A.example", "*.b.example"])

    assert table(world(named, route("all", to("c")))) == {
        "a.example": [("/", "a")],
        "*.b.example": [("/", "a")],
        "*": [("/", "c")],
    }


def test_a_backend_without_a_weight_gets_nothing_unless_it_is_the_only_one() -> None:
    several = to("a") | {"backends": [{"weight": 3, "destination": TAGS}, {"destination": {"kuma.io/service": "b"}}]}
    (conf,) = legacy_routes_by_host(world(route("several", several)), "default", TAGS, HTTP).values()
    (rule,) = routes_of(conf.conf)

    assert [(ref["kind"], ref["weight"]) for ref in rule.default["backendRefs"]] == [
        ("MeshServiceSubset", 3),
        ("MeshService", 0),
    ]


def test_a_header_is_the_same_header_in_capital_letters() -> None:
    values = {"set": [{"name": "X-A", "value": "V"}], "add": [{"name": "X-B", "value": "b"}]}
    changed: dict[str, Any] = {**values, "remove": ["X-C"]}
    hosted: dict[str, Any] = {"set": [{"name": "HOST", "value": "h.example"}]}
    filters: list[dict[str, Any]] = [{"responseHeader": changed}, {"requestHeader": changed}, {"requestHeader": hosted}]
    matched = to("a", "/", *filters) | {"matches": [{"headers": [{"name": "X-D", "match": "PRESENT"}]}]}
    (conf,) = legacy_routes_by_host(world(route("one", matched)), "default", TAGS, HTTP).values()
    (rule,) = routes_of(conf.conf)

    written = {"set": [{"name": "x-a", "value": "V"}], "add": [{"name": "x-b", "value": "b"}], "remove": ["x-c"]}
    answer, request, host = rule.default["filters"]
    assert answer["responseHeaderModifier"] == request["requestHeaderModifier"] == written
    assert host["urlRewrite"] == {"hostname": "h.example"}
    assert rule.matches == [{"headers": [{"type": "Present", "name": "x-d"}]}]


def test_every_value_has_its_place_in_the_document() -> None:
    (conf,) = legacy_routes_by_host(world(route("one", to("a", "/a"), to("b", "/b"))), "default", TAGS, HTTP).values()
    places = {
        rule.matches[0]["path"]["value"]: conf.conf.fields[f"{rule.path}.default.backendRefs"]
        for rule in routes_of(conf.conf)
    }

    assert {path: field.winner.path for path, field in places.items()} == {
        "/a": "conf.http.rules[0].backends",
        "/b": "conf.http.rules[1].backends",
    }


def test_what_holds_is_the_same_object_as_long_as_the_routes_are_the_same() -> None:
    first = world(route("one", to("a")))
    before = legacy_routes_by_host(first, "default", TAGS, HTTP)
    other = route("other", to("b"), match={"kuma.io/service": "other"})

    after = legacy_routes_by_host(first.next({other.key: other}, 1), "default", TAGS, HTTP)
    assert after["*"] is before["*"]
    edited = route("one", to("b"))
    assert table(first.next({edited.key: edited}, 1)) == {"*": [("/", "b")]}


GATEWAY: Final = Document(
    Key("MeshGateway", "default", "edge"),
    {
        "type": "MeshGateway",
        "mesh": "default",
        "name": "edge",
        "selectors": [{"match": {"kuma.io/service": "edge"}}],
        "conf": {"listeners": [{"port": 80, "protocol": "HTTP", "tags": {"port": "http"}}]},
    },
)
EDGE: Final = Document(
    Key("Dataplane", "default", "edge-1"),
    {
        "type": "Dataplane",
        "mesh": "default",
        "name": "edge-1",
        "networking": {"address": "10.0.0.1", "gateway": {"type": "BUILTIN", "tags": {"kuma.io/service": "edge"}}},
    },
)
NEWER: Final = Document(
    Key("MeshHTTPRoute", "default", "newer"),
    {
        "type": "MeshHTTPRoute",
        "mesh": "default",
        "name": "newer",
        "spec": {
            "targetRef": {"kind": "MeshGateway", "name": "edge"},
            "to": [{"targetRef": {"kind": "Mesh"}, "rules": []}],
        },
    },
)
ONE: Final = route("one", to("a"))
EDITED: Final = route("one", to("b"))
ANOTHER: Final = route("another", to("c", "/c"), hostnames=["c.example"])


@pytest.mark.parametrize("first", [[], [ONE], [ONE, ANOTHER], [ONE, NEWER]])
@pytest.mark.parametrize("then", [[], [EDITED], [ONE, ANOTHER], [NEWER]])
def test_routes_come_and_go_as_if_they_had_always_been_so(first: list[Document], then: list[Document]) -> None:
    compiler, before = Compiler(policies()), world(GATEWAY, EDGE, *first)
    compiler.snapshot(before, edge_of(before))
    kept = {each.key: each for each in then}
    after = before.next({key: kept.get(key) for key in (ONE.key, ANOTHER.key, NEWER.key)}, 1)

    assert compiler.snapshot(after, edge_of(after)) == Compiler(policies()).snapshot(after.afresh(), edge_of(after))


def edge_of(of: World) -> Resource:
    proxy = of.get(EDGE.key)
    assert proxy is not None
    return proxy
