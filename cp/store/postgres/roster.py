"""`PostgresRoster`: who shares a database, in two tables of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from asyncpg import Record

from cp.store.postgres.connections import Connection
from cp.store.roster import FORGOTTEN_AFTER, Fence, Instance, Lease, RosterEntry

T = TypeVar("T")

_REPORT: Final = """
    WITH forgotten AS (
        DELETE FROM koguma.instances WHERE id <> $1 AND seen < clock_timestamp() - $8::interval
    ), dated AS (
        UPDATE koguma.instances SET seen = clock_timestamp()
        WHERE id <> $1 AND seen > clock_timestamp() AND seen <= '9000-01-01'
    )
    INSERT INTO koguma.instances (id, name, address, authority, version, started, revision, seen)
    VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp())
    ON CONFLICT (id) DO UPDATE SET
        address = excluded.address, authority = excluded.authority, revision = excluded.revision,
        seen = clock_timestamp()
"""
_EARLIER: Final = "SELECT id FROM koguma.instances WHERE name = $1 AND address = $2 AND id <> $3"
_LEAVE: Final = """
    WITH ended AS (
        UPDATE koguma.leases SET ends = least(ends, clock_timestamp()) WHERE holder = $1
    )
    DELETE FROM koguma.instances WHERE id = $1
"""
_INSTANCES: Final = """
    SELECT id, name, address, authority, version, started, revision, clock_timestamp() - seen AS silence
    FROM koguma.instances
    WHERE started BETWEEN '2000-01-01' AND '9000-01-01' AND seen BETWEEN '2000-01-01' AND '9000-01-01'
    ORDER BY started, id
"""
"""Without rows that no instance writes: their times (`infinity`) cannot even be read."""

# What it returns is of the row that was written. Nothing is written over a lease that another one holds; an end that
# no lease can have is of before the clock was set back, or of a server with another one that was here before.
_TAKE: Final = """
    INSERT INTO koguma.leases AS held (name, holder, term, ends) VALUES ($1, $2, 1, clock_timestamp() + $3::interval)
    ON CONFLICT (name) DO UPDATE SET
        holder = $2, term = held.term + (held.holder <> $2)::int, ends = clock_timestamp() + $3::interval
    WHERE held.holder = $2 OR held.ends NOT BETWEEN clock_timestamp() AND clock_timestamp() + $3::interval
    RETURNING holder, term
"""
_TERMS: Final = "SELECT name, term FROM koguma.leases WHERE name = ANY($1::text[])"
_HELD: Final = "SELECT holder, term FROM koguma.leases WHERE name = $1"


class Ask(Protocol):
    """Puts a question to the database."""

    async def __call__(self, question: Callable[[Connection], Awaitable[T]], /) -> T: ...


class PostgresRoster:
    """The roster of the machines that share a database."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def report(self, instance: Instance) -> None:
        await self._ask(partial(_report, instance))

    async def succeed(self, instance: Instance) -> None:
        await self._ask(partial(_succeed, instance))

    async def leave(self, id_: str) -> None:
        await self._ask(partial(_leave, id_))

    async def instances(self) -> Sequence[RosterEntry]:
        return tuple(map(_entry, await self._ask(_instances)))

    async def lease(self, name: str, holder: str, seconds: float) -> Lease:
        return await self._ask(partial(_lease, name, holder, timedelta(seconds=seconds)))


async def terms_of(connection: Connection, fences: Iterable[Fence | None]) -> Mapping[str, int]:
    """Within a write: the terms of the leases that some fences name."""
    names = sorted({fence.lease for fence in fences if fence is not None})
    return {row["name"]: row["term"] for row in await connection.fetch(_TERMS, names)} if names else {}


async def _succeed(instance: Instance, connection: Connection) -> None:
    for row in await connection.fetch(_EARLIER, instance.name, instance.address, instance.id):
        await _leave(row["id"], connection)
    await _report(instance, connection)


async def _report(instance: Instance, connection: Connection) -> None:
    texts = instance.id, instance.name, instance.address, instance.authority, instance.version
    await connection.execute(_REPORT, *texts, instance.started, instance.revision, timedelta(seconds=FORGOTTEN_AFTER))


async def _leave(id_: str, connection: Connection) -> None:
    await connection.execute(_LEAVE, id_)


async def _instances(connection: Connection) -> Sequence[Record]:
    return await connection.fetch(_INSTANCES)


def _entry(row: Record) -> RosterEntry:
    values: dict[str, Any] = dict(row)
    silence: timedelta = values.pop("silence")
    return RosterEntry(Instance(**values), max(0.0, silence.total_seconds()))


async def _lease(name: str, holder: str, length: timedelta, connection: Connection) -> Lease:
    """Two questions where another one holds it; he may have left between them."""
    row = await connection.fetchrow(_TAKE, name, holder, length) or await connection.fetchrow(_HELD, name)
    assert row is not None  # noqa: S101  # rows of leases are never removed
    return Lease(name, row["holder"], row["term"])
