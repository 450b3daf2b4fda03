"""What may be written in a MeshMetric."""

from __future__ import annotations

from typing import Literal

from cp.model.duration import Duration
from cp.model.numbers import Integer
from cp.resources import telemetry
from cp.resources.schema import Schema, SensitiveText
from cp.resources.spec import PolicySpec


class MetricProfile(Schema, frozen=True):
    name: Literal["All", "Basic", "None"] | None = None


class MetricSelector(Schema, frozen=True):
    type: Literal["Prefix", "Regex", "Exact", "Contains"] | None = None
    match: str = ""


class MetricProfiles(Schema, frozen=True):
    append_profiles: list[MetricProfile] | None = None
    include: list[MetricSelector] | None = None
    exclude: list[MetricSelector] | None = None


class SidecarMetrics(Schema, frozen=True):
    profiles: MetricProfiles | None = None
    include_unused: bool | None = None


class MetricApplication(Schema, frozen=True):
    name: str | None = None
    address: str | None = None
    port: Integer = 0
    path: SensitiveText | None = None


class MetricPrometheusTls(Schema, frozen=True):
    mode: Literal["Disabled", "ProvidedTLS", "ActiveMTLSBackend"] | None = None


class MetricPrometheus(Schema, frozen=True):
    client_id: str | None = None
    port: Integer | None = None
    path: str | None = None
    tls: MetricPrometheusTls | None = None


class MetricOpenTelemetry(telemetry.OpenTelemetryConf, frozen=True):
    refresh_interval: Duration | None = None


class MetricBackend(Schema, frozen=True):
    type: Literal["Prometheus", "OpenTelemetry"] | None = None
    prometheus: MetricPrometheus | None = None
    open_telemetry: MetricOpenTelemetry | None = None


class Conf(Schema, frozen=True):
    sidecar: SidecarMetrics | None = None
    applications: list[MetricApplication] | None = None
    backends: list[MetricBackend] | None = None


class Spec(PolicySpec, frozen=True):
    default: Conf | None = None
