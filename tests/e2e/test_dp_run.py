"""`koguma dp run`: a proxy as an operator starts it."""

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from tests.support.client import call
from tests.support.control_plane import KOGUMA
from tests.support.envoy import envoy_binary
from tests.support.mesh import Proxy, mesh_service
from tests.support.playground import Playground
from tests.support.processes import Running
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    empty_mesh.control_plane.apply(mesh_service("backend"))
    empty_mesh.service("backend")
    empty_mesh.ready()
    return empty_mesh


def dp_run(mesh: Playground, proxy: Proxy, folder: Path) -> Running:
    (file := folder / f"{proxy.name}.yaml").write_text(yaml.safe_dump(proxy.document))
    command = [str(KOGUMA), "dp", "run", "--dataplane-file", str(file), "--envoy-path", str(envoy_binary())]
    return Running([*command, "--cp-address", mesh.control_plane.api.url], folder / f"{proxy.name}.log")


@pytest.fixture
def proxy(mesh: Playground, tmp_path: Path) -> Iterator[tuple[Proxy, Running]]:
    """A proxy whose Dataplane nobody has stored before."""
    proxy = Proxy("new", "new", backends=("backend",))
    with dp_run(mesh, proxy, tmp_path) as running:

        def serves() -> bool:
            running.check()
            return call(proxy.outbound()).status == 200

        eventually(serves, within=20)
        yield proxy, running


def envoys(running: Running) -> list[psutil.Process]:
    return [child for child in psutil.Process(running.pid).children(recursive=True) if "envoy" in child.name()]


def test_it_joins_the_mesh_with_the_dataplane_of_its_file(mesh: Playground, proxy: tuple[Proxy, Running]) -> None:
    assert mesh.control_plane.find(proxy[0].document) is not None
    assert call(proxy[0].outbound()).service == "backend"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_its_envoy(proxy: tuple[Proxy, Running], number: signal.Signals) -> None:
    running = proxy[1]
    (envoy,) = envoys(running)

    running.send(number)

    running.wait(15)
    assert not envoy.is_running()


def test_an_envoy_that_dies_is_not_started_again(proxy: tuple[Proxy, Running]) -> None:
    running = proxy[1]
    (envoy,) = envoys(running)

    envoy.kill()

    assert running.wait(15) != 0
