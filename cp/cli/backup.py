"""`koguma backup` and `koguma restore`: a copy of the store at one revision, and the way back from it.

A copy is made also while control planes write to the store. Secrets are in it as they are in the store: encrypted with
the same keys, or in plain text.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple
from urllib.parse import quote

import typer

from cp.cli.options import SettingsFile, TextFormat, TextOutput
from cp.cli.output import reply
from cp.cli.own_settings import own_settings
from cp.client.problem import Problem
from cp.model.wording import without_password

if TYPE_CHECKING:
    from cp.settings import Settings
    from cp.store.at_rest import SecretsPolicy

File = Annotated[Path, typer.Argument(metavar="FILE", help="The file to write. An existing file is never overwritten.")]
Store = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The store to copy. Default: the one that `koguma run` would use."),
]

Backup = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]
Target = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The store to put in place. Default: the one that `koguma run` would use."),
]
Replace = Annotated[
    bool, typer.Option("--replace", help="Take the place of a store that is there, which is kept beside it.")
]

_BESIDE: Final = ("-wal", "-shm", "-journal")
"""What SQLite keeps beside a file, and belongs to it. It would bring it into any other file of that name."""

_SQLITE: Final = "sqlite:///"
_POSTGRESQL: Final = ("postgresql://", "postgres://")
_READ: Final = "mode=ro&immutable=1"
"""Without a file beside it, for which the folder would have to be written."""

_STOP: Final = "Stop the control plane, and every other program that uses it."
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_PRIMARY: Final = 0xFF
"""Of an error code: without what SQLite adds to say which of its kind it is."""


class LockedBytes(NamedTuple):
    """Which bytes of a file everybody has locks on who has it open."""

    first: int
    length: int


_LOCKS: Final = {"": LockedBytes(0x40000000, 512), "-shm": LockedBytes(120, 9)}
"""Of a file and of what is beside it, as SQLite's documentation of its formats has them."""


def backup(
    file: File, *, config: SettingsFile = None, store: Store = None, output: TextOutput = TextFormat.TEXT
) -> None:
    """Copy the store to a file, also while the control plane runs.

    `koguma restore` puts the copy in the place of the store.
    """
    source = _path(own_settings(config, store=store))
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
    reply({"store": str(source), "file": str(file)}, f"copied {source} to {file}", output)


