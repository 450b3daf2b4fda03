"""Instances that end, vanish and move under steady calls over every protocol: none is lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml

from cp.model.registration import NOT_READY, OWNER
from tests.cli.conftest import Koguma
from tests.support.client import Conversation
from tests.support.control_plane import KOGUMA
from tests.support.envoy import envoy_binary
from tests.support.grpc_service import GrpcService
from tests.support.load import Load
from tests.support.loopback import Address, free_port, new_host
from tests.support.mesh import Document, bare_dataplane, mesh_item, mesh_service, policy
from tests.support.playground import Playground, playground
from tests.support.processes import Running, has_ended
from tests.support.services import HttpService, TcpService
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

PROTOCOLS = ("http", "http2", "grpc", "tcp")
SOON = {"interval": "100ms", "timeout": "1s", "unhealthyThreshold": 1, "healthyThreshold": 1}
CHECKED = policy("MeshHealthCheck", "checked", mesh_item({**SOON, "http": {"disabled": True}, "tcp": {}}))
SETTINGS = {"KUMA_XDS_SERVER_DATAPLANE_DEREGISTRATION_DELAY": "1s", "KOGUMA_RETURN_GRACE": "0"}
DRAIN = 2.0


class Workloads:
    """One workload for each protocol, of one name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stack = ExitStack()
        enter = self._stack.enter_context
        self.addresses: dict[str, Address] = {
            "http": enter(HttpService(name)).address,
            "http2": enter(GrpcService(name)).address,
            "grpc": enter(GrpcService(name)).address,
            "tcp": enter(TcpService(name)).address,
        }

    def dataplanes(self, state: str = "Ready") -> list[Document]:
        """Dataplanes without proxies: callers reach the workloads themselves."""
        return [
            _called(bare_dataplane(f"{self.name}-{protocol}", protocol, address, state), protocol)
            for protocol, address in self.addresses.items()
        ]

    def close(self) -> None:
        self._stack.close()


def _called(document: Document, inbound: str) -> Document:
    document["networking"]["inbound"][0]["name"] = inbound
    return document


def service(protocol: str) -> Document:
    """Its endpoints are inbounds that are called as it is: a proxy has several of them."""
    document = mesh_service(protocol, protocol)
    document["spec"]["ports"][0]["targetPort"] = protocol
    return document


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    with playground(tmp_path_factory.mktemp("mesh"), **SETTINGS) as mesh:
        for protocol in PROTOCOLS:
            mesh.control_plane.apply(service(protocol))
        stays = Workloads("stays")
        mesh.stack.callback(stays.close)
        mesh.control_plane.apply(*stays.dataplanes())
        mesh.client("frontend", *PROTOCOLS)
        mesh.ready()
        yield mesh


@pytest.fixture(params=["unchecked", pytest.param("checked", marks=pytest.mark.long)])
def load(request: pytest.FixtureRequest, mesh: Playground) -> Iterator[Load]:
    """Calls all through a test, none of which may be lost, with health checks and without."""
    frontend = mesh.proxies["frontend"]
    checks = mesh.having(CHECKED) if request.param == "checked" else nullcontext()
    with checks, Load(*(frontend.outbound(protocol) for protocol in PROTOCOLS)) as load:
        yield load
        load.goes_on()
    assert load.failures == {}


@pytest.fixture
def koguma(mesh: Playground) -> Koguma:
    return Koguma(mesh.control_plane.api.url)


@pytest.fixture
def goes() -> Iterator[Workloads]:
    workloads = Workloads("goes")
    yield workloads
    workloads.close()


def answered(load: Load, name: str) -> None:
    """Until an instance has answered calls of every kind that are counted by who answers."""
    eventually(lambda: all(load.answers(protocol)[name] > 1 for protocol in PROTOCOLS[1:]), within=20)


def applied(koguma: Koguma, folder: Path, documents: list[Document]) -> None:
    (file := folder / "change.yaml").write_text(yaml.safe_dump_all(documents))
    ended = koguma("apply", "-f", file, "--wait")
    assert ended.status == 0, ended.err


def stopped(workloads: Workloads, load: Load) -> None:
    """Stop workloads in the midst of calls. What they were asked last has ended by then."""
    load.goes_on()
    workloads.close()
    load.goes_on()


# --- instances that callers reach directly ---


def test_an_instance_that_is_deleted_and_then_stopped_loses_nothing(
    koguma: Koguma, load: Load, goes: Workloads, tmp_path: Path
) -> None:
    applied(koguma, tmp_path, goes.dataplanes())
    answered(load, "goes")

    for document in goes.dataplanes():
        assert koguma("delete", "dataplane", document["name"], "--wait").status == 0

    stopped(goes, load)


