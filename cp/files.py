"""Files that somebody names in a setting or in a document: certificates, keys and lists."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

LARGEST: Final = 1024 * 1024
"""The most bytes that such a file has."""


def read_file(path: str | Path) -> bytes:
    """The content of an ordinary file. Raises `OSError`, always with its `strerror`.

    What is larger than such files are is not read to its end.
    """
    with ordinary_file(path) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise OSError(0, f"it has more than {LARGEST} bytes")
    return content


@contextmanager
def ordinary_file(path: str | Path) -> Iterator[BinaryIO]:
    """A file that is open for the block. Raises `OSError` for all else, as a pipe would stop whoever reads it."""
    with open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "it is no ordinary file")
        yield file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
