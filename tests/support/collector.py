"""A collector of OpenTelemetry's, as far as tests need one: it takes what it is sent, and keeps it."""

from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, Self

import grpc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest  # type: ignore[import-untyped]
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # type: ignore[import-untyped]

from tests.support.loopback import Address, new_address

_LOGS: Final = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
_METRICS: Final = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
_SPANS: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


REFERENCE: Final = {"kind": "MeshOpenTelemetryBackend", "labels": {"kuma.io/display-name": "collector"}}
"""Leads to the one that is called `collector`."""


def resource(name: str, address: Address) -> dict[str, Any]:
    """The resource by which policies refer to a collector."""
    spec = {"endpoint": {"address": address.host, "port": address.port}, "protocol": "grpc"}
    return {"type": "MeshOpenTelemetryBackend", "mesh": "default", "name": name, "spec": spec}


class Collector:
    """What came of logs and spans, in the order in which it came."""

    def __init__(self) -> None:
        self.address = new_address()
        self.logs: list[Any] = []
        self.spans: list[Any] = []
        self.metrics: list[Any] = []
        """What came of metrics, by who told them: each time all of them."""

        self.answer = b""
        """What it says to spans."""

        self._server = grpc.server(ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers((_Handler(self),))
        self._server.add_insecure_port(str(self.address))
        self._server.start()

    def resource(self, name: str) -> dict[str, Any]:
        return resource(name, self.address)

    def take_logs(self, sent: bytes, _context: grpc.ServicerContext) -> bytes:
        resources = ExportLogsServiceRequest.FromString(sent).resource_logs
        scopes = (scope for resource in resources for scope in resource.instrumentation_library_logs)
        self.logs += [record for scope in scopes for record in scope.logs]
        return b""

    def take_spans(self, sent: bytes, _context: grpc.ServicerContext) -> bytes:
        resources = ExportTraceServiceRequest.FromString(sent).resource_spans
        scopes = (scope for resource in resources for scope in resource.instrumentation_library_spans)
        self.spans += [span for scope in scopes for span in scope.spans]
        return self.answer

    def take_metrics(self, sent: bytes, _context: grpc.ServicerContext) -> bytes:
        for resource in ExportMetricsServiceRequest.FromString(sent).resource_metrics:
            scopes = resource.instrumentation_library_metrics
            self.metrics.append({scope.instrumentation_library.name: list(scope.metrics) for scope in scopes})
        return b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(0).wait(5)


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, collector: Collector) -> None:
        self._takes = {
            _LOGS: collector.take_logs,
            _SPANS: collector.take_spans,
            _METRICS: collector.take_metrics,
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        take = self._takes.get(handler_call_details.method)
        return None if take is None else grpc.unary_unary_rpc_method_handler(take)
