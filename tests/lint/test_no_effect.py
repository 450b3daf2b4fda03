"""A finding that something has no effect is true, and there is one for all that has none.

What lint reads from origins is held against the real thing: the mesh worked out once more without it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from cp.insight.lint import NO_EFFECT, NO_EFFECT_OF_ITEM, lint
from cp.model.document import Document
from cp.model.names import Key
from cp.model.violation import Finding
from cp.resources.world import World
from tests.lint.observed import observed
from tests.lint.test_told import served, without
from tests.random_mesh import CALLS, EDGE, Mesh, dataplanes, for_meshes
from tests.rules.worlds import world_of
from tests.snapshots import policies


def is_judged(world: World) -> bool:
    """Of a mesh without proxies nothing is said."""
    return bool(list(dataplanes(world)))


def idle(world: World) -> set[Key | None]:
    return {finding.resource for finding in lint(policies(), world) if finding.message.startswith(NO_EFFECT)}


def really_idle(world: World) -> set[Key | None]:
    before, served_before = observed(world), served(world)
    judged = (resource.key for resource in world if resource.kind.policy is not None)
    same = (key for key in judged if observed(without(world, key)) == before)
    return {key for key in same if served(without(world, key)) == served_before}


@for_meshes(also=(202, 346, 433, 736))
def test_policies_of_every_shape_have_no_effect_if_and_only_if_it_is_told(mesh: Mesh) -> None:
    world = mesh.world()
    if is_judged(world):
        wrong = idle(world) ^ really_idle(world)
        assert not wrong, f"told or so, and not both: {wrong}"


@for_meshes(CALLS, also=(921,))
def test_policies_for_calls_have_no_effect_if_and_only_if_it_is_told(mesh: Mesh) -> None:
    world = mesh.world()
    if is_judged(world):
        wrong = idle(world) ^ really_idle(world)
        assert not wrong, f"told or so, and not both: {wrong}"


@for_meshes(EDGE, times=0.5, also=(69,))
def test_policies_of_gateways_have_no_effect_if_and_only_if_it_is_told(mesh: Mesh) -> None:
    world = mesh.world()
    if is_judged(world):
        wrong = idle(world) ^ really_idle(world)
        assert not wrong, f"told or so, and not both: {wrong}"


@for_meshes(EDGE, times=0.4)
def test_an_item_about_gateways_has_no_effect_if_and_only_if_it_is_told(mesh: Mesh) -> None:
    assert_told_of_items(mesh)


@for_meshes(("Dataplane", "MeshFaultInjection"), also=(75,))
def test_an_item_about_clients_has_no_effect_if_and_only_if_it_is_told(mesh: Mesh) -> None:
    assert_told_of_items(mesh)


@for_meshes(("Dataplane", "MeshTimeout", "MeshTimeout", "MeshAccessLog"), times=2)
def test_a_rule_for_some_clients_has_no_effect_if_and_only_if_it_is_told(mesh: Mesh) -> None:
    assert_told_of_items(mesh)


@for_meshes(CALLS, also=(249,))
def test_an_item_has_no_effect_if_and_only_if_it_is_told(mesh: Mesh) -> None:
    """For items of policies that have one. Of the only one for a route it is never told, see `is_the_only_route`."""
    assert_told_of_items(mesh)


def assert_told_of_items(mesh: Mesh) -> None:
    world = mesh.world()
    if not is_judged(world):
        return
    findings, before, served_before = lint(policies(), world), observed(world), served(world)
    told = {(finding.resource, root(finding)) for finding in findings if finding.message.startswith(NO_EFFECT_OF_ITEM)}
    effective = [
        policy
        for policy in world
        if dataplanes(world) and policy.kind.policy is not None and policy.key not in idle(world)
    ]

    for key, path, shorter in (shortened for policy in effective for shortened in with_one_item_less(policy.document)):
        changed = World.of((shorter if resource.key == key else resource.document for resource in world), world.kinds)
        is_told, is_so = (key, path) in told, observed(changed) == before and served(changed) == served_before
        is_excused = is_so and (is_the_only_route(world, key, path) or is_named_at_the_top(world, key))
        assert is_told == is_so or is_excused, f"{key} {path}: told {is_told}, so {is_so}"


def is_the_only_route(world: World, key: Key, path: str) -> bool:
    """While it is there, all items of its policy are for real services alone: without it they may reach others too."""
    policy = world.get(key)
    items = policy.data.get("to") if policy is not None else None
    routes = [
        at for at, item in enumerate(items or ()) if item["targetRef"]["kind"] in {"MeshHTTPRoute", "MeshTCPRoute"}
    ]
    return [f"spec.to[{at}]" for at in routes] == [path]


def is_named_at_the_top(world: World, key: Key) -> bool:
    """A route by which other policies choose their proxies, by its display name: of its items nothing is told."""
    route = world.get(key)
    tops = (policy.data.get("targetRef") or {} for policy in world if policy.kind.policy is not None)
    return route is not None and any(
        (top.get("kind"), top.get("name")) == (route.type, route.display_name) for top in tops
    )


def root(finding: Finding) -> str:
    """The path of the item that a finding is about."""
    head, bracket, _ = finding.path.partition("]")
    return head + bracket


def with_one_item_less(document: Document) -> Iterator[tuple[Key, str, Document]]:
    spec: dict[str, Any] = document.data.get("spec") or {}
    places = [(part, index) for part in ("to", "from", "rules") for index, _ in enumerate(spec.get(part, ()))]
    for part, index in places if len(places) > 1 else ():
        data: dict[str, Any] = copy.deepcopy(dict(document.data))
        del data["spec"][part][index]
        yield document.key, f"spec.{part}[{index}]", Document(document.key, data)


PROXIES = """
type: Mesh
name: default
---
type: Dataplane
mesh: default
name: web
networking:
  address: 10.0.0.1
  inbound: [{port: 80, tags: {kuma.io/service: web}}]
  outbound: [{port: 81, tags: {kuma.io/service: web}}]
