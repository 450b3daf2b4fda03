"""The guard: a process that drains and ends the Envoy of a `koguma dp run` that was killed.

It blocks on a pipe whose other end only `koguma dp run` holds. Until that end closes it imports next to nothing, so it
takes little memory. The kernel could end Envoy together with its parent (Linux only), but that would lose requests.

See record 0051.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

from cp.agent.lock_note import note
from cp.agent.say import say

_OVER: Final = b"."
_INTO_NOTHING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_PATIENCE: Final = 5.0
_EVERY: Final = 0.05


class Guard:
    """The guard, as `koguma dp run` sees it."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._has_orders = False

    def give(self, orders: Mapping[str, Any]) -> None:
        """What is to be carried out if this process is killed."""
        self._has_orders = True
        with suppress(OSError):
            self._pipe.write(json.dumps(orders).encode() + b"\n")
            self._pipe.flush()

    def dismiss(self) -> None:
        with suppress(OSError):
            self._pipe.write(_OVER if self._has_orders else b"")
            self._pipe.close()


@contextmanager
def standing_guard(lock: int) -> Iterator[Guard]:
    """While this lasts: if this process is killed, a guard carries out its orders, and holds the lock until it has.

    It stands there before Envoy does, so that it has its orders as soon as Envoy has a process id.
    """
    command = [sys.executable, "-P", "-m", "cp.agent.guard", str(lock)]  # -P: nothing is imported from this folder
    process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[lock], start_new_session=True)
    assert process.stdin is not None, "a pipe was asked for"  # noqa: S101
    guard = Guard(process.stdin)
    try:
        yield guard
    finally:
        guard.dismiss()
        process.wait()


def end(pid: int) -> None:
    """End a process with SIGTERM, and after some seconds with SIGKILL. Its parent may never reap it."""
    from cp.agent.work_folder import is_over  # noqa: PLC0415  # as below

    with suppress(ProcessLookupError):
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + _PATIENCE
            os.kill(pid, number)
            while time.monotonic() < deadline:
                if is_over(pid):
                    return
                time.sleep(_EVERY)


def main() -> None:
    for number in _INTO_NOTHING:
        signal.signal(number, signal.SIG_IGN)
    lock = int(sys.argv[1])
    orders = sys.stdin.buffer.readline()
    if sys.stdin.buffer.read(1) != _OVER and orders:
        _carry_out(json.loads(orders), lock)


def _carry_out(orders: Mapping[str, Any], lock: int) -> None:
    # First, since the next run reads it to know what to wait for.
    note(lock, {"process": os.getpid(), "draining": orders["envoy"]})
    try:
        _drain(orders)
    finally:
        _end_envoy(orders)
        _remove_folder(orders)


def _drain(orders: Mapping[str, Any]) -> None:
    from cp.agent.admin import EnvoyAdmin  # noqa: PLC0415  # needed only if a run was killed
    from cp.agent.drain import ProxyDrain  # noqa: PLC0415
    from cp.agent.joining import MeshJoin  # noqa: PLC0415
    from cp.agent.membership import Membership  # noqa: PLC0415
    from cp.client.credentials import Credentials  # noqa: PLC0415

    credentials = Credentials(**orders["credentials"])
    membership = Membership(orders["address"], MeshJoin(**orders["joining"]), say, credentials)
    ProxyDrain(EnvoyAdmin(orders["bootstrap"]), membership, orders["seconds"], say).run(threading.Event())


def _end_envoy(orders: Mapping[str, Any]) -> None:
    """End Envoy unless it has ended by itself: its process id may belong to another process by now."""
    from cp.agent.work_folder import is_envoy  # noqa: PLC0415  # as above

    if is_envoy(Path(orders["joining"]["work_dir"]), orders["envoy"]):
        end(orders["envoy"])


def _remove_folder(orders: Mapping[str, Any]) -> None:
    """Remove a temporary work folder, in which there may be a token. The run that was killed cannot."""
    from shutil import rmtree  # noqa: PLC0415  # as above

    if orders["is_temporary"]:
        rmtree(orders["joining"]["work_dir"], ignore_errors=True)


if __name__ == "__main__":
    main()
