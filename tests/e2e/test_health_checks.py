"""Who is asked after health checks: over HTTP, over gRPC and over TCP."""

from collections.abc import Iterator

import pytest

from tests.support.client import call, greeting
from tests.support.grpc_service import NOT_SERVING, SERVING, GrpcService, answering_names
from tests.support.loopback import Address, new_address
from tests.support.mesh import Document, bare_dataplane, mesh_service, policy, service_item
from tests.support.playground import Playground
from tests.support.services import TcpService
from tests.support.upstreams import answering, healthy, upstream
from tests.support.waiting import eventually

pytestmark = [pytest.mark.envoy, pytest.mark.long]

HEALTH, ALWAYS = "/health", 1_000_000
INSTANCES = {"backend-1", "backend-2", "backend-3"}
ILL = "backend-1"
SOON = {"interval": "100ms", "noTrafficInterval": "100ms", "timeout": "2s", "unhealthyThreshold": 1}


def checking(service: str, **default: object) -> Document:
    return policy("MeshHealthCheck", f"checking-{service}", service_item(service, {**SOON, **default}))


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    for service, protocol in (("backend", "http"), ("other", "http"), ("ledger", "grpc"), ("database", "tcp")):
        empty_mesh.control_plane.apply(mesh_service(service, protocol))
    for name in sorted(INSTANCES):
        empty_mesh.bare(name, "backend")
    empty_mesh.bare("other", "other")
    empty_mesh.client("frontend", "backend", "other", "ledger", "database")
    empty_mesh.ready()
    return empty_mesh


@pytest.fixture
def backend(mesh: Playground) -> Iterator[Address]:
    yield mesh.proxies["frontend"].outbound("backend")
    for name in INSTANCES:
        mesh.services[name].on(HEALTH)


def ill(mesh: Playground, *names: str, status: int = 503) -> None:
    """Instances that answer their health check with this status, and everything else as always."""
    for name in names:
        mesh.services[name].on(HEALTH, failures=ALWAYS, failure=status)


def test_who_is_ill_is_not_asked_until_he_is_well(mesh: Playground, backend: Address) -> None:
    ill(mesh, ILL)
    with mesh.having(checking("backend", http={"path": HEALTH})):
        eventually(lambda: healthy(mesh.envoys["frontend"], "backend") == len(INSTANCES - {ILL}))

        assert set(answering(backend, 30)) == INSTANCES - {ILL}

        mesh.services[ILL].on(HEALTH)
        eventually(lambda: set(answering(backend, 12)) == INSTANCES)


def test_without_a_check_illness_is_not_seen(mesh: Playground, backend: Address) -> None:
    ill(mesh, ILL)
    with mesh.having(checking("other", http={"path": HEALTH})):
        eventually(lambda: mesh.services["other"].hits(HEALTH) > 2)

        assert set(answering(backend, 30)) == INSTANCES


def test_what_counts_as_well_can_be_said(mesh: Playground, backend: Address) -> None:
    others = INSTANCES - {ILL}
    ill(mesh, *others, status=418)
    with mesh.having(checking("backend", http={"path": HEALTH, "expectedStatuses": [418]})):
        eventually(lambda: healthy(mesh.envoys["frontend"], "backend") == len(others))

        assert set(answering(backend, 30)) == others


@pytest.mark.parametrize(("threshold", "asked"), [(2, INSTANCES - {ILL}), (1000, INSTANCES)])
def test_who_does_not_answer_in_time_is_ill_after_as_many_checks(
    mesh: Playground, backend: Address, threshold: int, asked: set[str]
) -> None:
    check = checking("backend", http={"path": HEALTH}, timeout="50ms", unhealthyThreshold=threshold)
    with mesh.having(check):
        eventually(lambda: upstream(mesh.envoys["frontend"], "backend")["health_checks"])
        mesh.services[ILL].on(HEALTH, delay=1)
        eventually(lambda: mesh.services[ILL].hits(HEALTH) > 10)
        eventually(lambda: healthy(mesh.envoys["frontend"], "backend") == len(asked))

        assert set(answering(backend, 30)) == asked


