"""Every field of MeshTimeout: who is cut off, after how long, and who is not.

What routes are for is in test_route_timeouts, and silent connections of TCP are in test_tcp_routes.
"""

import http.client
import time
from contextlib import ExitStack

import pytest

from tests.support.client import TICK, Answer, Conversation, call, closed_after
from tests.support.loopback import Address
from tests.support.mesh import (
    Document,
    bare_dataplane,
    http_route,
    mesh_item,
    mesh_service,
    policy,
    prefix,
    route_item,
    rule,
    service_item,
)
from tests.support.playground import Playground, rows
from tests.support.services import TcpService, deaf
from tests.support.upstreams import http_options, listening, upstream
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

LIMIT, SOON, BEYOND = "300ms", 0.3, 0.6
STARTED_EARLIER = 0.1
"""Seconds by which Envoy may have begun to count before the client did."""
NEVER, LATE, BIT_BY_BIT, ROUTED = "/never", "/late", "/bit-by-bit", "/routed"
HALF_A_REQUEST, ITS_REST = "GET / HTTP/1.1\r\nhost: backend\r\n", "\r\n"


def on_service(conf: Document) -> Document:
    return policy("MeshTimeout", "limit", service_item("backend", conf))


def on_workload(name: str, conf: Document, field: str) -> Document:
    """What a proxy itself allows those who call its workload."""
    target = {"kind": "MeshSubset", "tags": {"kuma.io/service": name}}
    item = mesh_item(conf) if field == "from" else {"default": conf}
    return {"type": "MeshTimeout", "mesh": "default", "name": "inbound", "spec": {"targetRef": target, field: [item]}}


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    """Two services that are called directly, and two of HTTP and one of TCP with a proxy of their own."""
    services = ("backend", "other", "served", "spared")
    route = http_route("route", "backend", rule(prefix(ROUTED), to={"backend": 1}))
    empty_mesh.control_plane.apply(*map(mesh_service, services), route)
    for name in ("backend", "other"):
        empty_mesh.bare(name, name)
    for name in ("served", "spared"):
        empty_mesh.service(name)
    for service in empty_mesh.services.values():
        for path in ("", ROUTED):
            service.on(f"{path}{NEVER}", delay=5)
            service.on(f"{path}{LATE}", delay=BEYOND)
            service.on(f"{path}{BIT_BY_BIT}", spread=BEYOND)
    echo = empty_mesh.stack.enter_context(TcpService("echo"))
    empty_mesh.tcp("echo", echo.address)
    empty_mesh.client("frontend", *services, "deaf-1", "deaf-2")
    empty_mesh.ready()
    return empty_mesh


@pytest.fixture
def backend(mesh: Playground) -> Address:
    return mesh.proxies["frontend"].outbound("backend")


@pytest.fixture
def other(mesh: Playground) -> Address:
    return mesh.proxies["frontend"].outbound("other")


def is_cut_off(answer: Answer) -> bool:
    return answer.status == 504 and answer.seconds >= SOON - TICK


def assert_in_time(found: tuple[float, str], expected: str) -> None:
    """What was said is this, and it came when the time was out."""
    seconds, said = found
    assert said == expected
    assert seconds >= SOON - STARTED_EARLIER


def on_rows(mesh: Playground, field: str, service: str = "backend") -> list[str]:
    """How a limit is set for each row of a service's table: the route's first, then what the route leaves."""
    return [row["route"].get(field, "") for row in rows(mesh.envoys["frontend"], service)]


def half_a_request(address: Address) -> tuple[float, str]:
    """What somebody is told who does not come to the end of a request, and after how long."""
    with Conversation(address) as conversation:
        begun = time.monotonic()
        conversation.say(HALF_A_REQUEST)
        answer = conversation.hear()
        return time.monotonic() - begun, answer


def the_rest_is_taken(conversation: Conversation) -> bool:
    """Whether a request that was begun can be ended, and is answered."""
    conversation.say(ITS_REST)
    return conversation.hear() == "HTTP/1.1 200 OK"


@pytest.mark.long
def test_a_connection_that_does_not_come_about_is_given_up(mesh: Playground) -> None:
    frontend = mesh.proxies["frontend"]
    names = ("deaf-1", "deaf-2")
    limit = policy("MeshTimeout", "limit", service_item("deaf-1", {"connectionTimeout": LIMIT}))
    with ExitStack() as stack:
        workloads = [bare_dataplane(name, name, stack.enter_context(deaf())) for name in names]
        stack.enter_context(mesh.having(limit, *map(mesh_service, names), *workloads))
        eventually(lambda: upstream(mesh.envoys["frontend"], "deaf-1")["connect_timeout"] == "0.300s")
        eventually(lambda: upstream(mesh.envoys["frontend"], "deaf-2"))
        with Conversation(frontend.outbound("deaf-2")) as unlimited:
            unlimited.say(HALF_A_REQUEST + ITS_REST)
            answer = eventually(lambda: _unreachable(frontend.outbound("deaf-1")))

            assert "connection timeout" in answer.body
            assert answer.seconds >= SOON - TICK
            assert unlimited.is_silent


