"""What lint says has no effect is in force nowhere: held against what inspection says of every proxy."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

import pytest

from cp.insight.inspect import affected_proxies
from cp.insight.lint import NO_EFFECT, lint
from cp.model.document import Document
from cp.model.names import Key
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.matching import match
from cp.rules.matching.profile import gateway_of
from tests.lint.test_no_effect import is_named_at_the_top
from tests.lint.test_told import policies_of, served, without
from tests.random_mesh import CALLS, EDGE, Mesh, dataplanes, for_meshes
from tests.rules.worlds import world_of
from tests.snapshots import policies

FEW: Final = ("Dataplane", "MeshService", "MeshTimeout", "MeshCircuitBreaker")
"""So few kinds that policies of one kind meet, and nulls have something to remove."""

HOLDS_ALL_THE_SAME: Final = {"redundant", "overridden", "no-effect"}
"""Findings about what is in force, but would be so without the policy, at one place or another."""


@for_meshes(also=(195, 652, 712))
def test_what_is_said_to_have_no_effect_is_in_force_nowhere(mesh: Mesh) -> None:
    assert_in_force_nowhere(mesh.world())


@for_meshes(CALLS)
def test_what_is_said_to_have_no_effect_on_calls_is_in_force_nowhere(mesh: Mesh) -> None:
    assert_in_force_nowhere(mesh.world())


@for_meshes(EDGE)
def test_what_is_said_to_have_no_effect_at_gateways_is_in_force_nowhere(mesh: Mesh) -> None:
    assert_in_force_nowhere(mesh.world())


@for_meshes(EDGE, also=(7000020018,))
def test_what_changes_what_gateways_are_served_is_in_force_somewhere(mesh: Mesh) -> None:
    assert_in_force_somewhere(mesh.world())


@for_meshes(CALLS)
def test_what_changes_what_is_served_is_in_force_somewhere(mesh: Mesh) -> None:
    assert_in_force_somewhere(mesh.world())


def is_excused(world: World, policy: Resource) -> bool:
    """Whether something may be called otherwise without a policy although none of its values holds.

    Rows and clusters are called after listeners where policies are for some of them, and a route takes its name from
    others that policies would mean instead.
    """
    return is_named_at_the_top(world, policy.key) or any(
        found.policy is policy and len(found.listeners) < len(gateway.spec.listeners)
        for proxy in dataplanes(world)
        if (gateway := gateway_of(world, proxy)) is not None
        for found in match(world, proxy).get(policy.type, ())
    )


def assert_in_force_somewhere(world: World) -> None:
    served_before = served(world)
    for policy in policies_of(world):
        if any(proxy.effects_in_force for proxy in affected_proxies(world, policy)) or is_excused(world, policy):
            continue
        assert served(without(world, policy.key)) == served_before, f"{policy.key} is said to be in force nowhere"


@for_meshes(FEW, times=1.5, also=(60, 90, 137))
def test_a_null_that_changes_what_is_served_is_in_force_somewhere(mesh: Mesh) -> None:
    world = mesh.world()
    served_before = served(world)
    for policy in policies_of(world):
        told = {
            effect.path
            for proxy in affected_proxies(world, policy)
            for effect in proxy.effects_in_force
            if effect.removed_settings
        }
        for path, shorter in with_one_null_less(policy.document):
            is_told = any(f"{removed_path}.".startswith(f"{path}.") for removed_path in told)
            changed = World.of(
                (shorter if resource.key == policy.key else resource.document for resource in world), world.kinds
            )
            is_valid = len(list(changed)) == len(list(world))
            assert is_told or not is_valid or served(changed) == served_before, (
                f"{policy.key}: nobody tells of {path}: null"
            )


def with_one_null_less(document: Document) -> Iterator[tuple[str, Document]]:
    """Each null of the items of `to`, by its path in the conf, with the document that lacks it."""
    items = (document.data.get("spec") or {}).get("to") or []
    for index, item in enumerate(items):
        for path in nulls(item.get("default") or {}):
            data: dict[str, Any] = copy.deepcopy(dict(document.data))
            take_out(data["spec"]["to"][index]["default"], path)
            yield ".".join(path), Document(document.key, data)


def take_out(conf: dict[str, Any], path: tuple[str, ...]) -> None:
    """With the objects that are empty without it: nothing but nulls in them says nothing, and `{}` says something."""
    name, *rest_of_path = path
    if rest_of_path:
        take_out(conf[name], tuple(rest_of_path))
    if not conf[name]:
        del conf[name]


def nulls(conf: Any, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if conf is None:
        yield parent
    elif isinstance(conf, dict):
        for name, value in conf.items():
            yield from nulls(value, (*parent, name))


def assert_in_force_nowhere(world: World) -> None:
    for finding in lint(policies(), world):
        policy = world.get(finding.resource) if finding.resource is not None else None
        if policy is None or not finding.message.startswith(NO_EFFECT) or finding.code in HOLDS_ALL_THE_SAME:
            continue
        for proxy in affected_proxies(world, policy):
            in_force = [f"{effect.scope}: {effect.path}" for effect in proxy.effects_in_force]
            assert not in_force, f"{finding}, and of {proxy.dataplane.name} is said to be in force {in_force}"


PROXIES: Final = """
type: Mesh
name: default
---
type: Dataplane
mesh: default
name: web
networking:
  address: 10.0.0.1
  inbound:
    - {port: 80, tags: {kuma.io/service: web, kuma.io/protocol: tcp}}
    - {port: 80, servicePort: 81, tags: {kuma.io/service: web, kuma.io/protocol: http}}
  outbound:
    - {port: 1001, tags: {kuma.io/service: web}}
    - {port: 1002, tags: {kuma.io/service: shop}}
