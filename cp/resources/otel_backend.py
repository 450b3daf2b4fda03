"""MeshOpenTelemetryBackend: a collector of OpenTelemetry's, which MeshAccessLog, MeshMetric and MeshTrace refer to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from cp.model.numbers import Integer
from cp.model.violation import Violation, at
from cp.resources.checks import address, port
from cp.resources.complete import completed
from cp.resources.kinds import DocumentMeta, Kind
from cp.resources.schema import Schema
from cp.resources.telemetry import BACKEND

_BESIDE_THE_PROXY: Final = "127.0.0.1"
_GRPC_PORT: Final = 4317
_HTTP_PORT: Final = 4318


class OtelEndpoint(Schema, frozen=True):
    address: str | None = None
    port: Integer | None = None
    path: str | None = None


class OtelEnvironment(Schema, frozen=True):
    """What the environment variables of a proxy may change."""

    mode: Literal["Disabled", "Optional", "Required"] | None = None
    precedence: Literal["ExplicitFirst", "EnvFirst"] | None = None
    allow_signal_overrides: bool | None = None


class OpenTelemetryBackend(Schema, frozen=True):
    endpoint: OtelEndpoint | None = None
    protocol: Literal["grpc", "http"] | None = None
    env: OtelEnvironment | None = None


def validate(backend: OpenTelemetryBackend, _meta: DocumentMeta) -> Iterator[Violation]:
    if backend.endpoint is not None:
        yield from at("spec.endpoint", _endpoint(backend.endpoint, backend.protocol or "grpc"))


def _endpoint(endpoint: OtelEndpoint, protocol: str) -> Iterator[Violation]:
    if endpoint.address is not None:
        yield from address("address", endpoint.address)
    yield from port("port", endpoint.port)
    path = endpoint.path or ""
    if path and protocol == "grpc":
        yield Violation("path", "has no meaning for grpc", "remove it, or write `protocol: http`")
    elif path and not path.startswith("/"):
        yield Violation("path", f"must begin with a slash, not `{path}`", f"write `/{path}`")
    if path and protocol != "grpc" and ("?" in path or "#" in path):
        yield Violation(
            "path", f"`{path}` must have no query and no fragment", f"write `{path.split('?')[0].split('#')[0]}`"
        )


def endpoint_of(backend: OpenTelemetryBackend) -> str:
    """The collector as an `endpoint` would name it. Without an address it runs on the machine of each proxy."""
    endpoint = backend.endpoint or OtelEndpoint()
    host = endpoint.address or _BESIDE_THE_PROXY
    host = f"[{host}]" if ":" in host else host
    if backend.protocol == "http":
        return f"http://{host}:{endpoint.port or _HTTP_PORT}{(endpoint.path or '').rstrip('/')}"
    return f"{host}:{endpoint.port or _GRPC_PORT}"


OTEL_BACKEND: Final = Kind(
    BACKEND,
    "motb",
    "meshopentelemetrybackends",
    OpenTelemetryBackend,
    validate,
    complete=completed({"env.mode": "Optional", "env.precedence": "EnvFirst"}),
)
