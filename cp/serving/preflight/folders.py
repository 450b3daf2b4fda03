"""Temporary folders of preflight. Those of a process that was killed are removed by the next one."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "koguma-preflight-"
_YOUNG: Final = 60.0
"""Seconds in which a new folder is certainly locked."""


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Make a folder for as long as the block lasts, and lock it: the lock ends with the process, however it ends."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield name
        finally:
            os.close(folder)


def remove_leftovers() -> None:
    """Remove the folders that killed processes of this user left."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            _remove_unlocked(path)


def _remove_unlocked(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(folder)
        if status.st_uid == os.geteuid() and status.st_mtime < time.time() - _YOUNG:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)
    finally:
        os.close(folder)
