"""`--watch`: an answer again, whenever it is another one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, cast

import httpx
import pytest

from cp.app import RunningControlPlane
from cp.cli import watching
from cp.cli.options import TableFormat
from cp.cli.watching import WatchedQuestion, watch_answers
from cp.client.client import Client
from cp.client.failures import RequestRejected, Unreachable
from tests.api.samples import dataplane, timeout
from tests.cli.conftest import Koguma
from tests.support.mesh import MESH

HEEDING: Final = """\
import signal
from cp.__main__ import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""
"""Where the tests run in the background of a shell, what they start would ignore interrupts, as they do."""


@contextmanager
def watched(address: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "KOGUMA_ADDRESS": address}  # noqa: TID251  # the command's
    command = [sys.executable, "-c", HEEDING, *words, "--watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
        try:
            yield running
        finally:
            running.kill()


@pytest.fixture
def address(running: RunningControlPlane) -> str:
    url = f"http://127.0.0.1:{running.http_port}"
    httpx.put(f"{url}/meshes/default", json=MESH).raise_for_status()
    return url


def test_a_list_is_printed_again_when_it_is_another_one_and_ends_when_it_is_interrupted(address: str) -> None:
    with watched(address, "get", "meshtimeouts", "-o", "json") as running:
        assert running.stdout is not None
        before = json.loads(running.stdout.readline())["total"]
        httpx.put(f"{address}/meshes/default/meshtimeouts/slow", json=timeout()).raise_for_status()
        after = json.loads(running.stdout.readline())["total"]
        running.send_signal(signal.SIGINT)

        assert (after, running.wait(20)) == (before + 1, 0)


def test_proxies_are_watched_as_a_table(address: str) -> None:
    with watched(address, "inspect", "dataplanes") as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith("MESH")
        httpx.put(f"{address}/meshes/default/dataplanes/web-1", json=dataplane()).raise_for_status()

        assert running.stdout.readline().startswith("MESH")
        assert "web-1" in running.stdout.readline()


@pytest.mark.parametrize("words", [("inspect", "rules", "web-1"), ("inspect", "instances"), ("inspect", "mt", "slow")])
def test_what_cannot_be_watched_is_told(offline: Koguma, words: tuple[str, ...]) -> None:
    assert offline(*words, "--watch").err.startswith("Error: --watch is for dataplanes")


class _Interrupted:
    """A control plane without a feed. When its answers are at an end, the user interrupts."""

    address = "http://a:1"

    def __init__(self, *answers: Any) -> None:
        self._answers = iter(answers)

    def ask(self) -> Any:
        answer = next(self._answers, KeyboardInterrupt())
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def events(self, path: str) -> Iterator[str]:
        raise RequestRejected(404, f"there is no {path}")


def shown(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
    monkeypatch.setattr(watching, "_EVERY", 0.0)
    control_plane = _Interrupted(*answers)
    question = WatchedQuestion(control_plane.ask, lambda answer: f"{answer}\n")
    watch_answers(cast("Client", control_plane), question, TableFormat.TABLE)


def test_what_is_the_same_is_not_printed_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown(monkeypatch, 1, 1, 2, 2, 1)

    assert capsys.readouterr().out == "1\n2\n1\n"


def test_lost_contact_is_told_once_and_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown(monkeypatch, 1, Unreachable("nobody answers"), Unreachable("nobody answers"), 2)

    out, err = capsys.readouterr()
    assert out == "1\n2\n"
    assert err == "Warning: nobody answers; what is shown may be old\nhttp://a:1 answers again\n"


def test_a_control_plane_that_starts_is_waited_for_and_one_that_refuses_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown(monkeypatch, 1, RequestRejected(503, "the store is being read", retry_after=0.0), 2)

    out, err = capsys.readouterr()
    assert (out, err.partition(";")[0]) == ("1\n2\n", "Warning: the store is being read")
    with pytest.raises(RequestRejected, match="not yours"):
        shown(monkeypatch, 1, RequestRejected(403, "not yours"), 2)


def test_a_control_plane_that_never_answered_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unreachable), suppress(KeyboardInterrupt):
        shown(monkeypatch, Unreachable("nobody answers"))


def test_on_a_terminal_a_table_takes_the_place_of_the_last_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    shown(monkeypatch, 1, 2)

    assert capsys.readouterr().out == "\x1b[H\x1b[2J\x1b[3J1\n\x1b[H\x1b[2J\x1b[3J2\n"
