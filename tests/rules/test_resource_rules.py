"""ResourceRules: which items hold for a mesh, a service, a section of it and a route."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cp.rules import ResourceRule
from cp.rules.merging import Origin
from tests.rules.texts import MESH, WHOLE_MESH, Data, hr, ms, policy, proxy, route, service, subset, text, timeout
from tests.rules.worlds import rules_of, world_of
from tests.rules.worlds import service as identity

WEB = proxy(inbounds=[{"port": 80, "tags": {"kuma.io/service": "web", "team": "a"}}])


def all_rules(*some: Data) -> Mapping[str, ResourceRule]:
    world = world_of(text(MESH, WEB, *some))
    return {called(rule): rule for rule in rules_of(world, "MeshTimeout").to.all}


def called(rule: ResourceRule) -> str:
    one = rule.identity
    return f"{one.type} {one.name}" + (f":{one.section}" if one.section else "")


def seconds(rule: ResourceRule | None) -> list[str]:
    """Which timeouts were merged, in order, told apart by their values."""
    if rule is None:
        return []
    return [item.layer.conf["http"]["requestTimeout"].removesuffix("s") for item in rule.combined.items]


def merged_from(*some: Data) -> dict[str, list[str]]:
    return {name: seconds(rule) for name, rule in all_rules(*some).items()}


def conf(to: Data, value: Any, name: str = "t", **rest: Any) -> Data:
    return timeout(name, to, {"http": {"requestTimeout": f"{value}s"}}, **rest)


def test_a_service_has_the_items_of_the_mesh_too_and_a_section_those_of_its_service() -> None:
    items = [(WHOLE_MESH, 1), (ms("backend"), 2), (ms("backend", sectionName="http"), 3)]

    assert merged_from(service("backend"), timeout("t", items)) == {
        "Mesh default": ["1"],
        "MeshService backend": ["1", "2"],
        "MeshService backend:http": ["1", "2", "3"],
    }


def test_a_route_has_its_own_items_alone() -> None:
    """Neither those of the mesh nor those of the service (record 0007)."""
    items = [(WHOLE_MESH, {"http": {"requestTimeout": "1s"}}), (ms("backend"), {"http": {"requestTimeout": "2s"}})]
    some = timeout("t", [*items, (hr("r"), {"http": {"requestTimeout": "3s"}})])

    assert merged_from(service("backend"), route("r"), some)["MeshHTTPRoute r"] == ["3"]


def test_a_tcp_route_can_be_named_too() -> None:
    """A difference from Kuma (record 0024)."""
    backends = [{"default": {"backendRefs": [{"kind": "MeshService", "name": "db", "port": 80}]}}]
    tcp = policy("MeshTCPRoute", "r", to=[{"targetRef": ms("db"), "rules": backends}])
    some = timeout("t", {"kind": "MeshTCPRoute", "name": "r"}, {"idleTimeout": "3s"})

    assert list(all_rules(service("db"), tcp, some)) == ["MeshTCPRoute r"]


def test_whoever_nobody_names_has_no_rule_of_its_own() -> None:
    assert list(all_rules(service("backend"), service("other"), conf(ms("backend"), 1))) == ["MeshService backend"]


@pytest.mark.parametrize(
    ("target", "named"),
    [
        (ms("backend"), ["backend"]),
        (ms("nobody"), []),
        ({"kind": "MeshService", "labels": {"tier": "db"}}, ["backend", "other"]),
        ({"kind": "MeshService", "labels": {"tier": "db", "env": "dev"}}, ["backend"]),
        ({"kind": "MeshService", "labels": {"kuma.io/display-name": "other"}}, ["other"]),
        ({"kind": "MeshService", "labels": {"tier": "none"}}, []),
    ],
)
def test_a_target_is_one_by_name_or_all_with_the_labels(target: Data, named: list[str]) -> None:
    some = [service("backend", labels={"tier": "db", "env": "dev"}), service("other", labels={"tier": "db"})]

    assert list(all_rules(*some, conf(target, 1))) == [f"MeshService {name}" for name in named]


@pytest.mark.parametrize("written", ["http", "8080"])
def test_a_port_goes_by_its_name_and_by_its_number(written: str) -> None:
    """Both mean the same port (docs/concepts/matching-and-merging.md#ports)."""
    found = all_rules(service("backend", (8080, "http")), conf(ms("backend", sectionName=written), 1))

    assert list(found) == ["MeshService backend:http"]


def test_a_port_without_a_name_goes_by_its_number() -> None:
    found = all_rules(service("backend", (8080, "")), conf(ms("backend", sectionName="8080"), 1))

    assert list(found) == ["MeshService backend:8080"]


def test_a_port_that_is_not_there_has_no_rule() -> None:
    assert all_rules(service("backend"), conf(ms("backend", sectionName="grpc"), 1)) == {}


@pytest.mark.parametrize(
    ("labels", "target", "found"),
    [
        ({}, {}, True),
        ({"kuma.io/zone": "east"}, {}, False),
        ({"k8s.kuma.io/namespace": "ns"}, {}, False),
        ({"k8s.kuma.io/namespace": "ns"}, {"namespace": "ns"}, True),
        ({"kuma.io/display-name": "other"}, {}, False),
    ],
)
def test_a_name_is_looked_for_in_the_zone_and_namespace_of_the_policy(labels: Data, target: Data, found: bool) -> None:
    some = [service("backend", labels=labels), conf(ms("backend", **target), 1)]

    assert bool(all_rules(*some)) is found


def test_the_old_name_of_a_service_means_its_namespace_and_port() -> None:
    some = service("backend", (8080, "http"), (9090, "admin"), labels={"k8s.kuma.io/namespace": "ns"})

    assert list(all_rules(some, conf(ms("backend_ns_svc_9090"), 1))) == ["MeshService backend:admin"]
    assert list(all_rules(some, conf(ms("backend_ns_svc_1"), 1))) == ["MeshService backend"]
    assert list(all_rules(some, conf(ms("backend_ns_svc"), 1))) == ["MeshService backend"]


def test_an_external_service_has_no_sections() -> None:
    spec = {"match": {"type": "HostnameGenerator", "port": 80, "protocol": "http"}}
    spec["endpoints"] = [{"address": "example.com", "port": 80}]  # type: ignore[assignment]
    external = {"type": "MeshExternalService", "mesh": "default", "name": "ext", "spec": spec}
    world = world_of(text(MESH, WEB, external, conf({"kind": "MeshExternalService", "name": "ext"}, 1)))
    to = rules_of(world, "MeshTimeout").to

    assert seconds(to.rule(identity("ext", "80", "MeshExternalService"))) == ["1"]


def test_a_service_of_several_zones_has_sections_as_any_service() -> None:
    some = service("backend", kind="MeshMultiZoneService", labels={"app": "x"})
    target = {"kind": "MeshMultiZoneService", "labels": {"app": "x"}, "sectionName": "80"}

    assert list(all_rules(some, conf(target, 1))) == ["MeshMultiZoneService backend:http"]


ORDERS: dict[str, list[Data]] = {
    "kind of the top target": [
        {"top": None},
        {"top": subset(team="a")},
        {"top": {"kind": "MeshService", "name": "web"}},
    ],
    "origin": [{"labels": {"kuma.io/origin": "global"}}, {}, {"labels": {"kuma.io/origin": "zone"}}],
    "role": [{"labels": {"kuma.io/policy-role": role}} for role in ("system", "producer")],
}


@pytest.mark.parametrize("order", ORDERS)
def test_items_are_merged_from_the_weakest_to_the_strongest(order: str) -> None:
    """Names go against the order, so that they do not decide."""
    some = [conf(ms("backend"), index, f"p{index}", **rest) for index, rest in enumerate(ORDERS[order])]

    assert merged_from(service("backend"), *some)["MeshService backend"] == [str(i) for i in range(len(some))]


def test_policy_without_role_ranks_as_system() -> None:
    system = conf(ms("backend"), 1, "b", labels={"kuma.io/policy-role": "system"})

    assert merged_from(service("backend"), system, conf(ms("backend"), 2, "a"))["MeshService backend"] == ["1", "2"]


def test_the_kind_of_the_item_counts_after_role_and_before_the_name() -> None:
    some = [conf(ms("backend"), 1, "b"), conf(WHOLE_MESH, 2, "a"), conf(WHOLE_MESH, 3, "c", top=subset(team="a"))]

    assert merged_from(service("backend"), *some)["MeshService backend"] == ["2", "1", "3"]


def test_an_item_for_a_section_is_stronger_than_one_for_the_whole() -> None:
    some = [conf(ms("backend", sectionName="http"), 1, "b"), conf(ms("backend"), 2, "a")]

    assert merged_from(service("backend"), *some)["MeshService backend:http"] == ["2", "1"]


def test_of_equals_the_first_name_wins() -> None:
    some = [conf(ms("backend"), 1, "aaa"), conf(ms("backend"), 2, "bbb")]

    assert merged_from(service("backend"), *some)["MeshService backend"] == ["2", "1"]


def test_in_one_policy_the_later_item_wins() -> None:
    assert merged_from(service("backend"), timeout("t", [(ms("backend"), 1), (ms("backend"), 2)])) == {
        "MeshService backend": ["1", "2"]
    }


def test_a_rule_is_looked_up_from_the_section_over_the_service_to_the_mesh() -> None:
    some = [service("backend"), service("other"), route("r")]
    items = [(WHOLE_MESH, 1), (ms("backend"), 2)]
    to = rules_of(world_of(text(MESH, WEB, *some, timeout("t", items))), "MeshTimeout").to

    assert seconds(to.rule(identity("backend", "http"))) == ["1", "2"]
    assert seconds(to.rule(identity("other", "http"))) == ["1"]
    assert to.rule(identity("r", kind="MeshHTTPRoute")) is None
    assert to.route(identity("backend")) is None


def test_an_origin_tells_the_item_its_level_and_its_place() -> None:
    yaml = """type: MeshTimeout
mesh: default
name: t
spec:
  to:
  - targetRef: {kind: Mesh}
    default: {connectionTimeout: 1s}
  - targetRef: {kind: MeshService, name: backend}
    default:
      connectionTimeout: 2s
"""
    world = world_of(text(yaml, MESH, WEB, service("backend")), "timeouts.yaml")
    rule = rules_of(world, "MeshTimeout").to.rule(identity("backend"))
    assert rule is not None
    first, second = rule.combined.origins

    assert told(first) == ("to", 0, "mesh", "timeouts.yaml", 6)
    assert told(second) == ("to", 1, "service", "timeouts.yaml", 8)
    assert rule.combined.conf.fields["connectionTimeout"].winner.line == 10


def told(origin: Origin) -> tuple[str, int, str, str, int]:
    return origin.part, origin.index, origin.level, origin.file, origin.line
