"""What a run of a proxy tells the control plane, and how long it tries."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from cp.agent.joining import Membership, MeshJoin, warn_of_another_run
from cp.client.client import Client
from cp.client.credentials import Credentials

PATIENCE = 20.0


@contextmanager
def answering(*statuses: int) -> Iterator[tuple[str, list[str]]]:
    """A control plane that answers so, one after another; and which paths it was asked."""
    paths = list[str]()
    statuses_left = list(statuses)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            paths.append(self.path)
            self.rfile.read(int(self.headers["content-length"]))
            status = statuses_left.pop(0)
            body = json.dumps({"status": status, "title": "no", "detail": "it is not yours"}).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Nobody reads it."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", paths
        finally:
            server.shutdown()
            thread.join(PATIENCE)


@pytest.mark.parametrize("first", [503, 404])
def test_a_control_plane_that_cannot_hear_now_that_a_proxy_is_ready_is_told_again(first: int) -> None:
    messages = list[str]()
    with answering(first, first, 200) as (address, paths):
        Membership(address, MeshJoin("default", "web", ""), messages.append).enter(threading.Event())

    assert paths == ["/meshes/default/dataplanes/web/_readiness"] * 3
    assert messages == []


def test_a_token_that_is_refused_may_be_replaced_in_its_file(tmp_path: Path) -> None:
    messages = list[str]()
    (file := tmp_path / "token").write_text("a.b.c")
    credentials = Credentials(token_file=str(file))
    with answering(401, 401, 200) as (address, paths):
        Membership(address, MeshJoin("default", "web", ""), messages.append, credentials).enter(threading.Event())

    assert len(paths) == 3
    assert messages == ["callers are not told that the proxy is ready: it is not yours"]


def test_a_proxy_that_may_never_be_ready_says_so() -> None:
    messages = list[str]()
    with answering(412) as (address, _):
        Membership(address, MeshJoin("default", "web", ""), messages.append).enter(threading.Event())

    assert messages == ["callers are not told that the proxy is ready: it is not yours"]


def warnings_of_another_run(answer: httpx.Response) -> list[str]:
    messages = list[str]()
    client = Client("http://cp", transport=httpx.MockTransport(lambda _: answer))
    warn_of_another_run(client, MeshJoin("default", "web", ""), messages.append)
    return messages


def test_a_proxy_of_the_same_name_that_is_connected_is_warned_of() -> None:
    (warning,) = warnings_of_another_run(httpx.Response(200, json={"status": "Online"}))

    assert "another proxy default/web is connected" in warning


@pytest.mark.parametrize(
    "answer",
    [httpx.Response(200, json={"status": "Offline"}), httpx.Response(200, json={}), httpx.Response(404, json={})],
    ids=["offline", "status unknown", "no Dataplane"],
)
def test_a_proxy_that_nobody_else_runs_is_not_warned_of(answer: httpx.Response) -> None:
    assert warnings_of_another_run(answer) == []
