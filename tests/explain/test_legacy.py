"""What is explained of meshes with legacy policies is what their proxies are served."""

from __future__ import annotations

from random import Random

from cp.insight.explain import explain
from cp.translate.compiler import Compiler
from tests.explain.served import DecodedSnapshot
from tests.explain.test_access import explained, served
from tests.explain.test_served import assert_same, calls, served_fields, values_of_request
from tests.oracle.door import LET_IN, REFUSED
from tests.random_mesh import LEGACY, Mesh, for_meshes, mesh_of
from tests.snapshots import policies


@for_meshes(LEGACY)
def test_every_timeout_and_retry_is_explained_with_the_value_that_is_served(mesh: Mesh) -> None:
    world, compiler = mesh.world(), Compiler(policies())
    for dataplane, address, call in calls(world, Random(mesh.seed)):
        snapshot = DecodedSnapshot(compiler.snapshot(world, dataplane))
        explanation = explain(compiler, policies(), world, dataplane, call)

        assert_same(values_of_request(explanation), served_fields(snapshot, address, explanation))
        for backend in explanation.backends:
            if not backend.missing_reason:
                assert_same([*backend.values, *explanation.values], snapshot.cluster(backend.cluster), "cluster")


@for_meshes(LEGACY)
def test_who_is_explained_to_be_let_in_is_let_in_by_what_is_served(mesh: Mesh) -> None:
    world, compiler = mesh.world(), Compiler(policies())
    for dataplane, _, call in calls(world, Random(mesh.seed)):
        explanation = explain(compiler, policies(), world, dataplane, call)
        if "mtls" in mesh.documents[0]:
            assert explained(world, explanation) == set(served(world, compiler, dataplane, explanation))
        else:
            assert explanation.access == ()


@for_meshes(LEGACY)
def test_a_row_of_a_traffic_route_is_in_the_document_of_its_policy(mesh: Mesh) -> None:
    """Its name is that of the policy, also where several rows have it."""
    world, compiler = mesh.world(), Compiler(policies())
    for dataplane, _, call in calls(world, Random(mesh.seed)):
        for row in explain(compiler, policies(), world, dataplane, call).rows:
            if row.owner is not None and row.owner.type == "TrafficRoute":
                assert row.origin is not None
                lines = mesh.text.splitlines()[: row.origin.line]
                assert f"name: {row.owner.name}" in lines
                assert row.origin.path.startswith("conf")


def test_legacy_policies_decide_in_the_meshes_that_are_drawn() -> None:
    """Or the comparisons would be of nothing."""
    wanted = {"Timeout", "Retry", "CircuitBreaker", "HealthCheck", "TrafficRoute", "TrafficPermission"}
    setting: set[str] = set()
    answers: set[str] = set()
    for seed in range(40):
        if setting >= wanted and answers == {LET_IN, REFUSED}:
            return
        world, compiler = mesh_of(seed, LEGACY).world(), Compiler(policies())
        for dataplane, _, call in calls(world, Random(seed)):
            explanation = explain(compiler, policies(), world, dataplane, call)
            values = [*explanation.values, *(value for backend in explanation.backends for value in backend.values)]
            setting |= {value.winner.policy.type for value in values if value.winner.policy is not None}
            setting |= {row.owner.type for row in explanation.rows if row.owner is not None}
            setting |= {
                access.decided_by.policy.type
                for access in explanation.access
                if access.decided_by and access.decided_by.policy
            }
            answers |= {answer for *_, answer in explained(world, explanation)}

    raise AssertionError(f"only {setting} and {answers}")
