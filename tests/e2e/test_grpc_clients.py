"""gRPC clients without a proxy: the libraries themselves, told by `koguma run` where services are and what holds."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from tests.support.control_plane import KOGUMA, ControlPlane
from tests.support.grpc_calls import GRPC_JS, Calls
from tests.support.grpc_service import NAME, GrpcService
from tests.support.loopback import new_address
from tests.support.mesh import (
    MESH,
    Document,
    bare_dataplane,
    http_route,
    mesh_service,
    policy,
    prefix,
    request_timeout,
    rule,
    service_item,
)
from tests.support.waiting import eventually

V1, V2 = "v1", "v2"
SOME = 20
"""Calls in which both halves of a split show."""
_NUMBER: Final = count()
CLIENT: Document = {
    "type": "Dataplane",
    "mesh": "default",
    "name": "shop",
    "labels": {"koguma.io/client": "grpc"},
    "networking": {"address": "127.0.0.1"},
}

NO_NODE = pytest.mark.skipif(not GRPC_JS.is_dir(), reason="gRPC for Node is not here; `make test` has npm install it")


@dataclass(frozen=True)
class Mesh:
    """A control plane, two versions of `backend`, and a client that calls it."""

    control_plane: ControlPlane
    services: dict[str, GrpcService]
    library: str
    folder: Path

    @contextmanager
    def having(self, *documents: Document) -> Iterator[None]:
        """Who connects from here on is served with these: a question is answered once all that was written counts."""
        self.control_plane.apply(*documents)
        self.control_plane.get("/meshes/default/_lint")
        try:
            yield
        finally:
            self.control_plane.delete(*documents)

    def call(self, target: str) -> Calls:
        log = self.folder / f"{self.library}-{next(_NUMBER)}.log"
        return Calls(self.library, target, bootstrap(self.control_plane, self.folder), log)

    def dataplane(self, version: str) -> Document:
        return bare_dataplane(
            version, "backend", self.services[version].address, kuma__io__protocol="grpc", version=version
        )

    def split(self, **weights: int) -> Document:
        return http_route("split", "backend", rule(prefix("/koguma.test.Names"), to=weights))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, dict[str, GrpcService]]]:
    with ExitStack() as opened:
        control_plane = opened.enter_context(ControlPlane(tmp_path_factory.mktemp("cp")))
        control_plane.apply(MESH, CLIENT, mesh_service("backend", "grpc"))
        control_plane.apply(*(mesh_service(f"backend-{name}", "grpc", version=name) for name in (V1, V2)))
        yield control_plane, {name: opened.enter_context(GrpcService(name)) for name in (V1, V2)}


@pytest.fixture(params=["python", pytest.param("node", marks=[NO_NODE, pytest.mark.long])])
def mesh(
    request: pytest.FixtureRequest, served: tuple[ControlPlane, dict[str, GrpcService]], tmp_path: Path
) -> Iterator[Mesh]:
    control_plane, services = served
    found = Mesh(control_plane, services, request.param, tmp_path)
    control_plane.apply(found.dataplane(V1), found.dataplane(V2))
    yield found
    for service in services.values():
        service.on(NAME)
    assert not control_plane.events("resources.refused")


def bootstrap(control_plane: ControlPlane, folder: Path) -> Path:
    """What an operator has printed."""
    command = [str(KOGUMA), "dp", "grpc-bootstrap", "shop", "--mesh", "default", "--cp-address", control_plane.api.url]
    file = folder / "bootstrap.json"
    file.write_bytes(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    return file


@pytest.mark.parametrize("mesh", ["python", pytest.param("node", marks=NO_NODE)], indirect=True)
@pytest.mark.parametrize("target", ["xds:///backend:80", "xds:///backend"])
def test_a_service_is_called_by_its_name(mesh: Mesh, target: str) -> None:
    with mesh.call(target) as calls:
        calls.until(V1, 1)
        assert set(calls.until(V2, 1)) == {V1, V2}


def test_a_library_that_can_goes_to_the_next_control_plane_when_the_first_is_gone(mesh: Mesh) -> None:
    if mesh.library != "python":
        pytest.skip("whether it knows gRFC A71 is up to the library")
    file = bootstrap(mesh.control_plane, mesh.folder)
    data = json.loads(file.read_text())
    (there,) = data["xds_servers"]
    file.write_text(json.dumps({**data, "xds_servers": [{**there, "server_uri": str(new_address())}, there]}))

    with Calls("python", "xds:///backend:80", file, mesh.folder / "calls.log") as calls:
        calls.until(V1, 1)


def test_a_timeout_of_the_mesh_ends_a_call(mesh: Mesh) -> None:
    timeout = policy("MeshTimeout", "short", service_item("backend", request_timeout("300ms")))
    with mesh.call("xds:///backend:80") as calls:
        calls.until(V1, 1)
        with mesh.having(timeout):
            for service in mesh.services.values():
                service.on(NAME, delay=2.0)
            calls.until("DEADLINE_EXCEEDED", 2)


def test_calls_move_to_the_other_version_and_none_fails(mesh: Mesh) -> None:
    with mesh.having(mesh.split(**{"backend-v1": 100, "backend-v2": 0})), mesh.call("xds:///backend:80") as calls:
        begun = len(calls.until(V1, 50))  # from here on the split holds for sure; the client may have come before it
        mesh.control_plane.apply(mesh.split(**{"backend-v1": 0, "backend-v2": 100}))
        answers = calls.until(V2, 50)

    assert set(answers) == {V1, V2}
    assert answers[begun:] == sorted(answers[begun:])


def test_an_endpoint_that_is_gone_is_not_called_any_more(mesh: Mesh) -> None:
    with mesh.call("xds:///backend:80") as calls:
        calls.until(V2, 1)
        mesh.control_plane.delete(mesh.dataplane(V2))
        answers = calls.until(V1, 30)

    assert set(answers) == {V1, V2}


def test_only_the_share_of_a_backend_that_is_missing_fails(mesh: Mesh) -> None:
    with mesh.having(mesh.split(**{"backend-v1": 50, "nobody": 50})), mesh.call("xds:///backend:80") as calls:
        begun = len(calls.until("UNAVAILABLE", 1))  # from here on the split holds for sure
        eventually(lambda: len(calls.answers) >= begun + SOME)
        answers = calls.answers[begun:]

    assert set(answers) == {V1, "UNAVAILABLE"}
