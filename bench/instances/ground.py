"""What the store and the machine cost by themselves, without a control plane: the ground of the simulation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Final

from cp.model.document import Document
from cp.model.names import Key
from cp.store.port import Put
from cp.store.postgres.store import PostgresStore

TIMES: Final = 800
TOGETHER: Final = 16
_LOOPS: Final = 4_000_000


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds for each of many of a kind."""

    here: float
    """Of the processor, in the process that asks."""

    there: float
    """Of the processor, in the database."""

    took: float


@dataclass(frozen=True, slots=True)
class Ground:
    single: Spent
    """A transaction of one write."""

    together: Spent
    """A write of those that are made together, `TOGETHER` at once."""

    question: Spent
    """A question how far the store is."""

    read: Spent
    """A question what is new, and an answer with one change."""

    slowed: float
    """By how much the same work takes more processor time while a second processor is busy as well."""


async def ground(url: str, database_cpu: Callable[[], float]) -> Ground:
    """`database_cpu` is the processor time of the database so far."""
    store = await PostgresStore.open(url)

    async def spent(action: Callable[[int], Awaitable[object]], times: int, of_each: int = 1) -> Spent:
        here, there, began = time.process_time(), database_cpu(), time.monotonic()
        for number in range(times):
            await action(number)
        took = time.monotonic() - began
        count = times * of_each
        return Spent((time.process_time() - here) / count, (database_cpu() - there) / count, took / count)

    async def write(number: int) -> None:
        await store.write(_put(number))

    async def write_together(number: int) -> None:
        await asyncio.gather(*(store.write(_put(number * TOGETHER + of)) for of in range(TOGETHER)))

    async def read(_: int) -> None:
        await anext(aiter(store.follow(newest - 1)))

    await spent(write, TOGETHER)  # what comes first prepares statements
    single, question = await spent(write, TIMES), await spent(lambda _: store.revision(), TIMES)
    together = await spent(write_together, TIMES // TOGETHER, TOGETHER)
    newest = await store.revision()
    reading = await spent(read, TIMES)
    await store.close()
    return Ground(single, together, question, reading, _slowed())


def _put(number: int) -> Put:
    name, spec = f"timed-{number % 100}", {"to": [{"default": {"idleTimeout": f"{number + 2}s"}}]}
    return Put(Document(Key("MeshTimeout", "default", name), {"type": "MeshTimeout", "name": name, "spec": spec}))


def _slowed() -> float:
    with ProcessPoolExecutor(2) as processes:
        alone = [processes.submit(_spin).result() for _ in range(3)]
        both = [spent for _ in range(3) for spent in processes.map(_spin, range(2))]
    return max(1.0, sum(both) / len(both) / (sum(alone) / len(alone)))


def _spin(_: int = 0) -> float:
    """Processor seconds of some work that is always the same."""
    began, number = time.process_time(), 0
    for step in range(_LOOPS):
        number += step
    return time.process_time() - began
