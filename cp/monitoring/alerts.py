"""The alerts: when somebody should look, and where it is written what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal


@dataclass(frozen=True, slots=True)
class Alert:
    name: str
    expression: str
    lasts: str
    """For how long it has to hold."""

    severity: Literal["critical", "warning", "info"]
    summary: str
    description: str
    runbook: str
    """The page below `docs` that says what to do."""

    def rule(self, pages: str) -> dict[str, Any]:
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": self.lasts,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{pages}{self.runbook}",
            },
        }


ALERTS: Final = (
    Alert(
        "KogumaDown",
        'up{job="koguma"} == 0',
        "2m",
        "critical",
        "Control plane {{ $labels.instance }} does not answer",
        "Proxies keep what they have, and go to another control plane on the store if they know one.",
        "guides/monitor.md#a-control-plane-is-down",
    ),
    Alert(
        "KogumaAbsent",
        "absent(koguma_build_info)",
        "5m",
        "critical",
        "Prometheus has no control plane",
        "No control plane is scraped, so no other alert of Koguma can fire.",
        "guides/monitor.md#a-control-plane-is-down",
    ),
    Alert(
        "KogumaStoreAway",
        "min by (job, instance) (koguma_store_follows) == 0",
        "1m",
        "critical",
        "Control plane {{ $labels.instance }} cannot reach its store",
        "It serves what it knew before, and refuses writes. Its log says why (store.unreachable).",
        "guides/monitor.md#the-store",
    ),
    Alert(
        "KogumaStoreFails",
        "sum by (job, instance, operation, error)"
        ' (rate(koguma_store_errors_total{error!~"conflict|read only"}[5m])) > 0',
        "5m",
        "warning",
        "The store of {{ $labels.instance }} fails: {{ $labels.operation }}, {{ $labels.error }}",
        "Reads or writes of the store fail. Those who asked were told so.",
        "guides/monitor.md#the-store",
    ),
    Alert(
        "KogumaMeshLate",
        "max by (job, instance, mesh) (koguma_mesh_late_seconds) > 0",
        "1m",
        "warning",
        "The proxies of mesh {{ $labels.mesh }} wait for a change on {{ $labels.instance }}",
        "To compute what they are served takes too long. Other meshes are not delayed.",
        "guides/monitor.md#a-mesh-is-late",
    ),
    Alert(
        "KogumaServesOldRevision",
        "max by (job, instance) (koguma_world_revision)"
        " - on (job, instance) group_right () koguma_world_revision > 0"
        " or max by (job) (koguma_world_revision and on (job, instance) koguma_instances > 1)"
        " - on (job) group_right () (koguma_world_revision and on (job, instance) koguma_instances > 1) > 0",
        "2m",
        "critical",
        "{{ $labels.instance }} serves a revision that is {{ $value }} behind",
        "A process serves what was stored before, while others on the same store are further on.",
        "guides/monitor.md#the-store",
    ),
    Alert(
        "KogumaNobodyLeads",
        "sum by (job) (koguma_instance_leads) == 0",
        "2m",
        "critical",
        "No control plane does the chores",
        "Proxies that have gone are not removed, authorities of meshes are not moved,"
        " and what is told of the whole mesh is missing.",
        "guides/several-machines.md#see-who-is-there",
    ),
    Alert(
        "KogumaInstanceSilent",
        'max by (job) (koguma_findings{code="instance-silent"}) > 0',
        "2m",
        "warning",
        "A control plane on the store does not answer the others",
        "What its proxies have and refuse is unknown. koguma inspect instances says which it is.",
        "guides/several-machines.md#see-who-is-there",
    ),
    Alert(
        "KogumaProxiesRefuse",
        'sum by (job, mesh) (koguma_dataplanes{state="refusing"}) > 0',
        "2m",
        "warning",
        "{{ $value }} proxies of mesh {{ $labels.mesh }} refuse something",
        "Envoy refused a resource and keeps the version before. koguma lint names the policy behind it.",
        "guides/is-it-in-force.md#when-a-proxy-refuses-something",
    ),
    Alert(
        "KogumaProxiesFail",
        'sum by (job, mesh) (koguma_dataplanes{state="failed"}) > 0',
        "2m",
        "critical",
        "What {{ $value }} proxies of mesh {{ $labels.mesh }} should get cannot be made",
        "A fault in Koguma. The proxies keep that part as it was, or are without it; the log has proxy.failed.",
        "guides/troubleshooting.md",
    ),
    Alert(
        "KogumaProxiesBehind",
        "max by (job, mesh) (koguma_dataplanes_behind_seconds) > 300",
        "1m",
        "warning",
        "A proxy of mesh {{ $labels.mesh }} has been behind for {{ $value | humanizeDuration }}",
        "It was sent a change and does not answer, neither yes nor no.",
        "guides/is-it-in-force.md#which-proxies-have-everything",
    ),
    Alert(
        "KogumaProxiesOffline",
        'sum by (job, mesh) (koguma_dataplanes{state="offline"}) > 0',
        "15m",
        "warning",
        "{{ $value }} proxies of mesh {{ $labels.mesh }} are offline",
        "They are registered, and connected to no control plane on the store.",
        "guides/monitor.md#proxies-that-are-offline",
    ),
    Alert(
        "KogumaFindings",
        'max by (job, code) (koguma_findings{severity="error", code!~"refused-by-envoy|failed|instance-silent"}) > 0',
        "15m",
        "warning",
        "{{ $value }} errors in what is stored: {{ $labels.code }}",
        "koguma lint says where, and what would be right.",
        "reference/findings.md",
    ),
    Alert(
        "KogumaCertificatesEnd",
        "min by (job, mesh) (koguma_certificates_remaining_ratio) < 0.1",
        "5m",
        "critical",
        "A certificate in mesh {{ $labels.mesh }} ends soon",
        "Less than a tenth of its life is left, and it should have been renewed at a fifth."
        " The log has certificate.failed.",
        "guides/mtls.md",
    ),
    Alert(
        "KogumaCertificatesFail",
        "sum by (job) (increase(koguma_certificates_failed_total[10m])) > 0",
        "10m",
        "warning",
        "Certificates cannot be issued",
        "Proxies keep the certificates that they have until these end. The log has certificate.failed.",
        "guides/mtls.md",
    ),
    Alert(
        "KogumaSlowInForce",
        "histogram_quantile(0.99, sum by (job, le) (rate(koguma_change_to_ack_seconds_bucket[10m]))) > 5",
        "10m",
        "warning",
        "Changes take {{ $value | humanizeDuration }} until proxies have them",
        "One proxy in a hundred takes longer than that from a write to its word that it has the change.",
        "guides/monitor.md#changes-are-slow",
    ),
    Alert(
        "KogumaRolloutStands",
        'max by (job, state) (koguma_rollouts{state=~"Going|Paused"}) > 0',
        "30m",
        "warning",
        "A rollout does not go on: {{ $labels.state }}",
        "Proxies do not answer a step, or somebody paused it. Until it goes on or back some proxies have what others"
        " have not.",
        "guides/roll-out-carefully.md#look-pause-end",
    ),
    Alert(
        "KogumaEventLoopLate",
        "max by (job, instance) (koguma_event_loop_lag_max_seconds) > 0.5",
        "5m",
        "warning",
        "{{ $labels.instance }} is short of processor time",
        "For {{ $value | humanizeDuration }} no proxy was read and nothing was sent.",
        "guides/monitor.md#changes-are-slow",
    ),
    Alert(
        "KogumaApiFails",
        'sum by (job, instance) (rate(koguma_api_requests_total{status="5xx"}[5m]))'
        " / sum by (job, instance) (rate(koguma_api_requests_total[5m])) > 0.05",
        "10m",
        "warning",
        "{{ $value | humanizePercentage }} of the requests to the API of {{ $labels.instance }} fail",
        "It answers with 500 or 503: it is too busy, cannot reach its store, or met a fault.",
        "guides/monitor.md#the-api-fails",
    ),
    Alert(
        "KogumaStreamsRefused",
        'sum by (job, reason) (increase(koguma_ads_streams_refused_total{reason!="stopping"}[10m])) > 20',
        "10m",
        "warning",
        "Proxies are turned away: {{ $labels.reason }}",
        "The log has proxy.refused, with who they say they are and why they are not let in.",
        "guides/troubleshooting.md",
    ),
    Alert(
        "KogumaChecksDiffer",
        'sum by (job) (increase(koguma_self_checks_total{outcome="different"}[1h])) > 0',
        "0m",
        "critical",
        "What was kept differs from a full computation",
        "A fault in Koguma: the full computation was served. The log has self_check.failed.",
        "reference/metrics.md",
    ),
    Alert(
        "KogumaProxyMetricsAbsent",
        'count by (job, mesh) (up{job="koguma-proxies"} == 0) > 0',
        "15m",
        "warning",
        "The metrics of {{ $value }} proxies of mesh {{ $labels.mesh }} cannot be collected",
        "A MeshMetric tells Prometheus to ask these proxies, and they do not answer.",
        "guides/monitor.md#find-the-proxies",
    ),
    Alert(
        "KogumaCallsFail",
        "sum by (mesh, service)"
        ' (rate(envoy_cluster_upstream_rq_xx{job="koguma-proxies",envoy_response_code_class="5"}[5m]))'
        ' / sum by (mesh, service) (rate(envoy_cluster_upstream_rq_xx{job="koguma-proxies"}[5m])) > 0.05',
        "10m",
        "warning",
        "{{ $value | humanizePercentage }} of the calls of {{ $labels.service }} fail",
        "Calls that proxies of this service send or take are answered with 5xx. koguma explain shows where they go.",
        "guides/monitor.md#calls-fail",
    ),
)


def rules(pages: str) -> dict[str, Any]:
    """The alerts as a file of rules for Prometheus. `pages` is where our documentation is."""
    return {"groups": [{"name": "koguma", "rules": [alert.rule(pages) for alert in ALERTS]}]}
