"""MeshMetric: which metrics of a proxy and its applications are there to be collected, and how.

sidecar                                    of the proxy's own metrics:
sidecar.profiles                           an HttpFilter in front of the admin interface, on their names
sidecar.profiles.appendProfiles            ready-made ones, of all policies together; without one, All
sidecar.profiles.appendProfiles[].name
sidecar.profiles.include                   these in any case
sidecar.profiles.include[].type
sidecar.profiles.include[].match
sidecar.profiles.exclude                   without these
sidecar.profiles.exclude[].type
sidecar.profiles.exclude[].match
sidecar.includeUnused                      without it `usedonly` of the admin interface
applications                               a Cluster each, asked by that filter and put behind the proxy's
applications[].name
applications[].address
applications[].port
applications[].path
backends                                   which of these:
backends[].type
backends[].prometheus                      a Listener
backends[].prometheus.clientId             which Prometheus is told of the proxy (/_prometheus/targets)
backends[].prometheus.port                 Listener.address
backends[].prometheus.path                 RouteMatch.path
backends[].prometheus.tls
backends[].prometheus.tls.mode             Disabled alone; with another one there is no listener; see not-enforced
backends[].openTelemetry                   Cluster.metadata, and `koguma dp run` does what stands there
backends[].openTelemetry.endpoint          whom it sends them to
backends[].openTelemetry.backendRef        the same, from a MeshOpenTelemetryBackend
backends[].openTelemetry.backendRef.kind
backends[].openTelemetry.backendRef.name
backends[].openTelemetry.backendRef.labels
backends[].openTelemetry.refreshInterval   how often; without it every 30s
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cp.policies import MetricsPage, Policy
from cp.policies.mesh_metric.endpoint import endpoint, pages
from cp.policies.mesh_metric.pushing import orders
from cp.policies.mesh_metric.schema import Conf, Spec
from cp.policies.mesh_metric.validation import SCHEMA_DEFAULTS, TARGETS, deprecations, validate
from cp.resources.complete import completed
from cp.resources.kinds import Kind, PolicyShape

if TYPE_CHECKING:
    from generators.drafts import SidecarDraft


class MeshMetric(Policy[Conf]):
    kind = Kind(
        name="MeshMetric",
        short="mm",
        plural="meshmetrics",
        schema=Spec,
        validate=validate,
        deprecations=deprecations,
        complete=completed(SCHEMA_DEFAULTS),
        policy=PolicyShape(single=True),
        customary=(
            (r"^spec\.default\.applications\[(\d+)\]\.port$", r"spec.default.applications.application[\1]"),
            (r"^spec\.default\.backends\[(\d+)\]", r"spec.default.backends.backend[\1]"),
            (r"(backend\[\d+\])\.prometheus\.port$", r"\1.port"),
            (r"(backend\[\d+\])\.type$", r"\1"),
        ),
    )
    order = 1500
    needed_list = "backends"
    conf = Conf
    targets = TARGETS

    def sidecar(self, conf: Conf, draft: SidecarDraft) -> None:
        for backend in conf.backends or ():
            endpoint(conf, backend, draft)
        orders(conf, draft)

    def metrics_pages(self, conf: Conf) -> Iterator[MetricsPage]:
        return pages(conf)


POLICY = MeshMetric()
