"""Spans of requests, as collectors get them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.client import call
from tests.support.collector import REFERENCE, Collector
from tests.support.loopback import Address
from tests.support.mesh import Document, mesh_service
from tests.support.playground import Playground
from tests.support.services import HttpService
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture(scope="module")
def agent() -> Iterator[HttpService]:
    """Takes spans over HTTP."""
    with HttpService("agent") as running:
        yield running


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    empty_mesh.control_plane.apply(mesh_service("backend"))
    empty_mesh.service("backend")
    empty_mesh.client("frontend", "backend", "tag=backend")
    empty_mesh.ready()
    return empty_mesh


@pytest.fixture
def backend(mesh: Playground) -> Address:
    return mesh.proxies["frontend"].outbound("backend")


def traced(backend: Document, **more: Any) -> Document:
    default = {"backends": [backend], **more}
    return {"type": "MeshTrace", "mesh": "default", "name": "all", "spec": {"default": default}}


def zipkin(agent: HttpService) -> Document:
    return {"type": "Zipkin", "zipkin": {"url": f"{agent.address.url}/api/v2/spans"}}


def otel(collector: Collector) -> Document:
    return {"type": "OpenTelemetry", "openTelemetry": {"endpoint": str(collector.address)}}


def calling(address: Address, until: Callable[[], bool], path: str = "/") -> None:
    """Requests until something is true; Envoy sends spans when it has some together."""

    def there() -> bool:
        for _ in range(10):
            call(address, path, headers={"x-version": "v7"})
        return until()

    eventually(there)


def test_spans_of_both_ends_reach_a_collector(mesh: Playground, backend: Address, collector: Collector) -> None:
    tags = [
        {"name": "team", "literal": "core"},
        {"name": "version", "header": {"name": "x-version"}},
        {"name": "missing", "header": {"name": "x-missing", "default": "none"}},
    ]
    with mesh.having(traced(otel(collector), tags=tags)):
        wanted = {"team": "core", "version": "v7", "missing": "none"}
        calling(backend, lambda: {span.kind for span in collector.spans} == {2, 3})  # server, client

        assert all(_attributes(span).items() >= wanted.items() for span in collector.spans)


def test_a_trace_goes_through_both_proxies(mesh: Playground, collector: Collector) -> None:
    collector.spans.clear()
    with mesh.having(traced(otel(collector))):
        address = mesh.proxies["frontend"].outbound("tag=backend")
        calling(address, lambda: bool(_traces(collector, kind=2) & _traces(collector, kind=3)))


def test_a_collector_that_is_referred_to_can_move(mesh: Playground, backend: Address) -> None:
    trace = traced({"type": "OpenTelemetry", "openTelemetry": {"backendRef": REFERENCE}})
    with Collector() as one, Collector() as other, mesh.having(one.resource("collector"), trace):
        calling(backend, lambda: {span.kind for span in one.spans} == {2, 3})
        mesh.control_plane.apply(other.resource("collector"))
        calling(backend, lambda: {span.kind for span in other.spans} == {2, 3})


def test_a_collector_may_take_http(mesh: Playground, backend: Address, agent: HttpService) -> None:
    endpoint = {"address": agent.address.host, "port": agent.address.port, "path": "/base"}
    collector = {"type": "MeshOpenTelemetryBackend", "mesh": "default", "name": "collector"}
    trace = traced({"type": "OpenTelemetry", "openTelemetry": {"backendRef": REFERENCE}})
    with mesh.having({**collector, "spec": {"endpoint": endpoint, "protocol": "http"}}, trace):
        calling(backend, lambda: agent.hits("/base/v1/traces") > 0)

        assert agent.headers("/base/v1/traces")["content-type"] == "application/x-protobuf"


def test_zipkin_is_sent_spans(mesh: Playground, backend: Address, agent: HttpService) -> None:
    with mesh.having(traced(zipkin(agent))):
        calling(backend, lambda: agent.hits("/api/v2/spans") > 0)

        assert agent.headers("/api/v2/spans")["content-type"] == "application/json"
        assert "x-b3-traceid" in call(backend).seen["headers"]
    eventually(lambda: "x-b3-traceid" not in call(backend).seen["headers"])


def test_only_as_many_requests_are_traced_as_was_said(mesh: Playground, backend: Address, agent: HttpService) -> None:
    with mesh.having(traced(zipkin(agent), sampling={"overall": 0})):
        eventually(lambda: call(backend).seen["headers"].get("x-b3-sampled") == "0")

        assert {call(backend).seen["headers"]["x-b3-sampled"] for _ in range(20)} == {"0"}
    with mesh.having(traced(zipkin(agent), sampling={"overall": 100})):
        eventually(lambda: call(backend).seen["headers"].get("x-b3-sampled") == "1")

        assert {call(backend).seen["headers"]["x-b3-sampled"] for _ in range(20)} == {"1"}


@pytest.mark.long
def test_datadog_is_sent_spans(mesh: Playground, backend: Address, agent: HttpService) -> None:
    with mesh.having(traced({"type": "Datadog", "datadog": {"url": agent.address.url}})):
        calling(backend, lambda: agent.hits("/v0.4/traces") > 0)

        assert "x-datadog-trace-id" in call(backend).seen["headers"]


def _attributes(span: Any) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in span.attributes}


def _traces(collector: Collector, kind: int) -> set[bytes]:
    return {span.trace_id for span in collector.spans if span.kind == kind}