"""


def timeouts(*confs: str) -> World:
    """Timeouts for everybody, the strongest first, and one proxy that calls itself."""
    made = (
        f"---\ntype: MeshTimeout\nmesh: default\nname: t-{place}\n"
        f"spec: {{to: [{{targetRef: {{kind: Mesh}}, default: {conf}}}]}}\n"
        for place, conf in enumerate(confs)
    )
    return world_of(PROXIES + "".join(made))


@pytest.mark.parametrize(
    ("confs", "expected"),
    [
        pytest.param(["{connectionTimeout: 1s}"], set(), id="somebody sets something"),
        pytest.param(["{connectionTimeout: 5s}"], {"t-0"}, id="what is built in"),
        pytest.param(["{connectionTimeout: 1s}", "{connectionTimeout: 2s}"], {"t-1"}, id="overridden"),
        pytest.param(["{connectionTimeout: 1s}"] * 2, {"t-0", "t-1"}, id="either would be enough"),
        pytest.param(
            ["{connectionTimeout: null, idleTimeout: 1s}", "{connectionTimeout: 2s}"], {"t-1"}, id="taken away"
        ),
        pytest.param(
            ["{connectionTimeout: null, idleTimeout: 1h}", "{connectionTimeout: 2s}"],
            {"t-1"},
            id="nothing but taking away is an effect",
        ),
        pytest.param(
            ["{connectionTimeout: null, idleTimeout: 1h}", "{connectionTimeout: 5s}"],
            {"t-0", "t-1"},
            id="taken away what would hold anyway",
        ),
        pytest.param(
            ["{connectionTimeout: null, idleTimeout: 1h}"] * 2 + ["{connectionTimeout: 2s}"],
            {"t-0", "t-1", "t-2"},
            id="of two that take away the same either would be enough",
        ),
    ],
)
def test_who_has_no_effect(confs: list[str], expected: set[str]) -> None:
    world = timeouts(*confs)

    assert {key.name for key in idle(world) if key is not None} == expected
    assert idle(world) == really_idle(world)


CALLERS = """
type: Mesh
name: default
---
type: Dataplane
mesh: default
name: backend
networking:
  address: 10.0.0.1
  inbound: [{port: 80, tags: {kuma.io/service: backend, kuma.io/protocol: http}}]
---
type: Dataplane
mesh: default
name: a
labels: {app: a}
networking:
  address: 10.0.0.2
  inbound: [{port: 80, tags: {kuma.io/service: caller}}]
  outbound: [{port: 81, tags: {kuma.io/service: backend}}]
---
type: Dataplane
mesh: default
name: b
labels: {app: b}
networking:
  address: 10.0.0.3
  inbound: [{port: 80, tags: {kuma.io/service: caller}}]
  outbound: [{port: 81, tags: {kuma.io/service: backend}}]
"""

HTTP_ROUTE_WITHOUT_RULES = """
---
type: MeshHTTPRoute
mesh: default
name: http
spec: {to: [{targetRef: {kind: MeshService, name: backend}, rules: []}]}
"""

TCP_ROUTE_OF_SOME = """
---
type: MeshTCPRoute
mesh: default
name: tcp
spec:
  targetRef: {kind: Dataplane, labels: {app: APP}}
  to:
    - targetRef: {kind: MeshService, name: backend}
      rules: [{default: {backendRefs: [{kind: MeshService, name: caller, weight: 1}]}}]
"""


@pytest.mark.parametrize("app", ["a", "b"])
def test_a_route_without_rules_has_an_effect_if_it_hides_a_tcp_route_of_some_proxy_only(app: str) -> None:
    """Both proxies have the same conf of HTTP routes, and without it only one of them gets another route."""
    world = world_of(CALLERS + HTTP_ROUTE_WITHOUT_RULES + TCP_ROUTE_OF_SOME.replace("APP", app))

    assert {key.name for key in idle(world) if key is not None} == {"tcp"}
    assert idle(world) == really_idle(world)


HTTP_ROUTE = """
---
type: MeshHTTPRoute
mesh: default
name: NAME
spec:
  to:
    - targetRef: {kind: MeshService, name: backend}
      rules: [{matches: [{path: {type: PathPrefix, value: /}}], default: DEFAULT}]
"""

BACKENDS = "{backendRefs: [{kind: MeshService, name: caller, weight: 1}]}"
FILTERS = "{filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x, value: y}]}}]}"

TIMEOUT_OF_SECOND_ROUTE = """
---
type: MeshTimeout
mesh: default
name: of-second
spec: {to: [{targetRef: {kind: MeshHTTPRoute, name: second}, default: {http: {requestTimeout: 7s}}}]}
"""


def test_a_route_has_an_effect_if_its_policies_hold_for_a_row_that_would_be_the_same_without_it() -> None:
    """The third route would set the filters of the second one, but the timeout of the second one would be gone."""
    defaults = {"first": BACKENDS, "second": FILTERS, "third": FILTERS}
    routes = (HTTP_ROUTE.replace("NAME", name).replace("DEFAULT", default) for name, default in defaults.items())
    world = world_of(CALLERS + "".join(routes) + TIMEOUT_OF_SECOND_ROUTE)

    assert {key.name for key in idle(world) if key is not None} == {"third"}
    assert idle(world) == really_idle(world)
