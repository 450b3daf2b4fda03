"""The dashboards: what a control plane does, how its proxies are, and what goes through them."""

from __future__ import annotations

from typing import Final

from cp.monitoring.panels import Dashboard, DashboardVariable, PanelRow, panel

_OURS: Final = 'job=~"$job",instance=~"$instance"'
_OF_MESH: Final = 'job=~"$job",mesh=~"$mesh"'
_PROXY: Final = 'job="koguma-proxies",mesh=~"$mesh",service=~"$service",dataplane=~"$dataplane"'

_JOB: Final = DashboardVariable("job", "Job", "label_values(koguma_build_info, job)")
_INSTANCE: Final = DashboardVariable(
    "instance", "Control plane", 'label_values(koguma_build_info{job=~"$job"}, instance)'
)
_MESH: Final = DashboardVariable("mesh", "Mesh", 'label_values(koguma_dataplanes{job=~"$job"}, mesh)')

_SCRAPED: Final = 'up{job="koguma-proxies"'
_TRAFFIC_VARIABLES: Final = (
    DashboardVariable("mesh", "Mesh", f"label_values({_SCRAPED}}}, mesh)"),
    DashboardVariable("service", "Service", f'label_values({_SCRAPED},mesh=~"$mesh"}}, service)'),
    DashboardVariable("dataplane", "Proxy", f'label_values({_SCRAPED},mesh=~"$mesh",service=~"$service"}}, dataplane)'),
)


def _quantile(part: str, series: str, labels: str, by: str = "le") -> str:
    return f"histogram_quantile({part}, sum by ({by}) (rate({series}_bucket{{{labels}}}[$__rate_interval])))"


def _rate(series: str, labels: str, by: str = "") -> str:
    return f"sum{f' by ({by}) ' if by else ''}(rate({series}{{{labels}}}[$__rate_interval]))"


