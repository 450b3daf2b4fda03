"""An SQLite file of ours: opening it, bringing it up to date, and saying plainly why it cannot be used."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from cp.store.migrations import migrations, must_be_compatible
from cp.store.port import Unusable, WritesRefused

APPLICATION_ID: Final = 0x4B47554D  # "KGUM": tells our files from other programs'
PATIENCE: Final = 30.0
"""Seconds to wait for another process that is writing."""


class Busy(Unusable):
    """Somebody else has been writing for longer than our patience lasts."""


_NOTED_SINCE: Final = 5
"""The first step that notes with which earlier one its file can be used."""

_EMPTY: Final = "the file is empty; restore a backup, or delete the file if this is a new installation"
_DAMAGED_PLAIN: Final = """
    SELECT count(*) FROM documents
    WHERE NOT json_valid(source) OR (NOT json_valid(data) AND substr(CAST(data AS BLOB), 1, 1) = CAST('{' AS BLOB))
"""
_HINTS: Final = {
    "SQLITE_BUSY": "another process has been writing for too long",
    "SQLITE_CANTOPEN": "does its directory exist, and may this user write there?",
    "SQLITE_CORRUPT": "the file is damaged: restore a copy, or rescue what is left with `sqlite3 FILE .recover`",
    "SQLITE_FULL": "the disk is full",
    "SQLITE_NOTADB": "is this the right file?",
    "SQLITE_READONLY": "may this user write to the file and to its directory?",
}


_KINDS: Final[dict[str, type[Unusable]]] = {
    "SQLITE_BUSY": Busy,
    "SQLITE_FULL": WritesRefused,
    "SQLITE_IOERR": WritesRefused,
    "SQLITE_READONLY": WritesRefused,
}


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """What SQLite finds wrong with a file, in words for the operator."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        name = getattr(error, "sqlite_errorname", "")
        hint = next((hint for code, hint in _HINTS.items() if name.startswith(code)), "")
        kind = next((kind for code, kind in _KINDS.items() if name.startswith(code)), Unusable)
        raise kind(f"{path}: {error}" + (f"; {hint}" if hint else "")) from error


def connect(path: Path) -> sqlite3.Connection:
    """A connection whose commits are on the disk when they return, and whose transactions are only ours to begin."""
    connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
    try:
        # In WAL mode a commit under NORMAL does not wait for the disk: what was answered as stored goes with the power.
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def prepare(path: Path) -> None:
    """Make the file if there is none, reject what is not ours, and bring it up to date."""
    if not path.exists():
        _make(path)
    _bring_up_to_date(path)


def _make(path: Path) -> None:
    """Make a file that is complete from the moment it has its name. Another process may do the same."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # which only its user may read
    except OSError:
        return  # SQLite says why no file can be made
    os.close(descriptor)
    new = Path(name)
    try:
        _fill(new)
        _give_name(new, path)
    finally:
        for suffix in ("", "-wal", "-shm"):
            new.with_name(f"{new.name}{suffix}").unlink(missing_ok=True)


def _fill(new: Path) -> None:
    with closing(connect(new)) as connection:
        _keep_a_log_of_writes(connection, new)
        _migrate(connection, new)


def _give_name(new: Path, path: Path) -> None:
    try:
        os.link(new, path)
    except FileExistsError:
        return  # another process was faster
    except OSError:  # a file system without links
        new.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)  # the name has to outlive a loss of power as well
    finally:
        os.close(folder)


def _bring_up_to_date(path: Path) -> None:
    with suppress(OSError):
        if path.stat().st_size == 0:
            raise Unusable(f"{path}: {_EMPTY}")
    connection = connect(path)
    try:
        _check(connection, path)
        _keep_a_log_of_writes(connection, path)
        _migrate(connection, path)
    finally:
        connection.close()


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction with the right to write, from its beginning: no other can come between reading and writing."""
    connection.execute("BEGIN IMMEDIATE")
    with _ending(connection):
        yield


@contextmanager
def reading(connection: sqlite3.Connection) -> Iterator[None]:
    """One state of the file, whatever is written meanwhile."""
    connection.execute("BEGIN")
    with _ending(connection):
        yield


@contextmanager
def impatient(connection: sqlite3.Connection) -> Iterator[None]:
    """Be told at once if somebody else is writing, rather than wait."""
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout = {round(PATIENCE * 1000)}")


@contextmanager
def _ending(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _check(connection: sqlite3.Connection, path: Path) -> None:
    # Before anything is written, the mode of the journal included: a file of somebody else must stay as it is.
    owner = _number(connection, "PRAGMA application_id")
    if owner != APPLICATION_ID and (owner != 0 or _number(connection, "SELECT count(*) FROM sqlite_schema") > 0):
        raise Unusable(f"{path}: a database of another program; is this the right file?")
    fault = _fault(connection)
    if fault != "ok":
        raise Unusable(f"{path}: {fault}; {_HINTS['SQLITE_CORRUPT']}")


def _fault(connection: sqlite3.Connection) -> str:
    """What is wrong with the file, but for texts that are neither JSON nor plain: an encrypted one is told of alone."""
    fault = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    if not fault.startswith("CHECK") or _number(connection, _DAMAGED_PLAIN) > 0:
        return fault
    connection.execute("PRAGMA ignore_check_constraints = ON")
    fault = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    connection.execute("PRAGMA ignore_check_constraints = OFF")
    return fault


def _keep_a_log_of_writes(connection: sqlite3.Connection, path: Path) -> None:
    """WAL mode: readers and the writer do not wait for each other."""
    mode = _when_others_are_done(partial(connection.execute, "PRAGMA journal_mode = WAL")).fetchone()[0]
    if mode != "wal":
        raise Unusable(f"{path}: this file system has no memory that processes share; put the file on a local disk")


def _when_others_are_done(execute: Callable[[], sqlite3.Cursor]) -> sqlite3.Cursor:
    # SQLite waits for locks by itself, but not when the mode of the journal is to be changed.
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return execute()
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    with writing(connection):
        done, steps = _number(connection, "PRAGMA user_version"), migrations("sqlite")
        if done > len(steps):
            must_be_compatible(_compatible_with(connection, done), len(steps), str(path))
            return
        for number, step in enumerate(steps[done:], done + 1):
            for statement in _statements(step.script):
                connection.execute(statement)
            if number >= _NOTED_SINCE:
                connection.execute("INSERT INTO migrations VALUES (?, ?)", (number, step.compatible_with))
        connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _compatible_with(connection: sqlite3.Connection, done: int) -> int:
    """With which number of steps one understands the file. Nothing says so in a file that is not as ours are."""
    if _number(connection, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'migrations'") == 0:
        return done
    return _number(connection, "SELECT max(compatible_with) FROM migrations")


def _statements(script: str) -> Iterator[str]:
    # `executescript` would commit what is open; a migration is done wholly or not at all.
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _number(connection: sqlite3.Connection, query: str) -> int:
    value = connection.execute(query).fetchone()[0]
    assert isinstance(value, int)  # noqa: S101  # narrows the type
    return value
