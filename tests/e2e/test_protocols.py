"""Services of gRPC and HTTP/2: what is spoken between proxies and with workloads, and what policies do for them."""

from collections.abc import Iterator

import grpc
import pytest

from tests.support.client import TICK, call
from tests.support.grpc_service import NAME, GrpcService, answering_names, reply
from tests.support.loopback import Address, new_address
from tests.support.mesh import (
    Document,
    http_route,
    mesh_service,
    policy,
    prefix,
    request_timeout,
    route_item,
    rule,
    service_item,
)
from tests.support.playground import Playground, retries, timeouts
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

OK, UNAVAILABLE = grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE
TABLE, PRICES = "/koguma.test.Ledger", "/koguma.test.Prices/Price"
BALANCE, BOOK = f"{TABLE}/Balance", f"{TABLE}/Book"
QUICKLY: Document = {"baseInterval": "1ms", "maxInterval": "2ms"}
TO_BALANCE = http_route("balance", "ledger", rule(prefix(BALANCE), to={"ledger": 1}))


@pytest.fixture(scope="module")
def ledger() -> Iterator[GrpcService]:
    with GrpcService("ledger") as running:
        yield running


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground, ledger: GrpcService) -> Playground:
    """A ledger, once as a service of gRPC and once of HTTP/2, and a service of HTTP/2 whose workload is away."""
    for name, protocol in (("ledger", "grpc"), ("plain", "http2"), ("away", "http2")):
        empty_mesh.control_plane.apply(mesh_service(name, protocol))
        empty_mesh.speaking(protocol, name, new_address() if name == "away" else ledger.address)
    empty_mesh.client("frontend", "ledger", "plain", "away")
    empty_mesh.ready()
    return empty_mesh


@pytest.fixture
def called(mesh: Playground) -> Address:
    """Where the frontend's workload calls the ledger."""
    return mesh.proxies["frontend"].outbound("ledger")


def stat(mesh: Playground, name: str, service: str) -> int:
    """A counter of what the frontend's Envoy has done with a service."""
    return mesh.envoys["frontend"].stat(f"cluster.kri_msvc_default___{service}_main.{name}")


def failing(ledger: GrpcService, address: Address, method: str, failures: int) -> tuple[grpc.StatusCode, int]:
    """What comes of a call that fails so often, and how often the ledger was asked."""
    ledger.on(method, failures=failures)
    return reply(address, method).code, ledger.hits(method)


def on_service(**conf: object) -> Document:
    return policy("MeshRetry", "retries", service_item("ledger", {"grpc": {"backOff": QUICKLY, **conf}}))


def on_route(**conf: object) -> Document:
    return policy("MeshRetry", "retries", route_item("balance", {"grpc": {"backOff": QUICKLY, **conf}}))


@pytest.mark.parametrize("service", ["ledger", "plain"])
def test_http_2_is_spoken_all_the_way(mesh: Playground, service: str) -> None:
    """A status of gRPC comes behind the answer, where HTTP/1.1 would lose it."""
    assert eventually(lambda: set(answering_names(mesh.proxies["frontend"].outbound(service), 6))) == {"ledger"}

    local = mesh.proxies[service].workload
    workload = str(local).replace(".", "_").replace(":", "_")
    for version, is_spoken in (("http1", False), ("http2", True)):
        assert (stat(mesh, f"upstream_cx_{version}_total", service) > 0) is is_spoken
        of_workload = mesh.envoys[service].stats(rf"{workload}\.upstream_cx_{version}_total$")
        assert any(of_workload.values()) is is_spoken


def test_what_came_over_http_1_is_passed_on_over_http_2(mesh: Playground) -> None:
    before = stat(mesh, "upstream_rq_total", "away")

    assert eventually(lambda: call(mesh.proxies["frontend"].outbound("away")).status == 503)
    assert stat(mesh, "upstream_rq_total", "away") > before
    assert stat(mesh, "upstream_cx_http2_total", "away") > 0


def test_calls_are_led_by_their_service_and_method(mesh: Playground, ledger: GrpcService, called: Address) -> None:
    ledger.on(BOOK)
    nowhere = http_route("book", "ledger", rule(prefix(BOOK), to={"nobody": 1}))
    assert reply(called, BOOK).code is OK
    with mesh.having(nowhere):
        eventually(lambda: reply(called, BOOK).code is not OK)

        assert reply(called, NAME).code is OK


@pytest.mark.parametrize("failures", [1, 3])
def test_a_call_that_fails_n_times_is_made_once_more(
    mesh: Playground, ledger: GrpcService, called: Address, failures: int
) -> None:
    with mesh.having(on_service(numRetries=3, retryOn=["Unavailable"])):
        eventually(lambda: retries(mesh.envoys["frontend"], "ledger")["/"] == 3)

        assert failing(ledger, called, BALANCE, failures) == (OK, failures + 1)
        assert failing(ledger, mesh.proxies["frontend"].outbound("plain"), BALANCE, failures) == (UNAVAILABLE, 1)


def test_without_a_policy_no_call_is_made_again(ledger: GrpcService, called: Address) -> None:
    assert failing(ledger, called, BALANCE, 1) == (UNAVAILABLE, 1)