_CHANGES: Final = PanelRow(
    "Changes",
    (
        panel(
            "From a write to its being in force",
            "How long after a change was noticed a proxy has confirmed all that follows from it.",
            "s",
            (_quantile("0.5", "koguma_change_to_ack_seconds", _OURS), "half of the proxies"),
            (_quantile("0.99", "koguma_change_to_ack_seconds", _OURS), "99 of 100"),
        ),
        panel(
            "Turns",
            "How long it takes to work out what changes come to.",
            "s",
            (_quantile("0.5", "koguma_turn_seconds", _OURS), "half"),
            (_quantile("0.99", "koguma_turn_seconds", _OURS), "99 of 100"),
        ),
        panel(
            "Revision",
            "The revision of the store that each process serves: lines that part show one that does not follow.",
            "none",
            (f"koguma_world_revision{{{_OURS}}}", "{{instance}} {{worker}}"),
        ),
        panel(
            "Fragments",
            "Pieces of Envoy's configuration that were built, and that were there already.",
            "ops",
            (_rate("koguma_fragments_built_total", _OURS), "built"),
            (_rate("koguma_fragments_reused_total", _OURS), "there already"),
        ),
        panel(
            "Sent to proxies",
            "Bytes of configuration, by type.",
            "Bps",
            (_rate("koguma_ads_bytes_sent_total", _OURS, "type"), "{{type}}"),
        ),
        panel(
            "Rollouts",
            "Those under way: proxies are sent a step, they are watched, or somebody paused it.",
            "short",
            (f"max by (state) (koguma_rollouts{{{_OURS}}})", "{{state}}"),
        ),
        panel(
            "Traces",
            "Spans that a collector took, did not take, or that were too many.",
            "ops",
            (_rate("koguma_spans_total", _OURS, "outcome"), "{{outcome}}"),
        ),
        panel(
            "What proxies answer",
            "Responses that proxies accepted and refused.",
            "ops",
            (_rate("koguma_ads_acks_total", _OURS), "accepted"),
            (_rate("koguma_ads_nacks_total", _OURS, "type"), "refused: {{type}}"),
        ),
    ),
)
_STREAMS: Final = PanelRow(
    "Proxies that are connected",
    (
        panel(
            "Streams",
            "Open streams of proxies, by the form of the protocol.",
            "short",
            (f"sum by (stream) (koguma_ads_streams{{{_OURS}}})", "{{stream}}"),
        ),
        panel(
            "Connected proxies",
            "By how they are. Those that are connected to no control plane are on the dashboard of the fleet.",
            "short",
            (f"sum by (state) (koguma_proxies{{{_OURS}}})", "{{state}}"),
        ),
        panel(
            "Streams that were turned away",
            "By the reason; the log's proxy.refused says who.",
            "ops",
            (_rate("koguma_ads_streams_refused_total", _OURS, "reason"), "{{reason}}"),
        ),
    ),
)
_STORE_AND_API: Final = PanelRow(
    "Store and API",
    (
        panel(
            "The store takes",
            "How long 99 of 100 reads and writes take, by what is asked.",
            "s",
            (_quantile("0.99", "koguma_store_seconds", _OURS, "le, operation"), "{{operation}}"),
        ),
        panel(
            "The store fails",
            "Reads and writes that failed. A conflict is no fault: somebody else wrote meanwhile.",
            "ops",
            (_rate("koguma_store_errors_total", _OURS, "operation, error"), "{{operation}}: {{error}}"),
        ),
        panel(
            "The store is followed",
            "1 while the store can be reached.",
            "bool",
            (f"min by (instance) (koguma_store_follows{{{_OURS}}})", "{{instance}}"),
        ),
        panel(
            "Requests to the API",
            "By the class of their answers.",
            "reqps",
            (_rate("koguma_api_requests_total", _OURS, "status"), "{{status}}"),
        ),
        panel(
            "Answers of the API take",
            "How long 99 of 100 requests wait for the beginning of their answer, by route.",
            "s",
            (_quantile("0.99", "koguma_api_request_seconds", _OURS, "le, method, route"), "{{method}} {{route}}"),
        ),
        panel(
            "Resources in force",
            "By kind.",
            "short",
            (f"max by (kind) (koguma_world_resources{{{_OURS}}})", "{{kind}}"),
        ),
    ),
)
_PROCESS: Final = PanelRow(
    "Processes",
    (
        panel(
            "The event loop is late",
            "How much later than planned it woke up, at the worst within a minute: so long no proxy is heard.",
            "s",
            (f"max by (instance) (koguma_event_loop_lag_max_seconds{{{_OURS}}})", "{{instance}}"),
        ),
        panel(
            "Processors",
            "How many processors the processes use.",
            "cores",
            (_rate("process_cpu_seconds_total", _OURS, "instance, worker"), "{{instance}} {{worker}}"),
        ),
        panel(
            "Memory",
            "What the processes have resident.",
            "bytes",
            (f"sum by (instance, worker) (process_resident_memory_bytes{{{_OURS}}})", "{{instance}} {{worker}}"),
        ),
        panel(
            "Versions",
            "Which version each control plane runs.",
            "none",
            (f"max by (instance, version) (koguma_build_info{{{_OURS}}})", ""),
            shape="table",
        ),
        panel(
            "Who leads",
            "Which control plane does the chores, and tells of the whole mesh: 1 at one of them.",
            "bool",
            (f"max by (instance) (koguma_instance_leads{{{_OURS}}})", "{{instance}}"),
        ),
        panel(
            "Control planes",
            "How many share the store, as far as each of them knows.",
            "short",
            (f"max by (instance) (koguma_instances{{{_OURS}}})", "{{instance}}"),
        ),
    ),
)

CONTROL_PLANE: Final = Dashboard(
    "koguma-control-plane",
    "Koguma: control plane",
    "What control planes do: changes, streams of proxies, the store, the API and the processes.",
    (_JOB, _INSTANCE),
    (_CHANGES, _STREAMS, _STORE_AND_API, _PROCESS),
)

