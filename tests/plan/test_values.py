"""The values from which a changed field follows: those, and no others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from cp.api.envoy_json import decoded
from cp.insight.plan import PlanScope, mesh_plans
from cp.insight.plan.model import ValueChange
from cp.model.document import Document
from cp.policies import kinds
from cp.resources.world import World
from cp.translate.compiler import Compiler
from tests.identity.meshes import mesh, record
from tests.random_mesh import MESH, document
from tests.snapshots import policies
from tests.test_incremental import edge, route_at_edge

HTTP = {"kuma.io/service": "web", "kuma.io/protocol": "http"}


def values(before: list[Document], *changed: Document) -> Iterator[tuple[str, list[str]]]:
    """The last word of each changed field, with the values behind it and who sets them."""
    world = World.of(before, kinds(policies()))
    changes = {each.key: each for each in changed}
    planned = world.next(changes, 1)
    assert all(planned.get(key) is not None for key in changes), [str(finding) for finding in planned.findings]
    for plan in mesh_plans(PlanScope(world, planned, changes, ["default"]), Compiler(policies()), decoded):
        for difference in plan.differences:
            for field in difference.told_fields.fields:
                behind = (value for place in field.values for value in difference.told_fields.values[place])
                yield field.path.rpartition(".")[2], list(dict.fromkeys(_named(behind)))


def causes(before: list[Document], *changed: Document) -> Iterator[tuple[str, list[str]]]:
    """The name of each changed resource, with the documents from which it follows."""
    world, changes = World.of(before, kinds(policies())), {each.key: each for each in changed}
    scope = PlanScope(world, world.next(changes, 1), changes, ["default"])
    for plan in mesh_plans(scope, Compiler(policies()), decoded):
        for difference in plan.differences:
            yield difference.resource.name, [key.type for key in difference.causes]


def test_what_no_value_explains_follows_from_the_mesh_too_where_a_policy_changes_beside_it() -> None:
    def edited(timeout_of_requests: str) -> Document:
        return timeout(
            "t", {"kind": "Mesh"}, {"connectionTimeout": "2s", "http": {"requestTimeout": timeout_of_requests}}
        )

    before = [MESH, proxy(), edited("3s"), record("AAAA")]
    switched_on = causes(before, mesh(mode="STRICT"), edited("4s"))

    cluster, route_table = (behind for name, behind in switched_on if name == "web")
    assert (cluster, route_table) == (["MeshTimeout", "Mesh"], ["MeshTimeout"])
    assert all(behind == ["MeshTimeout"] for _, behind in causes(before, edited("4s")))


def _named(changes: Iterable[ValueChange]) -> Iterator[str]:
    for change in changes:
        if change.after is not None and change.after.policy is not None:
            yield f"{change.field} of {change.after.policy.name}"


def timeout(name: str, target: dict[str, Any], conf: dict[str, Any], **spec: Any) -> Document:
    return document("MeshTimeout", name, spec={**spec, "to": [{"targetRef": target, "default": conf}]})


def proxy() -> Document:
    outbound = [{"port": 10000, "tags": {"kuma.io/service": "web"}}]
    networking = {"address": "127.0.0.1", "inbound": [{"port": 80, "tags": HTTP}], "outbound": outbound}
    return document("Dataplane", "web-1", networking=networking)


def test_values_of_several_policies_are_told_apart() -> None:
    whole = {"kind": "Mesh"}
    retry = {"to": [{"targetRef": whole, "default": {"http": {"numRetries": 7}}}]}
    found = dict(
        values(
            [MESH, proxy()],
            timeout("t", whole, {"connectionTimeout": "2s", "http": {"requestTimeout": "3s"}}),
            document("MeshRetry", "r", spec=retry),
        )
    )

    assert found["timeout"] == ["http.requestTimeout of t"]
    assert found["connectTimeout"] == ["connectionTimeout of t"]
    assert found["retryPolicy"] == ["http.numRetries of r"]


def routed(*prefixes: str) -> Document:
    rules = [
        {"matches": [{"path": {"type": "PathPrefix", "value": prefix}}], "default": {"filters": []}}
        for prefix in prefixes
    ]
    to = [{"targetRef": {"kind": "MeshService", "name": "web"}, "rules": rules}]
    return document("MeshHTTPRoute", "r", spec={"to": to})


def test_the_value_behind_a_field_of_a_route_is_known_where_another_route_comes_too() -> None:
    """Then the route is told by its name, and by its index where the value alone is another."""
    whole = {"kind": "Mesh"}
    found = list(
        values(
            [MESH, proxy(), routed("/cart")],
            routed("/cart", "/cart/pay"),
            timeout("t", whole, {"http": {"requestTimeout": "3s"}}),
        )
    )

    timeouts = [behind for name, behind in found if name == "timeout"]
    assert timeouts == [["http.requestTimeout of t"]] * len(timeouts)
    assert timeouts


def test_a_field_that_follows_from_an_address_has_no_value_behind_it() -> None:
    moved = proxy()
    networking = {**moved.data["networking"], "address": "127.0.0.9"}

    found = dict(values([MESH, proxy()], Document(moved.key, {**moved.data, "networking": networking})))
    assert found["address"] == []


def test_values_at_a_gateway_are_those_of_its_clients_and_of_those_that_it_calls() -> None:
    at_edge = {"kind": "MeshGateway", "name": "edge"}
    clients = {"targetRef": at_edge, "rules": [{"default": {"idleTimeout": "11s", "http": {"requestTimeout": "8s"}}}]}
    found = dict(
        values(
            [MESH, *edge(), route_at_edge("shop", "/cart")],
            timeout("t", {"kind": "Mesh"}, {"http": {"requestTimeout": "7s"}}, targetRef=at_edge),
            document("MeshTimeout", "u", spec=clients),
        )
    )

    assert found == {
        "timeout": ["http.requestTimeout of t"],
        "idleTimeout": ["idleTimeout of u"],
        "requestTimeout": ["http.requestTimeout of u"],
    }
