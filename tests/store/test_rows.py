"""What rows of SQLite cost: a write costs what it writes, however much there is already."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from cp.store import rows
from cp.store.database import prepare
from cp.store.port import Change
from tests.store.harness import document, key

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def steps_of_a_write(path: Path, logged: int) -> int:
    """The steps of SQLite's machine that a write takes beside so many changes in the log."""
    prepare(path)
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    connection = sqlite3.connect(path)
    for revision in range(1, logged + 1):
        rows.record(connection, [Change(revision, key(f"d{revision}"), None, document(f"d{revision}"), NOW)])
    connection.set_progress_handler(count, 1)
    rows.record(connection, [Change(logged + 1, key("new"), None, document("new"), NOW)])
    rows.forget(connection, 0, 10_000_000)
    connection.close()
    return steps


def test_a_write_costs_the_same_however_long_the_log_is(tmp_path: Path) -> None:
    assert steps_of_a_write(tmp_path / "long.db", 2000) < 2 * steps_of_a_write(tmp_path / "short.db", 20)
