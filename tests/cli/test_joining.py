"""What a run of a proxy tells the control plane, and how long it tries."""

from __future__ import annotations

import http.server
import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cp.agent import link, retrying
from cp.agent.joining import MeshJoin, warn_of_another_run
from cp.agent.link import AgentLink
from cp.agent.membership import Membership
from cp.agent.next_attempt import AttemptedToken
from cp.agent.retrying import RetryTime, persistently
from cp.client.client import Client
from cp.client.credentials import Credentials
from cp.client.failures import RequestRejected, Unreachable
from cp.client.problem import Problem
from tests.support.waiting import eventually

PATIENCE = 20.0


@contextmanager
def answering(*statuses: int) -> Iterator[tuple[str, list[str]]]:
    """A control plane that answers so, one after another; and which paths it was asked."""
    paths = list[str]()
    statuses_left = list(statuses)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            paths.append(self.path)
            self.rfile.read(int(self.headers.get("content-length", "0")))
            status = statuses_left.pop(0)
            body = json.dumps({"status": status, "title": "no", "detail": "it is not yours"}).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_DELETE(self) -> None:
            self.do_POST()

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Nobody reads it."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
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


def test_who_waits_is_told_once_what_to_do() -> None:
    messages, outcomes = list[str](), [Unreachable("nobody", "Start one.")] * 3

    def attempt() -> str:
        if outcomes:
            raise outcomes.pop()
        return "there"

    assert persistently(attempt, RetryTime(PATIENCE, messages.append)) == "there"
    assert messages == ["waiting: nobody (0 s)", "Start one."]


def test_persistently_doubles_pauses_up_to_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, outcomes = list[float](), [Unreachable("nobody")] * 8

    def attempt() -> str:
        if outcomes:
            raise outcomes.pop()
        return "there"

    def no_part_of(pause: float) -> float:
        pauses.append(pause)
        return 0.0

    monkeypatch.setattr(retrying, "part_of", no_part_of)
    persistently(attempt, RetryTime(PATIENCE, lambda _: None))

    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0])


def test_a_dataplane_that_was_removed_before_envoy_ended_is_not_removed_again() -> None:
    with answering(500, 200) as (address, paths):
        membership = Membership(address, MeshJoin("default", "web", "", resource="type: Dataplane"), print)
        for _ in range(3):
            membership.conclude()

    assert paths == ["/meshes/default/dataplanes/web"] * 2, "the first attempt failed"


@pytest.mark.parametrize("status", [401, 403])
def test_a_token_that_is_refused_may_be_replaced_in_its_file(tmp_path: Path, status: int) -> None:
    messages = list[str]()
    (file := tmp_path / "token").write_text("a.b.c")
    credentials = Credentials(token_file=str(file))
    with answering(status, status, 200) as (address, paths):
        Membership(address, MeshJoin("default", "web", ""), messages.append, credentials).enter(threading.Event())

    assert len(paths) == 3
    then = f"the next attempt is within 3 s, and at once when {file} has another token"
    assert messages == [f"callers are not told that the proxy is ready: it is not yours; {then}"]


def held(address: str, credentials: Credentials, messages: queue.SimpleQueue[str]) -> AgentLink:
    admin: Any = None  # nobody asks
    return AgentLink(admin, Membership(address, MeshJoin("default", "web", ""), print, credentials), messages.put)


@pytest.mark.parametrize("status", [401, 403])
def test_a_link_that_is_refused_is_tried_again_as_soon_as_there_is_another_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(link, "_FIRST_PAUSE", 600.0)  # as it is after a while
    monkeypatch.setattr(link, "_REJECTED_PAUSE", 600.0)
    (file := tmp_path / "token").write_text("a.b.c")
    messages = queue.SimpleQueue[str]()
    with answering(*[status] * 3) as (address, paths):
        agent = held(address, Credentials(token_file=str(file)), messages)
        holding = threading.Thread(target=agent.hold)
        holding.start()
        told = messages.get(timeout=PATIENCE)
        file.write_text("d.e.f")
        eventually(lambda: len(paths) > 1)
        agent.end()
        holding.join(PATIENCE)

    assert told == (
        "operators cannot ask this Envoy: it is not yours; "
        f"the next attempt is within 600 s, and at once when {file} has another token"
    )
    assert not holding.is_alive()


def test_a_token_that_stands_in_no_file_is_tried_again_after_a_pause() -> None:
    messages = queue.SimpleQueue[str]()
    with answering(401) as (address, _):
        agent = held(address, Credentials(token="a.b.c"), messages)
        holding = threading.Thread(target=agent.hold)
        holding.start()
        told = messages.get(timeout=PATIENCE)
        agent.end()
        holding.join(PATIENCE)

    assert told.endswith("; the next attempt is within 120 s")


def test_a_file_that_is_being_written_has_no_other_token_yet(tmp_path: Path) -> None:
    (file := tmp_path / "token").write_text("a.b.c")
    token = AttemptedToken.of(Credentials(token_file=str(file)))
    for content in ("a.b.c\n", "", "two words"):
        file.write_text(content)
        assert not token.wait(0, threading.Event())
    file.unlink()
    assert not token.wait(0, threading.Event())
    file.write_text("d.e.f")
    assert token.wait(600, threading.Event())


def test_a_proxy_that_may_never_be_ready_says_so() -> None:
    messages = list[str]()
    with answering(412) as (address, _):
        Membership(address, MeshJoin("default", "web", ""), messages.append).enter(threading.Event())

    then = "this is tried again only when the proxy is started again"
    assert messages == [f"callers are not told that the proxy is ready: it is not yours; {then}"]


def warnings_of_another_run(answer: dict[str, str] | Problem) -> list[str]:
    messages = list[str]()

    class Overview(Client):
        def get(self, path: str, **parameters: str | list[str]) -> dict[str, str]:
            assert path == "/meshes/default/dataplanes/web/_overview"
            if isinstance(answer, Problem):
                raise answer
            return answer

    warn_of_another_run(Overview("http://cp"), MeshJoin("default", "web", ""), messages.append)
    return messages


def test_a_proxy_of_the_same_name_that_is_connected_is_warned_of() -> None:
    (warning,) = warnings_of_another_run({"status": "Online"})

    assert "another proxy default/web is connected" in warning


@pytest.mark.parametrize(
    "answer",
    [{"status": "Offline"}, {"status": "Unknown"}, {}, RequestRejected(404, "there is none")],
    ids=["offline", "an instance is silent", "status unknown", "no Dataplane"],
)
def test_a_proxy_that_nobody_else_runs_is_not_warned_of(answer: dict[str, str] | Problem) -> None:
    assert warnings_of_another_run(answer) == []
