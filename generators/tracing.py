"""Tracing of requests: who is sent the spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envoy.config.trace.v3.datadog_pb2 import DatadogConfig
from envoy.config.trace.v3.opentelemetry_pb2 import OpenTelemetryConfig
from envoy.config.trace.v3.trace_pb2 import Tracing
from envoy.config.trace.v3.zipkin_pb2 import ZipkinConfig

from generators.collectors import Collector, cluster_of, write_grpc
from generators.envoy.edit import pack

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from generators.drafts import ListenerDraft


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


def open_telemetry(collector: Collector, service: str, draft: ListenerDraft) -> Tracing.Http:
    config = OpenTelemetryConfig(service_name=service)
    write_grpc(config.grpc_service, collector, draft)
    return provider("envoy.tracers.opentelemetry", config)


def provider(name: str, config: Message) -> Tracing.Http:
    return Tracing.Http(name=name, typed_config=pack(config))
