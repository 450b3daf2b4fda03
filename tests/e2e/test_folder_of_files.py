"""A control plane that reads a folder: saving a file is all it takes, and a broken file takes nothing away."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.support.client import Traffic, call
from tests.support.control_plane import ControlPlane
from tests.support.envoy import Envoy
from tests.support.mesh import MESH, Document, Proxy, mesh_service, policy, request_timeout, service_item
from tests.support.playground import timeouts
from tests.support.services import HttpService
from tests.support.waiting import eventually, holds

pytestmark = pytest.mark.envoy


@dataclass(frozen=True, slots=True)
class Folder:
    """The files, and a proxy that calls a service."""

    path: Path
    caller: Proxy
    envoy: Envoy
    control_plane: ControlPlane

    def save(self, name: str, *documents: Document) -> None:
        """Save as editors do: a new file takes the place of the old one."""
        (new := self.path / f".{name}.new").write_text(yaml.safe_dump_all(documents))
        new.rename(self.path / name)


def timeout(duration: str) -> Document:
    return policy("MeshTimeout", "timeout", service_item("backend", request_timeout(duration)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    path, other = tmp_path_factory.mktemp("mesh"), tmp_path_factory.mktemp("other")
    with ExitStack() as stack:
        service = stack.enter_context(HttpService("backend"))
        proxies = Proxy("backend", "backend", service.address), Proxy("caller", "caller", backends=("backend",))
        (path / "mesh.yaml").write_text(yaml.safe_dump_all([MESH, mesh_service("backend")]))
        (path / "proxies.yaml").write_text(yaml.safe_dump_all([proxy.document for proxy in proxies]))
        (path / "timeout.yaml").write_text(yaml.safe_dump(timeout("1s")))
        control_plane = stack.enter_context(ControlPlane(other, f"dir:{path}"))
        envoys = [
            stack.enter_context(Envoy(control_plane.bootstrap(proxy.document), other)).ready() for proxy in proxies
        ]
        yield Folder(path, proxies[1], envoys[1], control_plane)


def test_a_saved_file_is_in_force(folder: Folder) -> None:
    eventually(lambda: timeouts(folder.envoy) == {"/": "1s"})

    folder.save("timeout.yaml", timeout("2s"))

    eventually(lambda: timeouts(folder.envoy) == {"/": "2s"})
    assert call(folder.caller.outbound()).service == "backend"


@pytest.mark.parametrize("text", ["spec: [", "type: MeshTimeout\nname: timeout\nspec:\n  too: []\n"])
def test_a_broken_file_leaves_the_last_good_state_in_force_and_is_told(folder: Folder, text: str) -> None:
    folder.save("timeout.yaml", timeout("3s"))
    eventually(lambda: timeouts(folder.envoy) == {"/": "3s"})
    told = len(folder.control_plane.events("finding"))
    with Traffic(folder.caller.outbound(), per_second=100) as traffic:
        (folder.path / "timeout.yaml").write_text(text)
        eventually(lambda: len(folder.control_plane.events("finding")) > told)
        holds(lambda: timeouts(folder.envoy) == {"/": "3s"}, during=0.5)
        assert "timeout.yaml" in folder.control_plane.events("finding")[-1]["place"]

        folder.save("timeout.yaml", timeout("4s"))
        eventually(lambda: timeouts(folder.envoy) == {"/": "4s"})

    assert traffic.failures == []


def test_what_stays_wrong_is_told_once(folder: Folder) -> None:
    def told() -> int:
        return sum("broken.yaml" in finding["place"] for finding in folder.control_plane.events("finding"))

    (folder.path / "broken.yaml").write_text("spec: [")
    eventually(lambda: told() == 1)
    for seconds in ("5s", "6s"):
        folder.save("timeout.yaml", timeout(seconds))
        eventually(lambda seconds=seconds: timeouts(folder.envoy) == {"/": seconds})  # type: ignore[misc]
    (folder.path / "broken.yaml").unlink()

    assert told() == 1


def test_a_removed_file_is_out_of_force(folder: Folder) -> None:
    folder.save("timeout.yaml", timeout("3s"))
    eventually(lambda: timeouts(folder.envoy) == {"/": "3s"})

    (folder.path / "timeout.yaml").unlink()

    eventually(lambda: timeouts(folder.envoy) == {"/": "15s"})
