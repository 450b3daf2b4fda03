"""The services of the demo, as small as they can be: a backend that takes its time, a frontend that asks it.

    python -m examples.demo.services backend --version v1 --listen 127.0.0.1:18183
    python -m examples.demo.services frontend --backend 127.0.0.1:18281 --listen 127.0.0.1:18181

The backend answers any path. `?delay=1.5` makes it wait, `?fail=2&id=a` makes it fail twice for this id.
"""

import argparse
import http.client
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

HOP_BY_HOP = {"connection", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}


class Answering(BaseHTTPRequestHandler):
    """What both services share: JSON answers on connections that stay open."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name is http.server's
        """Say nothing: Envoy beside it counts and logs."""


class Backend(Answering):
    """Says who it is, after the time and the failures that the request asks for."""

    version: ClassVar[str] = ""
    failed: ClassVar[Counter[str]] = Counter()

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        time.sleep(float(query.get("delay", ["0"])[0]))
        mark = query.get("id", [path])[0]
        fails = self.failed[mark] < int(query.get("fail", ["0"])[0])
        self.failed[mark] += fails
        seen = {"service": "backend", "version": self.version, "path": path}
        self.answer(503 if fails else 200, json.dumps(seen).encode() + b"\n")


class Frontend(Answering):
    """Passes every request on to the backend, which for it is a port of the Envoy beside it."""

    backend: ClassVar[str] = ""

    def do_GET(self) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        connection = http.client.HTTPConnection(self.backend, timeout=60)
        try:
            connection.request("GET", self.path, headers=headers)
            response = connection.getresponse()
            kind = response.headers.get("content-type", "text/plain")
            self.answer(response.status, response.read(), kind)
        except OSError as error:
            self.answer(502, f"frontend cannot reach its sidecar at {self.backend}: {error}\n".encode(), "text/plain")
        finally:
            connection.close()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client whose time is out goes away while it is answered: nothing is wrong."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.demo.services", description=__doc__)
    parser.add_argument("service", choices=["backend", "frontend"])
    parser.add_argument("--listen", default="127.0.0.1:8080", metavar="ADDRESS:PORT")
    parser.add_argument("--version", default="v1", help="of the backend")
    parser.add_argument("--backend", default="127.0.0.1:10001", metavar="ADDRESS:PORT", help="where a frontend calls")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    Backend.version, Frontend.backend = given.version, given.backend
    host, _, port = given.listen.rpartition(":")
    server = Server((host, int(port)), Backend if given.service == "backend" else Frontend)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    threading.current_thread().name = given.service
    server.serve_forever()


if __name__ == "__main__":
    main()
