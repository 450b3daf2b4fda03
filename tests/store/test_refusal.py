"""A store that takes no writes is told of until somebody has written, whoever that is."""

from __future__ import annotations

import asyncio

import pytest

from cp.store.port import StoreUnreachable, WritesRefused
from cp.store.refusal import WriteRefusals


class Stored:
    """A store, of which another control plane has written so much."""

    def __init__(self, revision: int) -> None:
        self.revision = revision
        self.is_away = False

    async def newest(self) -> int:
        if self.is_away:
            raise StoreUnreachable("away")
        return self.revision

    async def write(self, revision: int = 0) -> int:
        if not revision:
            raise WritesRefused("the disk is full")
        return revision


async def refused(refusals: WriteRefusals, stored: Stored) -> None:
    with pytest.raises(WritesRefused):
        await refusals.noted(stored.write())
    assert refusals.reason == "the disk is full"


def test_a_write_of_somebody_else_ends_it() -> None:
    async def scenario() -> None:
        refusals = WriteRefusals((stored := Stored(7)).newest)
        await refused(refusals, stored)
        refusals.note(8)
        assert refusals.reason == ""

    asyncio.run(scenario())


def test_what_was_written_before_and_is_heard_of_later_does_not_end_it() -> None:
    async def scenario() -> None:
        refusals = WriteRefusals((stored := Stored(7)).newest)
        refusals.note(5)
        await refused(refusals, stored)
        refusals.note(7)
        assert refusals.reason == "the disk is full"

    asyncio.run(scenario())


def test_one_of_its_own_ends_it_and_one_that_changes_nothing_does_not() -> None:
    async def scenario() -> None:
        refusals = WriteRefusals((stored := Stored(7)).newest)
        await refused(refusals, stored)
        assert await refusals.noted(stored.write(7)) == 7
        assert refusals.reason == "the disk is full"
        assert await refusals.noted(stored.write(8)) == 8
        assert refusals.reason == ""

    asyncio.run(scenario())


def test_it_is_told_also_where_nobody_can_say_what_is_stored() -> None:
    async def scenario() -> None:
        refusals = WriteRefusals((stored := Stored(7)).newest)
        stored.is_away = True
        await refused(refusals, stored)

    asyncio.run(scenario())
