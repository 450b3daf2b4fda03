"""Supervises a child process: it gets our signals, and its status becomes ours. It is never restarted."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, BinaryIO, Final, TypeAlias, cast

from cp.client.problem import Problem

PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

ENDING: Final = (signal.SIGTERM, signal.SIGINT)

Ending: TypeAlias = Callable[[threading.Event], None]
"""The work before a child is ended. It returns soon after the event is set."""


def run(child: subprocess.Popen[bytes], ending: Ending) -> int:
    """Wait for a child to end. Returns its status as a shell does: 128 plus the number of a signal.

    The first SIGTERM or SIGINT runs `ending` while the child goes on, and is passed on after that. A second one is
    passed on at once.
    """
    at_once = threading.Event()
    leaving: list[threading.Thread] = []

    def leave(number: int) -> None:
        try:
            ending(at_once)
        finally:
            child.send_signal(number)

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if number in ENDING and not leaving:
            leaving.append(threading.Thread(target=leave, args=(number,), name="draining", daemon=True))
            leaving[0].start()
        else:
            at_once.set()
            child.send_signal(number)

    with _signals(pass_on):
        code = child.wait()
        at_once.set()
        for thread in leaving:
            thread.join()
    return code if code >= 0 else 128 - code


@contextmanager
def started(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a child, with variables added to our environment. It is ended with the block at the latest."""
    with _held_back() as let_through, _started(command, environment) as child:
        try:
            let_through()
            yield child
        finally:
            if child.poll() is None:
                child.terminate()


@contextmanager
def _held_back() -> Iterator[Callable[[], None]]:
    """Signals that end us wait until they are let through: in the middle of a start they would leave the child."""
    held: list[int] = []
    handlers_before: dict[signal.Signals, Any] = {
        number: signal.signal(number, lambda number, _frame: held.append(number)) for number in ENDING
    }

    def let_through() -> None:
        while handlers_before:
            signal.signal(*handlers_before.popitem())
        while held:
            signal.raise_signal(held.pop())

    try:
        yield let_through
    finally:
        let_through()


def _started(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A child in a process group of its own: otherwise a terminal would send Ctrl-C to it as well as to us."""
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},  # noqa: TID251  # the child inherits our environment
            process_group=0,
        )
    except OSError as error:
        raise Problem(f"{command[0]} cannot be started: {error.strerror or error}") from None


def output(child: subprocess.Popen[bytes]) -> BinaryIO:
    """The standard output of a child: never None, since it was started with a pipe."""
    return cast("BinaryIO", child.stdout)


def log(child: subprocess.Popen[bytes]) -> BinaryIO:
    """The standard error of a child, likewise."""
    return cast("BinaryIO", child.stderr)


@contextmanager
def tidied_up() -> Iterator[None]:
    """While this lasts, SIGTERM raises an exception, so that temporary files are removed."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    handler_before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler_before)


@contextmanager
def _signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    handlers_before: dict[signal.Signals, Any] = {number: signal.signal(number, handler) for number in PASSED_ON}
    try:
        yield
    finally:
        for number, old in handlers_before.items():
            signal.signal(number, old)
