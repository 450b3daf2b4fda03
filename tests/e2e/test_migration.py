"""A mesh of legacy policies is moved, as the guide says, on a running control plane, while requests go on."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cp.translate.packing import SHORT
from tests.cli.conftest import Koguma
from tests.support.authority import Authority, provided
from tests.support.client import Traffic, call
from tests.support.mesh import MESH, Document
from tests.support.playground import Playground, timeouts
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

ANY = {"kuma.io/service": "*"}
BACKEND = {"kuma.io/service": "backend"}
MOBILE = {"kuma.io/service": "mobile"}
CLIENTS = ("mobile", "desktop")
AUTHORITY = Authority()


def legacy(kind: str, name: str, source: Document, destination: Document, **fields: Any) -> Document:
    sides = {"sources": [{"match": source}], "destinations": [{"match": destination}]}
    return {"type": kind, "mesh": "default", "name": name, **sides, **fields}


POLICIES = (
    legacy("TrafficPermission", "everybody", ANY, ANY),
    legacy("TrafficPermission", "mobile", MOBILE, BACKEND),
    legacy("Timeout", "all", ANY, ANY, conf={"connectTimeout": "3s", "http": {"requestTimeout": "9s"}}),
    legacy("Timeout", "mobile", MOBILE, BACKEND, conf={"http": {"requestTimeout": "7s"}}),
    legacy("Retry", "all", ANY, ANY, conf={"http": {"numRetries": 2}}),
    legacy("CircuitBreaker", "all", ANY, ANY, conf={"thresholds": {"maxConnections": 77}}),
    legacy("RateLimit", "all", ANY, BACKEND, conf={"http": {"requests": 100_000, "interval": "1s"}}),
    legacy(
        "TrafficRoute",
        "some-to-v2",
        MOBILE,
        BACKEND,
        conf={
            "http": [{"match": {"path": {"prefix": "/v2.new"}}, "destination": {**BACKEND, "version": "v2"}}],
            "destination": {**BACKEND, "version": "v1"},
        },
    ),
)


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    mtls = {"enabledBackend": "ca-1", "backends": [provided(mode="STRICT")]}
    engine = {**MESH, "mtls": mtls, "policyEngine": "Legacy"}
    empty_mesh.control_plane.apply(*AUTHORITY.secrets(), engine, *POLICIES)
    for version in ("v1", "v2"):
        empty_mesh.service(f"backend-{version}", "backend", version=version)
    for client in CLIENTS:
        empty_mesh.client(client, "tag=backend")
    empty_mesh.ready()
    eventually(lambda: outcomes(empty_mesh) == OUTCOMES)
    return empty_mesh


OUTCOMES = {"mobile /": "backend-v1", "mobile /v2.newest": "backend-v2", "mobile /v2": "backend-v1", "desktop /": "403"}


def outcomes(mesh: Playground) -> dict[str, str]:
    """Who answers, or the status where nobody does."""
    answers = {}
    for question in OUTCOMES:
        client, path = question.split()
        answer = call(mesh.proxies[client].outbound(), path)
        answers[question] = answer.service if answer.status == 200 else str(answer.status)
    return answers


def served(mesh: Playground) -> dict[tuple[str, str, str], Any]:
    """Each resource that the control plane serves, by its proxy, type and name."""
    return {
        (proxy, SHORT[type_url], name): resource
        for proxy in mesh.proxies
        for type_url, resources in mesh.control_plane.get(f"/meshes/default/dataplanes/{proxy}/_config")["xds"].items()
        for name, resource in resources.items()
    }


def test_what_is_said_of_a_move_is_what_becomes_of_it(mesh: Playground, tmp_path: Path) -> None:
    koguma, before = Koguma(mesh.control_plane.api.url), served(mesh)
    assert timeouts(mesh.envoys["mobile"])["/"] == "7s"

    shown = koguma("migrate", "default", "-w", tmp_path, "-o", "json")
    assert shown.status == 0, shown.err
    told = json.loads(shown.out)
    with Traffic(mesh.proxies["mobile"].outbound()) as traffic:
        for command, file in (("apply", "new.yaml"), ("delete", "replaced.yaml")):
            done = koguma(command, "-f", tmp_path / file, "--wait")
            assert done.status == 0, done.err
            assert outcomes(mesh) == OUTCOMES, f"after {command}"
    after = served(mesh)

    assert (told["safe"], told["kept"], len(told["replaced"])) == (True, [], len(POLICIES) + 1), "with the Mesh"
    assert {key for key in before | after if before.get(key) != after.get(key)} == {
        (proxy, difference["type"], difference["name"])
        for difference in told["differences"]
        for proxy in difference["proxies"]
    }
    assert traffic.outcomes
    assert traffic.failures == []
    assert yaml.safe_load(koguma("get", "mesh", "default", "-o", "yaml").out)["policyEngine"] == "TargetRef"
    again = koguma("migrate", "default", "--check")
    assert (again.status, "replaced:\n  nothing\n" in again.out) == (0, True)
