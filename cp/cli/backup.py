"""`koguma backup`: a consistent copy of the store at one revision, also while control planes write to it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Annotated, Final

import typer

from cp.client.problem import Problem

File = Annotated[Path, typer.Argument(metavar="FILE", help="The file to write. An existing file is never overwritten.")]
Store = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The store to copy. Default: the one that `koguma run` would use."),
]

_SQLITE: Final = "sqlite:///"


def backup(file: File, *, store: Store = None) -> None:
    """Copy the store to a file, also while the control plane runs.

    To restore the copy, stop the control plane, remove the store and the files beside it that end in -wal and -shm,
    and put the copy in its place.
    """
    source = _path(store)
    if file.exists():
        raise Problem(f"{file} exists already", "Name another file, or remove this one.")
    try:
        file.touch(mode=0o600, exist_ok=False)  # it contains secrets, as the store does
        _copy(source, file)
    except OSError as error:
        raise Problem(f"{file} cannot be written: {error.strerror}") from None
    except sqlite3.Error as error:
        file.unlink(missing_ok=True)
        raise Problem(f"{source} cannot be copied to {file}: {error}") from None
    typer.echo(f"copied {source} to {file}")


def _path(store: str | None) -> Path:
    """The file of an SQLite store. Raises `Problem` for other stores."""
    from cp.settings import BadSettings, load  # noqa: PLC0415  # slow to load, and only needed here

    try:
        url = load(store=store).store
    except BadSettings as error:
        raise Problem("\n".join(error.faults)) from None
    path = Path(url.removeprefix(_SQLITE))
    if not url.startswith(_SQLITE):
        raise Problem(f"{url} is no store in SQLite", "Copy a folder of files as you copy any folder.")
    if not path.is_file():
        raise Problem(f"there is no store {path}", "Name it with --store sqlite:///PATH.")
    return path


def _copy(source: Path, file: Path) -> None:
    """Copy with SQLite's backup API: a copy of the file alone would lack the writes that are still in its log (WAL)."""
    with closing(sqlite3.connect(source)) as store, closing(sqlite3.connect(file)) as copy:
        store.backup(copy)  # one step, so one revision; with a WAL readers and writers do not block each other
        fault = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
        if fault != "ok":
            raise sqlite3.DatabaseError(f"the copy is damaged: {fault}")
