"""Reports to systemd: ready, alive, stopping."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from socket import AF_UNIX, SOCK_DGRAM, socket

import pytest

from cp.serving.supervisor import Supervisor
from tests.support.control_plane import ControlPlane


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket]:
    """The socket that systemd would listen on."""
    with socket(AF_UNIX, SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(30)
        yield listener


def received(manager: socket, until: str) -> list[str]:
    """All lines up to one that begins so."""
    lines: list[str] = []
    while not any(line.startswith(until) for line in lines):
        lines += manager.recv(4096).decode().splitlines()
    return lines


def test_control_plane_reports_readiness_life_and_end(manager: socket, tmp_path: Path) -> None:
    settings = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "300000", "KOGUMA_DRAIN": "1"}
    with ControlPlane(tmp_path / "cp", **settings):
        lines = received(manager, "READY=1")
        lines += received(manager, "WATCHDOG=1")
    lines += received(manager, "STOPPING=1")

    assert lines.index("STATUS=Serving") < lines.index("STOPPING=1")
    assert "EXTEND_TIMEOUT_USEC=31000000" in lines


def test_supervisor_asks_for_time_while_the_store_is_read(manager: socket) -> None:
    answers = iter([False, True])

    asyncio.run(Supervisor(manager.getsockname()).report_ready(lambda: next(answers)))

    assert received(manager, "READY=1")[0] == "STATUS=Reading the store"


def test_supervisor_without_socket_reports_nothing() -> None:
    supervisor = Supervisor("")

    asyncio.run(supervisor.report_ready(lambda: False))
    supervisor.report_stopping(1)
