"""What goes through the proxies, from Envoy's own metrics."""

from __future__ import annotations

from typing import Final

from cp.monitoring.dashboards.queries import quantile, rate
from cp.monitoring.panels import Dashboard, DashboardVariable, PanelRow, panel

_PROXY: Final = 'job="koguma-proxies",mesh=~"$mesh",service=~"$service",dataplane=~"$dataplane"'
_SCRAPED: Final = 'up{job="koguma-proxies"'
_TRAFFIC_VARIABLES: Final = (
    DashboardVariable("mesh", "Mesh", f"label_values({_SCRAPED}}}, mesh)"),
    DashboardVariable("service", "Service", f'label_values({_SCRAPED},mesh=~"$mesh"}}, service)'),
    DashboardVariable("dataplane", "Proxy", f'label_values({_SCRAPED},mesh=~"$mesh",service=~"$service"}}, dataplane)'),
)

_ANSWERED: Final = rate("envoy_cluster_upstream_rq_xx", _PROXY, "envoy_cluster_name")
_FAILED: Final = rate("envoy_cluster_upstream_rq_xx", f'{_PROXY},envoy_response_code_class="5"', "envoy_cluster_name")

_HEALTHY: Final = f"envoy_cluster_membership_healthy{{{_PROXY}}}"
_ENDPOINTS: Final = f"envoy_cluster_membership_total{{{_PROXY}}}"

_CALLS: Final = PanelRow(
    "Calls of the proxies to others",
    (
        panel(
            "Requests",
            "Requests that proxies send, by what they call.",
            "reqps",
            (rate("envoy_cluster_upstream_rq_total", _PROXY, "envoy_cluster_name"), "{{envoy_cluster_name}}"),
        ),
        panel(
            "Answered with 5xx",
            "The part of these requests that is answered with 5xx.",
            "percentunit",
            (
                f"({_FAILED} or {_ANSWERED} * 0) / {_ANSWERED}",
                "{{envoy_cluster_name}}",
            ),
        ),
        panel(
            "Answers take",
            "How long 99 of 100 of these requests take.",
            "s",
            (
                quantile("0.99", "envoy_cluster_upstream_rq_time", _PROXY, "le, envoy_cluster_name") + " / 1000",
                "{{envoy_cluster_name}}",
            ),
        ),
        panel(
            "Retries",
            "Requests that were sent again.",
            "reqps",
            (rate("envoy_cluster_upstream_rq_retry", _PROXY, "envoy_cluster_name"), "{{envoy_cluster_name}}"),
        ),
        panel(
            "Connections",
            "Open connections, by what they lead to.",
            "short",
            (f"sum by (envoy_cluster_name) (envoy_cluster_upstream_cx_active{{{_PROXY}}})", "{{envoy_cluster_name}}"),
        ),
        panel(
            "Connections that could not be made",
            "Attempts that failed, and those that took too long.",
            "ops",
            (rate("envoy_cluster_upstream_cx_connect_fail", _PROXY, "envoy_cluster_name"), "{{envoy_cluster_name}}"),
        ),
        panel(
            "Endpoints that are healthy",
            "The part of the endpoints of what is called that is healthy; the worst of all proxies that call it.",
            "percentunit",
            (
                f"min by (envoy_cluster_name) ({_HEALTHY} / ({_ENDPOINTS} > 0))",
                "{{envoy_cluster_name}}",
            ),
        ),
        panel(
            "Open circuits",
            "Requests that were not sent, as a circuit breaker was open.",
            "reqps",
            (
                rate("envoy_cluster_upstream_rq_pending_overflow", _PROXY, "envoy_cluster_name"),
                "{{envoy_cluster_name}}",
            ),
        ),
    ),
)
_TAKEN: Final = PanelRow(
    "What the proxies take",
    (
        panel(
            "Requests",
            "Requests that arrive at listeners: from others at inbounds, from the own workload at outbounds.",
            "reqps",
            (
                rate("envoy_http_downstream_rq_xx", _PROXY, "service, envoy_response_code_class"),
                "{{service}} {{envoy_response_code_class}}xx",
            ),
        ),
        panel(
            "Answers take",
            "How long 99 of 100 of these take.",
            "s",
            (quantile("0.99", "envoy_http_downstream_rq_time", _PROXY, "le, service") + " / 1000", "{{service}}"),
        ),
        panel(
            "Connections",
            "Open connections at listeners.",
            "short",
            (f"sum by (service) (envoy_listener_downstream_cx_active{{{_PROXY}}})", "{{service}}"),
        ),
    ),
)
_ENVOYS: Final = PanelRow(
    "Envoys",
    (
        panel(
            "Connected to a control plane",
            "1 while the Envoy has a stream; the least of each service.",
            "bool",
            (f"min by (service) (envoy_control_plane_connected_state{{{_PROXY}}})", "{{service}}"),
        ),
        panel(
            "Memory",
            "What Envoys have allocated.",
            "bytes",
            (f"sum by (service) (envoy_server_memory_allocated{{{_PROXY}}})", "{{service}}"),
        ),
        panel(
            "Up for",
            "The youngest Envoy of each service: it falls to nothing where one is started anew.",
            "s",
            (f"min by (service) (envoy_server_uptime{{{_PROXY}}})", "{{service}}"),
        ),
    ),
)

TRAFFIC: Final = Dashboard(
    "koguma-traffic",
    "Koguma: traffic",
    "What goes through the proxies, from Envoy's own metrics: for proxies with a MeshMetric for Prometheus.",
    _TRAFFIC_VARIABLES,
    (_CALLS, _TAKEN, _ENVOYS),
)
