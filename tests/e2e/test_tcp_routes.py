"""Where connections go that a MeshTCPRoute takes, how long they may be idle, and how often they are tried."""

from collections import Counter
from contextlib import ExitStack

import pytest

from tests.support.client import Conversation, call, closed_after, greeting
from tests.support.loopback import Address, new_address
from tests.support.mesh import (
    Document,
    backend,
    bare_dataplane,
    http_route,
    mesh_service,
    policy,
    prefix,
    route_item,
    rule,
    service_item,
    tcp_route,
)
from tests.support.playground import Playground
from tests.support.services import TcpService
from tests.support.upstreams import listening
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

DATABASES = {"database-v1", "database-v2"}
WEB = {"web-v1", "web-v2"}
TO_ITSELF = tcp_route("route", "database", backend("database"))
CONNECTIONS = 300


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    """Two versions of a database, an archive, and two versions of a website of which each has a service of its own."""
    for service in ("database", "archive"):
        empty_mesh.control_plane.apply(mesh_service(service, "tcp"))
    empty_mesh.control_plane.apply(mesh_service("web"), *(mesh_service(name, version=name[4:]) for name in WEB))
    for name, service, version in (("database-v1", "database", "1"), ("database-v2", "database", "2")):
        _running(empty_mesh, name, service, version=version)
    _running(empty_mesh, "archive", "archive")
    for name in sorted(WEB):
        empty_mesh.bare(name, "web", version=name[4:])
    empty_mesh.client("frontend", "database", "archive", "web", "tag=database")
    empty_mesh.ready()
    return empty_mesh


def _running(mesh: Playground, name: str, service: str, **tags: str) -> None:
    workload = mesh.stack.enter_context(TcpService(name))
    mesh.control_plane.apply(bare_dataplane(name, service, workload.address, **tags))


@pytest.fixture
def database(mesh: Playground) -> Address:
    return mesh.proxies["frontend"].outbound("database")


@pytest.fixture
def archive(mesh: Playground) -> Address:
    return mesh.proxies["frontend"].outbound("archive")


@pytest.fixture
def web(mesh: Playground) -> Address:
    return mesh.proxies["frontend"].outbound("web")


@pytest.fixture(autouse=True)
def undisturbed(database: Address, archive: Address, web: Address) -> None:
    """Each test begins, and so ends, with every service reaching its own instances."""
    eventually(lambda: set(greeted(database, 6)) == DATABASES and set(greeted(archive, 6)) == {"archive"})
    eventually(lambda: {call(web).service for _ in range(6)} == WEB)


def greeted(address: Address, times: int) -> Counter[str]:
    """Who answers so many connections, one after the other; empty for those that are closed."""
    return Counter(greeting(address) for _ in range(times))


def test_connections_to_one_service_are_led_to_another(mesh: Playground, database: Address, archive: Address) -> None:
    with mesh.having(tcp_route("route", "database", backend("archive"))):
        eventually(lambda: greeted(database, 6) == {"archive": 6})

        with Conversation(database) as conversation:
            conversation.say("one\n")
            assert [conversation.hear(), conversation.hear()] == ["archive", "one"]
        assert greeted(mesh.proxies["frontend"].outbound("tag=database"), 6) == {"archive": 6}
        assert greeted(archive, 6) == {"archive": 6}


def test_connections_are_split_by_weight(mesh: Playground, database: Address) -> None:
    with mesh.having(tcp_route("route", "database", backend("database", 75), backend("archive", 25))):
        eventually(lambda: greeted(database, 20)["archive"])

        share = greeted(database, CONNECTIONS)["archive"] / CONNECTIONS

    assert share == pytest.approx(0.25, abs=0.1)


def test_a_weight_of_zero_gets_nothing(mesh: Playground, database: Address) -> None:
    with mesh.having(tcp_route("route", "database", backend("database", 0), backend("archive"))):
        eventually(lambda: greeted(database, 6) == {"archive": 6})

        assert greeted(database, 50) == {"archive": 50}


@pytest.mark.parametrize("outbound", ["database", "tag=database"])
def test_connections_are_led_to_the_instances_with_a_tag(mesh: Playground, archive: Address, outbound: str) -> None:
    second = {"kind": "MeshServiceSubset", "name": "database", "tags": {"version": "2"}}
    called = mesh.proxies["frontend"].outbound(outbound)
    with mesh.having(tcp_route("route", "database", second)):
        eventually(lambda: greeted(called, 6) == {"database-v2": 6})

        assert greeted(called, 20) == {"database-v2": 20}
        assert greeted(archive, 6) == {"archive": 6}


