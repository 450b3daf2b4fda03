"""MeshMetric: which metrics of a proxy and its applications are there to be collected, and how.

sidecar                                    of the proxy's own metrics:
sidecar.profiles                           a filter on their names
sidecar.profiles.appendProfiles            ready-made ones, of all policies together
sidecar.profiles.appendProfiles[].name
sidecar.profiles.include                   beside those
sidecar.profiles.include[].type
sidecar.profiles.include[].match
sidecar.profiles.exclude                   less these
sidecar.profiles.exclude[].type
sidecar.profiles.exclude[].match
sidecar.includeUnused                      without it `usedonly` of the admin interface
applications                               collected with the proxy's
applications[].name
applications[].address
applications[].port
applications[].path
backends                                   which of these:
backends[].type
backends[].prometheus                      a Listener
backends[].prometheus.clientId
backends[].prometheus.port                 Listener.address
backends[].prometheus.path                 RouteMatch.path
backends[].prometheus.tls                  DownstreamTlsContext
backends[].prometheus.tls.mode
backends[].openTelemetry                   a Cluster to which metrics are sent
backends[].openTelemetry.endpoint          its address
backends[].openTelemetry.backendRef        the same, from a MeshOpenTelemetryBackend
backends[].openTelemetry.backendRef.kind
backends[].openTelemetry.backendRef.name
backends[].openTelemetry.backendRef.labels
backends[].openTelemetry.refreshInterval   how often
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from cp.model.duration import Duration
from cp.model.violation import Violation, at
from cp.policies import Policy
from cp.resources import deprecated
from cp.resources.checks import above_zero, absent, must_be_set, port, regex
from cp.resources.complete import completed
from cp.resources.kinds import Kind, Meta, PolicyShape
from cp.resources.schema import Schema
from cp.resources.spec import PolicySpec
from cp.resources.targets import GATEWAY, Targets
from cp.resources.telemetry import BackendResourceRef, collector, endpoint_deprecated


class Profile(Schema, frozen=True):
    name: Literal["All", "Basic", "None"] | None = None


class Selector(Schema, frozen=True):
    type: Literal["Prefix", "Regex", "Exact", "Contains"] | None = None
    match: str = ""


class Profiles(Schema, frozen=True):
    append_profiles: list[Profile] | None = None
    include: list[Selector] | None = None
    exclude: list[Selector] | None = None


class Sidecar(Schema, frozen=True):
    profiles: Profiles | None = None
    include_unused: bool | None = None


class Application(Schema, frozen=True):
    name: str | None = None
    address: str | None = None
    port: int = 0
    path: str | None = None


class PrometheusTls(Schema, frozen=True):
    mode: Literal["Disabled", "ProvidedTLS", "ActiveMTLSBackend"] | None = None


class Prometheus(Schema, frozen=True):
    client_id: str | None = None
    port: int | None = None
    path: str | None = None
    tls: PrometheusTls | None = None


class OpenTelemetry(Schema, frozen=True):
    endpoint: str | None = None
    backend_ref: BackendResourceRef | None = None
    refresh_interval: Duration | None = None


class Backend(Schema, frozen=True):
    type: Literal["Prometheus", "OpenTelemetry"] | None = None
    prometheus: Prometheus | None = None
    open_telemetry: OpenTelemetry | None = None


class Conf(Schema, frozen=True):
    sidecar: Sidecar | None = None
    applications: list[Application] | None = None
    backends: list[Backend] | None = None


class Spec(PolicySpec, frozen=True):
    default: Conf | None = None


TARGETS: Final = Targets(top_system=(GATEWAY,))
SCHEMA_DEFAULTS: Final = {
    "default.applications[].path": "/metrics",
    "default.backends[].prometheus.port": 5670,
    "default.backends[].prometheus.path": "/metrics",
    "default.backends[].prometheus.tls.mode": "Disabled",
}


def validate(spec: Spec, meta: Meta) -> Iterator[Violation]:
    yield from at("spec", TARGETS.violations(spec, meta))
    yield from at("spec.default", _conf(spec.default or Conf()))


def _conf(conf: Conf) -> Iterator[Violation]:
    if conf.sidecar is not None and conf.sidecar.profiles is not None:
        yield from at("sidecar.profiles", _profiles(conf.sidecar.profiles))
    for index, application in enumerate(conf.applications or ()):
        yield from port(f"applications[{index}].port", application.port)
    for index, backend in enumerate(conf.backends or ()):
        yield from at(f"backends[{index}]", _backend(backend))


def _profiles(profiles: Profiles) -> Iterator[Violation]:
    for index, profile in enumerate(profiles.append_profiles or ()):
        yield from must_be_set(f"appendProfiles[{index}].name", profile.name, "All, Basic or None")
    for name, selectors in (("include", profiles.include), ("exclude", profiles.exclude)):
        for index, selector in enumerate(selectors or ()):
            yield from must_be_set(f"{name}[{index}].type", selector.type, "Prefix, Regex, Exact or Contains")
            if selector.type == "Regex":
                yield from regex(f"{name}[{index}].match", selector.match)


def _backend(backend: Backend) -> Iterator[Violation]:
    yield from must_be_set("type", backend.type, "Prometheus or OpenTelemetry")
    if backend.type == "Prometheus":
        if backend.prometheus is None:
            yield absent("prometheus", "must be set for the type Prometheus", "`{}` will do")
        else:
            yield from port("prometheus.port", backend.prometheus.port)
    if backend.type == "OpenTelemetry":
        if backend.open_telemetry is None:
            yield absent("openTelemetry", "must be set for the type OpenTelemetry", "give it a `backendRef`")
        else:
            yield from at("openTelemetry", _otel(backend.open_telemetry))


def _otel(otel: OpenTelemetry) -> Iterator[Violation]:
    yield from collector(otel.endpoint, otel.backend_ref, needs_port=True)
    yield from above_zero("refreshInterval", otel.refresh_interval, "leave it out for 30s")


def deprecations(spec: Spec, _meta: Meta) -> Iterator[Violation]:
    yield from deprecated.top_kind(spec)
    for index, backend in enumerate((spec.default or Conf()).backends or ()):
        if (otel := backend.open_telemetry) is not None:
            path = f"spec.default.backends[{index}].openTelemetry"
            yield from endpoint_deprecated(path, otel.endpoint, otel.backend_ref)


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
    conf = Conf
    targets = TARGETS


POLICY = MeshMetric()
