"""Each alert fires when it should and is silent when it should, as Prometheus itself judges it."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import yaml

from cp.monitoring.alerts import ALERTS
from cp.monitoring.files import PAGES, files

DOCS = Path(__file__).resolve().parents[2] / "docs"
LONG = "x35"
"""As the end of a series: a value a minute."""

needs_promtool = pytest.mark.skipif(which("promtool") is None, reason="there is no promtool")


@dataclass(frozen=True)
class Case:
    """Series with which an alert fires, with these labels, and others with which it does not."""

    firing: dict[str, str]
    quiet: dict[str, str]
    labels: dict[str, str]


def slow(bound: str) -> dict[str, str]:
    """A histogram of which all observations are below a bound."""
    counts = {le: "0+10x35" if float(le) >= float(bound) else "0x35" for le in ("1", "5", "10", "30", "+Inf")}
    return {f'koguma_change_to_ack_seconds_bucket{{job="koguma",le="{le}"}}': count for le, count in counts.items()}


def requests(failed: int) -> dict[str, str]:
    series = 'koguma_api_requests_total{job="koguma",instance="a",method="GET",route="/",status="%s"}'
    return {series % "2xx": "0+100x35", series % "5xx": f"0+{failed}x35"}


def calls(failed: int) -> dict[str, str]:
    labels = 'job="koguma-proxies",mesh="m",service="web",envoy_cluster_name="c",envoy_response_code_class="%s"'
    series = f"envoy_cluster_upstream_rq_xx{{{labels}}}"
    return {series % "2": "0+100x35", series % "5": f"0+{failed}x35"}


def revisions(*instances: tuple[str, str, str], together: int) -> dict[str, str]:
    """Of each instance its name, its revision and its worker."""
    shared = {f'koguma_instances{{job="koguma",instance="{name}"}}': f"{together}x35" for name, _, _ in instances}
    served = {
        f'koguma_world_revision{{job="koguma",instance="{name}",worker="{worker}"}}': revision
        for name, revision, worker in instances
    }
    return shared | served


def gauge(series: str, firing: str, quiet: str, **labels: str) -> Case:
    return Case({series: f"{firing}{LONG}"}, {series: f"{quiet}{LONG}"}, labels)


MESH = {"job": "koguma", "mesh": "m"}
OURS = {"job": "koguma", "instance": "a"}
CASES = {
    "KogumaDown": gauge('up{job="koguma",instance="a"}', "0", "1", **OURS),
    "KogumaAbsent": Case({}, {'koguma_build_info{version="1"}': "1x35"}, {}),
    "KogumaStoreAway": gauge('koguma_store_follows{job="koguma",instance="a"}', "0", "1", **OURS),
    "KogumaStoreFails": Case(
        {'koguma_store_errors_total{job="koguma",instance="a",operation="write",error="unreachable"}': "0+1x35"},
        {'koguma_store_errors_total{job="koguma",instance="a",operation="write",error="conflict"}': "0+1x35"},
        {**OURS, "operation": "write", "error": "unreachable"},
    ),
    "KogumaServesOldRevision": Case(
        revisions(("a", "7x35", ""), ("b", "9x35", ""), together=2),
        revisions(("a", "7x35", ""), ("b", "9x35", ""), together=1) | revisions(("c", "5+1x35", "1"), together=1),
        OURS,
    ),
    "KogumaMeshLate": gauge(
        'koguma_mesh_late_seconds{job="koguma",instance="a",mesh="m"}', "6", "0", instance="a", **MESH
    ),
    "KogumaNobodyLeads": Case(
        {f'koguma_instance_leads{{job="koguma",instance="{name}"}}': "0x35" for name in "ab"},
        {
            'koguma_instance_leads{job="koguma",instance="a"}': "0x35",
            'koguma_instance_leads{job="koguma",instance="b"}': "1x35",
        },
        {"job": "koguma"},
    ),
    "KogumaInstanceSilent": gauge(
        'koguma_findings{job="koguma",severity="warning",code="instance-silent"}', "1", "0", job="koguma"
    ),
    "KogumaProxiesRefuse": gauge('koguma_dataplanes{job="koguma",mesh="m",state="refusing"}', "2", "0", **MESH),
    "KogumaProxiesFail": gauge('koguma_dataplanes{job="koguma",mesh="m",state="failed"}', "2", "0", **MESH),
    "KogumaProxiesBehind": gauge('koguma_dataplanes_behind_seconds{job="koguma",mesh="m"}', "301", "299", **MESH),
    "KogumaProxiesOffline": gauge('koguma_dataplanes{job="koguma",mesh="m",state="offline"}', "1", "0", **MESH),
    "KogumaFindings": Case(
        {'koguma_findings{job="koguma",severity="error",code="invalid"}': "3x35"},
        {
            'koguma_findings{job="koguma",severity="warning",code="no-effect"}': "3x35",
            'koguma_findings{job="koguma",severity="error",code="refused-by-envoy"}': "1x35",
        },
        {"job": "koguma", "code": "invalid"},
    ),
    "KogumaCertificatesEnd": gauge(
        'koguma_certificates_remaining_ratio{job="koguma",mesh="m",instance="a"}', "0.05", "0.2", **MESH
    ),
    "KogumaCertificatesFail": gauge(
        'koguma_certificates_failed_total{job="koguma",instance="a"}', "0+1", "7", job="koguma"
    ),
    "KogumaSlowInForce": Case(slow("10"), slow("5"), {"job": "koguma"}),
    "KogumaRolloutStands": Case(
        {'koguma_rollouts{job="koguma",instance="a",state="Paused"}': "1x35"},
        {
            'koguma_rollouts{job="koguma",instance="a",state="Holding"}': "1x35",
            'koguma_rollouts{job="koguma",instance="a",state="Going"}': "1x12 0x25",
        },
        {"job": "koguma", "state": "Paused"},
    ),
    "KogumaEventLoopLate": gauge('koguma_event_loop_lag_max_seconds{job="koguma",instance="a"}', "0.6", "0.1", **OURS),
    "KogumaApiFails": Case(requests(10), requests(2), OURS),
    "KogumaStreamsRefused": Case(
        {'koguma_ads_streams_refused_total{job="koguma",instance="a",reason="forbidden"}': "0+5x35"},
        {
            'koguma_ads_streams_refused_total{job="koguma",instance="a",reason="forbidden"}': "0+1x35",
            'koguma_ads_streams_refused_total{job="koguma",instance="a",reason="stopping"}': "0+50x35",
        },
        {"job": "koguma", "reason": "forbidden"},
    ),
    "KogumaChecksDiffer": gauge(
        'koguma_self_checks_total{job="koguma",instance="a",outcome="different"}', "0+1", "4", job="koguma"
    ),
    "KogumaProxyMetricsAbsent": gauge(
        'up{job="koguma-proxies",instance="p",mesh="m"}', "0", "1", job="koguma-proxies", mesh="m"
    ),
    "KogumaCallsFail": Case(calls(10), calls(2), {"mesh": "m", "service": "web"}),
}


def test_every_alert_has_a_case() -> None:
    assert CASES.keys() == {alert.name for alert in ALERTS}


def test_every_alert_leads_to_a_heading_of_a_page() -> None:
    for alert in ALERTS:
        page, _, anchor = alert.runbook.partition("#")
        headings = re.findall(r"^#+ +(.+)$", (DOCS / page).read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not anchor or anchor in anchors, f"{alert.name}: {alert.runbook}"


def judgements(case: Case, name: str) -> list[dict[str, Any]]:
    """How Prometheus is to judge two sets of series after half an hour."""
    alert = next(alert for alert in ALERTS if alert.name == name)
    labels = {"alertname": name, "alertstate": "firing", "severity": alert.severity, **case.labels}
    shown = ", ".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    expected = [{"labels": f"ALERTS{{{shown}}}", "value": 1}]
    expression = f'ALERTS{{alertname="{name}",alertstate="firing"}}'

    def judged(title: str, series: dict[str, str], samples: list[dict[str, Any]]) -> dict[str, Any]:
        inputs = [{"series": of, "values": values} for of, values in series.items()]
        question = {"expr": expression, "eval_time": "30m", "exp_samples": samples}
        return {"name": f"{name} {title}", "interval": "1m", "input_series": inputs, "promql_expr_test": [question]}

    return [judged("fires", case.firing, expected), judged("is silent", case.quiet, [])]


def promtool(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One with all that is shipped."""
    for name, text in files(PAGES).items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


@needs_promtool
def test_prometheus_takes_what_is_shipped(folder: Path) -> None:
    for arguments in (("check", "rules", "alerts.yml"), ("check", "config", "prometheus.yml")):
        outcome = promtool(folder, *arguments)
        assert outcome.returncode == 0, outcome.stderr


@needs_promtool
def test_alerts_fire_when_they_should_and_are_silent_when_they_should(folder: Path) -> None:
    judged = [test for name, case in CASES.items() for test in judgements(case, name)]
    (folder / "tests.yml").write_text(yaml.safe_dump({"rule_files": ["alerts.yml"], "tests": judged}))

    outcome = promtool(folder, "test", "rules", "tests.yml")
    assert outcome.returncode == 0, outcome.stderr + outcome.stdout
