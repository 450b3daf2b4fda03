"""Which policies select a proxy, which parts of it, and in what order."""

from __future__ import annotations

from typing import Any

import pytest

from cp.rules.matching import MatchedPolicy, match, precedence
from tests.rules.texts import (
    MESH,
    WHOLE_MESH,
    Data,
    gateway,
    hr,
    inbound,
    mesh_gateway,
    policy,
    proxy,
    route,
    subset,
    text,
    timeout,
)
from tests.rules.worlds import dataplane, world_of


def matched(name: str, *some: Data, shadow: bool = False) -> tuple[MatchedPolicy, ...]:
    world = world_of(text(MESH, *some))
    return match(world, dataplane(world, name), shadow=shadow).get("MeshTimeout", ())


def names(found: tuple[MatchedPolicy, ...]) -> list[str]:
    return [one.policy.name for one in found]


def selects(top: Data | None, target: Data, **rest: Any) -> tuple[MatchedPolicy, ...]:
    return matched(target["name"], target, timeout("t", WHOLE_MESH, 1, top=top, **rest))


def test_a_policy_without_a_target_selects_everybody() -> None:
    assert names(selects(None, proxy())) == ["t"]


@pytest.mark.parametrize(
    ("types", "selected"),
    [
        (["Sidecar"], ["web"]),
        (["Gateway"], ["edge"]),
        (["Sidecar", "Gateway"], ["edge", "web"]),
        (None, ["edge", "web"]),
    ],
)
def test_a_mesh_may_be_narrowed_to_types_of_proxies(types: list[str] | None, selected: list[str]) -> None:
    top = {"kind": "Mesh", **({} if types is None else {"proxyTypes": types})}
    world = world_of(text(MESH, proxy(), gateway(kind="DELEGATED"), timeout("t", WHOLE_MESH, 1, top=top)))

    assert [one.name for one in world.table("Dataplane", "default") if match(world, one)] == selected


def test_tags_select_the_inbounds_that_carry_all_of_them() -> None:
    web = proxy(
        inbounds=[inbound(80, team="a", version="v1"), inbound(81, team="a"), inbound(82, team="a", version="v1")]
    )

    (found,) = selects(subset(team="a", version="v1"), web)
    assert found.inbounds == (0, 2)


def test_tags_of_different_inbounds_are_not_taken_together() -> None:
    web = proxy(inbounds=[inbound(80, team="a"), inbound(81, version="v1")])

    assert selects(subset(team="a", version="v1"), web) == ()


@pytest.mark.parametrize(("value", "count"), [("*", 1), ("v1", 1), ("v2", 0)])
def test_a_star_stands_for_any_value_of_a_tag_that_is_there(value: str, count: int) -> None:
    top = {"kind": "MeshServiceSubset", "name": "web", "tags": {"version": value}}

    assert len(selects(top, proxy(inbounds=[inbound(80, version="v1")]))) == count


def test_a_star_wants_the_tag_to_be_there() -> None:
    assert selects({"kind": "MeshServiceSubset", "name": "web", "tags": {"version": "*"}}, proxy()) == ()


def test_a_mesh_service_at_the_top_is_the_tag_and_never_a_resource() -> None:
    assert names(selects({"kind": "MeshService", "name": "web"}, proxy())) == ["t"]
    assert names(selects({"kind": "MeshService", "name": "backend"}, proxy())) == []


def test_a_subset_of_a_service_wants_its_tags_too() -> None:
    top = {"kind": "MeshServiceSubset", "name": "web", "tags": {"version": "v1"}}

    assert names(selects(top, proxy(inbounds=[inbound(80, version="v1")]))) == ["t"]
    assert names(selects(top, proxy(inbounds=[inbound(80, version="v2")]))) == []


@pytest.mark.parametrize(
    ("target", "inbounds"),
    [
        ({}, (0, 1)),
        ({"name": "web"}, (0, 1)),
        ({"labels": {"app": "demo"}}, (0, 1)),
        ({"labels": {"app": "demo"}, "sectionName": "admin"}, (1,)),
        ({"name": "web", "sectionName": "8080"}, (0,)),
        ({"name": "other"}, None),
        ({"labels": {"app": "demo", "tier": "x"}}, None),
        ({"name": "web", "sectionName": "none"}, None),
    ],
)
def test_a_dataplane_is_selected_by_name_or_labels_and_section(target: Data, inbounds: tuple[int, ...] | None) -> None:
    web = proxy(inbounds=[inbound(8080, "main"), inbound(9090, "admin")], labels={"app": "demo"})
    rules = [{"default": {"connectionTimeout": "1s"}}]
    some = policy("MeshTimeout", "t", top={"kind": "Dataplane", **target}, rules=rules)

    found = matched("web", web, some)
    assert [one.inbounds for one in found] == ([] if inbounds is None else [inbounds])


def test_a_dataplane_target_never_selects_a_builtin_gateway() -> None:
    assert matched("edge", gateway(), mesh_gateway(), timeout("t", WHOLE_MESH, 1, top={"kind": "Dataplane"})) == ()


