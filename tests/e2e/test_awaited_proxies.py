"""A change of authority that a real Envoy holds up: who that is, is told wherever somebody asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Koguma
from tests.support.mesh import MESH, Document, mesh_service
from tests.support.playground import Playground
from tests.support.waiting import eventually

# What is told is compared in tests/api/test_moves.py, and tests/e2e/test_mtls_moves.py moves real Envoys.
pytestmark = [pytest.mark.envoy, pytest.mark.long]

LONG = 30.0


def with_authority(name: str) -> Document:
    return {**MESH, "mtls": {"enabledBackend": name, "backends": [{"name": name, "type": "builtin"}]}}


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    empty_mesh.control_plane.apply(with_authority("ca-1"), mesh_service("backend"))
    empty_mesh.service("backend")
    empty_mesh.client("frontend", "backend")
    empty_mesh.ready()
    return empty_mesh


def test_whoever_changes_the_authority_hears_who_holds_it_up(mesh: Playground, tmp_path: Path) -> None:
    koguma = Koguma(mesh.control_plane.api.url)
    eventually(lambda: _is_certified(koguma), within=LONG)
    (file := tmp_path / "mesh.yaml").write_text(yaml.safe_dump(with_authority("ca-2")))
    signs = "the authority `ca-2` signs as soon as every proxy trusts it"
    mesh.envoys["backend"].hang()
    try:
        written = koguma("apply", "-f", file, "--wait", "--timeout", "1s")
        assert "it reaches no proxy\n" not in written.out
        assert "mTLS goes on in mesh default: " in written.out  # the authority may be made only now
        assert "signs as soon as every proxy trusts it" in written.out

        awaited = f"{signs}; it waits for backend (has not answered), until "
        eventually(lambda: awaited in koguma("lint").out, within=LONG)
        assert awaited in " ".join(koguma("inspect", "dataplane", "backend").out.split())
        assert awaited not in koguma("inspect", "dataplane", "frontend").out
        assert awaited in json.loads(koguma("explain", "frontend", "backend/", "-o", "json").out)["moves"][0]
    finally:
        mesh.envoys["backend"].resume()
    eventually(lambda: signs not in koguma("lint").out + str(_moves(koguma)), within=LONG)


def _is_certified(koguma: Koguma) -> bool:
    answer = json.loads(koguma("inspect", "dataplane", "backend", "-o", "json").out)
    return answer["certificate"] is not None and answer["inSync"]


def _moves(koguma: Koguma) -> object:
    return json.loads(koguma("explain", "frontend", "backend/", "-o", "json").out)["moves"]
