"""Some edits of the table under load. `python -m tests.edits` makes all of them, twenty times each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.edits.__main__ import make_edits
from tests.edits.field import Combination, Field, conversations, field_under_load
from tests.edits.redirected import redirected_field_under_load
from tests.edits.table import EDITS
from tests.support.envoy import envoy_binary
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

DRAIN_TIME = 2
_WITHIN_DRAIN = 35.0


@pytest.fixture(scope="module", params=["immediate", pytest.param("gradual", marks=pytest.mark.long)])
def mesh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    is_gradual = request.param == "gradual"
    combination = Combination(envoy_binary(), request.param, is_delta=not is_gradual, drain_seconds=DRAIN_TIME)
    folder = tmp_path_factory.mktemp("edits")
    with field_under_load(folder, combination, store=f"sqlite:///{folder}/koguma.db") as mesh:
        yield mesh


@pytest.mark.parametrize("name", ["outbound-backend-ref", "http2-to-tcp", "gateway-routes"])
def test_edit_loses_no_call(mesh: Field, name: str) -> None:
    assert make_edits(mesh, name, 2) == {}


@pytest.mark.long
def test_edit_on_a_redirected_machine_loses_no_call() -> None:
    # Envoy cuts connections of TCP once they have drained so long; on a busy machine ours last longer than usual.
    with redirected_field_under_load(Combination(envoy_binary(), "gradual", is_delta=False, drain_seconds=6)) as mesh:
        for name in ("passthrough-policy", "reachable-services", "virtual-outbound-hostnames"):
            assert make_edits(mesh, name, 2) == {}, name


def test_draining_resources_are_visible_until_they_are_removed(mesh: Field) -> None:
    (_, alternatives) = EDITS["outbound-backend-ref"](mesh).states
    eventually(lambda: _kept(mesh) == 0)

    mesh.enter(alternatives)

    delivery = mesh.control_plane.get("/meshes/default/dataplanes/client/_delivery")
    assert {resource["type"] for resource in delivery["draining"]} == {"clusters", "endpoints", "routes"}
    assert delivery["inSync"]
    assert _kept(mesh) == len(delivery["draining"])
    eventually(lambda: _kept(mesh) == 0)
    assert mesh.control_plane.get("/meshes/default/dataplanes/client/_delivery")["draining"] == []
    mesh.enter([])


def _kept(mesh: Field) -> float:
    metrics = mesh.control_plane.metrics()
    return sum(value for name, value in metrics.items() if name.startswith("koguma_draining_resources{"))


@pytest.mark.long
@pytest.mark.parametrize("is_delta", [True, False], ids=["delta", "sotw"])
def test_connections_survive_a_restart_after_an_edit(tmp_path: Path, *, is_delta: bool) -> None:
    """The next process keeps clusters that it has not known, for as long as old listeners may use them."""
    combination = Combination(envoy_binary(), "immediate", is_delta, drain_seconds=40)
    with field_under_load(tmp_path, combination, store=f"sqlite:///{tmp_path}/koguma.db") as mesh:
        callings = conversations(mesh, _WITHIN_DRAIN)
        for calling in callings.values():
            mesh.stack.callback(calling.close)
            calling.call()
        (_, alternatives) = EDITS["outbound-backend-ref"](mesh).states
        mesh.enter(alternatives)
        assert _kept(mesh) > 0
        began = time.monotonic()

        mesh.control_plane.kill()
        mesh.control_plane.start().ready()
        eventually(lambda: _state_of_client(mesh) == ("Online", True), within=_WITHIN_DRAIN)

        for calling in callings.values():
            calling.call()
        assert time.monotonic() - began < combination.drain_seconds, "it took too long to show anything"


def _state_of_client(mesh: Field) -> tuple[str, bool]:
    delivery = mesh.control_plane.get("/meshes/default/dataplanes/client/_delivery")
    return delivery["status"], delivery["inSync"]
