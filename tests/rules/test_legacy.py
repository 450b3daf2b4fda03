"""Which legacy policy holds: for a service one, for an inbound one or all, for a proxy one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cp.model.document import Document
from cp.model.names import Key
from cp.resources.world import World
from cp.rules.legacy import LegacyRules, legacy_rules
from cp.rules.legacy.selectors import Rank, best_rank, fits, rank
from tests.rules.worlds import kinds

Tags = Mapping[str, str]
ANY: Tags = {"kuma.io/service": "*"}
WEB: Tags = {"kuma.io/service": "web"}
API: Tags = {"kuma.io/service": "api"}


def document(kind: str, name: str, data: Mapping[str, Any], created: str = "") -> Document:
    found = Document(Key(kind, "default", name), {"type": kind, "mesh": "default", "name": name, **data})
    return replace(found, source=replace(found.source, created=created))


def between(kind: str, name: str, sources: list[Tags], destinations: list[Tags], **rest: Any) -> Document:
    selectors = {"sources": matching(*sources), "destinations": matching(*destinations)}
    created = rest.pop("created", "")
    return document(kind, name, {**selectors, **rest}, created)


def matching(*tags: Tags) -> list[dict[str, Tags]]:
    return [{"match": dict(one)} for one in tags]


def timeout(name: str, source: Tags, destination: Tags, created: str = "") -> Document:
    """Each says how long a connection may take by the length of its name, so that the winner shows."""
    return between("Timeout", name, [source], [destination], conf={"connectTimeout": f"{len(name)}s"}, created=created)


def limit(name: str, source: Tags, destination: Tags, created: str = "") -> Document:
    conf = {"http": {"requests": len(name), "interval": "1s"}}
    return between("RateLimit", name, [source], [destination], conf=conf, created=created)


def inbound(port: int, service: str, **tags: str) -> dict[str, Any]:
    return {"port": port, "tags": {"kuma.io/service": service, "kuma.io/protocol": "http", **tags}}


WEB_PROXY = document(
    "Dataplane",
    "web-1",
    {"networking": {"address": "10.0.0.1", "inbound": [inbound(80, "web", team="a"), inbound(81, "admin")]}},
)


def rules(*policies: Document) -> LegacyRules:
    mesh = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})
    world = World.of([mesh, WEB_PROXY, *policies], kinds())
    assert not [str(finding) for finding in world.findings if finding.severity == "error"]
    proxy = world.get(WEB_PROXY.key)
    assert proxy is not None
    return legacy_rules(world, proxy)


def holding(*policies: Document, service: str = "api") -> str:
    """The name of the Timeout that holds for a service, by its origin; empty if none does."""
    conf = rules(*policies).of_service(service, "http").get("MeshTimeout")
    return "" if conf is None else conf.fields["connectionTimeout"].winner.origin.policy.name


def limiting(index: int, *policies: Document) -> list[str]:
    return [client.policy.name for client in rules(*policies).clients(index, "http").get("MeshRateLimit", ())]


def test_the_number_of_tags_counts_before_how_many_have_a_value() -> None:
    assert rank({"a": "*", "b": "*"}) > rank({"a": "1"}) > rank({"a": "*"}) > rank({})
    assert Rank(2, 0) > Rank(1, 1)


def test_a_selector_asks_for_all_of_its_tags_and_a_star_for_any_value() -> None:
    assert fits({"a": "*", "b": "1"}, {"a": "x", "b": "1", "c": "2"})
    assert not fits({"a": "*"}, {"b": "1"})
    assert fits({}, {})
    assert best_rank([{"a": "2"}], [{"a": "1"}]) is None


def test_the_most_specific_policy_holds_for_a_service_and_nothing_of_the_others() -> None:
    assert holding(timeout("all", ANY, ANY), timeout("to-api", ANY, API)) == "to-api"
    assert holding(timeout("all", ANY, ANY), timeout("to-api", ANY, API), service="db") == "all"


def test_the_ranks_of_both_sides_are_added() -> None:
    team = {**ANY, "team": "a"}
    assert holding(timeout("both", WEB, API), timeout("team", team, ANY)) == "team"
    assert holding(timeout("both", WEB, API), timeout("one", WEB, ANY)) == "both"


def test_a_policy_for_other_sources_or_destinations_does_not_hold() -> None:
    assert holding(timeout("of-api", API, ANY)) == ""
    assert holding(timeout("to-web", ANY, WEB)) == ""


def test_the_tags_of_any_inbound_make_a_proxy_a_source() -> None:
    assert holding(timeout("admin", {"kuma.io/service": "admin"}, ANY)) == "admin"


@pytest.mark.parametrize("newer", ["a", "b"])
def test_of_equals_the_newest_holds(newer: str) -> None:
    created = {"a": "2020-01-01T00:00:00Z", "b": "2020-01-01T00:00:00Z", newer: "2021-01-01T00:00:00Z"}

    assert holding(*(timeout(name, ANY, ANY, created[name]) for name in ("a", "b"))) == newer


def test_age_does_not_count_where_one_is_more_specific() -> None:
    old, new = "2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z"

    assert holding(timeout("web", WEB, ANY, old), timeout("any", ANY, ANY, new)) == "web"


def test_each_kind_has_a_winner_of_its_own() -> None:
    retry = between("Retry", "retry", [ANY], [ANY], conf={"tcp": {"maxConnectAttempts": 2}})

    assert set(rules(timeout("web", WEB, API), retry).of_service("api", "tcp")) == {"MeshTimeout", "MeshRetry"}


def permission(name: str, sources: list[Tags], destination: Tags) -> Document:
    return between("TrafficPermission", name, sources, [destination])


def test_one_permission_holds_for_each_inbound_with_all_of_its_sources() -> None:
    made = rules(permission("all", [ANY], ANY), permission("web", [API, {"team": "b"}], WEB))

    assert [(c.policy.name, dict(c.tags)) for c in made.clients(0, "http")["MeshTrafficPermission"]] == [
        ("web", API),
        ("web", {"team": "b"}),
    ]
    assert [(c.policy.name, dict(c.tags)) for c in made.clients(1, "http")["MeshTrafficPermission"]] == [("all", {})]


def test_all_rate_limits_of_an_inbound_hold_those_for_the_most_specific_sources_first() -> None:
    policies = [limit("any", ANY, ANY), limit("api", API, WEB), limit("team", {**ANY, "team": "b"}, ANY)]

    assert limiting(0, *policies) == ["team", "api", "any"]
    assert limiting(1, *policies) == ["team", "any"]


def trace(name: str, *selectors: Tags) -> Document:
    template = {"conf": {"modifications": [{"cluster": {"operation": "remove", "match": {"name": name}}}]}}
    return document("ProxyTemplate", name, {**({"selectors": matching(*selectors)} if selectors else {}), **template})


def test_one_policy_holds_for_a_proxy_and_one_without_selectors_for_want_of_others() -> None:
    def winner(*policies: Document) -> str:
        conf = rules(*policies).of_proxy["MeshProxyPatch"]
        return conf.fields["appendModifications[0]"].winner.origin.policy.name

    assert winner(trace("everybody")) == "everybody"
    assert winner(trace("everybody"), trace("any", ANY)) == "any"
    assert winner(trace("any", ANY), trace("web", WEB)) == "web"
    assert not rules(trace("others", API)).of_proxy


def test_a_field_is_found_where_its_document_has_it() -> None:
    conf = {"http": {"numRetries": 2, "backOff": {"baseInterval": "1s"}}}
    retry = rules(between("Retry", "x", [ANY], [ANY], conf=conf)).of_service("api", "http")["MeshRetry"]

    assert retry.fields["http.numRetries"].winner.path == "conf.http.numRetries"
    assert retry.fields["http.backOff.baseInterval"].winner.path == "conf.http.backOff.baseInterval"


@pytest.mark.parametrize(
    ("http", "field"),
    [
        ({"retryOn": ["all_5xx"], "retriableStatusCodes": [503], "retriableMethods": ["GET"]}, "retryOn"),
        ({"retriableStatusCodes": [503], "retriableMethods": ["GET"]}, "retriableStatusCodes"),
        ({"retriableMethods": ["GET"]}, "retriableMethods"),
    ],
)
def test_retry_conditions_name_their_first_field(http: dict[str, Any], field: str) -> None:
    retry = rules(between("Retry", "x", [ANY], [ANY], conf={"http": http})).of_service("api", "http")["MeshRetry"]

    assert retry.fields["http.retryOn"].winner.path == f"conf.http.{field}"


def test_the_rules_of_a_route_are_found_where_its_document_has_them() -> None:
    first = {"match": {"path": {"prefix": "/a"}}, "modify": {"host": {"value": "x"}}, "destination": dict(API)}
    last = {"split": [{"weight": 1, "destination": dict(WEB)}]}
    conf = {"http": [first], **last}
    route = rules(between("TrafficRoute", "x", [ANY], [ANY], conf=conf)).of_service("api", "http")["MeshHTTPRoute"]

    places = {path: field.winner.path for path, field in route.fields.items()}
    assert places["rules[0].default.backendRefs"] == "conf.http[0].destination"
    assert places["rules[0].default.modify.host.value"] == "conf.http[0].modify.host.value"
    assert places["rules[1].default.backendRefs"] == "conf.split"