def test_an_instance_that_is_not_ready_and_then_stopped_loses_nothing(
    mesh: Playground, koguma: Koguma, load: Load, goes: Workloads, tmp_path: Path
) -> None:
    applied(koguma, tmp_path, goes.dataplanes())
    answered(load, "goes")

    applied(koguma, tmp_path, goes.dataplanes("NotReady"))

    stopped(goes, load)
    mesh.control_plane.delete(*goes.dataplanes())


@pytest.mark.parametrize("load", ["unchecked", "checked"], indirect=True)
def test_an_instance_that_moves_loses_nothing(
    mesh: Playground, koguma: Koguma, load: Load, goes: Workloads, tmp_path: Path
) -> None:
    applied(koguma, tmp_path, goes.dataplanes())
    answered(load, "goes")
    moved = Workloads("moved")
    documents = [{**new, "name": old["name"]} for new, old in zip(moved.dataplanes(), goes.dataplanes(), strict=True)]

    applied(koguma, tmp_path, documents)

    stopped(goes, load)
    answered(load, "moved")
    for document in documents:
        assert koguma("delete", "dataplane", document["name"], "--wait").status == 0
    moved.close()


def test_a_service_that_moves_to_other_instances_loses_nothing(
    mesh: Playground, koguma: Koguma, load: Load, goes: Workloads, tmp_path: Path
) -> None:
    """Its instances stay as they are; it chooses others."""
    moved = Workloads("moved")
    documents = [_of_version(document, "next") for document in moved.dataplanes()]
    applied(koguma, tmp_path, [*goes.dataplanes(), *documents])
    answered(load, "goes")

    applied(koguma, tmp_path, [_chosen(service(protocol), "next") for protocol in PROTOCOLS])

    stopped(goes, load)
    answered(load, "moved")
    mesh.control_plane.delete(*goes.dataplanes())
    applied(koguma, tmp_path, [service(protocol) for protocol in PROTOCOLS])
    for document in documents:
        assert koguma("delete", "dataplane", document["name"], "--wait").status == 0
    moved.close()


def _of_version(document: Document, version: str) -> Document:
    document["networking"]["inbound"][0]["tags"]["version"] = version
    return document


def _chosen(document: Document, version: str) -> Document:
    document["spec"]["selector"]["dataplaneTags"]["version"] = version
    return document


# --- proxies that were started with `koguma dp run` ---


@dataclass(frozen=True)
class Run:
    """One `koguma dp run`, in front of workloads."""

    document: Document
    file: Path
    log: Path
    running: Running

    @property
    def envoy(self) -> psutil.Process:
        (envoy,) = [one for one in psutil.Process(self.running.pid).children() if "--config-path" in one.cmdline()]
        return envoy


def dataplane(workloads: Workloads, host: str) -> Document:
    inbound = [
        {
            "name": protocol,
            "port": free_port(host),
            "serviceAddress": address.host,
            "servicePort": address.port,
            "tags": {"kuma.io/service": protocol, "kuma.io/protocol": protocol},
        }
        for protocol, address in workloads.addresses.items()
    ]
    networking = {"address": host, "inbound": inbound}
    return {"type": "Dataplane", "mesh": "default", "name": "goes", "networking": networking}


@contextmanager
def dp_run(mesh: Playground, document: Document, folder: Path, log: str = "dp.log") -> Iterator[Run]:
    (file := folder / "goes.yaml").write_text(yaml.safe_dump(document))
    command: list[str | Path] = [
        KOGUMA,
        "dp",
        "run",
        "-d",
        file,
        "--envoy-path",
        envoy_binary(),
        "--work-dir",
        folder / "work",
    ]
    address = ["--cp-address", mesh.control_plane.api.url, "--drain-time", f"{DRAIN:g}s"]
    with Running([*command, *address], folder / log) as running:
        yield Run(document, file, folder / log, running)


def ready(run: Run) -> None:
    eventually(lambda: "ready after" in run.log.read_text(), within=20)


@pytest.fixture
def run(mesh: Playground, load: Load, goes: Workloads, tmp_path: Path) -> Iterator[Run]:
    with dp_run(mesh, dataplane(goes, new_host()), tmp_path) as run:
        ready(run)
        answered(load, "goes")
        yield run


def labels(mesh: Playground, run: Run) -> dict[str, str]:
    stored = mesh.control_plane.find(run.document)
    return {} if stored is None else stored.get("labels", {})