---
type: Dataplane
mesh: default
name: shop-1
networking:
  address: 10.0.0.2
  inbound:
    - {port: 80, tags: {kuma.io/service: shop, kuma.io/protocol: http}}
    - {port: 81, state: Ignored, tags: {kuma.io/service: old, kuma.io/protocol: http}}
---
type: Dataplane
mesh: default
name: client
labels: {koguma.io/client: grpc}
networking:
  address: 10.0.0.3
  inbound: [{port: 80, tags: {kuma.io/service: client}}]
  outbound: [{port: 1001, tags: {kuma.io/service: web}}]
---
type: MeshHTTPRoute
mesh: default
name: counts
spec:
  to:
    - targetRef: {kind: MeshService, name: shop}
      rules: [{matches: [{path: {type: PathPrefix, value: /a}}], default: {}}]
"""
OF_ALL: Final = "targetRef: {kind: Mesh, proxyTypes: [Sidecar]}, "


def statuses(kind: str, spec: str, proxy: str) -> dict[str, set[str]]:
    """What is told of each place of a policy at a proxy; nothing where its values are in force."""
    world = world_of(f"{PROXIES}---\ntype: {kind}\nmesh: default\nname: p\nspec: {{{spec}}}\n")
    policy = world.get(Key(kind, "default", "p"))
    assert policy is not None
    statuses_at: dict[str, set[str]] = {}
    for effect in (
        effect
        for affected_proxy in affected_proxies(world, policy)
        if affected_proxy.dataplane.name == proxy
        for effect in affected_proxy.effects
    ):
        statuses_at.setdefault(str(effect.scope), set()).add(effect.idle_reason)
    return statuses_at


def calls(conf: str) -> str:
    return f"to: [{{targetRef: {{kind: Mesh}}, default: {conf}}}]"


def inbounds(conf: str) -> str:
    return f"{OF_ALL}rules: [{{default: {conf}}}]"


NO_TCP: Final = "has no effect: no meaning where tcp is spoken"
NOT_SERVED: Final = "has no effect: the inbound is not served"
NO_HTTP: Final = "has no effect: no meaning where http is spoken"
NO_ROUTE: Final = "has no effect: a MeshHTTPRoute has no meaning where tcp is spoken"
ONE_COUNTS: Final = "has no effect: where there is a MeshHTTPRoute, that one counts"
SHOP: Final = "{kind: MeshService, name: shop}"
WEB: Final = "{kind: MeshService, name: web}"
TO_WEB: Final = f"{{backendRefs: [{WEB}]}}"
RATE: Final = "{requestRate: {num: 1, interval: 10s}}"


@pytest.mark.parametrize(
    ("kind", "spec", "place", "expected"),
    [
        ("MeshTimeout", calls("{http: {requestTimeout: 1s}}"), "to web", {NO_TCP}),
        ("MeshTimeout", calls("{http: {requestTimeout: 1s}}"), "to shop", {""}),
        ("MeshTimeout", calls("{connectionTimeout: 1s}"), "to web", {""}),
        ("MeshRetry", calls("{tcp: {maxConnectAttempt: 2}}"), "to shop", {NO_HTTP}),
        ("MeshHealthCheck", calls("{http: {path: /}, interval: 3s}"), "to web", {NO_TCP}),
        ("MeshHealthCheck", calls("{http: {path: /}, interval: 3s}"), "to shop", {""}),
        ("MeshHealthCheck", calls("{tcp: {}, interval: 3s}"), "to shop", {""}),
        ("MeshRateLimit", inbounds(f"{{local: {{http: {RATE}}}}}"), "on inbound 80", {NO_TCP, NOT_SERVED}),
        ("MeshTCPRoute", f"to: [{{targetRef: {SHOP}, rules: [{{default: {TO_WEB}}}]}}]", "to shop", {ONE_COUNTS}),
        ("MeshHTTPRoute", f"to: [{{targetRef: {WEB}, rules: []}}]", "to web", {NO_ROUTE}),
    ],
)
def test_what_has_no_meaning_for_what_is_spoken_is_not_in_force(
    kind: str, spec: str, place: str, expected: set[str]
) -> None:
    assert statuses(kind, spec, "web")[place] == expected


def test_what_is_about_an_inbound_that_is_not_served_is_not_in_force() -> None:
    statuses_at = statuses("MeshTimeout", inbounds("{http: {requestTimeout: 1s}}"), "shop-1")

    assert statuses_at == {"on inbound 80": {""}, "on inbound 81": {NOT_SERVED}}


def test_what_passes_by_a_proxy_that_nothing_passes_is_not_in_force() -> None:
    (told,) = statuses("MeshPassthrough", "default: {passthroughMode: None}", "web")["on the proxy"]

    assert told.startswith("has no effect: the Dataplane has no `networking.transparentProxying`")


def test_what_a_grpc_client_does_not_do_or_cannot_call_is_not_in_force() -> None:
    unable = "has no effect: a gRPC client without a proxy does nothing of what it says"

    assert statuses("MeshHealthCheck", calls("{tcp: {}}"), "client") == {"to web": {unable}}
    assert statuses("MeshTimeout", calls("{http: {requestTimeout: 1s}}"), "client") == {
        "to web": {"has no effect: a gRPC client calls only what understands gRPC"}
    }


def test_a_patch_of_what_a_proxy_does_not_have_is_not_in_force() -> None:
    patch = "{appendModifications: [{cluster: {operation: Remove, match: {name: %s}}}]}"

    assert statuses("MeshProxyPatch", f"default: {patch % 'nosuch'}", "web") == {
        "on the proxy": {"has no effect: the proxy has nothing that `match` is about"}
    }
    assert statuses("MeshProxyPatch", f"default: {patch % 'localhost:80'}", "web") == {"on the proxy": {""}}
