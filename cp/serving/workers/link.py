"""`ProcessLink`: questions and answers between two processes of one control plane, over their pair of sockets.

What is said is pickled, as `multiprocessing` does it: whoever is at the other end is this very program.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable
from contextlib import suppress
from socket import socket
from typing import Any, Final, TypeAlias

_LENGTH: Final = 8
ALIVE: Final = "alive"
"""A question that is answered at once, by whoever answers at all."""

Answering: TypeAlias = Callable[[str, tuple[Any, ...]], Awaitable[Any]]


class LinkClosed(Exception):
    """The other process has ended."""


class LinkTimeout(Exception):
    """Nothing came from the other process within the time; what it raises itself is an answer, whatever it is."""


class ProcessLink:
    """One end. Both may ask; each question is answered by a task of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answering: Answering) -> None:
        self._reader, self._writer = reader, writer
        self._answering = answering
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._is_over = False

    @classmethod
    async def over(cls, end: socket, answering: Answering) -> ProcessLink:
        return cls(*await asyncio.open_connection(sock=end), answering)

    async def ask(self, what: str, *about: Any, within: float | None = None) -> Any:
        """The answer of the other end; raises what was raised there, `LinkClosed`, or `LinkTimeout`."""
        if self._is_over:
            raise LinkClosed
        self._number += 1
        number, future = self._number, asyncio.get_running_loop().create_future()
        self._asked[number] = future
        try:
            self._say(("?", number, what, about))
            await asyncio.wait([future], timeout=within)
            if not future.done():
                raise LinkTimeout
            return future.result()
        finally:
            self._asked.pop(number, None)

    async def listen(self) -> None:
        """Until the other end hangs up. Nothing is answered while nobody listens."""
        try:
            async with asyncio.TaskGroup() as answers:
                with suppress(asyncio.IncompleteReadError, ConnectionError):
                    while True:
                        sign, number, *said = await self._heard()
                        if sign == "?":
                            answers.create_task(self._answer(number, *said))
                        elif (future := self._asked.get(number)) is not None and not future.done():
                            _settle(future, *said)
        finally:
            self._is_over = True
            for future in self._asked.values():
                if not future.done():
                    future.set_exception(LinkClosed())
            self._writer.close()

    async def _answer(self, number: int, what: str, about: tuple[Any, ...]) -> None:
        try:
            said = (True, await self._answering(what, about))
        except Exception as error:  # noqa: BLE001  # whoever asked is told, whatever it is
            said = (False, error)
        self._say(("!", number, *said))

    def _say(self, said: tuple[Any, ...]) -> None:
        try:
            data = pickle.dumps(said, pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001  # exceptions of others need not be fit for it
            sign, number, *_ = said
            data = pickle.dumps((sign, number, False, RuntimeError(f"{error}: {said}")))
        if not self._writer.is_closing():
            self._writer.write(len(data).to_bytes(_LENGTH) + data)

    async def _heard(self) -> Any:
        length = int.from_bytes(await self._reader.readexactly(_LENGTH))
        return pickle.loads(await self._reader.readexactly(length))  # noqa: S301  # our own process said it


def _settle(future: asyncio.Future[Any], went_well: bool, said: Any) -> None:  # noqa: FBT001  # as it is sent
    if went_well:
        future.set_result(said)
    else:
        future.set_exception(said)
