"""Tracing of requests: the providers that spans are sent to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from envoy.config.trace.v3.datadog_pb2 import DatadogConfig
from envoy.config.trace.v3.opentelemetry_pb2 import OpenTelemetryConfig
from envoy.config.trace.v3.trace_pb2 import Tracing
from envoy.config.trace.v3.zipkin_pb2 import ZipkinConfig

from generators.build.collectors import Collector, Otlp, cluster_of, write_grpc
from generators.envoy.edit import pack

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from generators.drafts import ListenerDraft

_EXPORT_SECONDS: Final = 10


def zipkin(collector: Collector, path: str, draft: ListenerDraft, *, tls: bool) -> ZipkinConfig:
    return ZipkinConfig(
        collector_cluster=cluster_of(collector, draft, grpc=False, tls=tls),
        collector_endpoint=path,
        collector_hostname=collector.authority,
    )


def datadog(collector: Collector, service: str, draft: ListenerDraft) -> Tracing.Http:
    cluster = cluster_of(collector, draft, grpc=False)
    config = DatadogConfig(collector_cluster=cluster, collector_hostname=collector.host, service_name=service)
    return provider("envoy.tracers.datadog", config)


def open_telemetry(to: Otlp, service: str, draft: ListenerDraft) -> Tracing.Http:
    config = OpenTelemetryConfig(service_name=service)
    if to.is_http:
        http = config.http_service.http_uri
        http.uri = f"http://{to.collector.authority}{to.path}/v1/traces"
        http.cluster = cluster_of(to.collector, draft, grpc=False)
        http.timeout.seconds = _EXPORT_SECONDS
    else:
        write_grpc(config.grpc_service, to.collector, draft)
    return provider("envoy.tracers.opentelemetry", config)


def provider(name: str, config: Message) -> Tracing.Http:
    return Tracing.Http(name=name, typed_config=pack(config))
