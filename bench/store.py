"""The store in PostgreSQL: how soon three followers have what is written 200 times a second, and what a write costs.

The followers are processes of their own, each with the store that a control plane has. The floor is a transaction of
one row on the same server, with the same wait for its disk.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import asyncpg
from rich.console import Console
from rich.table import Table

from bench.api import Times
from cp.model.document import Document
from cp.model.names import Key
from cp.store.port import Put
from cp.store.postgres.store import PostgresStore
from tests.support.postgres import binaries, postgres_server

FOLLOWERS: Final = 3
FEED: Final = 0.05
"""Seconds until every follower has a change, of 99 in 100."""

IN_A_ROW: Final = 500


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured."""

    rate: int = 200
    seconds: int = 60
    resources: int = 10_000
    growth: Sequence[int] = (0, 2_000, 10_000)
    """How many changes are in the log already."""


def run(options: Options) -> dict[str, Any]:
    """Measure on a server of our own, and print what was found."""
    console = Console()
    if binaries() is None:
        console.print("there is no PostgreSQL here: nothing was measured")
        return {"held": False}
    with postgres_server({}) as server:
        url = server.new_url()
        floor = asyncio.run(_floor(server.new_url()))
        with _followers(url) as followers:
            written = asyncio.run(_write_steadily(url, options.rate, options.rate * options.seconds))
            late = [_late(follower, written) for follower in followers]
        growth = {size: asyncio.run(_in_a_row(server.new_url(), size)) for size in options.growth}
        listing = asyncio.run(_listing(server.new_url(), options.resources))
    _show(console, floor, late, written, growth)
    rate = len(written) / (
        max(moment for _, moment in written.values()) - min(moment for moment, _ in written.values())
    )
    console.print(f"{rate:.0f} writes a second; {options.resources} resources are read in {listing * 1000:.0f} ms")
    held = rate >= 0.98 * options.rate and all(times.at(0.99) <= FEED for times in late)
    console.print(f"promised: {options.rate} a second, and {FEED * 1000:g} ms for 99 in 100 at each follower: {held}")
    data = {size: times.as_data() for size, times in growth.items()}
    feed = [times.as_data() for times in late]
    return {"held": held, "feed": feed, "rate": rate, "growth": data, "listing": listing, "floor": floor.as_data()}


async def _floor(url: str) -> Times:
    """The times of transactions that write one row."""
    connection = await asyncpg.connect(url, ssl=False)
    await connection.execute("CREATE TABLE floor (number integer)")
    seconds = []
    for number in range(IN_A_ROW):
        began = time.monotonic()
        await connection.execute("INSERT INTO floor VALUES ($1)", number)
        seconds.append(time.monotonic() - began)
    await connection.close()
    return Times(sorted(seconds))


async def _write_steadily(url: str, rate: int, writes: int) -> dict[int, tuple[float, float]]:
    """Write so many times a second. Answers with when each revision was begun, and when it was answered."""
    store = await PostgresStore.open(url)
    written: dict[int, tuple[float, float]] = {}

    async def write(number: int) -> None:
        began = time.monotonic()
        revision = await store.write(_put(number))
        written[revision] = began, time.monotonic()

    start = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(writes):
            await asyncio.sleep(max(0.0, start + number / rate - time.monotonic()))
            group.create_task(write(number))
    await store.write(_put(-1))  # tells the followers that this is the end
    await store.close()
    return written


def _put(number: int, name: str = "") -> Put:
    spec = {"to": [{"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": f"{number + 2}s"}}]}
    name = name or (f"timed-{number % 100}" if number >= 0 else "end")
    return Put(Document(Key("MeshTimeout", "default", name), {"type": "MeshTimeout", "name": name, "spec": spec}))


@contextmanager
def _followers(url: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that follow already."""
    with ExitStack() as stack:
        command = [sys.executable, "-m", "bench.store", url]
        followers = [
            stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) for _ in range(FOLLOWERS)
        ]
        for follower in followers:
            stack.callback(follower.terminate)
            assert follower.stdout is not None
            follower.stdout.readline()
        yield followers


def _late(follower: subprocess.Popen[str], written: dict[int, tuple[float, float]]) -> Times:
    """How long after a write was begun a follower had it, for each write."""
    assert follower.stdout is not None
    seen = {int(revision): moment for revision, moment in json.loads(follower.stdout.readline()).items()}
    assert written.keys() <= seen.keys()  # nothing is missing
    return Times(sorted(seen[revision] - began for revision, (began, _) in written.items()))


async def _follow(url: str) -> None:
    """Print when each revision came: the clock is that of the machine, and so the same for all of its processes."""
    store = await PostgresStore.open(url)
    print(flush=True)
    moments: dict[int, float] = {}
    async for batch in store.follow(0):
        now = time.monotonic()
        moments |= {change.revision: now for change in batch.changes}
        if any(change.key.name == "end" for change in batch.changes):
            break
    print(json.dumps(moments), flush=True)
    await store.close()


async def _in_a_row(url: str, logged: int) -> Times:
    """The times of writes, one after the other, beside so many changes in the log."""
    store = await PostgresStore.open(url)
    for number in range(logged):
        await store.write(_put(number))
    seconds = []
    for number in range(logged, logged + IN_A_ROW):
        began = time.monotonic()
        await store.write(_put(number))
        seconds.append(time.monotonic() - began)
    await store.close()
    return Times(sorted(seconds))


async def _listing(url: str, resources: int) -> float:
    """How long it takes to read everything."""
    store = await PostgresStore.open(url)
    await store.write(*(_put(number, f"listed-{number}") for number in range(resources)))
    seconds = []
    for _ in range(5):
        began = time.monotonic()
        await store.read()
        seconds.append(time.monotonic() - began)
    await store.close()
    return min(seconds)


def _show(
    console: Console,
    floor: Times,
    late: Sequence[Times],
    written: dict[int, tuple[float, float]],
    growth: dict[int, Times],
) -> None:
    answered = Times(sorted(end - began for began, end in written.values()))
    table = Table(title="milliseconds", title_justify="left")
    for column in ("", "p50", "p99", "p50 / floor"):
        table.add_column(column, justify="right" if column else "left")
    rows = {"one row in a transaction (floor)": floor, "a write, steadily, is answered": answered}
    rows |= {f"until follower {number} has it": times for number, times in enumerate(late, 1)}
    rows |= {f"a write in a row, beside {size} changes": times for size, times in growth.items()}
    for name, times in rows.items():
        ratio = times.at(0.5) / floor.at(0.5)
        table.add_row(name, f"{times.at(0.5) * 1000:.2f}", f"{times.at(0.99) * 1000:.2f}", f"{ratio:.1f}")
    console.print(table)


if __name__ == "__main__":
    asyncio.run(_follow(sys.argv[1]))
