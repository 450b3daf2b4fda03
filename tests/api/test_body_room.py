"""Request bodies that clients do not finish."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import count
from typing import Final

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from cp.access.rights import NOBODY, Rights, Subjects, User
from cp.api.body import text_of
from cp.api.body_room import BodyRoom, RoomForBodies
from cp.api.caller import ApiCaller, enter
from cp.api.errors import ApiError

KIB: Final = 1024
ADDRESSES: Final = count(1)


async def reader(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that reads a body."""
    response = Response()
    try:
        await text_of(Request(scope, receive), 100 * KIB)
    except ApiError as error:
        response = error.response()
    await response(scope, receive, send)


class Client:
    """A client that sends a body of some KiB without its end, until it finishes."""

    def __init__(self, group: asyncio.TaskGroup, app: RoomForBodies, size: int, user: User) -> None:
        self._size, self._status = size, 0
        self._has_sent, self._finishes, self._changed = False, asyncio.Event(), asyncio.Event()
        address = f"192.0.2.{next(ADDRESSES)}"
        scope: Scope = {"type": "http", "client": (address, 1), "headers": []}
        enter(scope, ApiCaller(user, f"{address}:1", Rights(Subjects())))
        self._task = group.create_task(app(scope, self._send, self._take))

    async def _send(self) -> Message:
        if not self._has_sent:
            self._has_sent = True
            return {"type": "http.request", "body": b"x" * self._size * KIB, "more_body": True}
        self._changed.set()
        await self._finishes.wait()
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _take(self, message: Message) -> None:
        self._status = self._status or message.get("status", 0)
        self._changed.set()

    async def status(self) -> int:
        """The status of the answer; 0 if the server waits for the rest of the body."""
        await self._changed.wait()
        return self._status

    async def finish(self) -> int:
        self._finishes.set()
        await self._task
        return self._status


async def statuses(clients: Iterable[Client]) -> list[int]:
    return [await client.status() for client in clients]


@pytest.fixture
def app() -> RoomForBodies:
    return RoomForBodies(reader, BodyRoom(40 * KIB, 20 * KIB, 10 * KIB))


def test_unfinished_bodies_of_a_caller_are_limited(app: RoomForBodies) -> None:
    async def test() -> None:
        async with asyncio.TaskGroup() as group:
            clients = [Client(group, app, 8, User("eve")) for _ in range(3)]
            assert await statuses(clients) == [0, 0, httpx.codes.TOO_MANY_REQUESTS]
            other = Client(group, app, 8, User("jane"))
            assert await other.status() == 0

            assert await clients[0].finish() == httpx.codes.OK
            again = Client(group, app, 8, User("eve"))
            assert await again.status() == 0
            assert [await each.finish() for each in (clients[1], other, again)] == [httpx.codes.OK] * 3

    asyncio.run(test())


def test_callers_without_token_share_little_room(app: RoomForBodies) -> None:
    async def test() -> None:
        async with asyncio.TaskGroup() as group:
            clients = [Client(group, app, 4, NOBODY) for _ in range(3)]
            known = Client(group, app, 8, User("jane"))

            assert await statuses([*clients, known]) == [0, 0, httpx.codes.SERVICE_UNAVAILABLE, 0]
            for client in (clients[0], clients[1], known):
                assert await client.finish() == httpx.codes.OK

    asyncio.run(test())


def test_all_bodies_together_are_limited(app: RoomForBodies) -> None:
    async def test() -> None:
        async with asyncio.TaskGroup() as group:
            clients = [Client(group, app, 12, User(f"user-{number}")) for number in range(4)]

            assert await statuses(clients) == [0, 0, 0, httpx.codes.SERVICE_UNAVAILABLE]
            for client in clients[:3]:
                assert await client.finish() == httpx.codes.OK

    asyncio.run(test())


def test_body_larger_than_the_room_is_taken_alone(app: RoomForBodies) -> None:
    async def test() -> None:
        async with asyncio.TaskGroup() as group:
            client = Client(group, app, 90, NOBODY)

            assert await client.status() == 0
            assert await client.finish() == httpx.codes.OK

    asyncio.run(test())
