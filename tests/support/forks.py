"""`koguma` as a fork of a process that has imported it: what every start has in common is done once for many.

To import the control plane takes a second of processor time. What it does then does not depend on who imported it. The
tests of the command line start it as its users do.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_FORKS: Final = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["cp.cli.main", "cp.app"])


def is_on_another_machine() -> bool:
    """Whether this thread has entered the network of a machine that a test has made, where no fork would be."""
    here, process = Path("/proc/thread-self/ns/net"), Path("/proc/self/ns/net")
    return here.exists() and here.readlink() != process.readlink()


class Fork:
    """A running `koguma`, spoken to as if `subprocess.Popen` had started it."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str], cwd: Path | None) -> None:
        self._command = command
        self._process = _FORKS.Process(target=_run, args=(command, log, dict(env), cwd or Path.cwd()), daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None, "it was started"
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self._command, timeout)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(command: Sequence[str], log: Path, env: Mapping[str, str], cwd: Path) -> None:
    """What the fork does: it becomes what a start of the command would have made of it."""
    os.setsid()
    with log.open("ab") as output:
        os.dup2(output.fileno(), sys.stdout.fileno())
        os.dup2(output.fileno(), sys.stderr.fileno())
    os.chdir(cwd)
    os.environ.clear()  # noqa: TID251  # a process of its own has what it is given
    os.environ.update(env)  # noqa: TID251
    sys.argv[:] = command
    from cp.__main__ import main  # noqa: PLC0415  # imported long ago, but not where the forks are ordered

    main()
