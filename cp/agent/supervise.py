"""A child process in the foreground: it gets our signals, and we end as it ends. Nothing is restarted."""

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
"""What is done before a child is ended; soon over once the event is set."""


def run(child: subprocess.Popen[bytes], ending: Ending) -> int:
    """A child to its end. Answers with its status as a shell has it: 128 and more for a signal.

    The first signal that ends it has `ending` done before, while the child goes on; a second one ends it at once.
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
    """A child that ends with the block, at the latest. The environment is added to ours."""
    with _started(command, environment) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.terminate()


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


def output(child: subprocess.Popen[bytes]) -> BinaryIO:
    """What a child writes to its standard output is somebody's to read. It is there, since a pipe was asked for."""
    return cast("BinaryIO", child.stdout)


@contextmanager
def tidied_up() -> Iterator[None]:
    """While this lasts, SIGTERM ends us as an exception does: what was made for the time being is removed."""

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