def test_a_proxy_that_is_told_to_end_loses_nothing_and_takes_its_dataplane_with_it(
    mesh: Playground, load: Load, goes: Workloads, run: Run
) -> None:
    envoy, owner = run.envoy, labels(mesh, run)[OWNER]

    run.running.send(signal.SIGTERM)

    eventually(lambda: labels(mesh, run).get(NOT_READY) == owner)
    assert run.running.wait(20) == 0
    assert has_ended(envoy)
    assert mesh.control_plane.find(run.document) is None
    assert "drained after" in run.log.read_text()
    load.goes_on()


def test_a_proxy_whose_koguma_is_killed_is_drained_all_the_same(
    mesh: Playground, load: Load, goes: Workloads, run: Run
) -> None:
    envoy = run.envoy

    run.running.kill()

    eventually(lambda: has_ended(envoy), within=20)
    assert mesh.control_plane.find(run.document) is None
    load.goes_on()


@pytest.mark.long
def test_an_envoy_that_was_left_with_nobody_to_watch_over_it_is_drained_before_the_next_one_starts(
    mesh: Playground, load: Load, goes: Workloads, run: Run, tmp_path: Path
) -> None:
    envoy = run.envoy
    killed_with_its_guard(run)
    load.goes_on()

    with dp_run(mesh, run.document, tmp_path, "next.log") as following:
        ready(following)
        assert has_ended(envoy)
        load.goes_on()
        following.running.send(signal.SIGTERM)
        assert following.running.wait(20) == 0
    load.goes_on()


def killed_with_its_guard(run: Run) -> None:
    koguma, envoy = psutil.Process(run.running.pid), run.envoy
    for process in [*(one for one in koguma.children() if one.pid != envoy.pid), koguma]:
        process.kill()


@pytest.mark.long
def test_a_proxy_whose_dataplane_is_deleted_loses_nothing(
    koguma: Koguma, load: Load, goes: Workloads, run: Run
) -> None:
    assert koguma("delete", "dataplane", "goes", "--wait").status == 0

    load.goes_on()
    run.running.send(signal.SIGTERM)
    run.running.wait(20)
    load.goes_on()


@pytest.mark.long
def test_a_proxy_that_moves_to_another_address_loses_nothing(
    mesh: Playground, load: Load, goes: Workloads, run: Run, tmp_path: Path
) -> None:
    """A second run under its name starts elsewhere, and then the first one ends."""
    (elsewhere := tmp_path / "elsewhere").mkdir()
    with dp_run(mesh, dataplane(goes, new_host()), elsewhere) as second:
        ready(second)
        load.goes_on()
        run.running.send(signal.SIGTERM)
        run.running.wait(20)
        load.goes_on()
        assert mesh.control_plane.find(second.document) is not None, "it is the second one's by now"
        second.running.send(signal.SIGTERM)
        second.running.wait(20)
    load.goes_on()


def exchanged_until_the_end(conversation: Conversation) -> int:
    """How many words go to and fro before the other side ends the connection, orderly or by a reset."""
    count = 0
    with suppress(ConnectionError):
        while conversation.is_silent:
            conversation.say("more\n")
            count += conversation.hear() == "more"
    return count


def test_a_connection_over_tcp_goes_on_until_the_drain_time_is_over(
    mesh: Playground, goes: Workloads, tmp_path: Path
) -> None:
    document = dataplane(goes, new_host())
    (inbound,) = [one for one in document["networking"]["inbound"] if one["name"] == "tcp"]
    where = Address(document["networking"]["address"], inbound["port"])
    with dp_run(mesh, document, tmp_path) as run:
        ready(run)
        with Conversation(where, timeout=20) as conversation:
            assert conversation.hear() == "goes"
            run.running.send(signal.SIGTERM)
            eventually(lambda: NOT_READY in labels(mesh, run))
            assert exchanged_until_the_end(conversation) > 0
        run.running.wait(20)
    (drained,) = [line for line in run.log.read_text().splitlines() if "drained after" in line]
    assert float(drained.split()[-2]) >= DRAIN * 0.9


@pytest.mark.long
def test_a_proxy_that_vanishes_with_all_that_watched_over_it_takes_its_dataplane_with_it(
    mesh: Playground, goes: Workloads, tmp_path: Path
) -> None:
    with dp_run(mesh, dataplane(goes, new_host()), tmp_path) as run:
        ready(run)
        owner, envoy = labels(mesh, run)[OWNER], run.envoy
        killed_with_its_guard(run)
        envoy.kill()

        eventually(lambda: mesh.control_plane.find(run.document) is None, within=20)

    (removed,) = [one for one in mesh.control_plane.events("proxy.removed") if one["owner"] == owner]
    assert removed["resource"] == "Dataplane default/goes"
