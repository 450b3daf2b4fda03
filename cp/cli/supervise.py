"""A child process in the foreground: it gets our signals, and we end as it ends. Nothing is restarted."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any, BinaryIO, Final, TypeAlias, cast

from cp.cli.problem import Problem

PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


Reading: TypeAlias = Callable[[BinaryIO], AbstractContextManager[None]]


def run(command: Sequence[str], environment: Mapping[str, str], reading: Reading) -> int:
    """Run a command to its end. Answers with its status as a shell has it: 128 and more for a signal.

    The environment is added to ours; what the command writes to its standard output is somebody's to read.
    """
    child: subprocess.Popen[bytes] | None = None
    waiting: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if child is None:
            waiting.append(number)
        else:
            child.send_signal(number)

    with _signals(pass_on):
        child = _started(command, environment)
        with child, reading(_output(child)):
            for number in waiting:
                child.send_signal(number)
            code = child.wait()
    return code if code >= 0 else 128 - code


def _started(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """In a group of its own, or the terminal would send it the Ctrl-C that we pass on."""
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},  # noqa: TID251  # what we were started with is for it
            process_group=0,
        )
    except OSError as error:
        raise Problem(f"{command[0]} cannot be started: {error.strerror or error}") from None


def _output(child: subprocess.Popen[bytes]) -> BinaryIO:
    """It is there, since a pipe was asked for."""
    return cast("BinaryIO", child.stdout)


@contextmanager
def tidied_up() -> Iterator[None]:
    """While this lasts, SIGTERM ends us as an exception does: what was made for the time being is removed."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before: dict[signal.Signals, Any] = {number: signal.signal(number, handler) for number in PASSED_ON}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