def test_a_method_is_called_again_and_no_other(mesh: Playground, ledger: GrpcService, called: Address) -> None:
    with mesh.having(TO_BALANCE, on_route(numRetries=2, retryOn=["Unavailable"])):
        eventually(lambda: retries(mesh.envoys["frontend"], "ledger").get(BALANCE) == 2)

        assert failing(ledger, called, BALANCE, 2) == (OK, 3)
        assert failing(ledger, called, BOOK, 2) == (UNAVAILABLE, 1)
        assert failing(ledger, called, PRICES, 2) == (UNAVAILABLE, 1)


def test_zero_switches_the_retries_of_one_method_off(mesh: Playground, ledger: GrpcService, called: Address) -> None:
    on_both = policy(
        "MeshRetry",
        "retries",
        service_item("ledger", {"grpc": {"numRetries": 2, "backOff": QUICKLY}}),
        route_item("balance", {"grpc": {"numRetries": 0}}),
    )
    with mesh.having(TO_BALANCE, on_both):
        eventually(lambda: retries(mesh.envoys["frontend"], "ledger").get(BALANCE, 0) is None)

        assert failing(ledger, called, BALANCE, 2) == (UNAVAILABLE, 1)
        assert failing(ledger, called, BOOK, 2) == (OK, 3)


@pytest.mark.parametrize(
    ("condition", "retried", "left_alone"),
    [
        ("Canceled", grpc.StatusCode.CANCELLED, UNAVAILABLE),
        ("DeadlineExceeded", grpc.StatusCode.DEADLINE_EXCEEDED, UNAVAILABLE),
        ("Internal", grpc.StatusCode.INTERNAL, UNAVAILABLE),
        ("ResourceExhausted", grpc.StatusCode.RESOURCE_EXHAUSTED, UNAVAILABLE),
        ("Unavailable", UNAVAILABLE, grpc.StatusCode.INTERNAL),
    ],
)
def test_only_the_status_that_is_named_is_tried_again(
    mesh: Playground,
    ledger: GrpcService,
    condition: str,
    retried: grpc.StatusCode,
    left_alone: grpc.StatusCode,
) -> None:
    address = mesh.proxies["frontend"].outbound("ledger")
    with mesh.having(on_service(numRetries=1, retryOn=[condition])):
        eventually(lambda: retries(mesh.envoys["frontend"], "ledger")["/"] == 1)
        for status, hits in ((retried, 2), (left_alone, 1)):
            ledger.on(BALANCE, failures=1, failure=status)
            found = reply(address, BALANCE).code

            assert (found, ledger.hits(BALANCE)) == (OK if hits > 1 else status, hits)


def test_each_try_of_a_call_has_a_time_of_its_own(mesh: Playground, ledger: GrpcService, called: Address) -> None:
    with mesh.having(on_service(numRetries=1, perTryTimeout="250ms")):
        eventually(lambda: retries(mesh.envoys["frontend"], "ledger")["/"] == 1)

        ledger.on(BALANCE, delay=5)
        answer = reply(called, BALANCE)

    assert ledger.hits(BALANCE) == 2
    assert answer.code is UNAVAILABLE
    assert answer.seconds >= 0.5 - TICK


def test_http_2_is_tried_again_too(mesh: Playground) -> None:
    away = mesh.proxies["frontend"].outbound("away")
    retrying = policy(
        "MeshRetry",
        "retries",
        service_item("away", {"http": {"numRetries": 3, "retryOn": ["5xx"], "backOff": QUICKLY}}),
    )
    assert call(away).status == 503
    assert stat(mesh, "upstream_rq_retry", "away") == 0
    with mesh.having(retrying):
        eventually(lambda: retries(mesh.envoys["frontend"], "away") == {"/": 3})

        assert call(away).status == 503
        assert stat(mesh, "upstream_rq_retry", "away") == 3
        assert stat(mesh, "upstream_rq_retry", "plain") == 0


def test_a_call_may_take_so_long(mesh: Playground, ledger: GrpcService, called: Address) -> None:
    limit = policy("MeshTimeout", "limit", service_item("ledger", request_timeout("300ms")))
    ledger.on(BALANCE, delay=0.7)
    with mesh.having(limit):
        eventually(lambda: timeouts(mesh.envoys["frontend"], "ledger")["/"] == "0.300s")
        cut = reply(called, BALANCE)

        assert cut.code is UNAVAILABLE
        assert cut.seconds >= 0.3 - TICK
        assert reply(mesh.proxies["frontend"].outbound("plain"), BALANCE).code is OK


def test_one_method_may_take_longer(mesh: Playground, ledger: GrpcService, called: Address) -> None:
    limits = policy(
        "MeshTimeout",
        "limit",
        service_item("ledger", request_timeout("300ms")),
        route_item("balance", request_timeout("2s")),
    )
    ledger.on(BALANCE, delay=0.7)
    ledger.on(BOOK, delay=0.7)
    with mesh.having(TO_BALANCE, limits):
        eventually(lambda: timeouts(mesh.envoys["frontend"], "ledger").get(BALANCE) == "2s")

        assert reply(called, BALANCE).code is OK
        assert reply(called, BOOK).code is UNAVAILABLE
