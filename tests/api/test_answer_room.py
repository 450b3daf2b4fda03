"""Large answers that clients do not read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import httpx
import pytest
from starlette.types import Message, Scope

from cp.access.rights import Rights, Subjects, User
from cp.api.answer_room import AnswerRoom, RoomForAnswers
from cp.api.caller import ApiCaller, enter
from cp.api.work import InPieces

MIB: Final = 1024 * 1024
NO_RIGHTS: Final = Rights(Subjects())


class Client:
    """Somebody who asks for an answer of 1 MiB, and reads it once he may."""

    def __init__(self, group: asyncio.TaskGroup, app: RoomForAnswers, name: str) -> None:
        self.reads, self._has_begun, self._status = asyncio.Event(), asyncio.Event(), 0
        scope: Scope = {"type": "http", "client": ("192.0.2.1", 1), "headers": []}
        enter(scope, ApiCaller(User(name), "192.0.2.1:1", NO_RIGHTS))
        self.answer = group.create_task(app(scope, self._nothing, self._take))

    async def _nothing(self) -> Message:
        raise AssertionError("nobody asks a client for more")

    async def _take(self, message: Message) -> None:
        self._status = self._status or message["status"]
        self._has_begun.set()
        if self._status == httpx.codes.OK:
            await self.reads.wait()

    async def status(self) -> int:
        """That of the answer, which is as long as nothing of it is read."""
        await self._has_begun.wait()
        return self._status

    async def read(self) -> None:
        self.reads.set()
        await self.answer


def read_all(clients: Iterable[Client]) -> None:
    for client in clients:
        client.reads.set()


@pytest.fixture
def app() -> RoomForAnswers:
    """An application with room for four answers, and for two of one caller."""
    return RoomForAnswers(InPieces(b"x" * MIB), AnswerRoom(4 * MIB, 2 * MIB))


def test_who_reads_no_answer_gets_no_more_of_them(app: RoomForAnswers) -> None:
    async def test() -> None:
        async with asyncio.TaskGroup() as group:
            clients = [Client(group, app, "eve") for _ in range(3)]
            other = Client(group, app, "jane")

            assert [await client.status() for client in clients] == [200, 200, 503]
            assert await other.status() == 200
            await clients[0].read()
            again = Client(group, app, "eve")
            assert await again.status() == 200
            read_all([*clients, other, again])

    asyncio.run(test())


def test_all_together_have_so_much_room(app: RoomForAnswers) -> None:
    async def test() -> None:
        async with asyncio.TaskGroup() as group:
            clients = [Client(group, app, f"user-{number}") for number in range(6)]

            assert [await client.status() for client in clients] == [200, 200, 200, 200, 503, 503]
            for client in clients:
                await client.read()
            last = Client(group, app, "user-6")
            assert await last.status() == 200
            read_all([last])

    asyncio.run(test())


def test_an_answer_that_is_larger_than_all_room_is_given_to_who_waits_for_no_other() -> None:
    async def test() -> None:
        async with asyncio.TaskGroup() as group:
            app = RoomForAnswers(InPieces(b"x" * MIB), AnswerRoom(1, 1))
            first, second = Client(group, app, "jane"), Client(group, app, "jane")

            assert (await first.status(), await second.status()) == (200, 503)
            read_all([first])

    asyncio.run(test())
