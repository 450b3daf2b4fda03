"""What control planes do: changes, streams of proxies, the store, the API and the processes."""

from __future__ import annotations

from typing import Final

from cp.monitoring.dashboards.queries import JOB, quantile, rate
from cp.monitoring.panels import Dashboard, DashboardVariable, PanelRow, panel

_OURS: Final = 'job=~"$job",instance=~"$instance"'
_INSTANCE: Final = DashboardVariable(
    "instance", "Control plane", 'label_values(koguma_build_info{job=~"$job"}, instance)'
)

_CHANGES: Final = PanelRow(
    "Changes",
    (
        panel(
            "From a write to its being in force",
            "How long after a change was noticed a proxy has confirmed all that follows from it.",
            "s",
            (quantile("0.5", "koguma_change_to_ack_seconds", _OURS), "half of the proxies"),
            (quantile("0.99", "koguma_change_to_ack_seconds", _OURS), "99 of 100"),
        ),
        panel(
            "Turns",
            "How long it takes to work out what changes come to.",
            "s",
            (quantile("0.5", "koguma_turn_seconds", _OURS), "half"),
            (quantile("0.99", "koguma_turn_seconds", _OURS), "99 of 100"),
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
            (rate("koguma_fragments_built_total", _OURS), "built"),
            (rate("koguma_fragments_reused_total", _OURS), "there already"),
        ),
        panel(
            "Sent to proxies",
            "Bytes of configuration, by type.",
            "Bps",
            (rate("koguma_ads_bytes_sent_total", _OURS, "type"), "{{type}}"),
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
            (rate("koguma_spans_total", _OURS, "outcome"), "{{outcome}}"),
        ),
        panel(
            "What proxies answer",
            "Responses that proxies accepted and refused.",
            "ops",
            (rate("koguma_ads_acks_total", _OURS), "accepted"),
            (rate("koguma_ads_nacks_total", _OURS, "type"), "refused: {{type}}"),
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
            (rate("koguma_ads_streams_refused_total", _OURS, "reason"), "{{reason}}"),
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
            (quantile("0.99", "koguma_store_seconds", _OURS, "le, operation"), "{{operation}}"),
        ),
        panel(
            "The store fails",
            "Reads and writes that failed. A conflict is no fault: somebody else wrote meanwhile.",
            "ops",
            (rate("koguma_store_errors_total", _OURS, "operation, error"), "{{operation}}: {{error}}"),
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
            (rate("koguma_api_requests_total", _OURS, "status"), "{{status}}"),
        ),
        panel(
            "Answers of the API take",
            "How long 99 of 100 requests wait for the beginning of their answer, by route.",
            "s",
            (quantile("0.99", "koguma_api_request_seconds", _OURS, "le, method, route"), "{{method}} {{route}}"),
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
            (rate("process_cpu_seconds_total", _OURS, "instance, worker"), "{{instance}} {{worker}}"),
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
    (JOB, _INSTANCE),
    (_CHANGES, _STREAMS, _STORE_AND_API, _PROCESS),
)
