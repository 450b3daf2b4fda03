"""Commands that meet another program at the control plane's address."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.cli.conftest import Koguma

BODIES = (b"[]", b"{}", b"null", b'{"items":[{"a":1}],"total":1,"next":null}', b"<html>")
COMMANDS = (
    ("get", "meshes"),
    ("explain", "web", "http://x/"),
    ("lint",),
    ("inspect", "dataplanes"),
    ("inspect", "rules", "web"),
    ("history",),
)


@pytest.fixture(params=BODIES, ids=lambda body: body.decode())
def foreign(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server that answers everything with one body."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(request.param)))
            self.end_headers()
            self.wfile.write(request.param)

        def log_message(self, *_arguments: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_foreign_server_is_named(foreign: str, command: tuple[str, ...]) -> None:
    ended = Koguma(foreign)(*command)

    assert "fault of koguma" not in ended.err
    assert ended.status == 0 or foreign in ended.err
