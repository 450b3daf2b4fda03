"""Of the policies that a Mesh starts with nothing is told, as long as nobody changed them."""

from __future__ import annotations

import pytest

from cp.insight.lint import lint
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import kinds
from cp.resources.initial_policies import initial_policies, is_initial
from cp.resources.world import World
from tests.snapshots import policies

MESH = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})
NETWORKING = {
    "address": "10.0.0.1",
    "inbound": [{"port": 8080, "tags": {"kuma.io/service": "web", "kuma.io/protocol": "http"}}],
    "outbound": [{"port": 10080, "tags": {"kuma.io/service": "web"}}],
}
WEB = Document(
    Key("Dataplane", "default", "web"),
    {"type": "Dataplane", "mesh": "default", "name": "web", "networking": NETWORKING},
)


@pytest.mark.parametrize("engine", ["TargetRef", "Legacy"])
def test_a_fresh_mesh_has_nothing_that_is_told(engine: str) -> None:
    mesh = Document(MESH.key, {**MESH.data, "policyEngine": engine})
    made = list(initial_policies(mesh))

    assert all(map(is_initial, made))
    for documents in ([mesh, *made], [mesh, WEB, *made]):
        findings = lint(policies(), World.of(documents, kinds(policies())))
        assert [str(finding) for finding in findings if finding.severity != "info"] == []


def test_of_one_that_was_changed_everything_is_told() -> None:
    policy = next(document for document in initial_policies(MESH) if "from" in document.data["spec"])
    changed = Document(policy.key, {**policy.data, "labels": {}})
    findings = lint(policies(), World.of([MESH, WEB, changed], kinds(policies())))

    assert not is_initial(changed)
    assert "deprecated" in {finding.code for finding in findings if finding.resource == policy.key}
