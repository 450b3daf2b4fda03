"""A control plane whose traces are set up as those of any other program, by OpenTelemetry's own variables."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.support.control_plane import ControlPlane
from tests.support.http_collector import HttpCollector
from tests.support.mesh import MESH
from tests.support.waiting import eventually

SECRET = "Bearer 51f0c2"  # of a test


@pytest.mark.long
@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_standard_variables_set_up_traces_and_their_headers_are_told_to_the_collector_alone(
    tmp_path: Path, workers: str
) -> None:
    with HttpCollector() as collector:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"{collector.url}/otlp",
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%2051f0c2",
            "OTEL_SERVICE_NAME": "koguma-here",
            "KOGUMA_WORKERS": workers,
        }
        with ControlPlane(tmp_path, f"sqlite:///{tmp_path}/koguma.db", **variables) as control_plane:
            control_plane.apply(MESH)
            eventually(lambda: "store write" in collector.spans)
            collector.status = 401
            control_plane.apply(MESH | {"labels": {"a": "b"}})
            eventually(lambda: len(control_plane.events("traces.unsent")) > 0)
            answers = [control_plane.api.url + path for path in ("/config", "/_config", "/", "/ready")]
            told = "".join(httpx.get(url).text for url in answers)

    assert set(collector.paths) == {"/otlp/v1/traces"}
    assert {headers["authorization"] for headers in collector.headers} == {SECRET}
    assert {resource["service.name"] for resource in collector.resources} == {"koguma-here"}
    assert "51f0c2" not in control_plane.log.read_text() + told


def test_disabled_is_disabled(tmp_path: Path) -> None:
    with HttpCollector() as collector:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SDK_DISABLED": "true"}
        with ControlPlane(tmp_path, **variables) as control_plane:
            control_plane.apply(MESH)

    assert collector.paths == []