def test_the_share_of_a_missing_service_is_closed_and_no_other(
    mesh: Playground, database: Address, archive: Address
) -> None:
    with mesh.having(tcp_route("route", "database", backend("archive"), backend("nobody"))):
        eventually(lambda: set(greeted(database, 10)) == {"archive", ""})

        answers = greeted(database, 100)

        assert set(answers) == {"archive", ""}
        assert answers["archive"] / 100 == pytest.approx(0.5, abs=0.2)
        assert greeted(archive, 20) == {"archive": 20}


def test_where_every_backend_is_missing_connections_are_closed(
    mesh: Playground, database: Address, archive: Address
) -> None:
    with mesh.having(tcp_route("route", "database", backend("nobody"))):
        eventually(lambda: greeted(database, 6) == {"": 6})

        assert greeted(archive, 6) == {"archive": 6}


def test_requests_follow_a_route_of_tcp_unless_there_is_one_of_http(mesh: Playground, web: Address) -> None:
    def answering(path: str) -> set[str]:
        return {call(web, path).service for _ in range(10)}

    with mesh.having(tcp_route("route", "web", backend("web-v2"))):
        eventually(lambda: answering("/") == {"web-v2"})

        with mesh.having(http_route("first", "web", rule(prefix("/first"), to={"web-v1": 1}))):
            eventually(lambda: answering("/first") == {"web-v1"})

            assert answering("/") == WEB

        eventually(lambda: answering("/first") == {"web-v2"})


def test_a_silent_connection_is_closed_on_the_route_and_not_elsewhere(
    mesh: Playground, database: Address, archive: Address
) -> None:
    on_route = policy("MeshTimeout", "idle", route_item("route", {"idleTimeout": "300ms"}, "MeshTCPRoute"))
    closed_in_time(mesh, database, archive, TO_ITSELF, on_route)


def test_a_silent_connection_to_one_service_is_closed_and_to_no_other(
    mesh: Playground, database: Address, archive: Address
) -> None:
    on_service = policy("MeshTimeout", "idle", service_item("database", {"idleTimeout": "300ms"}))
    closed_in_time(mesh, database, archive, on_service)


def test_the_route_says_more_about_silence_than_its_service(
    mesh: Playground, database: Address, archive: Address
) -> None:
    on_both = policy(
        "MeshTimeout",
        "idle",
        service_item("database", {"idleTimeout": "100ms"}),
        route_item("route", {"idleTimeout": "300ms"}, "MeshTCPRoute"),
    )
    closed_in_time(mesh, database, archive, TO_ITSELF, on_both)


def closed_in_time(mesh: Playground, database: Address, archive: Address, *documents: Document) -> None:
    """With these documents, who says nothing for 0.3 s is cut off, and a connection to the archive is not."""
    with Conversation(archive) as other:
        assert other.hear() == "archive"
        with mesh.having(*documents):
            eventually(lambda: listening(mesh.envoys["frontend"], database).get("idle_timeout") == "0.300s")
            seconds, said = closed_after(database)
        other.say("still here\n")

        assert other.hear() == "still here"
    assert seconds >= 0.2  # Envoy began to count before its first byte arrived
    assert said.strip() in DATABASES


@pytest.mark.parametrize("on", ["service", "route"])
def test_connections_are_tried_again_where_an_instance_is_away(
    mesh: Playground, database: Address, archive: Address, on: str
) -> None:
    away = [bare_dataplane(f"{service}-away", service, new_address()) for service in ("database", "archive")]
    conf = {"tcp": {"maxConnectAttempt": 3}}
    item = service_item("database", conf) if on == "service" else route_item("route", conf, "MeshTCPRoute")
    with ExitStack() as present:
        present.enter_context(mesh.having(*away))
        present.enter_context(mesh.having(TO_ITSELF)) if on == "route" else None
        eventually(lambda: greeted(database, 6)[""] and greeted(archive, 4)[""])
        with mesh.having(policy("MeshRetry", "again", item)):
            eventually(lambda: set(greeted(database, 9)) == DATABASES)

            assert set(greeted(database, 30)) == DATABASES
            assert greeted(archive, 10)[""] >= 3
