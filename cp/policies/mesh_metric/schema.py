"""What may be written in a MeshMetric."""

from __future__ import annotations

from typing import Literal

from cp.model.duration import Duration
from cp.model.numbers import Integer
from cp.resources import telemetry
from cp.resources.schema import Schema
from cp.resources.spec import PolicySpec


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
    port: Integer = 0
    path: str | None = None


class PrometheusTls(Schema, frozen=True):
    mode: Literal["Disabled", "ProvidedTLS", "ActiveMTLSBackend"] | None = None


class Prometheus(Schema, frozen=True):
    client_id: str | None = None
    port: Integer | None = None
    path: str | None = None
    tls: PrometheusTls | None = None


class OpenTelemetry(telemetry.OpenTelemetry, frozen=True):
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