def _unreachable(address: Address) -> Answer:
    answer = call(address, "/")
    assert "no healthy upstream" not in answer.body, "its endpoint is on the way"
    assert answer.status == 503
    return answer


def test_an_idle_connection_is_closed(mesh: Playground, backend: Address, other: Address) -> None:
    with mesh.having(on_service({"idleTimeout": LIMIT})):
        eventually(lambda: http_options(mesh.envoys["frontend"], "backend").get("idle_timeout") == "0.300s")
        assert call(other).status == 200

        def kept() -> float:
            assert call(backend).status == 200
            begun = time.monotonic()
            eventually(lambda: mesh.services["backend"].connections[1] == 0, pause=0.01)
            return time.monotonic() - begun

        assert kept() >= SOON - STARTED_EARLIER
        assert mesh.services["other"].connections[1] > 0


def test_a_connection_of_tcp_is_closed_by_the_server_when_it_is_idle(mesh: Playground) -> None:
    echo = mesh.proxies["echo"].inbound
    for field in ("from", "rules"):
        with mesh.having(on_workload("echo", {"idleTimeout": LIMIT}, field)):
            eventually(lambda: listening(mesh.envoys["echo"], echo)["idle_timeout"] == "0.300s")

            assert_in_time(closed_after(echo), "echo\n")


def test_silence_ends_a_request_and_a_slow_answer_does_not(mesh: Playground, backend: Address, other: Address) -> None:
    with mesh.having(on_service({"http": {"streamIdleTimeout": LIMIT}})):
        eventually(lambda: on_rows(mesh, "idle_timeout") == ["0.300s", "0.300s"])

        assert is_cut_off(call(backend, NEVER))
        assert call(backend, BIT_BY_BIT).status == 200
        assert call(other, LATE).status == 200


def test_silence_ends_a_request_on_the_route_and_not_elsewhere(mesh: Playground, backend: Address) -> None:
    on_route = policy("MeshTimeout", "limit", route_item("route", {"http": {"streamIdleTimeout": LIMIT}}))
    with mesh.having(on_route):
        eventually(lambda: on_rows(mesh, "idle_timeout") == ["0.300s", "1800s"])

        assert is_cut_off(call(backend, f"{ROUTED}{NEVER}"))
        assert call(backend, f"{ROUTED}{BIT_BY_BIT}").status == 200
        assert call(backend, LATE).status == 200


def test_half_a_request_is_not_waited_for(mesh: Playground, backend: Address, other: Address) -> None:
    with mesh.having(on_service({"http": {"requestHeadersTimeout": LIMIT, "requestTimeout": "5s"}})):
        eventually(lambda: listening(mesh.envoys["frontend"], backend).get("request_headers_timeout") == "0.300s")
        with Conversation(other) as patient:
            patient.say(HALF_A_REQUEST)

            assert_in_time(half_a_request(backend), "HTTP/1.1 408 Request Timeout")
            assert patient.is_silent
            assert the_rest_is_taken(patient)


@pytest.mark.parametrize("field", ["requestTimeout", pytest.param("maxStreamDuration", marks=pytest.mark.long)])
def test_a_request_may_take_so_long_even_if_its_answer_has_begun(
    mesh: Playground, backend: Address, other: Address, field: str
) -> None:
    with mesh.having(on_service({"http": {field: LIMIT}})):
        limited(mesh, field)

        assert is_cut_off(call(backend, NEVER))
        with pytest.raises(http.client.IncompleteRead) as cut:
            call(backend, BIT_BY_BIT)
        assert cut.value.partial, "its answer had begun"
        assert call(other, BIT_BY_BIT).status == 200


def limited(mesh: Playground, field: str, service: str = "backend") -> None:
    """Wait until the frontend's Envoy limits how long a request to a service may take."""
    if field == "maxStreamDuration":
        options = "max_stream_duration"
        eventually(lambda: http_options(mesh.envoys["frontend"], service).get(options) == "0.300s")
    else:
        name = {"requestTimeout": "timeout", "streamIdleTimeout": "idle_timeout"}[field]
        eventually(lambda: set(on_rows(mesh, name, service)) == {"0.300s"})


