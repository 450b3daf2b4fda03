"""The processes of the demo: started together, ended together."""

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

GRACE: Final = 8.0


class Failed(Exception):
    """The demo cannot go on; the text says why."""


class Children:
    """Child processes with a log each, in a session of their own so that Ctrl-C reaches the demo alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str | Path]) -> None:
        with self.log(name).open("wb") as output:
            self._running[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def ended(self) -> dict[str, int]:
        """Those that are gone, with their exit codes."""
        codes = {name: process.poll() for name, process in self._running.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def wait_until(self, what: str, condition: Callable[[], bool], within: float = 30) -> None:
        """Wait for a condition for as long as every child is there."""
        deadline = time.monotonic() + within
        while not condition():
            for name, code in self.ended().items():
                raise Failed(f"{name} ended with {code}:\n{self._last_words(name)}")
            if time.monotonic() > deadline:
                raise Failed(f"{what} is not ready after {within:g} s; see the logs in {self.folder}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End all of them, the last first, each by its own id. A second Ctrl-C does not leave any behind."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for process in reversed(self._running.values()):
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + GRACE
        for process in self._running.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _last_words(self, name: str, lines: int = 15) -> str:
        return "\n".join(self.log(name).read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
