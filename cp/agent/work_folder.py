"""The folder of one proxy: one `koguma dp run` at a time, and what an earlier one may have left in it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cp.agent.lock_note import note, noted_holder
from cp.client.problem import Problem

BOOTSTRAP: Final = "bootstrap.json"
_LOCK: Final = "dp.lock"
_ENVOY: Final = "envoy.pid"
_EVERY: Final = 0.1
_PROC: Final = Path("/proc")
_ZOMBIE: Final = "Z"

Say = Callable[[str], None]


@contextmanager
def folder_lock(folder: Path, patience: float, say: Say) -> Iterator[int]:
    """While this lasts nobody else runs a proxy in the folder.

    It waits only for what another one left that was killed: an Envoy that is draining, and the guard that sees to it.
    """
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Problem(f"{folder / _LOCK} cannot be written: {error.strerror}") from None
    try:
        _take(lock, folder, patience, say)
        note(lock, {"process": os.getpid()})
        yield lock
    finally:
        os.close(lock)


def _take(lock: int, folder: Path, patience: float, say: Say) -> None:
    deadline, was_announced = time.monotonic() + patience, False
    while not _is_taken(lock):
        holder = noted_holder(lock)
        was_killed = "draining" in holder or not _runs(holder.get("process"))
        if not was_killed or time.monotonic() > deadline:
            hint = "Give each proxy a folder of its own with --work-dir, or end that one first."
            raise Problem(f"{folder} is in use by another koguma dp run, process {holder.get('process', '?')}", hint)
        if "draining" in holder and not was_announced:
            say(f"waiting: Envoy, process {holder['draining']}, is draining, as its koguma dp run was killed")
            was_announced = True
        time.sleep(_EVERY)


def _runs(pid: object) -> bool:
    """Whether a process that holds a lock is there; one that was killed leaves that to its guard."""
    if not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
        return any(_command(pid)) or not _is_ours(pid)
    except (ProcessLookupError, FileNotFoundError):
        return False
    except OSError:
        return True


def _is_taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def envoy_note(folder: Path, envoy: int) -> Iterator[None]:
    """While this lasts it stands in the folder which process its Envoy is."""
    (file := folder / _ENVOY).write_text(f"{envoy}\n")
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def orphan(folder: Path) -> int | None:
    """The Envoy that was left in the folder, if it still runs and there is no doubt that it is that one."""
    with suppress(OSError, ValueError):
        pid = int((folder / _ENVOY).read_text())
        if is_envoy(folder, pid):
            return pid
    return None


def is_envoy(folder: Path, pid: int) -> bool:
    """Whether a process is the Envoy of a folder: the number may be another one's by now."""
    with suppress(OSError):
        return str(folder / BOOTSTRAP) in _command(pid)
    return False


def is_over(pid: int) -> bool:
    """Whether a process has let go of all that it had, though its parent may never ask how it ended."""
    try:
        os.kill(pid, 0)
        state = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        return state == _ZOMBIE and len(list((_PROC / str(pid) / "task").iterdir())) == 1
    except ProcessLookupError:
        return True
    except OSError:
        return False


def _command(pid: int) -> list[str]:
    """The command line of a process; nothing for one that is gone, or somebody else's."""
    if not _PROC.joinpath("self").exists():
        listing = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False)
        return listing.stdout.decode(errors="replace").split()
    if not _is_ours(pid):
        return []
    return _PROC.joinpath(str(pid), "cmdline").read_bytes().decode(errors="replace").split("\0")


def _is_ours(pid: int) -> bool:
    """Where processes are files; elsewhere none is hidden."""
    return not _PROC.joinpath("self").exists() or (_PROC / str(pid)).stat().st_uid == os.geteuid()
