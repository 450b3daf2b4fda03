"""That what is too old is forgotten while nobody writes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from cp.model.document import Document
from cp.model.names import Key
from cp.serving.background import in_background
from cp.serving.forgetting import forget_again_and_again, forgetting
from cp.settings import Settings
from cp.store.memory import MemoryStore
from cp.store.port import HistoryLimits, Put, StoreUnreachable, WritesRefused
from tests.support.waiting import eventually_on_loop

SECRET = Document(Key("Secret", "default", "a"), {"type": "Secret", "mesh": "default", "name": "a", "data": "YQ=="})
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(("age", "left"), [(86400.0, 0), (0.0, 1)])
def test_a_store_that_nobody_writes_forgets_what_is_too_old_if_anything_is(age: float, left: int) -> None:
    async def scenario() -> None:
        moments = iter([NOON])
        store = MemoryStore(
            limits=HistoryLimits(kept_age=timedelta(days=1)), clock=lambda: next(moments, NOON + timedelta(days=2))
        )
        await store.write(Put(SECRET))
        async with forgetting(Settings(history_age=age), store):
            for _ in range(3):
                await asyncio.sleep(0)
            assert len(await store.history()) == left

    asyncio.run(scenario())


@dataclass
class Failing:
    """A store that fails so, one time after the other, and then no longer."""

    failures: Iterator[Exception]
    asked: list[None] = field(default_factory=list)

    async def forget(self) -> None:
        self.asked.append(None)
        if (failure := next(self.failures, None)) is not None:
            raise failure


def test_why_it_cannot_be_forgotten_is_told_once_and_it_is_tried_again() -> None:
    full = WritesRefused("the disk is full")
    store = Failing(iter([full, full, StoreUnreachable("away"), full, OverflowError("a date that is none")]))

    async def scenario() -> None:
        async with in_background(forget_again_and_again(store, 0.0)):
            await eventually_on_loop(lambda: len(store.asked) > 6)

    with capture_logs() as lines:
        asyncio.run(scenario())
    reasons = [line["reason"] for line in lines if line["event"] == "history.kept"]
    assert reasons == ["the disk is full", "the disk is full", "a date that is none"]
