"""The work folder of a proxy: it is for one `koguma dp run` at a time, and may hold the orphan of an earlier one."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cp.agent.lock_note import note, noted_holder
from cp.agent.say import Say
from cp.client.problem import Problem

BOOTSTRAP: Final = "bootstrap.json"
_LOCK: Final = "dp.lock"
_ENVOY: Final = "envoy.pid"
_EVERY: Final = 0.1
_PROC: Final = Path("/proc")
_ZOMBIE: Final = "Z"


@contextmanager
def folder_lock(folder: Path, patience: float, say: Say) -> Iterator[int]:
    """Hold the lock of a folder, so that no other `koguma dp run` uses it.

    It waits for the lock only if its holder was killed and the guard is still draining that run's Envoy. If another
    run holds it, it raises `Problem`.
    """
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Problem(f"{folder / _LOCK} cannot be written: {error.strerror}") from None
    try:
        _wait_for_lock(lock, folder, patience, say)
        note(lock, {"process": os.getpid()})
        yield lock
    finally:
        os.close(lock)


def _wait_for_lock(lock: int, folder: Path, patience: float, say: Say) -> None:
    deadline, was_announced = time.monotonic() + patience, False
    while not _try_to_lock(lock):
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
    """Whether the process in the note of a lock still runs. If it was killed, its guard holds the lock."""
    if not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
        return any(_command(pid)) or not _is_ours(pid)
    except (ProcessLookupError, FileNotFoundError):
        return False
    except OSError:
        return True


def _try_to_lock(lock: int) -> bool:
    """Returns whether the lock is ours now."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def envoy_note(folder: Path, envoy: int) -> Iterator[None]:
    """Keep the process id of Envoy in a file of the folder, for a later run."""
    (file := folder / _ENVOY).touch(0o600)
    file.write_text(f"{envoy}\n")
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def orphan(folder: Path) -> int | None:
    """The process id of an Envoy that an earlier run left in the folder, if it certainly still runs."""
    with suppress(OSError, ValueError):
        pid = int((folder / _ENVOY).read_text())
        if is_envoy(folder, pid):
            return pid
    return None


def is_envoy(folder: Path, pid: int) -> bool:
    """Whether a process is the Envoy of a folder. Its id may belong to another process by now."""
    with suppress(OSError):
        return str(folder / BOOTSTRAP) in _command(pid)
    return False


def is_over(pid: int) -> bool:
    """Whether a process has ended. A zombie has, unless other threads of it still hold its resources."""
    try:
        os.kill(pid, 0)
        state = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        return state == _ZOMBIE and len(list((_PROC / str(pid) / "task").iterdir())) == 1
    except ProcessLookupError:
        return True
    except OSError:
        return False


def _command(pid: int) -> list[str]:
    """The command line of a process; empty if it is gone or belongs to another user."""
    if not _PROC.joinpath("self").exists():
        listing = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False)
        return listing.stdout.decode(errors="replace").split()
    if not _is_ours(pid):
        return []
    return _PROC.joinpath(str(pid), "cmdline").read_bytes().decode(errors="replace").split("\0")


def _is_ours(pid: int) -> bool:
    """Whether a process belongs to this user. Without /proc the answer is always yes, since `ps` shows all."""
    return not _PROC.joinpath("self").exists() or (_PROC / str(pid)).stat().st_uid == os.geteuid()