def test_a_builtin_gateway_is_selected_by_its_listeners() -> None:
    listeners = [{"port": 80 + i, "protocol": "HTTP", "tags": {"listener": name}} for i, name in enumerate("ab")]
    top = {"kind": "MeshGateway", "name": "edge", "tags": {"listener": "b"}}

    (found,) = matched("edge", gateway(), mesh_gateway("edge", *listeners), timeout("t", WHOLE_MESH, 1, top=top))
    assert (found.inbounds, found.listeners) == ((), (1,))


def test_tags_of_a_listener_lie_over_those_of_its_gateway_and_of_the_proxy() -> None:
    listeners = [{"port": 80, "protocol": "HTTP", "tags": {"version": "listener"}}, {"port": 81, "protocol": "HTTP"}]
    some = (gateway(version="proxy"), mesh_gateway("edge", *listeners))

    (of_listener,) = matched("edge", *some, timeout("t", WHOLE_MESH, 1, top=subset(version="listener")))
    (of_proxy,) = matched("edge", *some, timeout("t", WHOLE_MESH, 1, top=subset(version="proxy")))
    assert (of_listener.listeners, of_proxy.listeners) == ((0,), (1,))


def test_a_gateway_takes_the_mesh_gateway_with_the_most_specific_selector() -> None:
    some = (
        gateway(team="a"),
        mesh_gateway("general"),
        mesh_gateway("special", match={"kuma.io/service": "edge", "team": "a"}),
    )
    top = {"kind": "MeshGateway", "name": "special"}

    assert names(matched("edge", *some, timeout("t", WHOLE_MESH, 1, top=top))) == ["t"]


def test_a_gateway_of_no_mesh_gateway_is_selected_by_nothing() -> None:
    assert matched("edge", gateway(), timeout("t", WHOLE_MESH, 1)) == ()


def test_a_delegated_gateway_is_selected_by_its_tags() -> None:
    assert names(
        matched("edge", gateway(kind="DELEGATED", team="a"), timeout("t", WHOLE_MESH, 1, top=subset(team="a")))
    ) == ["t"]
    assert (
        names(matched("edge", gateway(kind="DELEGATED", team="a"), timeout("t", WHOLE_MESH, 1, top=subset(team="b"))))
        == []
    )


def test_a_route_at_the_top_stands_for_its_own_target() -> None:
    found = timeout("t", WHOLE_MESH, {"http": {"requestTimeout": "1s"}}, top=hr("r"))

    assert names(matched("web", proxy(), found, route("r", top=subset(**{"kuma.io/service": "web"})))) == ["t"]
    assert names(matched("web", proxy(), found, route("r", top=subset(team="b")))) == []
    assert names(matched("web", proxy(), found)) == []


def test_a_route_at_the_top_is_every_route_of_that_name_unless_one_is_where_the_policy_is() -> None:
    """With a label for the namespace, a route is that of its namespace."""
    there = {"kuma.io/display-name": "r", "k8s.kuma.io/namespace": "ns-a"}
    elsewhere = {"kuma.io/display-name": "r", "k8s.kuma.io/namespace": "ns-b"}
    routes = (
        route("r.ns-a", top=subset(team="a"), labels=there),
        route("r.ns-b", top=subset(**{"kuma.io/service": "web"}), labels=elsewhere),
    )
    conf = {"http": {"requestTimeout": "1s"}}
    nowhere = timeout("t", WHOLE_MESH, conf, top=hr("r"))
    own = timeout("t", WHOLE_MESH, conf, top=hr("r"), labels={"k8s.kuma.io/namespace": "ns-a"})

    assert names(matched("web", proxy(), nowhere, *routes)) == ["t"], "one of the two selects the proxy"
    assert names(matched("web", proxy(), own, *routes)) == [], "the one of its namespace does not"


def test_shadow_policies_are_only_for_those_who_ask() -> None:
    shadow = timeout("shadow", WHOLE_MESH, 1, labels={"kuma.io/effect": "shadow"})
    some = (proxy(), timeout("t", WHOLE_MESH, 1), shadow)

    assert names(matched("web", *some)) == ["t"]
    assert names(matched("web", *some, shadow=True)) == ["t", "shadow"]


@pytest.mark.parametrize(
    ("role", "namespace", "selected"),
    [
        ("system", "a", True),
        ("producer", "a", True),
        ("consumer", "a", False),
        ("consumer", "b", True),
        ("workload-owner", "a", False),
        ("workload-owner", "b", True),
        ("consumer", "", False),
    ],
)
def test_consumers_and_owners_of_workloads_stay_in_their_namespace(role: str, namespace: str, selected: bool) -> None:
    labels = {"kuma.io/policy-role": role, **({"k8s.kuma.io/namespace": namespace} if namespace else {})}
    web = proxy(labels={"k8s.kuma.io/namespace": "b"})

    assert bool(selects(None, web, labels=labels)) is selected


ZONE = {"kuma.io/origin": "zone", "kuma.io/zone": "east"}


