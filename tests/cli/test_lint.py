"""`koguma lint`: what is told about files and about a running control plane, and how the command ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.api.samples import dataplane
from tests.cli.conftest import Koguma
from tests.support.waiting import eventually

FINE = """\
type: MeshTimeout
mesh: default
name: fine
spec:
  rules:
    - default: {idleTimeout: 5m}
"""
IDLE = """\
type: MeshTimeout
mesh: default
name: idle
spec:
  targetRef: {kind: Dataplane, name: nobody}
  rules:
    - default: {idleTimeout: 5m}
"""
REDUNDANT = FINE.replace("fine", "redundant").replace("5m", "2h")


@pytest.fixture
def mesh(tmp_path: Path) -> Path:
    """A folder with one proxy, and a policy that has an effect on it."""
    (folder := tmp_path / "mesh").mkdir()
    outbound = {"port": 10001, "tags": {"kuma.io/service": "web"}}
    (folder / "proxies.yaml").write_text(yaml.safe_dump(dataplane("web-1", outbound=[outbound])))
    (folder / "fine.yaml").write_text(FINE)
    return folder


def test_where_nothing_is_to_be_said_nothing_is(offline: Koguma, mesh: Path) -> None:
    ended = offline("lint", "-f", mesh, "--strict")

    assert (ended.status, ended.out, ended.err) == (0, "nothing to say\n", "")


def test_a_finding_has_its_place_its_reason_and_what_to_do(offline: Koguma, mesh: Path) -> None:
    (mesh / "idle.yaml").write_text(IDLE)

    first, second, third, *_, last = offline("lint", "-f", mesh).lines

    assert first == f"{mesh}/idle.yaml:5: warning [selects-no-proxy] MeshTimeout default/idle"
    assert second.startswith("  spec.targetRef: has no effect: it is for Dataplane nobody")
    assert third.startswith("  Instead: compare it")
    assert last == "1 warning"


@pytest.mark.parametrize(
    ("text", "status", "strict"),
    [
        pytest.param(FINE, 0, 0, id="nothing"),
        pytest.param(REDUNDANT.replace("redundant", "fine"), 0, 0, id="info"),
        pytest.param(IDLE, 0, 1, id="warning"),
        pytest.param(IDLE.replace("5m", "five"), 1, 1, id="invalid"),
        pytest.param("type: [", 1, 1, id="not YAML"),
        pytest.param(FINE.replace("fine.yaml", ""), 0, 0, id="the same again"),
    ],
)
def test_how_it_ends(offline: Koguma, mesh: Path, text: str, status: int, strict: int) -> None:
    (mesh / "fine.yaml").write_text(text)

    assert offline("lint", "-f", mesh).status == status
    assert offline("lint", "-f", mesh, "--strict").status == strict


def test_a_name_that_two_files_have_is_an_error(offline: Koguma, mesh: Path) -> None:
    (mesh / "again.yaml").write_text(FINE)

    ended = offline("lint", "-f", mesh)

    assert ended.status == 1
    assert "[duplicate-name]" in ended.out


def test_machines_get_every_fact(offline: Koguma, mesh: Path) -> None:
    (mesh / "idle.yaml").write_text(IDLE)

    report = json.loads(offline("lint", "-f", mesh, "-o", "json").out)
    (finding,) = report.pop("findings")

    assert report == {"errors": 0, "warnings": 1, "infos": 0}
    assert finding.pop("message")
    assert finding.pop("hint")
    assert finding == {
        "code": "selects-no-proxy",
        "severity": "warning",
        "resource": "MeshTimeout default/idle",
        "path": "spec.targetRef",
        "field": "spec.targetRef",
        "file": f"{mesh}/idle.yaml",
        "line": 5,
    }
    assert yaml.safe_load(offline("lint", "-f", mesh, "-o", "yaml").out)["warnings"] == 1


def test_one_mesh_can_be_looked_at(offline: Koguma, mesh: Path) -> None:
    (mesh / "idle.yaml").write_text(IDLE)
    other_mesh = dataplane("other-1", "other", outbound=[{"port": 1, "tags": {"kuma.io/service": "web"}}])
    (mesh / "other.yaml").write_text(yaml.safe_dump_all([{"type": "Mesh", "name": "other"}, other_mesh]))

    assert "MeshTimeout default/idle" in offline("lint", "-f", mesh, "--mesh", "default").out
    assert offline("lint", "-f", mesh, "--mesh", "other").out == "nothing to say\n"


def test_a_control_plane_tells_what_files_tell(koguma: Koguma, mesh: Path) -> None:
    (mesh / "idle.yaml").write_text(IDLE)
    (mesh / "mesh.yaml").write_text("type: Mesh\nname: default\nskipCreatingInitialPolicies: ['*']\n")
    koguma("apply", "-f", mesh)
    from_files = koguma("lint", "-f", mesh, "-o", "json").out

    eventually(lambda: koguma("lint", "-o", "json").out == from_files)
    assert koguma("lint", "--mesh", "default", "-o", "json").out == from_files
    assert koguma("lint", "--strict").status == 1


def test_meshes_that_are_not_told_of_are_no_success(koguma: Koguma, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"errors": 0, "warnings": 0, "infos": 0, "findings": [], "meshesNotTold": ["other"]}
    monkeypatch.setattr("cp.cli.lint._online", lambda *_: told)
    ended = koguma("lint")

    assert ended.status == 1
    assert ended.lines[-1].startswith("not told: what there is to say of other,")


def test_a_rollout_that_is_under_way_is_named(koguma: Koguma, monkeypatch: pytest.MonkeyPatch) -> None:
    proposed = "what rollout 7 of mesh default proposes, which is under way"
    told = {"errors": 0, "warnings": 0, "infos": 0, "findings": [], "notLookedAt": [proposed]}
    monkeypatch.setattr("cp.cli.lint._online", lambda *_: told)
    ended = koguma("lint")

    assert (ended.status, ended.lines) == (0, ["nothing to say", f"not looked at: {proposed}"])


def test_a_mesh_that_is_not_there_is_told(koguma: Koguma) -> None:
    ended = koguma("lint", "--mesh", "defaults")

    assert ended.status == 1
    assert "did you mean `default`" in ended.err
