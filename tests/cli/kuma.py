"""The HTTP API of a Kuma control plane, as far as reading a mesh goes: lists in pages, and no path for other types."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Items = Mapping[str, Sequence[Mapping[str, Any]]]
"""The resources under each path."""

Answers = Callable[[str, int], tuple[int, Any]]

_SIZE = 2
"""Kuma gives fewer on a page than are asked for if they are more than it allows."""


@contextmanager
def kuma(items: Items, tokens: list[str | None] | None = None) -> Iterator[str]:
    """The URL of a control plane that has these resources. It adds what it is shown to the tokens."""
    with answering(lambda path, offset: _answer(items, path, offset), tokens) as url:
        yield url


@contextmanager
def answering(answers: Answers, tokens: list[str | None] | None = None) -> Iterator[str]:
    """The URL of a server that answers to a path and an offset with a status and data, or with bytes as they are."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(answers, [] if tokens is None else tokens))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(answers: Answers, tokens: list[str | None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the library's name
            url = urlsplit(self.path)
            tokens.append(self.headers.get("authorization"))
            status, answer = answers(url.path, int(parse_qs(url.query).get("offset", ["0"])[0]))
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.end_headers()
            with suppress(ConnectionError):  # whoever asked has read enough
                self.wfile.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            """Nothing is written."""

    return Handler


def _answer(items: Items, path: str, offset: int) -> tuple[int, Mapping[str, Any]]:
    if path in items:
        page = list(items[path][offset : offset + _SIZE])
        last = offset + _SIZE >= len(items[path])
        following = None if last else f"http://kuma.example:5681{path}?offset={offset + _SIZE}"
        return 200, {"total": len(items[path]), "items": page, "next": following}
    folder, _, name = path.rpartition("/")
    if found := [item for item in items.get(folder, ()) if item["name"] == name]:
        return 200, found[0]
    return 404, {"type": "/std-errors", "status": 404, "title": "Could not retrieve a resource", "detail": "Not found"}