def test_the_headers_of_a_check_are_those_of_the_policy(mesh: Playground, backend: Address) -> None:
    headers = {"set": [{"name": "x-check", "value": "100%"}], "add": [{"name": "x-added", "value": "%REQ(x)%"}]}
    with mesh.having(checking("backend", http={"path": HEALTH, "requestHeadersToAdd": headers})):
        seen = eventually(lambda: mesh.services[ILL].headers(HEALTH))

    assert (seen["x-check"], seen["x-added"]) == ("100%", "%REQ(x)%")
    assert backend


@pytest.mark.parametrize(
    "fails",
    [{"failTrafficOnPanic": True}, {"healthyPanicThreshold": 0}],
    ids=["on-panic", "without-panic"],
)
def test_where_all_are_ill_nobody_needs_to_be_asked(mesh: Playground, backend: Address, fails: Document) -> None:
    ill(mesh, *INSTANCES)
    with mesh.having(checking("backend", http={"path": HEALTH})):
        eventually(lambda: upstream(mesh.envoys["frontend"], "backend")["health_checks"])
        eventually(lambda: mesh.services[ILL].hits(HEALTH) > 2)
        assert {call(backend).status for _ in range(10)} == {200}

    with mesh.having(checking("backend", http={"path": HEALTH}, **fails)):
        eventually(lambda: call(backend).status == 503)

        assert {call(backend).status for _ in range(10)} == {503}


def test_a_grpc_service_says_itself_whether_it_is_well(mesh: Playground) -> None:
    ledger = mesh.proxies["frontend"].outbound("ledger")
    with GrpcService("ledger-1") as one, GrpcService("ledger-2") as two:
        for service in (one, two):
            mesh.control_plane.apply(bare_dataplane(service.name, "ledger", service.address))
        eventually(lambda: set(answering_names(ledger, 6)) == {"ledger-1", "ledger-2"})
        two.health = NOT_SERVING
        with mesh.having(checking("ledger", grpc={})):
            eventually(lambda: healthy(mesh.envoys["frontend"], "ledger") == 1)
            assert set(answering_names(ledger, 6)) == {"ledger-1"}
            two.health = SERVING

            eventually(lambda: set(answering_names(ledger, 6)) == {"ledger-1", "ledger-2"})


def test_who_takes_no_connection_is_not_asked(mesh: Playground, backend: Address) -> None:
    """HTTP has no check of its own here: then it is one of TCP."""
    with mesh.having(bare_dataplane("backend-4", "backend", new_address())):
        eventually(lambda: call(backend).status == 503)
        with mesh.having(checking("backend", http={"disabled": True}, tcp={})):
            eventually(lambda: healthy(mesh.envoys["frontend"], "backend") == len(INSTANCES))

            assert set(answering(backend, 30)) == INSTANCES


def test_who_does_not_say_what_is_expected_over_tcp_is_not_asked(mesh: Playground) -> None:
    database = mesh.proxies["frontend"].outbound("database")
    with TcpService("expected") as right, TcpService("another") as wrong:
        for service in (right, wrong):
            mesh.control_plane.apply(bare_dataplane(service.name, "database", service.address))
        eventually(lambda: {greeting(database) for _ in range(6)} == {"expected", "another"})
        with mesh.having(checking("database", tcp={"send": "ping\n", "receive": ["expected", "ping"]})):
            eventually(lambda: healthy(mesh.envoys["frontend"], "database") == 1)

            assert {greeting(database) for _ in range(12)} == {"expected"}


def test_what_a_check_finds_out_is_written_down(mesh: Playground, backend: Address) -> None:
    events = mesh.folder / "health.log"
    events.touch()
    with mesh.having(checking("backend", http={"path": HEALTH}, eventLogPath=str(events))):
        eventually(lambda: upstream(mesh.envoys["frontend"], "backend")["health_checks"])
        ill(mesh, ILL)
        where = mesh.services[ILL].address
        eventually(lambda: f'"port_value":{where.port}' in events.read_text() and "eject" in events.read_text())
    assert backend