def restore(
    file: Backup,
    *,
    config: SettingsFile = None,
    store: Target = None,
    replace: Replace = False,
    output: TextOutput = TextFormat.TEXT,
) -> None:
    """Put a backup in the place of the store, while no control plane runs.

    The backup is read as a whole and checked first. It stays as it is. Writes that were made after
    it are lost, and revisions count on from it. To go back while the control plane runs, use `koguma rollback`.
    """
    target = _file_of(settings := own_settings(config, store=store)).resolve()
    if not file.is_file():
        raise Problem(f"there is no backup {file}")
    if target.exists() and not replace:
        raise Problem(f"there is a store {target} already", "With --replace it is kept beside it, and the backup used.")
    draft = target.with_name(f".{target.name}.restored")
    try:
        draft.unlink(missing_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft.touch(mode=0o600, exist_ok=False)
        _copy(file, draft, _READ if _is_whole(file) else "mode=rw")
        revision = _checked(draft, settings)
        _give_to_user(draft, target)
        kept = _put_aside(target)
        draft.rename(target)
    except OSError as error:
        raise Problem(f"{target} cannot be written: {error.strerror}") from None
    except sqlite3.Error as error:
        raise Problem(f"{file} cannot be copied to {target}: {error}") from None
    finally:
        _remove(draft)
    data = {"store": str(target), "revision": revision, "kept": None if kept is None else str(kept)}
    before = "" if kept is None else f"\nwhat was there before is in {kept}"
    reply(data, f"{target} is as {file} has it, at revision {revision}{before}", output)


def _checked(draft: Path, settings: Settings) -> int:
    """The revision of a copy of a backup. Raises `Problem` if it is no store that this version can use."""
    from cp.serving.storage import secrets_policy  # noqa: PLC0415  # slow to load, and only needed here
    from cp.store.port import Unusable  # noqa: PLC0415  # the same

    try:
        return asyncio.run(_revision(draft, secrets_policy(settings)))
    except Unusable as error:
        raise Problem(str(error), "Nothing was changed.") from None


async def _revision(draft: Path, secrets: SecretsPolicy) -> int:
    from cp.store.sqlite import SqliteStore  # noqa: PLC0415  # slow to load, and only needed here

    store = await SqliteStore.open(draft, secrets=secrets)
    try:
        return (await store.read()).revision
    finally:
        await store.close()


def _give_to_user(draft: Path, target: Path) -> None:
    """Who restores as root does so for the user of the control plane, whose the store was, or is its folder."""
    if os.geteuid() == 0:
        status = (target if target.exists() else target.parent).stat()
        os.chown(draft, status.st_uid, status.st_gid, follow_symlinks=False)  # that user could put a link there


def _put_aside(target: Path) -> Path | None:
    """Give a store that nobody uses another name, with all that it has; None if nothing is there.

    Raises `Problem` if somebody uses it.
    """
    _must_be_over(target)
    numbered = (target.with_name(f"{target.name}.before-{number}") for number in count(1))
    kept = next(name for name in numbered if not any(path.exists() for path in _with_beside(name)))
    moves = [(old, new) for old, new in zip(_with_beside(target), _with_beside(kept), strict=True) if old.exists()]
    for old, new in moves:
        old.rename(new)
    return moves[0][1] if moves else None


def _with_beside(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in ("", *_BESIDE)]


def _is_whole(file: Path) -> bool:
    """Whether all of a database is in its file, as it is of a backup."""
    return not any(path.exists() for path in _with_beside(file)[1:])


def _must_be_over(target: Path) -> None:
    """Raises `Problem` if somebody uses a store. What was left of it is finished."""
    try:
        if target.exists():
            _finish(target)
            return
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & _PRIMARY not in _DAMAGED:
            raise Problem(f"{target} is in use: {error}", _STOP) from None
    for suffix, locks in _LOCKS.items():  # it is damaged or gone, which is why a backup is to take its place
        if (path := target.with_name(target.name + suffix)).exists():
            _must_be_unlocked(path, locks)


def _finish(target: Path) -> None:
    """Bring into the file itself what is beside it. Raises `sqlite3.DatabaseError` if somebody uses it."""
    with closing(sqlite3.connect(target, timeout=0, isolation_level=None)) as connection:
        # Each connection to a store holds a lock on its file, which this mode wants for itself.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("ROLLBACK")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _must_be_unlocked(path: Path, locks: LockedBytes) -> None:
    """Raises `Problem` if a connection holds SQLite's lock on a file, which SQLite itself cannot read any more."""
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, locks.length, locks.first)
        except (BlockingIOError, PermissionError):
            raise Problem(f"{path} is in use, though the store is damaged or gone", _STOP) from None


def _remove(draft: Path) -> None:
    for path in _with_beside(draft):
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _path(settings: Settings) -> Path:
    """The file of a store in SQLite that is there."""
    path = _file_of(settings)
    if not path.is_file():
        hint = "Name it with --store sqlite:///PATH, or the control plane's file of settings with --config."
        raise Problem(f"there is no store {path}", hint)
    return path


def _file_of(settings: Settings) -> Path:
    """The file of a store in SQLite. Raises `Problem` for other stores."""
    url = settings.store
    if url.startswith(_POSTGRESQL):
        hint = "Use pg_dump and pg_restore, or `koguma store copy` to a store in SQLite."
        raise Problem("a store in PostgreSQL is backed up with its own tools", hint)
    if not url.startswith(_SQLITE):
        raise Problem(
            f"{without_password(url)} is no store in SQLite", "Copy a folder of files as you copy any folder."
        )
    return Path(url.removeprefix(_SQLITE))


def _uri(path: Path, mode: str) -> str:
    return f"file:{quote(str(path))}?{mode}"


def _copy(source: Path, file: Path, mode: str = "mode=rw") -> None:
    """Copy with SQLite's backup API: a copy of the file alone would lack the writes that are still in its log (WAL)."""
    with closing(sqlite3.connect(_uri(source, mode), uri=True)) as store, closing(sqlite3.connect(file)) as copy:
        store.backup(copy)  # one step, so one revision; with a WAL readers and writers do not block each other
        fault = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
        if fault != "ok":
            raise sqlite3.DatabaseError(f"the copy is damaged: {fault}")