def test_a_connection_is_replaced_when_it_is_old(mesh: Playground, backend: Address, other: Address) -> None:
    backends, others = mesh.services["backend"], mesh.services["other"]
    with mesh.having(on_service({"http": {"requestTimeout": "5s", "maxConnectionDuration": LIMIT}})):
        duration = "max_connection_duration"
        eventually(lambda: http_options(mesh.envoys["frontend"], "backend").get(duration) == "0.300s")
        assert {call(backend).status, call(other).status} == {200}
        opened, opened_by_others = backends.connections[0], others.connections[0]

        def replaced() -> bool:
            assert {call(backend).status, call(other).status} == {200}
            return backends.connections[0] >= opened + 2

        eventually(replaced)
        assert others.connections[0] == opened_by_others


@pytest.mark.parametrize(
    ("limit", "field"),
    [
        ("requestTimeout", "rules"),
        pytest.param("requestTimeout", "from", marks=pytest.mark.long),
        pytest.param("streamIdleTimeout", "rules", marks=pytest.mark.long),
        pytest.param("maxStreamDuration", "rules", marks=pytest.mark.long),
    ],
)
def test_a_server_limits_what_it_is_asked_itself(mesh: Playground, limit: str, field: str) -> None:
    frontend, served = mesh.proxies["frontend"], mesh.proxies["served"]
    with mesh.having(on_workload("served", {"http": {limit: LIMIT}}, field)):
        eventually(lambda: call(served.inbound, LATE).status == 504, pause=0.1)

        assert is_cut_off(call(served.inbound, NEVER))
        assert is_cut_off(call(frontend.outbound("served"), NEVER))
        assert call(frontend.outbound("spared"), LATE).status == 200
    eventually(lambda: call(served.inbound, LATE).status == 200)


def test_a_server_does_not_wait_for_half_a_request(mesh: Playground) -> None:
    served, spared = mesh.proxies["served"].inbound, mesh.proxies["spared"].inbound
    conf = {"http": {"requestHeadersTimeout": LIMIT, "requestTimeout": "0s"}}
    with mesh.having(on_workload("served", conf, "rules")):
        eventually(lambda: listening(mesh.envoys["served"], served).get("request_headers_timeout") == "0.300s")
        with Conversation(spared) as patient:
            patient.say(HALF_A_REQUEST)

            assert_in_time(half_a_request(served), "HTTP/1.1 408 Request Timeout")
            assert the_rest_is_taken(patient)


@pytest.mark.parametrize("field", ["requestTimeout", "streamIdleTimeout", "maxStreamDuration"])
def test_zero_switches_off_for_one_service_what_all_others_have(
    mesh: Playground, backend: Address, other: Address, field: str
) -> None:
    everywhere = mesh_item({"http": {field: LIMIT}})
    off = service_item("backend", {"http": {field: "0s"}})
    with mesh.having(policy("MeshTimeout", "limit", everywhere, off)):
        limited(mesh, field, "other")

        assert is_cut_off(call(other, LATE))
        assert call(backend, LATE).status == 200


def test_zero_waits_for_half_a_request(mesh: Playground, backend: Address, other: Address) -> None:
    everywhere = mesh_item({"http": {"requestHeadersTimeout": LIMIT, "requestTimeout": "5s"}})
    off = service_item("backend", {"http": {"requestHeadersTimeout": "0s", "requestTimeout": "5s"}})
    with mesh.having(policy("MeshTimeout", "limit", everywhere, off)):
        eventually(lambda: listening(mesh.envoys["frontend"], other).get("request_headers_timeout") == "0.300s")
        with Conversation(backend) as patient:
            patient.say(HALF_A_REQUEST)

            assert_in_time(half_a_request(other), "HTTP/1.1 408 Request Timeout")
            assert the_rest_is_taken(patient)


def test_zero_keeps_connections(mesh: Playground, backend: Address, other: Address) -> None:
    everywhere = mesh_item({"idleTimeout": LIMIT, "http": {"requestTimeout": "5s", "maxConnectionDuration": LIMIT}})
    off = service_item(
        "backend", {"idleTimeout": "0s", "http": {"requestTimeout": "5s", "maxConnectionDuration": "0s"}}
    )
    with mesh.having(policy("MeshTimeout", "limit", everywhere, off)):
        eventually(lambda: http_options(mesh.envoys["frontend"], "other").get("idle_timeout") == "0.300s")
        eventually(lambda: http_options(mesh.envoys["frontend"], "backend").get("idle_timeout") == "0s")
        assert {call(backend).status, call(other).status} == {200}
        opened, _ = mesh.services["backend"].connections

        eventually(lambda: mesh.services["other"].connections[1] == 0)
        assert call(backend).status == 200
        assert mesh.services["backend"].connections[0] == opened
