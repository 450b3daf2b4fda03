"""`koguma backup`: a copy of the store, whole and at one revision, while control planes write in it."""

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

    To restore the copy, stop the control plane and put the file in the place of its store.
    """
    source = _path(store)
    if file.exists():
        raise Problem(f"{file} is there already", "Name another file, or remove this one.")
    try:
        file.touch(mode=0o600, exist_ok=False)  # secrets are in it, as in the store
        _copy(source, file)
    except sqlite3.Error as error:
        file.unlink(missing_ok=True)
        raise Problem(f"{source} cannot be copied to {file}: {error}") from None
    typer.echo(f"copied {source} to {file}")


def _path(store: str | None) -> Path:
    """The file of a store in SQLite. A folder is copied by other means, and what is in memory by none."""
    from cp.settings import BadSettings, load  # noqa: PLC0415  # no other command of its size needs settings

    try:
        url = load(store=store).store
    except BadSettings as error:
        raise Problem("\n".join(error.faults)) from None
    path = Path(url.removeprefix(_SQLITE))
    if not url.startswith(_SQLITE):
        raise Problem(f"{url} is no store in SQLite", "A folder of files is copied as any folder is.")
    if not path.is_file():
        raise Problem(f"there is no store {path}", "Name it with --store sqlite:///PATH.")
    return path


def _copy(source: Path, file: Path) -> None:
    """By SQLite's own means: a copy of the file alone lacks what is still in the log of writes beside it."""
    with closing(sqlite3.connect(source)) as store, closing(sqlite3.connect(file)) as copy:
        store.backup(
            copy
        )  # in one step, which is one revision: readers and writers of a log do not wait for each other
        fault = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
        if fault != "ok":
            raise sqlite3.DatabaseError(f"the copy is damaged: {fault}")
