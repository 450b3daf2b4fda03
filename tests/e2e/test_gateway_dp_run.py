"""Builtin gateways that are started with `koguma dp run`, and that go away under steady calls."""

from __future__ import annotations

import http.client
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
import yaml

from cp.model.registration import OWNER
from tests.support.client import call
from tests.support.control_plane import KOGUMA
from tests.support.edge import all_to
from tests.support.envoy import envoy_binary
from tests.support.load import Calls
from tests.support.loopback import SAME_PORT, Address
from tests.support.mesh import Proxy, listener, mesh_gateway, mesh_service
from tests.support.playground import Playground
from tests.support.processes import Running
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

DRAIN = 2.0


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    empty_mesh.control_plane.apply(mesh_service("web"), all_to("web"), mesh_gateway("edge", listener(SAME_PORT)))
    empty_mesh.service("web")
    empty_mesh.ready()
    return empty_mesh


@contextmanager
def dp_run(mesh: Playground, proxy: Proxy, folder: Path) -> Iterator[Running]:
    """A gateway that brings its Dataplane along, and serves."""
    (file := folder / f"{proxy.name}.yaml").write_text(yaml.safe_dump(proxy.document))
    command: list[str | Path] = [KOGUMA, "dp", "run", "-d", file, "--envoy-path", envoy_binary()]
    options = ["--drain-time", f"{DRAIN:g}s", "--cp-address", mesh.control_plane.api.url]
    with Running([*command, *options], folder / f"{proxy.name}.log") as running:
        eventually(lambda: call(entrance(proxy)).service == "web", within=20)
        yield running


def entrance(proxy: Proxy) -> Address:
    return Address(proxy.host, SAME_PORT)


class Client:
    """A client that knows several gateways, and takes the first that lets it in; it keeps its connection.

    A gateway that asks it to disconnect is its last choice from then on, as it would be for whoever watches gateways.
    Until the end it could call one that is about to close its port, and who is in line there then is turned away by the
    kernel, whatever Envoy does.
    """

    def __init__(self, gateways: Sequence[Address]) -> None:
        self._gateways = list(gateways)
        self._connection: http.client.HTTPConnection | None = None

    @property
    def first_choice(self) -> Address:
        return self._gateways[0]

    def ask(self) -> str:
        """Who answers. Only what was never sent may be sent again."""
        connection = self._connection
        if connection is None or connection.sock is None:
            connection = self._connection = _first_open(self._gateways)
        try:
            connection.request("GET", "/")
            response = connection.getresponse()
            response.read()
        except OSError:
            self.close()  # otherwise the connection waits for the answer for ever
            raise
        if response.headers["connection"] == "close":
            self._gateways.sort(key=lambda gateway: gateway == (connection.host, connection.port))
        return response.headers["x-service"]

    def ask_once(self) -> str:
        """The same on a connection that is not kept."""
        try:
            return self.ask()
        finally:
            self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _first_open(gateways: Sequence[Address]) -> http.client.HTTPConnection:
    for address in gateways:
        connection = http.client.HTTPConnection(*address, timeout=5)
        try:
            connection.connect()
        except ConnectionRefusedError:
            connection.close()
            continue
        return connection
    raise ConnectionRefusedError(f"none of {gateways} lets anybody in")


@pytest.mark.long
def test_a_gateway_that_ends_loses_no_request_and_takes_its_dataplane_with_it(mesh: Playground, tmp_path: Path) -> None:
    going, staying = (Proxy(name, "edge", gateway="BUILTIN") for name in ("going", "staying"))
    mesh.services["web"].on("/slow", delay=DRAIN / 2)
    with ExitStack() as stack:
        running = stack.enter_context(dp_run(mesh, going, tmp_path))
        stack.enter_context(dp_run(mesh, staying, tmp_path))
        stored = mesh.control_plane.find(going.document)
        assert stored is not None
        assert OWNER in stored["labels"]
        gateways = (entrance(going), entrance(staying))
        kept, fresh = (stack.enter_context(closing(Client(gateways))) for _ in range(2))
        clients = [Calls(kept.ask), Calls(fresh.ask_once)]
        for calls in clients:
            stack.enter_context(calls)
        eventually(lambda: all(calls.answers["web"] > 5 for calls in clients))
        pool = stack.enter_context(ThreadPoolExecutor(1))
        slow = pool.submit(call, entrance(going), "/slow")
        eventually(lambda: mesh.services["web"].hits("/slow") == 1)

        running.send(signal.SIGTERM)

        assert running.wait(20) == 0
        assert slow.result().service == "web"
        assert mesh.control_plane.find(going.document) is None
        answered = [calls.answers["web"] for calls in clients]
        eventually(lambda: all(c.answers["web"] > count + 5 for c, count in zip(clients, answered, strict=True)))
        assert [calls.failures for calls in clients] == [[], []]
        assert {kept.first_choice, fresh.first_choice} == {entrance(staying)}, "who called was asked to disconnect"
        (drained,) = [line for line in (tmp_path / "going.log").read_text().splitlines() if "drained after" in line]
        assert float(drained.split()[-2]) >= DRAIN * 0.9, "nobody has told its clients to go elsewhere before"


@pytest.mark.long
def test_a_gateway_that_is_asked_has_what_it_should_have(mesh: Playground, tmp_path: Path) -> None:
    asked = "/meshes/default/dataplanes/asked/_envoy/diff"
    with dp_run(mesh, Proxy("asked", "edge", gateway="BUILTIN"), tmp_path):
        eventually(lambda: mesh.control_plane.get(asked)["differences"] == [], within=10)
