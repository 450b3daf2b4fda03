"""Values about a part of a service that no proxy is served, because routes lead elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from cp.insight.inspect import affected_proxies
from cp.insight.lint import NO_EFFECT, lint
from cp.model.document import Document
from cp.model.names import Key
from cp.model.source import read_documents
from cp.policies import kinds
from cp.resources.world import World
from cp.translate.compiler import Compiler
from tests.golden import ROOT
from tests.snapshots import policies

CASE: Final = ROOT / "lint" / "routed-elsewhere.in.yaml"
TO_OTHERS: Final = "all routes of `shop` go to `shop-v1`, `shop-v2`"
BY_ROUTES: Final = "calls come by the routes of `shop`"

POLICIES: Final = (
    Key("MeshCircuitBreaker", "default", "cb"),
    Key("MeshHealthCheck", "default", "hc"),
    Key("MeshRetry", "default", "r2"),
    Key("MeshTimeout", "default", "t"),
    Key("MeshTimeout", "default", "t1"),
)


def documents(path: Path = CASE) -> list[Document]:
    return list(read_documents(path.read_text(), path.name).documents)


def world(*left_out: Key) -> World:
    return World.of([one for one in documents() if one.key not in left_out], kinds(policies()))


def statuses(policy: Key, of: World) -> dict[str, str]:
    """What is told of each field of a policy at `web`: why it does nothing, or nothing where it is in force."""
    found = of.get(policy)
    assert found is not None
    effects = (one for proxy in affected_proxies(of, found) if proxy.dataplane.name == "web" for one in proxy.effects)
    return {one.path: one.idle_reason for one in effects}


def configuration(of: World) -> list[tuple[str, bytes]]:
    web = of.get(Key("Dataplane", "default", "web"))
    assert web is not None
    return [(one.name, one.body) for part in Compiler(policies()).snapshot(of, web).parts for one in part]


@pytest.mark.parametrize("policy", POLICIES[:3])
def test_a_policy_about_a_part_that_is_not_served_has_no_effect(policy: Key) -> None:
    """It is told so, it is not in force anywhere, and really nothing that is served differs without it."""
    everything = world()
    told = {one.resource: one for one in lint(policies(), everything) if one.message.startswith(NO_EFFECT)}

    assert told[policy].code == "routed-elsewhere"
    assert all(statuses(policy, everything).values())
    assert configuration(everything) == configuration(world(policy))


def test_of_a_policy_that_has_some_effect_each_value_without_one_is_told() -> None:
    everything = world()
    told = {(one.resource, one.path): one.message for one in lint(policies(), everything)}

    assert TO_OTHERS in told[Key("MeshTimeout", "default", "t"), "spec.to[0].default.connectionTimeout"]
    assert BY_ROUTES in told[Key("MeshTimeout", "default", "t1"), "spec.to[0].default.http.requestTimeout"]
    assert not [path for _, path in told if path == "spec.to[0].default.idleTimeout"]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (POLICIES[0], {"connectionLimits.maxConnections": f"has no effect: {TO_OTHERS}"}),
        (POLICIES[3], {"connectionTimeout": f"has no effect: {TO_OTHERS}", "http.requestTimeout": ""}),
    ],
)
def test_inspection_says_the_same_field_by_field(policy: Key, expected: dict[str, Any]) -> None:
    assert statuses(policy, world()) == expected


def test_a_service_that_is_reached_only_by_routes_has_what_is_written_for_its_cluster() -> None:
    found = statuses(Key("MeshTimeout", "default", "t1"), world())

    assert found["connectionTimeout"] == ""
    assert BY_ROUTES in found["http.requestTimeout"]


def test_where_one_share_stays_with_the_service_everything_has_an_effect() -> None:
    changed = [_leading_to_itself(one) if one.key.type == "MeshHTTPRoute" else one for one in documents()]
    of = World.of(changed, kinds(policies()))

    assert not [one for one in lint(policies(), of) if one.resource in {POLICIES[0], POLICIES[1], POLICIES[3]}]
    assert set(statuses(POLICIES[3], of).values()) == {""}


def _leading_to_itself(route: Document) -> Document:
    text = CASE.read_text().replace("name: shop-v2, port: 80, weight: 1", "name: shop, port: 80, weight: 1")
    return next(one for one in read_documents(text, CASE.name).documents if one.key == route.key)


REMOVES: Final = """type: MeshHealthCheck
mesh: default
name: removes
spec:
  targetRef: {kind: Dataplane, name: web}
  to:
    - targetRef: {kind: MeshService, name: shop}
      default: {healthyPanicThreshold: null}
"""


def test_a_null_with_nothing_to_remove_stands_beside_what_is_not_served_each_with_its_reason() -> None:
    cut = CASE.read_text().replace("maxConnections: 7", "maxConnections: 7, maxPendingRequests: null")
    of = World.of(read_documents(cut, CASE.name).documents, kinds(policies()))
    found = of.get(POLICIES[0])
    assert found is not None
    (web,) = (one for one in affected_proxies(of, found) if one.dataplane.name == "web")

    assert {one["field"]: one["reason"] for one in web.data["withoutEffect"]} == {
        "connectionLimits.maxConnections": f"has no effect: {TO_OTHERS}",
        "connectionLimits.maxPendingRequests": (
            "has no effect: there is no weaker item for the same target that sets it"
        ),
    }
    assert (web.effects_in_force, web.overridden_effects) == ((), ())


def test_a_null_that_removes_what_would_have_had_no_effect_has_none_either() -> None:
    """No other policy and no default sets the field, so nothing is left of it in the conf."""
    (removes,) = read_documents(REMOVES, "removes.yaml").documents
    before = CASE.read_text().replace("interval: 5s", "healthyPanicThreshold: 30, interval: 5s")
    of = World.of([*read_documents(before, CASE.name).documents, removes], kinds(policies()))

    assert statuses(removes.key, of) == {"healthyPanicThreshold": f"has no effect: {TO_OTHERS}"}
    assert configuration(of) == configuration(world())


def test_at_a_route_that_leads_elsewhere_nothing_about_the_cluster_of_the_service_is_in_force() -> None:
    """Some requests of `shop` go on to it, so its cluster is served; those of the route go to others."""
    canary = CASE.read_text().replace("value: /}", "value: /new}")
    assert canary != CASE.read_text()
    of = World.of(read_documents(canary, CASE.name).documents, kinds(policies()))
    breaker = of.get(Key("MeshCircuitBreaker", "default", "cb"))
    assert breaker is not None
    effects = [one for proxy in affected_proxies(of, breaker) if proxy.dataplane.name == "web" for one in proxy.effects]

    by_route = {bool(one.idle_reason) for one in effects if "by MeshHTTPRoute" in str(one.scope)}
    others = {bool(one.idle_reason) for one in effects if "by MeshHTTPRoute" not in str(one.scope)}
    assert (by_route, others) == ({True}, {False})
