"""Traffic under the policies of Kuma's first versions, with sources and destinations in place of a targetRef."""

from collections import Counter
from pathlib import Path

import pytest

from tests.support.authority import Authority, provided
from tests.support.client import TICK, call
from tests.support.loopback import Address
from tests.support.mesh import MESH, Document, policy, request_timeout, service_item
from tests.support.playground import Playground, retries, timeouts
from tests.support.services import HttpService
from tests.support.upstreams import at_once
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

ANY = {"kuma.io/service": "*"}
BACKEND = {"kuma.io/service": "backend"}
MOBILE = {"kuma.io/service": "mobile"}
SLOW, HEALTH, SPANS = "/slow", "/health", "/api/v2/spans"
PATCH = """
name: ours
typedConfig:
  '@type': type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation
  mutations: {responseMutations: [{append: {header: {key: x-patched, value: 'yes'}}}]}
"""
AUTHORITY = Authority()


def legacy(kind: str, name: str, conf: Document | None, source: Document, destination: Document) -> Document:
    selectors = {"sources": [{"match": source}], "destinations": [{"match": destination}]}
    return {"type": kind, "mesh": "default", "name": name, **selectors, **({} if conf is None else {"conf": conf})}


def waiting(name: str, duration: str, source: Document = ANY) -> Document:
    return legacy("Timeout", name, {"http": {"requestTimeout": duration}}, source, BACKEND)


def collecting(**backends: Document) -> Document:
    """The Mesh, with a backend of some sorts."""
    mtls = {"enabledBackend": "ca-1", "backends": [provided(mode="STRICT")]}
    return {**MESH, "mtls": mtls, **{sort: {"backends": [backend]} for sort, backend in backends.items()}}


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    everybody = legacy("TrafficPermission", "everybody", None, ANY, ANY)
    empty_mesh.control_plane.apply(*AUTHORITY.secrets(), collecting(), everybody)
    for version in ("v1", "v2"):
        empty_mesh.service(f"backend-{version}", "backend", version=version).on(SLOW, delay=0.6)
    empty_mesh.client("mobile", "tag=backend")
    empty_mesh.client("desktop", "tag=backend")
    empty_mesh.ready()
    eventually(lambda: call(empty_mesh.proxies["mobile"].outbound()).status == 200)
    return empty_mesh


@pytest.fixture
def mobile(mesh: Playground) -> Address:
    return mesh.proxies["mobile"].outbound()


@pytest.fixture
def desktop(mesh: Playground) -> Address:
    return mesh.proxies["desktop"].outbound()


def test_the_timeout_for_the_most_specific_source_holds(mesh: Playground, mobile: Address, desktop: Address) -> None:
    with mesh.having(waiting("everybody", "10s"), waiting("mobile", "200ms", MOBILE)):
        eventually(lambda: timeouts(mesh.envoys["mobile"]) == {"/": "0.200s"})
        eventually(lambda: timeouts(mesh.envoys["desktop"]) == {"/": "10s"})

        answer = call(mobile, SLOW)
        assert answer.status == 504
        assert answer.seconds >= 0.2 - TICK
        assert call(desktop, SLOW).status == 200


def test_a_policy_with_a_target_lies_over_a_timeout(mesh: Playground, mobile: Address) -> None:
    over = policy("MeshTimeout", "over", service_item("backend", request_timeout("10s")))
    with mesh.having(waiting("everybody", "200ms"), over):
        eventually(lambda: timeouts(mesh.envoys["mobile"]) == {"/": "10s"})

        assert call(mobile, SLOW).status == 200


def test_what_fails_is_tried_again(mesh: Playground, mobile: Address) -> None:
    conf = {"http": {"numRetries": 4, "retriableStatusCodes": [418], "backOff": {"baseInterval": "1ms"}}}
    with mesh.having(legacy("Retry", "again", conf, MOBILE, BACKEND)):
        eventually(lambda: retries(mesh.envoys["mobile"]) == {"/": 4})
        for service in mesh.services.values():
            service.on("/fails", failures=1, failure=418)

        assert call(mobile, "/fails").status == 200
    assert sum(service.hits("/fails") for service in mesh.services.values()) > 1


def test_a_route_splits_requests_and_the_first_rule_that_fits_takes_them(mesh: Playground, mobile: Address) -> None:
    to_v1, to_v2 = ({"kuma.io/service": "*", "version": version} for version in ("v1", "v2"))
    first = {"match": {"path": {"prefix": "/a"}}, "modify": {"path": {"rewritePrefix": "/b"}}, "destination": to_v2}
    never = {"match": {"path": {"exact": "/abc"}}, "destination": to_v1}
    split = [{"weight": 3, "destination": to_v1}, {"weight": 1, "destination": to_v2}]
    with mesh.having(legacy("TrafficRoute", "split", {"http": [first, never], "split": split}, MOBILE, BACKEND)):
        eventually(lambda: call(mobile, "/abc").seen["path"] == "/bbc")

        assert {call(mobile, "/abc").service for _ in range(10)} == {"backend-v2"}
        shares = Counter(call(mobile).service for _ in range(120))
        assert shares["backend-v1"] > shares["backend-v2"] > 0


def test_whom_no_permission_lets_in_is_refused(mesh: Playground, mobile: Address, desktop: Address) -> None:
    """That for the inbound is the more specific: it holds alone."""
    with mesh.having(legacy("TrafficPermission", "mobile", None, MOBILE, BACKEND)):
        eventually(lambda: {call(desktop).status for _ in range(10)} == {403})

        assert call(mobile).status == 200
    eventually(lambda: {call(desktop).status for _ in range(10)} == {200})


