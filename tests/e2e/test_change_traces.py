"""A change as a trace: from the request that wrote it to the last answer of a proxy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.collector import Collector
from tests.support.control_plane import path
from tests.support.mesh import mesh_service, policy, request_timeout, service_item
from tests.support.playground import Playground, playground
from tests.support.waiting import eventually

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"

pytestmark = pytest.mark.envoy


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Playground]:
    endpoint = f"grpc://{collector.address}"
    with playground(tmp_path_factory.mktemp("mesh"), KOGUMA_OTLP_ENDPOINT=endpoint) as mesh:
        mesh.control_plane.apply(mesh_service("backend"))
        mesh.service("backend")
        mesh.client("frontend", "backend")
        mesh.ready()
        mesh.control_plane.in_force()
        yield mesh


def timeout(value: str) -> dict[str, Any]:
    return dict(policy("MeshTimeout", "edited", service_item("backend", request_timeout(value))))


def put(mesh: Playground, document: dict[str, Any], traceparent: str) -> httpx.Response:
    url = f"{mesh.control_plane.api.url}{path(document)}"
    return httpx.put(url, json=document, headers={"traceparent": traceparent}, timeout=30).raise_for_status()


def of_trace(collector: Collector, trace: str) -> dict[str, Any]:
    """The spans of a trace by their names."""
    return {span.name: span for span in collector.spans if span.trace_id.hex() == trace}


def attributes(span: Any) -> dict[str, Any]:
    kinds = {pair.key: pair.value for pair in span.attributes}
    return {key: getattr(value, value.WhichOneof("value")) for key, value in kinds.items()}


def test_a_change_is_traced_from_the_request_to_the_last_answer(mesh: Playground, collector: Collector) -> None:
    revision = int(put(mesh, timeout("3s"), f"00-{TRACE}-{PARENT}-01").headers["koguma-revision"])
    eventually(lambda: {"change", "PUT /meshes/{mesh}/{plural}/{name}"} <= of_trace(collector, TRACE).keys())

    spans = of_trace(collector, TRACE)
    request, write, change = spans["PUT /meshes/{mesh}/{plural}/{name}"], spans["store write"], spans["change"]
    assert (request.parent_span_id.hex(), write.parent_span_id) == (PARENT, request.span_id)
    assert change.parent_span_id == write.span_id
    assert {"gather", "turn", "publish", "push routes"} <= spans.keys()
    assert attributes(request)["http.response.status_code"] == 201
    about_write = attributes(write)
    assert (about_write["koguma.revision"], about_write["koguma.author"]) == (revision, "mesh-system:admin")
    about = attributes(change)
    assert (about["koguma.revision"], about["koguma.proxies"], about["koguma.have"]) == (revision, 1, 1)
    push = attributes(spans["push routes"])
    assert (push["koguma.responses"], push["koguma.acks"], push["koguma.last_proxy"]) == (1, 1, "default.frontend")
    assert write.start_time_unix_nano <= change.start_time_unix_nano <= change.end_time_unix_nano
    assert spans["push routes"].end_time_unix_nano == change.end_time_unix_nano
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans.values())


def test_a_caller_who_wants_no_trace_gets_none_and_one_without_a_trace_begins_one(
    mesh: Playground, collector: Collector
) -> None:
    unwanted = TRACE.replace("4", "5")
    put(mesh, timeout("4s"), f"00-{unwanted}-{PARENT}-00")
    revision = int(put(mesh, timeout("5s"), "nonsense").headers["koguma-revision"])

    def changes() -> list[Any]:
        of_changes = [span for span in collector.spans if span.name == "change"]
        return [span for span in of_changes if attributes(span)["koguma.revision"] == revision]

    eventually(lambda: len(changes()) == 1)
    (began,) = changes()
    spans = of_trace(collector, began.trace_id.hex())
    assert spans["store write"].span_id == began.parent_span_id
    assert of_trace(collector, unwanted) == {}


def test_a_change_that_is_refused_says_so(mesh: Playground, collector: Collector) -> None:
    trace = TRACE.replace("4", "6")
    change = {"cluster": {"operation": "Patch", "match": {"name": "kri_msvc_default___backend_main"}}}
    change["cluster"]["value"] = "connect_timeout: -1s"
    spec = {"targetRef": {"kind": "Dataplane", "name": "frontend"}, "default": {"appendModifications": [change]}}
    patch = {"type": "MeshProxyPatch", "mesh": "default", "name": "bad", "spec": spec}

    put(mesh, patch, f"00-{trace}-{PARENT}-01")
    eventually(lambda: "change" in of_trace(collector, trace))
    refused = of_trace(collector, trace)["change"]
    mesh.control_plane.delete(patch)

    assert refused.status.message == "1 proxies refuse it"
    assert attributes(refused)["koguma.refusing"] == 1


def test_traces_are_counted(mesh: Playground) -> None:
    assert mesh.control_plane.metrics()['koguma_spans_total{outcome="sent"}'] > 0


@pytest.mark.long
def test_nothing_waits_for_a_collector_that_is_away(tmp_path: Path) -> None:
    with playground(tmp_path, KOGUMA_OTLP_ENDPOINT="http://127.0.0.1:9") as mesh:
        for number in range(1, 6):
            mesh.control_plane.apply(timeout(f"{number}s"))

        eventually(lambda: mesh.control_plane.metrics().get('koguma_spans_total{outcome="failed"}', 0) > 0)
        (told,) = mesh.control_plane.events("traces.unsent")
        assert told["collector"] == "http://127.0.0.1:9/v1/traces"


@pytest.mark.long
def test_with_workers_the_trace_of_the_request_leads_to_what_their_proxies_did(
    tmp_path: Path, collector: Collector
) -> None:
    store, endpoint = f"sqlite:///{tmp_path / 'koguma.db'}", f"grpc://{collector.address}"
    trace = TRACE.replace("4", "7")
    with playground(tmp_path / "cp", store, KOGUMA_OTLP_ENDPOINT=endpoint, KOGUMA_WORKERS="2") as mesh:
        mesh.control_plane.apply(mesh_service("backend"))
        mesh.client("frontend", "backend")
        mesh.ready()
        mesh.control_plane.in_force()
        put(mesh, timeout("3s"), f"00-{trace}-{PARENT}-01")

        eventually(lambda: "change" in of_trace(collector, trace), 20)
        (link,) = of_trace(collector, trace)["change"].links
        eventually(lambda: "push routes" in of_trace(collector, link.trace_id.hex()), 20)

    whole = [span for span in collector.spans if span.trace_id == link.trace_id and span.name == "change"]
    assert len(whole) == 2, "of each worker one"
    assert sum(attributes(span)["koguma.have"] for span in whole) == 1
