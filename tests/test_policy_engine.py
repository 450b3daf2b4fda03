"""The engine of a Mesh on a running control plane, by the table of document 003 (listed in record 0024).

Who decides is in record 0074.
"""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.engine import Engine
from cp.resources.initial_policies import initial_policies
from cp.store.port import Put
from cp.store.sqlite import SqliteStore
from tests.support.control_plane import ControlPlane

ENGINES: Final[tuple[Engine, ...]] = ("TargetRef", "Legacy")
OUTCOMES: Final = (
    ("TargetRef", "Undefined", "TargetRef"),
    ("TargetRef", "Legacy", "Legacy"),
    ("TargetRef", "TargetRef", "TargetRef"),
    ("Legacy", "Undefined", "Legacy"),
    ("Legacy", "Legacy", "Legacy"),
    ("Legacy", "TargetRef", "TargetRef"),
)
"""The setting, what the Mesh says, and what holds."""

OTHER: Final[Mapping[str, Engine]] = {"TargetRef": "Legacy", "Legacy": "TargetRef"}

on_each_outcome = pytest.mark.parametrize(("setting", "of_mesh", "expected"), OUTCOMES)


def mesh(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "Mesh", "name": name, **fields}


def document(data: dict[str, Any]) -> Document:
    return Document(Key("Mesh", "", data["name"]), data)


def spellings(engine: str) -> Iterator[dict[str, str]]:
    """How a Mesh says that: no engine is also one that is left out."""
    yield {"policyEngine": engine}
    if engine == "Undefined":
        yield {}


async def _written(path: Path) -> None:
    store = await SqliteStore.open(path)
    for engine in ("Undefined", "Legacy", "TargetRef"):
        for index, fields in enumerate(spellings(engine)):
            await store.write(Put(document(mesh(f"old-{engine.lower()}-{index}", **fields))))
    await store.close()


@pytest.fixture(scope="module")
def control_planes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ControlPlane]]:
    """One for each setting, with a store in which there were Meshes when it started."""
    running: dict[str, ControlPlane] = {}
    try:
        for setting in ENGINES:
            folder = tmp_path_factory.mktemp(setting)
            asyncio.run(_written(folder / "koguma.db"))
            store = f"sqlite:///{folder / 'koguma.db'}"
            settings = {"KUMA_DEFAULTS_POLICY_ENGINE": setting, "KUMA_DEFAULTS_SKIP_MESH_CREATION": "false"}
            running[setting] = ControlPlane(folder, store, **settings).start()
        yield {setting: control_plane.ready() for setting, control_plane in running.items()}
    finally:
        for control_plane in running.values():
            control_plane.close()


def engine(control_plane: ControlPlane, name: str) -> str:
    """What holds for a Mesh, as it is shown and as the World has it: they are told in different ways."""
    shown = control_plane.get(f"/meshes/{name}")["policyEngine"]
    listed = {item["name"]: item["policyEngine"] for item in control_plane.get("/meshes", size="1000")["items"]}
    assert listed[name] == shown
    web = {"address": "127.0.0.1", "inbound": [{"port": 80, "tags": {"kuma.io/service": "web"}}]}
    control_plane.apply({"type": "Dataplane", "mesh": name, "name": "web", "networking": web})
    assert control_plane.get(f"/meshes/{name}/dataplanes/web/_policies")["policyEngine"] == shown
    return str(shown)


def initial(name: str, of_engine: str) -> set[tuple[str, str]]:
    policies = initial_policies(document(mesh(name, policyEngine=of_engine)))
    return {(policy.key.type, policy.key.name) for policy in policies}


def policies(control_plane: ControlPlane, name: str) -> set[tuple[str, str]]:
    of_kinds = [kind for kind in kinds(discover()).values() if kind.policy is not None or kind.legacy is not None]
    answers = (control_plane.get(f"/meshes/{name}/{kind.plural}")["items"] for kind in of_kinds)
    return {(item["type"], item["name"]) for items in answers for item in items}


@on_each_outcome
def test_a_mesh_that_is_made_has_its_engine_written_down_with_its_policies(
    control_planes: dict[str, ControlPlane], setting: str, of_mesh: str, expected: str
) -> None:
    control_plane = control_planes[setting]
    for index, fields in enumerate(spellings(of_mesh)):
        name = f"new-{of_mesh.lower()}-{index}"
        assert control_plane.put(mesh(name, **fields)).status_code == httpx.codes.CREATED

        assert engine(control_plane, name) == expected
        assert policies(control_plane, name) == initial(name, expected)


@on_each_outcome
def test_a_mesh_that_is_changed_has_the_engine_that_the_change_names_and_the_policies_that_it_had(
    control_planes: dict[str, ControlPlane], setting: str, of_mesh: str, expected: str
) -> None:
    control_plane, name, before = control_planes[setting], f"changed-{of_mesh.lower()}", OTHER[expected]
    control_plane.apply(mesh(name, policyEngine=before))
    assert control_plane.put(mesh(name, policyEngine=of_mesh)).status_code == httpx.codes.OK

    assert engine(control_plane, name) == expected
    assert policies(control_plane, name) == initial(name, before)


@on_each_outcome
def test_a_mesh_that_was_stored_before_the_start_has_no_policies_of_either_engine(
    control_planes: dict[str, ControlPlane], setting: str, of_mesh: str, expected: str
) -> None:
    control_plane = control_planes[setting]
    for index, _ in enumerate(spellings(of_mesh)):
        name = f"old-{of_mesh.lower()}-{index}"
        assert engine(control_plane, name) == expected
        assert policies(control_plane, name) == set()


@pytest.mark.parametrize("setting", ENGINES)
def test_the_first_mesh_has_the_engine_of_the_settings(control_planes: dict[str, ControlPlane], setting: str) -> None:
    control_plane = control_planes[setting]

    assert engine(control_plane, "default") == setting
    assert policies(control_plane, "default") == initial("default", setting)


def test_another_setting_changes_no_mesh_but_those_that_leave_it_to_the_settings(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'koguma.db'}"
    asyncio.run(_written(tmp_path / "koguma.db"))
    with ControlPlane(tmp_path / "before", store) as before:
        before.apply(mesh("made"), mesh("handed-over"))
        before.apply(mesh("handed-over", policyEngine="Undefined"))
    with ControlPlane(tmp_path / "after", store, KUMA_DEFAULTS_POLICY_ENGINE="Legacy") as after:
        names = ("made", "handed-over", "old-undefined-0", "old-undefined-1", "old-targetref-0")
        assert [engine(after, name) for name in names] == ["TargetRef", "Legacy", "Legacy", "Legacy", "TargetRef"]
        assert policies(after, "made") == initial("made", "TargetRef")
        assert after.request("DELETE", "/meshes/made?cascade=true").status_code == httpx.codes.OK


@pytest.mark.long
def test_a_mesh_in_a_folder_that_names_no_engine_follows_the_settings(tmp_path: Path) -> None:
    (tmp_path / "mesh.yaml").write_text("type: Mesh\nname: default\n---\ntype: Mesh\nname: old\npolicyEngine: Legacy\n")
    folder = f"dir:{tmp_path}"
    with ControlPlane(tmp_path / ".here", folder) as here:
        assert [here.get(f"/meshes/{name}")["policyEngine"] for name in ("default", "old")] == ["TargetRef", "Legacy"]
        assert policies(here, "old") == set()
    with ControlPlane(tmp_path / ".there", folder, KUMA_DEFAULTS_POLICY_ENGINE="Legacy") as there:
        assert [there.get(f"/meshes/{name}")["policyEngine"] for name in ("default", "old")] == ["Legacy", "Legacy"]
