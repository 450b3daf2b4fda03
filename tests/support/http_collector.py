"""A collector of OpenTelemetry's that takes spans over HTTP, once it is let."""

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # type: ignore[import-untyped]


class HttpCollector:
    """What came, and how it came."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.resources: list[Mapping[str, str]] = []
        self.spans: list[str] = []
        self.status = 200
        self.answer = b""
        self.lets = threading.Event()
        self.lets.set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["content-length"]))
                collector.lets.wait(10)
                collector.take(self.path, {name.lower(): value for name, value in self.headers.items()}, content)
                self.send_response(collector.status)
                self.send_header("content-length", str(len(collector.answer)))
                self.end_headers()
                self.wfile.write(collector.answer)

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, path: str, headers: Mapping[str, str], content: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(content).resource_spans:
            self.resources.append(_texts(resource.resource.attributes))
            self.spans += [span.name for scope in resource.instrumentation_library_spans for span in scope.spans]
        self.paths.append(path)
        self.headers.append(headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lets.set()
        self._server.shutdown()
        self._server.server_close()


def _texts(attributes: Any) -> Mapping[str, str]:
    return {pair.key: pair.value.string_value for pair in attributes}
