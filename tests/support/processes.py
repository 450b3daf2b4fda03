"""Child processes of a test: started, watched, and ended by their own id."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from tests.support.forks import Fork, is_on_another_machine
from tests.support.leaks import leaks

GRACE: Final = 10.0


class Ended(Exception):
    """A process that should have stayed up is gone."""


def has_ended(process: psutil.Process) -> bool:
    """Also where nobody asks how it ended."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class Running:
    """A child process with its output in a file."""

    def __init__(
        self,
        command: Sequence[str | Path],
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.command = [str(word) for word in command]
        self.log = log
        environment = {**os.environ, **(env or {})}  # noqa: TID251  # the child inherits what the test was given
        self._process = self._started(environment, cwd)

    def _started(self, env: Mapping[str, str], cwd: Path | None) -> subprocess.Popen[bytes] | Fork:
        with self.log.open("ab") as output:
            return subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """How it ended, or `None` while it runs."""
        return self._process.poll()

    def check(self) -> None:
        """Raise if it has ended: whoever waits for it would wait in vain."""
        if self.code is not None:
            raise Ended(f"{self.command[0]} ended with {self.code}:\n{self.tail()}")

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, within: float = GRACE) -> int:
        return self._process.wait(within)

    def stop(self, within: float = GRACE) -> int:
        """Ask it to end, insist when it does not, and answer with its exit code."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            code = self._process.wait(within)
        except subprocess.TimeoutExpired:
            code = self.kill()
        self._must_have_kept_secrets()
        return code

    def _must_have_kept_secrets(self) -> None:
        """Nothing that is started in a test writes a private key or a token where others may read it."""
        leaked = list(leaks(self.log.read_bytes())) if self.log.exists() else []
        assert not leaked, f"{self.command[0]} has leaked secrets: {leaked}"

    def kill(self) -> int:
        if self._process.poll() is None:
            self._process.kill()
        return self._process.wait(GRACE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class RunningKoguma(Running):
    """A `koguma` that need not import anything first."""

    def _started(self, env: Mapping[str, str], cwd: Path | None) -> subprocess.Popen[bytes] | Fork:
        if is_on_another_machine() or _of_python(env) != _of_python(os.environ):  # noqa: TID251  # what was inherited
            return super()._started(env, cwd)
        return Fork(self.command, self.log, env, cwd)


def _of_python(env: Mapping[str, str]) -> dict[str, str]:
    """What an interpreter reads when it starts, and a fork has behind it."""
    return {name: value for name, value in env.items() if name.startswith("PYTHON")}
