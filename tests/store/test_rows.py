"""What rows of SQLite cost: a write costs what it writes, however much there is already."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cp.store import rows
from cp.store.database import prepare
from cp.store.port import UNKNOWN, USUAL_LIMITS, Author, Change
from tests.store.harness import document

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PROXY = Author("proxy web", "PUT from 192.0.2.7")


def logged_change(revision: int, author: Author) -> Change:
    made = document(f"d{revision}", kind="Dataplane")
    return Change(revision, made.key, None, made, NOW, author)


def steps_of_a_write(path: Path, logged: int, author: Author) -> int:
    """The steps of SQLite's machine that a write takes beside so many changes in the log."""
    prepare(path)
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    connection = sqlite3.connect(path)
    for revision in range(1, logged + 1):
        rows.record(connection, [logged_change(revision, author)])
    connection.set_progress_handler(count, 1)
    new = logged_change(logged + 1, author)
    rows.record(connection, [new])
    if author is PROXY:
        rows.forget_registrations(connection, new.key, logged + 1, USUAL_LIMITS)
    else:
        rows.forget(connection, USUAL_LIMITS)
    connection.close()
    return steps


@pytest.mark.parametrize("author", [UNKNOWN, PROXY])
def test_a_write_costs_the_same_however_long_the_log_is(tmp_path: Path, author: Author) -> None:
    of_long, of_short = (steps_of_a_write(tmp_path / f"{logged}.db", logged, author) for logged in (2000, 20))
    assert of_long < 2 * of_short