def test_only_the_sources_of_a_limit_are_held_to_it(mesh: Playground, mobile: Address, desktop: Address) -> None:
    conf = {"http": {"requests": 1, "interval": "60s", "onRateLimit": {"status": 423}}}
    with mesh.having(legacy("RateLimit", "mobile", conf, MOBILE, BACKEND)):
        eventually(lambda: {call(mobile).status for _ in range(6)} == {423})  # each instance counts for itself

        assert {call(desktop).status for _ in range(6)} == {200}
    eventually(lambda: {call(mobile).status for _ in range(10)} == {200})


def test_each_source_is_held_to_a_limit_of_its_own(mesh: Playground, mobile: Address, desktop: Address) -> None:
    def limit(name: str, status: int, source: Document) -> Document:
        conf = {"http": {"requests": 1, "interval": "60s", "onRateLimit": {"status": status}}}
        return legacy("RateLimit", name, conf, source, BACKEND)

    with mesh.having(limit("mobile", 423, MOBILE), limit("never", 424, {"team": "none"}), limit("others", 429, ANY)):
        eventually(lambda: {call(mobile).status for _ in range(6)} == {423})
        eventually(lambda: {call(desktop).status for _ in range(6)} == {429})
    eventually(lambda: {call(caller).status for caller in (mobile, desktop) for _ in range(10)} == {200})


def test_all_faults_that_fit_a_source_act(mesh: Playground, mobile: Address, desktop: Address) -> None:
    http = {"kuma.io/protocol": "http"}
    fails = legacy(
        "FaultInjection", "fails", {"abort": {"percentage": 100, "httpStatus": 418}}, MOBILE, {**BACKEND, **http}
    )
    waits = legacy(
        "FaultInjection", "waits", {"delay": {"percentage": 100, "value": "300ms"}}, ANY, {**BACKEND, **http}
    )
    with mesh.having(fails, waits):
        eventually(lambda: call(desktop).seconds >= 0.3 - TICK)
        eventually(lambda: call(mobile).status == 418)

        assert call(desktop).status == 200
        assert "x-kuma-tags" not in call(desktop).seen["headers"]
    eventually(lambda: {call(mobile).status for _ in range(10)} == {200})


def test_calls_of_a_source_are_written_down(
    mesh: Playground, mobile: Address, desktop: Address, tmp_path: Path
) -> None:
    log = tmp_path / "calls.log"
    line = "%REQ(:PATH)% %KUMA_SOURCE_SERVICE% %KUMA_DESTINATION_SERVICE%"
    backend: Document = {"name": "file", "type": "file", "format": line, "conf": {"path": str(log)}}
    with mesh.having(collecting(logging=backend), legacy("TrafficLog", "calls", {"backend": "file"}, MOBILE, BACKEND)):
        eventually(lambda: call(mobile, "/logged").status == 200 and log.exists() and log.read_text() != "")

        assert call(desktop, "/logged").status == 200
        assert set(log.read_text().splitlines()) == {"/logged mobile backend"}


def test_calls_of_a_selected_proxy_are_traced(mesh: Playground, mobile: Address) -> None:
    with HttpService("agent") as agent:
        conf = {"url": f"{agent.address.url}{SPANS}"}
        backend: Document = {"name": "zipkin", "type": "zipkin", "sampling": 100, "conf": conf}
        trace = {"type": "TrafficTrace", "mesh": "default", "name": "calls", "conf": {"backend": "zipkin"}}
        with mesh.having(collecting(tracing=backend), {**trace, "selectors": [{"match": MOBILE}]}):
            eventually(lambda: call(mobile).status == 200 and agent.hits(SPANS) > 0)


def test_who_fails_the_checks_of_a_source_gets_none_of_its_calls(
    mesh: Playground, mobile: Address, desktop: Address
) -> None:
    often = {"interval": "100ms", "noTrafficInterval": "100ms", "timeout": "2s"}
    conf = {**often, "unhealthyThreshold": 1, "healthyThreshold": 1, "http": {"path": HEALTH}}
    mesh.services["backend-v1"].on(HEALTH, failures=1_000_000)
    with mesh.having(legacy("HealthCheck", "checks", conf, MOBILE, BACKEND)):
        eventually(lambda: {call(mobile).service for _ in range(10)} == {"backend-v2"})

        assert "backend-v1" in {call(desktop).service for _ in range(10)}
        mesh.services["backend-v1"].on(HEALTH)
        eventually(lambda: {call(mobile).service for _ in range(10)} == {"backend-v1", "backend-v2"})


def test_a_template_changes_the_proxies_that_it_selects(mesh: Playground, mobile: Address, desktop: Address) -> None:
    change = {"operation": "addLast", "match": {"origin": "outbound"}, "value": PATCH}
    conf = {"imports": ["default-proxy"], "modifications": [{"httpFilter": change}]}
    template = {"type": "ProxyTemplate", "mesh": "default", "name": "patched", "conf": conf}
    with mesh.having({**template, "selectors": [{"match": MOBILE}]}):
        eventually(lambda: call(mobile).headers.get("x-patched") == "yes")

        assert "x-patched" not in call(desktop).headers
    eventually(lambda: "x-patched" not in call(mobile).headers)


@pytest.mark.long
def test_what_is_too_much_for_a_service_is_turned_away(mesh: Playground, mobile: Address, desktop: Address) -> None:
    thresholds = {"maxConnections": 1, "maxPendingRequests": 1, "maxRequests": 1}
    with mesh.having(legacy("CircuitBreaker", "few", {"thresholds": thresholds}, MOBILE, BACKEND)):
        eventually(lambda: any(answer.status == 503 for answer in at_once(mobile, 8, SLOW)))

        assert {answer.status for answer in at_once(mobile, 8, SLOW)} == {200, 503}
        assert {answer.status for answer in at_once(desktop, 8, SLOW)} == {200}
