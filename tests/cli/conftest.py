"""The command line against a control plane of the test's own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from typer.testing import CliRunner

from cp.ads.loop import DrainLoop
from cp.app import RunningControlPlane, control_plane
from cp.cli.main import build
from cp.settings import Settings, load, rows
from tests.support.leaks import leaks
from tests.support.mesh import MESH


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Koguma:
    """The command line, in this process."""

    def __init__(self, address: str = "") -> None:
        self.environment = {"KOGUMA_ADDRESS": address} if address else {}

    def __call__(self, *arguments: str | Path, stdin: str | None = None) -> Ended:
        result = CliRunner().invoke(build(), list(map(str, arguments)), input=stdin, env=self.environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if "generate" not in arguments and "--reveal" not in arguments:
            secrets = list(leaks(result.stdout_bytes + result.stderr_bytes))
            assert not secrets, f"koguma {arguments} has told secrets: {secrets}"
        return Ended(result.exit_code, result.stdout, result.stderr)


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the machine's settings gets into a test."""
    for name in ("KOGUMA_ADDRESS", *(name for name, _, _ in rows())):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def own_logging() -> Iterator[None]:
    """For a command that sets up logging, which is done for a whole process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


@pytest.fixture
def offline() -> Koguma:
    """A command line whose control plane does not answer."""
    return Koguma("http://127.0.0.1:9")


@pytest.fixture
def koguma(running: RunningControlPlane) -> Koguma:
    """A command line with a control plane that has a Mesh `default`, and nothing else."""
    address = f"http://127.0.0.1:{running.http_port}"
    with httpx.Client(base_url=address) as client:
        for mesh in client.get("/meshes").raise_for_status().json()["items"]:
            client.delete(f"/meshes/{mesh['name']}", params={"cascade": "true"}).raise_for_status()
        client.put("/meshes/default", json=MESH).raise_for_status()
    return Koguma(address)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningControlPlane]:
    """A control plane in a thread, on ports of its own."""
    with running_control_plane(tmp_path_factory.mktemp("control-plane")) as running:
        yield running


@contextmanager
def running_control_plane(folder: Path, **changes: Any) -> Iterator[RunningControlPlane]:
    own = {"store": "memory:", "work_dir": folder, "ads_port": 0, "http_port": 0, "diagnostics_port": 0}
    settings = load(**own | changes)
    with (folder / "log").open("w") as out:
        structlog.reset_defaults()
        structlog.configure(logger_factory=structlog.WriteLoggerFactory(out))
        thread = _Thread(settings)
        yield thread.ready()
        thread.end()
    structlog.reset_defaults()
    secrets = list(leaks((folder / "log").read_bytes()))
    assert not secrets, f"the control plane has logged secrets: {secrets}"


class _Thread:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._is_up = threading.Event()
        self._running: RunningControlPlane | None = None
        self._thread = threading.Thread(target=self._run, name="control plane", daemon=True)
        self._thread.start()

    def ready(self) -> RunningControlPlane:
        assert self._is_up.wait(20)
        assert self._running is not None
        return self._running

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=DrainLoop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with control_plane(self._settings) as self._running:
                self._is_up.set()
                await self._stop.wait()
        finally:
            self._is_up.set()
