"""Whose policy it is, where namespaces tell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cp.model.source import read_documents

Data = dict[str, Any]

OWN, FOREIGN, WHOLE = ({"kind": "MeshService", "name": "backend"} | more for more in ({}, {"namespace": "other"}, {}))
ROUTE = {"kind": "MeshHTTPRoute", "name": "r"}


def document(spec: Data, namespace: str = "ns", kind: str = "MeshTimeout") -> Data:
    return {
        "apiVersion": "kuma.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": "p", "namespace": namespace},
        "spec": spec,
    }


def to(*targets: Data) -> Data:
    return {"to": [{"targetRef": target, "default": {"idleTimeout": "1s"}} for target in targets]}


def role(spec: Data, namespace: str = "ns", kind: str = "MeshTimeout") -> str | None:
    (found,) = read_documents(json.dumps(document(spec, namespace, kind))).documents
    label: str | None = found.data["labels"].get("kuma.io/policy-role")
    return label


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (to(OWN), "producer"),
        (to(OWN | {"namespace": "ns"}), "producer"),
        (to(ROUTE), "producer"),
        (to({"kind": "MeshTCPRoute", "name": "r"}), "producer"),
        (to(FOREIGN), "consumer"),
        (to(ROUTE | {"namespace": "other"}), "consumer"),
        (to({"kind": "Mesh"}), "consumer"),
        (to({"kind": "MeshService", "labels": {"a": "b"}}), "consumer"),
        ({"from": [{"targetRef": {"kind": "Mesh"}}]}, "workload-owner"),
        ({"rules": [{"default": {}}]}, "workload-owner"),
        ({"default": {}}, "workload-owner"),
    ],
)
def test_the_items_of_a_policy_tell_its_role(spec: Data, expected: str) -> None:
    assert role(spec) == expected


def test_what_is_in_the_namespace_of_the_control_plane_is_the_system_s() -> None:
    assert role(to(FOREIGN), "kuma-system") == "system"


def test_what_is_no_policy_has_no_role() -> None:
    assert role({"selector": {"dataplaneTags": {"a": "b"}}, "ports": [{"port": 80}]}, kind="MeshService") is None


@pytest.mark.parametrize("spec", [to(OWN, FOREIGN), to(OWN) | {"from": [{"targetRef": {"kind": "Mesh"}}]}])
def test_a_policy_cannot_be_two_at_once(spec: Data) -> None:
    reading = read_documents(json.dumps(document(spec)))

    assert not reading.documents
    assert [(str(found.resource), found.path) for found in reading.findings] == [("MeshTimeout default/p.ns", "spec")]
