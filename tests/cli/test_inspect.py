"""`koguma render` and `koguma inspect`: what a proxy gets and why, in files and in a running control plane."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
import yaml

from tests.api.samples import dataplane
from tests.cli.conftest import Ended, Koguma
from tests.support.waiting import eventually

SERVICE = """\
type: MeshService
mesh: default
name: backend
spec:
  selector: {dataplaneTags: {kuma.io/service: backend}}
  ports: [{port: 80, targetPort: 8080, appProtocol: http, name: http}]
"""
GENERAL = """\
type: MeshTimeout
mesh: default
name: general
spec:
  to:
    - targetRef: {kind: Mesh}
      default:
        connectionTimeout: 2s
        http: {requestTimeout: 1s}
"""
SPECIFIC = """\
type: MeshTimeout
mesh: default
name: specific
spec:
  to:
    - targetRef: {kind: MeshService, name: backend}
      default:
        http: {requestTimeout: 7s}
"""


@pytest.fixture
def mesh(tmp_path: Path) -> Path:
    """A folder with a frontend, a backend and two timeouts."""
    (folder := tmp_path / "mesh").mkdir()
    outbound = {"port": 10001, "backendRef": {"kind": "MeshService", "name": "backend", "port": 80}}
    frontend = dataplane("frontend-1", service="frontend", outbound=[outbound])
    backend = dataplane("backend-1", service="backend")
    (folder / "proxies.yaml").write_text(yaml.safe_dump_all([frontend, backend]))
    (folder / "policies.yaml").write_text(f"{SERVICE}---\n{GENERAL}---\n{SPECIFIC}")
    return folder


def test_the_configuration_of_a_proxy_is_shown_by_type_and_name(offline: Koguma, mesh: Path) -> None:
    configuration = yaml.safe_load(offline("render", "frontend-1", "-f", mesh).out)

    assert set(configuration) == {"listeners", "routes", "clusters", "endpoints"}
    assert "kri_msvc_default___backend_http" in configuration["clusters"]


def test_one_type_of_resource_is_shown_by_itself(offline: Koguma, mesh: Path) -> None:
    ended = offline("render", "frontend-1", "-f", mesh, "--type", "clusters", "-o", "json")

    cluster = json.loads(ended.out)["kri_msvc_default___backend_http"]
    assert cluster["connectTimeout"] == "2s"


def test_a_running_control_plane_serves_what_was_rendered(koguma: Koguma, mesh: Path) -> None:
    applied(koguma, mesh)
    rendered = json.loads(koguma("render", "frontend-1", "-f", mesh, "-o", "json").out)

    def served() -> dict[str, object]:

        answer = httpx.get(f"{koguma.environment['KOGUMA_ADDRESS']}/meshes/default/dataplanes/frontend-1/_config")
        configuration: dict[str, object] = answer.raise_for_status().json()["xds"]
        return {name.rpartition(".")[2]: resources for name, resources in configuration.items()}

    assert served()["Cluster"] == rendered["clusters"]


def test_of_what_is_not_served_a_running_control_plane_says_why(koguma: Koguma, tmp_path: Path) -> None:
    gateway = {"type": "BUILTIN", "tags": {"kuma.io/service": "edge"}}
    networking = {"address": "127.0.0.1", "gateway": gateway}
    document = {"type": "Dataplane", "mesh": "default", "name": "edge", "networking": networking}
    (file := tmp_path / "edge.yaml").write_text(yaml.safe_dump(document))
    koguma("apply", "-f", file)

    ended = koguma("render", "edge")

    assert (ended.status, ended.out) == (0, "{}\n")
    assert "not enforced" in ended.err


def test_what_is_invalid_is_told_and_left_out(offline: Koguma, mesh: Path) -> None:
    (mesh / "bad.yaml").write_text(SPECIFIC.replace("specific", "bad").replace("7s", "seven"))

    ended = offline("render", "frontend-1", "-f", mesh)

    assert ended.status == 0
    assert "MeshTimeout default/bad" in ended.err
    assert "kri_msvc_default___backend_http" in ended.out


def test_a_proxy_that_is_not_in_the_files_is_told_with_those_that_are(offline: Koguma, mesh: Path) -> None:
    ended = offline("render", "frontend", "-f", mesh)

    assert (ended.status, ended.err) == (
        1,
        "Error: there is no valid Dataplane frontend in mesh default\nThere is backend-1, frontend-1.\n",
    )


@pytest.fixture(params=["files", "control plane"])
def reader(request: pytest.FixtureRequest, mesh: Path) -> Koguma:
    """A command line that is told the same, by files or by a control plane that has them."""
    if request.param == "files":
        return Files(mesh)
    koguma: Koguma = request.getfixturevalue("koguma")
    applied(koguma, mesh)
    return koguma


def applied(koguma: Koguma, mesh: Path) -> None:
    """Apply a mesh, and wait until the control plane works with it."""
    koguma("apply", "-f", mesh)
    eventually(lambda: len(koguma("inspect", "policies", "frontend-1").lines) == 3)


class Files(Koguma):
    def __init__(self, folder: Path) -> None:
        super().__init__("http://127.0.0.1:9")
        self._folder = folder

    def __call__(self, *arguments: str | Path, stdin: str | None = None) -> Ended:
        return super().__call__(*arguments, "-f", self._folder, stdin=stdin)


def test_the_rules_of_a_proxy_are_shown_with_their_origins(reader: Koguma) -> None:
    lines = reader("inspect", "rules", "frontend-1").lines

    assert [line.split()[0] for line in lines] == ["TYPE", *["MeshTimeout"] * (len(lines) - 1)]
    (of_service,) = [line for line in lines if "to MeshService backend" in line]
    assert '"requestTimeout":"7s"' in of_service
    assert of_service.endswith("specific[0]")


def test_the_rules_of_a_proxy_are_shown_to_machines_as_kuma_answers_them(reader: Koguma) -> None:
    answer = json.loads(reader("inspect", "rules", "frontend-1", "-o", "json").out)

    assert answer["resource"] == {"type": "Dataplane", "mesh": "default", "name": "frontend-1"}
    assert [rule["type"] for rule in answer["rules"]] == ["MeshTimeout"]


def test_the_policies_of_a_proxy_are_shown(reader: Koguma) -> None:
    lines = reader("inspect", "policies", "frontend-1").lines

    assert {tuple(line.split()[:3]) for line in lines[1:]} == {
        ("MeshTimeout", "default", "general"),
        ("MeshTimeout", "default", "specific"),
    }


def test_the_proxies_of_a_policy_are_shown_with_what_of_it_survives(reader: Koguma) -> None:
    lines = reader("inspect", "meshtimeout", "general").lines
    of_frontend = [line for line in lines if line.startswith("frontend-1")]

    assert any("connectionTimeout" in line and line.endswith("in force") for line in of_frontend)
    (lost,) = [line for line in of_frontend if "overridden" in line]
    assert "http.requestTimeout" in lost
    assert "by MeshTimeout specific" in lost
    assert lost.endswith(": 7s")


def test_a_policy_that_is_not_there_is_told(reader: Koguma) -> None:
    ended = reader("inspect", "meshtimeout", "generals")

    assert ended.status == 1
    assert "general" in ended.err


def test_a_type_that_is_no_policy_is_refused(offline: Koguma) -> None:
    assert offline("inspect", "meshservice", "backend").err.startswith("Error: a MeshService is no policy\n")
