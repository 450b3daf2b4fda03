"""What must hold of a MeshMetric beyond its schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cp.model.violation import Violation, at
from cp.policies import in_spec
from cp.policies.mesh_metric.schema import Conf, MetricBackend, MetricOpenTelemetry, MetricProfiles, Spec
from cp.resources import deprecated
from cp.resources.checks import above_zero, absent, must_be_set, port, regex
from cp.resources.kinds import DocumentMeta
from cp.resources.targets import GATEWAY, AllowedTargets
from cp.resources.telemetry import collector, endpoints_deprecated

TARGETS: Final = AllowedTargets(top_system=(GATEWAY,))
SCHEMA_DEFAULTS: Final = {
    "default.applications[].path": "/metrics",
    "default.backends[].prometheus.port": 5670,
    "default.backends[].prometheus.path": "/metrics",
    "default.backends[].prometheus.tls.mode": "Disabled",
}


@in_spec
def validate(spec: Spec, meta: DocumentMeta) -> Iterator[Violation]:
    yield from TARGETS.violations(spec, meta)
    yield from at("default", _conf(spec.default or Conf()))


def _conf(conf: Conf) -> Iterator[Violation]:
    if conf.sidecar is not None and conf.sidecar.profiles is not None:
        yield from at("sidecar.profiles", _profiles(conf.sidecar.profiles))
    for index, application in enumerate(conf.applications or ()):
        yield from port(f"applications[{index}].port", application.port)
    for index, backend in enumerate(conf.backends or ()):
        yield from at(f"backends[{index}]", _backend(backend))


def _profiles(profiles: MetricProfiles) -> Iterator[Violation]:
    for index, profile in enumerate(profiles.append_profiles or ()):
        yield from must_be_set(f"appendProfiles[{index}].name", profile.name, "All, Basic or None")
    for name, selectors in (("include", profiles.include), ("exclude", profiles.exclude)):
        for index, selector in enumerate(selectors or ()):
            yield from must_be_set(f"{name}[{index}].type", selector.type, "Prefix, Regex, Exact or Contains")
            if selector.type == "Regex":
                yield from regex(f"{name}[{index}].match", selector.match)


def _backend(backend: MetricBackend) -> Iterator[Violation]:
    yield from must_be_set("type", backend.type, "Prometheus or OpenTelemetry")
    if backend.type == "Prometheus":
        if backend.prometheus is None:
            yield absent("prometheus", "must be set for the type Prometheus", "`{}` will do")
        else:
            yield from port("prometheus.port", backend.prometheus.port)
    if backend.type == "OpenTelemetry":
        yield from at("openTelemetry", _otel(backend.open_telemetry))


def _otel(otel: MetricOpenTelemetry | None) -> Iterator[Violation]:
    yield from collector(otel, needs_port=True)
    if otel is not None:
        yield from above_zero("refreshInterval", otel.refresh_interval, "leave it out for 30s")


def deprecations(spec: Spec, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from deprecated.top_kind(spec)
    backends = (spec.default or Conf()).backends or ()
    yield from endpoints_deprecated("spec.default.backends", (backend.open_telemetry for backend in backends))