FLEET: Final = Dashboard(
    "koguma-fleet",
    "Koguma: fleet",
    "How all registered proxies are, as the control plane that leads sees them; certificates, and findings.",
    (_JOB, _MESH),
    (
        PanelRow(
            "Now",
            tuple(
                panel(
                    title,
                    description,
                    "short",
                    (f'sum(koguma_dataplanes{{{_OF_MESH},state="{state}"}})', ""),
                    shape="stat",
                    width=4,
                )
                for state, title, description in (
                    ("in sync", "In sync", "Proxies that have confirmed all that they should have."),
                    ("behind", "Behind", "Proxies to which a change is on its way."),
                    ("refusing", "Refusing", "Proxies that refuse a resource, and keep the version before."),
                    ("failed", "Failed", "Proxies of which a part cannot be made, by a fault in Koguma."),
                    ("offline", "Offline", "Registered proxies that are connected to no control plane."),
                    ("unknown", "Unknown", "Proxies that only a silent control plane could tell of."),
                )
            ),
        ),
        PanelRow(
            "In time",
            (
                panel(
                    "Proxies",
                    "All registered proxies, by how they are.",
                    "short",
                    (f"sum by (state) (koguma_dataplanes{{{_OF_MESH}}})", "{{state}}"),
                    width=12,
                ),
                panel(
                    "The longest behind",
                    "For how long the proxy has been behind that has been so for the longest time.",
                    "s",
                    (f"max by (mesh) (koguma_dataplanes_behind_seconds{{{_OF_MESH}}})", "{{mesh}}"),
                    width=12,
                ),
            ),
        ),
        PanelRow(
            "Certificates and findings",
            (
                panel(
                    "The first certificate to end",
                    "What is left of the certificate that ends first. It is renewed when a fifth of its life is left.",
                    "s",
                    (f"min by (mesh) (koguma_certificates_remaining_seconds{{{_OF_MESH}}})", "{{mesh}}"),
                ),
                panel(
                    "Certificates issued",
                    "Certificates that were issued, and attempts that failed.",
                    "ops",
                    (_rate("koguma_certificates_issued_total", 'job=~"$job"'), "issued"),
                    (_rate("koguma_certificates_failed_total", 'job=~"$job"'), "failed"),
                ),
                panel(
                    "Findings",
                    "What koguma lint finds, by how bad it is.",
                    "short",
                    ('sum by (severity) (koguma_findings{job=~"$job"})', "{{severity}}"),
                ),
                panel(
                    "Findings by code",
                    "The reference of findings explains each code.",
                    "short",
                    ('sum by (severity, code) (koguma_findings{job=~"$job"}) > 0', ""),
                    shape="table",
                    width=12,
                ),
                panel(
                    "Findings are of",
                    "How long ago it was looked for findings.",
                    "s",
                    ('time() - max(koguma_findings_timestamp_seconds{job=~"$job"})', "ago"),
                    width=12,
                ),
            ),
        ),
    ),
)

_ANSWERED: Final = _rate("envoy_cluster_upstream_rq_xx", _PROXY, "envoy_cluster_name")
_FAILED: Final = _rate("envoy_cluster_upstream_rq_xx", f'{_PROXY},envoy_response_code_class="5"', "envoy_cluster_name")

_HEALTHY: Final = f"envoy_cluster_membership_healthy{{{_PROXY}}}"
_ENDPOINTS: Final = f"envoy_cluster_membership_total{{{_PROXY}}}"

_CALLS: Final = PanelRow(
    "Calls of the proxies to others",
    (
        panel(
            "Requests",
            "Requests that proxies send, by what they call.",
            "reqps",
            (_rate("envoy_cluster_upstream_rq_total", _PROXY, "envoy_cluster_name"), "{{envoy_cluster_name}}"),
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
                _quantile("0.99", "envoy_cluster_upstream_rq_time", _PROXY, "le, envoy_cluster_name") + " / 1000",
                "{{envoy_cluster_name}}",
            ),
        ),
        panel(
            "Retries",
            "Requests that were sent again.",
            "reqps",
            (_rate("envoy_cluster_upstream_rq_retry", _PROXY, "envoy_cluster_name"), "{{envoy_cluster_name}}"),
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
            (_rate("envoy_cluster_upstream_cx_connect_fail", _PROXY, "envoy_cluster_name"), "{{envoy_cluster_name}}"),
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
                _rate("envoy_cluster_upstream_rq_pending_overflow", _PROXY, "envoy_cluster_name"),
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
                _rate("envoy_http_downstream_rq_xx", _PROXY, "service, envoy_response_code_class"),
                "{{service}} {{envoy_response_code_class}}xx",
            ),
        ),
        panel(
            "Answers take",
            "How long 99 of 100 of these take.",
            "s",
            (_quantile("0.99", "envoy_http_downstream_rq_time", _PROXY, "le, service") + " / 1000", "{{service}}"),
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

DASHBOARDS: Final = (CONTROL_PLANE, FLEET, TRAFFIC)
