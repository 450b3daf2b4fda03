"""The tables in a database: made, brought up to date by one of several instances, and judged by all of them."""

from __future__ import annotations

from typing import Final

from asyncpg import LockNotAvailableError, QueryCanceledError

from cp.store.migrations import migrations, must_be_compatible
from cp.store.port import Unusable
from cp.store.postgres.address import DatabaseAddress
from cp.store.postgres.connections import Connection

_LOCK: Final = 0x4B47554D  # "KGUM": the advisory lock of those that migrate


async def migrate(connection: Connection, address: DatabaseAddress) -> int:
    """Bring the tables up to date, and answer with the number of steps that are known here.

    Several instances may begin at once: one does it, the others wait for it.
    """
    steps = migrations("postgres")
    # Looked at first: anybody who may connect can hold the lock, and as a rule there is nothing to be done.
    if await is_made(connection) and await _number(connection) == len(steps):
        return len(steps)
    async with connection.transaction():
        await _lock(connection, address)
        await _must_be_usable(connection, address)
        known = await _prepare(connection)
        if known > len(steps):
            must_be_compatible(await _compatible_with(connection), len(steps), str(address))
        for number, step in enumerate(steps[known:], known + 1):
            await connection.execute(step.script)
            await connection.execute(
                "INSERT INTO koguma.migrations (number, compatible_with) VALUES ($1, $2)", number, step.compatible_with
            )
    return len(steps)


async def _lock(connection: Connection, address: DatabaseAddress) -> None:
    try:
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
    except (TimeoutError, QueryCanceledError, LockNotAvailableError):
        raise Unusable(
            f"{address}: somebody else holds the advisory lock {_LOCK}, which those take who make the tables: "
            "another control plane that still does, or a stranger; pg_locks and pg_stat_activity tell who"
        ) from None


async def is_made(connection: Connection) -> bool:
    """Whether there are tables of ours, of whichever version."""
    # Not by to_regclass: it remembers that there was none, also after others have made it while we waited for the lock.
    query = "SELECT EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = 'koguma' AND tablename = 'migrations')"
    return bool(await connection.fetchval(query))


async def _number(connection: Connection) -> int:
    return int(await connection.fetchval("SELECT coalesce(max(number), 0) FROM koguma.migrations"))


async def _must_be_usable(connection: Connection, address: DatabaseAddress) -> None:
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise Unusable(f"{address}: its encoding is {encoding}; make a database with ENCODING 'UTF8'")


async def _prepare(connection: Connection) -> int:
    """How many migrations were done."""
    # Asked first: whoever may use the schema need not be allowed to make one.
    if await is_made(connection):
        return await _number(connection)
    if not await connection.fetchval("SELECT to_regnamespace('koguma') IS NOT NULL"):
        await connection.execute("CREATE SCHEMA koguma")
    if await connection.fetchval("SELECT EXISTS (SELECT FROM pg_class WHERE relnamespace = 'koguma'::regnamespace)"):
        raise Unusable("the schema `koguma` belongs to another program; is this the right database?")
    await connection.execute(
        "CREATE TABLE koguma.migrations ("
        "number integer PRIMARY KEY, compatible_with integer NOT NULL, at timestamptz NOT NULL DEFAULT now())"
    )
    return 0


async def _compatible_with(connection: Connection) -> int:
    query = "SELECT max(compatible_with) FROM koguma.migrations"
    return int(await connection.fetchval(query))
