"""What inspection says of legacy policies, held against what is served when one of their values is another."""

from __future__ import annotations

import copy
from typing import Any, Final

import pytest

from cp.insight.inspect import affected_proxies, selects_proxies
from cp.model.document import Document
from cp.model.paths import steps
from cp.resources.kinds import LegacySide
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.legacy import side_of, tells_clients_apart
from tests.lint.test_told import served, without
from tests.random_mesh import LEGACY, LEGACY_EDGE, Mesh, for_meshes, mesh_of

OTHER_DURATION: Final = "1234s"


def legacy_policies(world: World) -> list[Resource]:
    return [resource for resource in world if selects_proxies(resource.kind) and resource.kind.policy is None]


@for_meshes(LEGACY, times=0.3, also=(53,))
def test_proxies_are_served_something_else_if_a_value_in_force_is_another(mesh: Mesh) -> None:
    assert_in_force_acts(mesh)


@for_meshes(LEGACY_EDGE, times=0.3)
def test_gateways_are_served_something_else_if_a_value_in_force_is_another(mesh: Mesh) -> None:
    assert_in_force_acts(mesh)


def assert_in_force_acts(mesh: Mesh) -> None:
    world = mesh.world()
    before = served(world)
    for policy in legacy_policies(world):
        affected = list(affected_proxies(world, policy))
        in_force = [(proxy.dataplane.name, effect.path) for proxy in affected for effect in proxy.effects_in_force]
        for path in dict.fromkeys(path for _, path in in_force):
            changed = with_another(policy.document, path)
            now = before if changed is None else served(with_document(world, changed))
            for name in (name for name, of_proxy in in_force if of_proxy == path and changed is not None):
                assert now[name] != before[name], f"{policy.key}: {path} is said to be in force on {name}"


@for_meshes(LEGACY, times=0.3, also=(57,))
def test_proxies_are_served_the_same_if_a_value_that_is_not_in_force_is_another(mesh: Mesh) -> None:
    assert_idle_does_nothing(mesh)


@for_meshes(LEGACY_EDGE, times=0.3)
def test_gateways_are_served_the_same_if_a_value_that_is_not_in_force_is_another(mesh: Mesh) -> None:
    assert_idle_does_nothing(mesh)


def assert_idle_does_nothing(mesh: Mesh) -> None:
    world = mesh.world()
    before = served(world)
    for policy in legacy_policies(world):
        affected = list(affected_proxies(world, policy))
        for path in dict.fromkeys(effect.path for proxy in affected for effect in proxy.effects):
            changed = with_another(policy.document, path)
            now = before if changed is None else served(with_document(world, changed))
            for proxy in affected:
                is_told = any(effect.path == path for effect in proxy.effects_in_force)
                assert is_told or now[proxy.dataplane.name] == before[proxy.dataplane.name], (
                    f"{policy.key}: {path} is not said to be in force on {proxy.dataplane.name}"
                )


@for_meshes(LEGACY, also=(82,))
def test_a_policy_without_which_a_proxy_is_served_something_else_is_in_force_there(mesh: Mesh) -> None:
    assert_what_changes_is_in_force(mesh)


@for_meshes(LEGACY_EDGE)
def test_a_policy_without_which_a_gateway_is_served_something_else_is_in_force_there(mesh: Mesh) -> None:
    assert_what_changes_is_in_force(mesh)


def assert_what_changes_is_in_force(mesh: Mesh) -> None:
    """But for those for whose sake callers say who they are."""
    world = mesh.world()
    before = served(world)
    for policy in legacy_policies(world):
        in_force = {proxy.dataplane.name for proxy in affected_proxies(world, policy) if proxy.effects_in_force}
        if tells_clients_apart(policy) or is_about_clients(policy):
            continue
        now = served(without(world, policy.key))
        differing = {name for name in before if now[name] != before[name]}
        assert differing <= in_force, f"{policy.key} is not said to be in force on {differing - in_force}"


def is_about_clients(policy: Resource) -> bool:
    return policy.kind.legacy is not None and side_of(policy) is LegacySide.INBOUND