@pytest.mark.parametrize(
    ("of_policy", "of_proxy", "selected"),
    [
        (ZONE, ZONE, True),
        (ZONE, ZONE | {"kuma.io/zone": "west"}, False),
        (ZONE | {"kuma.io/policy-role": "producer"}, ZONE | {"kuma.io/zone": "west"}, True),
        (ZONE, {"kuma.io/zone": "west"}, False),
        (ZONE | {"kuma.io/origin": "global"}, ZONE | {"kuma.io/zone": "west"}, True),
        ({"kuma.io/origin": "zone"}, ZONE, True),
    ],
)
def test_policies_of_a_zone_stay_in_it_unless_a_producer_wrote_them(
    of_policy: Data, of_proxy: Data, selected: bool
) -> None:
    assert bool(selects(None, proxy(labels=of_proxy), labels=of_policy)) is selected


ORDERS: dict[str, list[Data]] = {
    "the kind of the target": [
        {"top": {"kind": "Mesh"}},
        {"top": {"kind": "Dataplane"}},
        {"top": {"kind": "MeshSubset", "tags": {"kuma.io/service": "web"}}},
        {"top": {"kind": "MeshService", "name": "web"}},
        {"top": {"kind": "MeshServiceSubset", "name": "web", "tags": {"kuma.io/service": "web"}}},
    ],
    "labels before a name": [
        {"top": {"kind": "Dataplane", "labels": {"app": "demo"}}},
        {"top": {"kind": "Dataplane", "name": "web", "namespace": "ns"}},
    ],
    "the origin": [
        {"labels": {"kuma.io/origin": "global"}},
        {},
        {"labels": {"kuma.io/origin": "zone"}},
    ],
    "the role": [
        {"labels": {"kuma.io/policy-role": role, "k8s.kuma.io/namespace": "ns"}}
        for role in ("system", "producer", "consumer", "workload-owner")
    ],
}


@pytest.mark.parametrize("order", ORDERS)
def test_policies_come_from_the_weakest_to_the_strongest(order: str) -> None:
    """Names go against the order, so that they do not decide."""
    some = [timeout(f"p{index}", WHOLE_MESH, 1, **rest) for index, rest in enumerate(ORDERS[order])]
    web = proxy(labels={"app": "demo", "k8s.kuma.io/namespace": "ns"})

    assert names(matched("web", web, *some)) == [f"p{index}" for index in range(len(some))]


def test_a_name_decides_before_a_section() -> None:
    labels: Data = {"kind": "Dataplane", "labels": {"app": "demo"}}
    named: Data = {"kind": "Dataplane", "name": "web"}
    tops = [labels, labels | {"sectionName": "http"}, named, named | {"sectionName": "http"}]
    rules = [{"default": {"connectionTimeout": "1s"}}]
    some = [policy("MeshTimeout", f"p{index}", top=top, rules=rules) for index, top in enumerate(tops)]
    web = proxy(inbounds=[inbound(80, "http")], labels={"app": "demo"})

    assert names(matched("web", web, *some)) == ["p0", "p1", "p2", "p3"]


def test_of_equals_the_first_name_wins_and_comes_last() -> None:
    assert names(matched("web", proxy(), *(timeout(name, WHOLE_MESH, 1) for name in ("aa", "b", "a")))) == [
        "b",
        "aa",
        "a",
    ]


def test_the_display_name_counts_and_not_the_stored_one() -> None:
    some = [timeout("z", WHOLE_MESH, 1, labels={"kuma.io/display-name": "a"}), timeout("y", WHOLE_MESH, 1)]

    assert names(matched("web", proxy(), *some)) == ["y", "z"]


def test_a_gateway_target_with_more_tags_is_stronger() -> None:
    listeners = {"port": 80, "protocol": "HTTP", "tags": {"x": "1"}}
    top = {"kind": "MeshGateway", "name": "edge"}
    some = [timeout("b", WHOLE_MESH, 1, top=top | {"tags": {"x": "1"}}), timeout("a", WHOLE_MESH, 1, top=top)]

    assert names(matched("edge", gateway(), mesh_gateway("edge", listeners), *some)) == ["a", "b"]


def test_a_precedence_can_be_read() -> None:
    world = world_of(text(MESH, timeout("t", WHOLE_MESH, 1, labels={"kuma.io/origin": "zone"})))
    (policy,) = world.table("MeshTimeout", "default")

    assert precedence(policy) == (-1, 0, 0, -3, 0, -1, "t", "t")


def test_proxies_with_equal_signatures_share_their_matches() -> None:
    world = world_of(
        text(MESH, *(proxy(f"p{i}", inbounds=[inbound(80)]) for i in range(3)), timeout("t", WHOLE_MESH, 1))
    )
    first, *others = (match(world, one) for one in world.table("Dataplane", "default"))

    assert all(one is first for one in others)


def test_a_policy_that_names_one_proxy_is_for_that_one() -> None:
    top = {"kind": "Dataplane", "name": "p1"}
    world = world_of(
        text(MESH, *(proxy(f"p{i}", inbounds=[inbound(80)]) for i in range(3)), timeout("t", WHOLE_MESH, 1, top=top))
    )

    assert [one.name for one in world.table("Dataplane", "default") if match(world, one)] == ["p1"]
