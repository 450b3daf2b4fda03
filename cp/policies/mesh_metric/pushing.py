"""Which metrics to push to OpenTelemetry collectors, for `koguma dp run`, which pushes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from envoy.config.cluster.v3.cluster_pb2 import Cluster

from cp.model.pushing import (
    CLUSTER,
    FIELD,
    METADATA,
    MetricCollector,
    MetricSelection,
    PushedApplication,
    PushOrders,
    written,
)
from cp.policies.mesh_metric.filtering import PROFILES
from cp.policies.mesh_metric.schema import Conf, MetricProfiles, MetricSelector
from generators.build.collectors import Otlp
from generators.drafts import SidecarDraft
from generators.envoy import names

_EVERY: Final = 30.0
_PATH: Final = "/metrics"


def orders(conf: Conf, draft: SidecarDraft) -> None:
    """Add a cluster without traffic, with the orders in its metadata. Without a collector there is none."""
    if not (collectors := tuple(_collectors(conf))):
        return
    sidecar = conf.sidecar
    profiles = (sidecar.profiles if sidecar is not None else None) or MetricProfiles()
    chosen = [profile.name or "All" for profile in profiles.append_profiles or ()] or ["All"]
    push_orders = PushOrders(
        collectors=collectors,
        applications=tuple(_applications(conf)),
        profile=tuple(MetricSelection("Prefix", name) for profile in chosen for name in PROFILES[profile]),
        include=_choices(profiles.include),
        exclude=_choices(profiles.exclude),
        unused=bool(sidecar is not None and sidecar.include_unused),
    )
    cluster = Cluster(name=CLUSTER, type=Cluster.STATIC)
    cluster.load_assignment.cluster_name = CLUSTER
    cluster.metadata.filter_metadata[METADATA][FIELD] = written(push_orders)
    draft.resources.append(cluster)


def _collectors(conf: Conf) -> Iterator[MetricCollector]:
    for backend in conf.backends or ():
        if backend.type == "OpenTelemetry" and (otel := backend.open_telemetry) is not None:
            to = Otlp.parse(otel.endpoint or "")
            if to is not None:
                seconds = _EVERY if otel.refresh_interval is None else otel.refresh_interval.seconds
                yield MetricCollector(to.collector.host, to.collector.port, seconds, to.is_http, to.path)


def _applications(conf: Conf) -> Iterator[PushedApplication]:
    for application in conf.applications or ():
        yield PushedApplication(
            application.name or "", application.address or names.LOOPBACK, application.port, application.path or _PATH
        )


def _choices(selectors: Iterable[MetricSelector] | None) -> tuple[MetricSelection, ...]:
    return tuple(MetricSelection(selector.type or "Exact", selector.match) for selector in selectors or ())