@for_meshes(LEGACY_EDGE)
def test_a_rule_of_a_mesh_gateway_route_is_in_force_where_gateways_are_served_something_else_without(
    mesh: Mesh,
) -> None:
    assert_rules_are_told(mesh)


def assert_rules_are_told(mesh: Mesh) -> None:
    """What leads to nobody is answered alike by two rules, and a connection is closed with its route and without."""
    world = mesh.world()
    before = served(world)
    for route in world.table("MeshGatewayRoute", "default"):
        for proxy in affected_proxies(world, route):
            name, in_force = proxy.dataplane.name, {effect.path for effect in proxy.effects_in_force}
            shadowing = {effect.overridden_by.path for effect in proxy.effects if effect.overridden_by is not None}
            for path in dict.fromkeys(effect.path for effect in proxy.effects if "rules" in effect.path):
                now = served(without_rule(world, route, path))
                differs = now[name] != before[name]
                is_so = differs is (path in in_force) or (not differs and ("tcp" in path or path in shadowing))
                assert is_so, f"{route.key}: {path} on {name}"


def without_rule(world: World, route: Resource, path: str) -> World:
    """Without a rule of a MeshGatewayRoute; without the route if it has no other."""
    _, protocol, _, index = steps(path)
    data: Any = copy.deepcopy(dict(route.document.data))
    del data["conf"][protocol]["rules"][index]
    if not data["conf"][protocol]["rules"]:
        return without(world, route.key)
    return with_document(world, Document(route.key, data, route.source))


def with_document(world: World, document: Document) -> World:
    return World.of(
        (document if resource.key == document.key else resource.document for resource in world), world.kinds
    )


def with_another(document: Document, path: str) -> Document | None:
    """The document with another number or duration at a path; None if something else is there."""
    data: Any = copy.deepcopy(dict(document.data))
    *outer, last = steps(path)
    inner = data
    for name in outer:
        inner = (inner.get(name) or {}) if isinstance(inner, dict) else inner[name]
    other = another(inner.get(last)) if isinstance(inner, dict) else None
    if other is None:
        return None
    inner[last] = other
    return Document(document.key, data, document.source)


def another(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return value + 1
    return OTHER_DURATION if isinstance(value, str) and value[:1].isdigit() else None


def test_values_of_most_kinds_are_compared() -> None:
    """Or nothing would be."""
    told: set[tuple[str, str]] = set()
    for seed in range(40):
        world = mesh_of(seed, LEGACY).world()
        for policy in legacy_policies(world):
            for proxy in affected_proxies(world, policy):
                told |= {(policy.type, "in force") for _ in proxy.effects_in_force}
                told |= {(policy.type, "overridden") for _ in proxy.overridden_effects}
                told |= {(policy.type, "idle") for _ in proxy.idle_effects}

    in_force = {kind for kind, status in told if status == "in force"}
    assert in_force >= {"Timeout", "Retry", "CircuitBreaker", "HealthCheck", "RateLimit", "FaultInjection"}
    assert {status for _, status in told} == {"in force", "overridden", "idle"}


@pytest.mark.parametrize(
    ("meshes", "expected"),
    [
        pytest.param(20, {"Timeout", "HealthCheck", "TrafficLog", "TrafficTrace", "MeshGatewayRoute"}, id="few"),
        pytest.param(400, {"Retry", "CircuitBreaker"}, id="many", marks=pytest.mark.long),  # they are rare
    ],
)
def test_values_are_compared_on_gateways_too(meshes: int, expected: set[str]) -> None:
    in_force: set[str] = set()
    for seed in range(meshes):
        world = mesh_of(seed, LEGACY_EDGE).world()
        gateways = {proxy.key for proxy in world.table("Dataplane", "default") if proxy.spec.is_builtin_gateway}
        for policy in legacy_policies(world):
            affected = (proxy for proxy in affected_proxies(world, policy) if proxy.dataplane in gateways)
            in_force |= {policy.type for proxy in affected if proxy.effects_in_force}

    assert in_force >= expected
