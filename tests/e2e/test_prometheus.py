"""A real Prometheus beside a real mesh: it finds the proxies, and what is shipped for it can be evaluated."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cp.monitoring.alerts import ALERTS
from cp.monitoring.files import PAGES, files
from tests.monitoring.expressions import expressions, metrics_of
from tests.support.client import call
from tests.support.mesh import Document, mesh_service, policy, request_timeout, service_item
from tests.support.playground import Playground, playground
from tests.support.prometheus import Prometheus, needs_prometheus
from tests.support.waiting import eventually

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"
PART = re.compile(r"_(bucket|sum|count)$")
ROW = re.compile(r"^\| `(koguma_\w+)` \|", re.MULTILINE)
VARIABLE = re.compile(r"\$(\w+)")

SENT = 'sum(envoy_cluster_upstream_rq_total{dataplane="frontend",envoy_cluster_name=~".*backend.*"})'

DID_NOT_HAPPEN = {
    "koguma_ads_nacks_total",
    "koguma_ads_streams_refused_total",
    "koguma_certificates_remaining_ratio",
    "koguma_certificates_remaining_seconds",
    "koguma_findings",
    "koguma_self_checks_total",
    "koguma_spans_total",
    "koguma_store_errors_total",
}
"""What is counted only where it happens: an expression about it need not have data here."""


def chosen(expression: str) -> str:
    """As Grafana would ask: everything, and what happened in the last seconds."""
    return VARIABLE.sub(lambda match: "10s" if match[1] == "__rate_interval" else ".*", expression)


def test_what_expressions_name_is_documented() -> None:
    documented = set(ROW.findall(REFERENCE.read_text()))
    named = {name for _, expression in expressions() for name in metrics_of(expression) if name.startswith("koguma_")}

    assert len(named) > 20
    assert {PART.sub("", name) for name in named} <= documented


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    with playground(tmp_path_factory.mktemp("mesh"), KOGUMA_FINDINGS_EVERY="1") as mesh:
        mesh.control_plane.apply(mesh_service("backend"))
        mesh.service("backend")
        mesh.client("frontend", "backend")
        for name, proxy in mesh.proxies.items():
            mesh.control_plane.apply(metric(name, proxy.port("metrics")))
        mesh.ready()
        yield mesh


def metric(dataplane: str, port: int) -> Document:
    backend = {"type": "Prometheus", "prometheus": {"port": port, "path": "/metrics"}}
    default = {"backends": [backend], "sidecar": {"includeUnused": True}}
    spec = {"targetRef": {"kind": "Dataplane", "name": dataplane}, "default": default}
    return {"type": "MeshMetric", "mesh": "default", "name": dataplane, "spec": spec}


@pytest.fixture(scope="module")
def prometheus(mesh: Playground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    control_plane = mesh.control_plane
    discovery = {"url": f"{control_plane.api.url}/_prometheus/targets", "refresh_interval": "1s"}
    jobs = [
        {"job_name": "koguma", "static_configs": [{"targets": [str(control_plane.diagnostics)]}]},
        {"job_name": "koguma-proxies", "http_sd_configs": [discovery]},
    ]
    folder = tmp_path_factory.mktemp("prometheus")
    with Prometheus(folder, jobs, {"alerts.yml": files(PAGES)["alerts.yml"]}) as running:
        yield running


@needs_prometheus
@pytest.mark.envoy
@pytest.mark.long
def test_every_expression_can_be_evaluated_and_has_data_where_something_happened(
    mesh: Playground, prometheus: Prometheus
) -> None:
    frontend = mesh.proxies["frontend"]
    eventually(lambda: prometheus.value('count(up{job="koguma-proxies"} == 1)') == 2, 20)
    for number in range(1, 5):
        mesh.control_plane.apply(
            policy("MeshTimeout", "edited", service_item("backend", request_timeout(f"{number}s")))
        )
        for _ in range(5):
            call(frontend.outbound(), "/")
        eventually(lambda sent=5 * number: (prometheus.value(SENT) or 0.0) >= sent)  # type: ignore[misc]  # of one number

    empty = {}
    for place, expression in expressions():
        is_alert = place in {alert.name for alert in ALERTS}
        if not prometheus.query(chosen(expression)) and not is_alert:
            empty[place] = expression
    silent = {place for place, expression in empty.items() if metrics_of(expression) & DID_NOT_HAPPEN}
    assert {place: expression for place, expression in empty.items() if place not in silent} == {}
    assert prometheus.alerts() == set()


@needs_prometheus
@pytest.mark.envoy
@pytest.mark.long
def test_prometheus_finds_the_proxies_of_each_moment_and_what_they_are_called(
    mesh: Playground, prometheus: Prometheus
) -> None:
    of_backend = 'up{job="koguma-proxies",mesh="default",dataplane="backend",service="backend"}'
    eventually(lambda: prometheus.value(of_backend) == 1, 20)

    mesh.control_plane.delete(metric("backend", 1))
    eventually(lambda: prometheus.value(of_backend) is None, 20)
    mesh.control_plane.apply(metric("backend", mesh.proxies["backend"].port("metrics")))
    eventually(lambda: prometheus.value(of_backend) == 1, 20)


@needs_prometheus
@pytest.mark.envoy
@pytest.mark.long
def test_an_alert_is_raised_when_a_proxy_is_gone(mesh: Playground, prometheus: Prometheus) -> None:
    eventually(lambda: prometheus.value('koguma_dataplanes{mesh="default",state="in sync"}') == 2, 20)

    mesh.envoys["backend"].stop()
    eventually(lambda: {"KogumaProxiesOffline", "KogumaProxyMetricsAbsent"} <= prometheus.alerts(), 20)
