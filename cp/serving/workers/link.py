"""`ProcessLink`: requests and answers between two processes of one control plane, over their pair of sockets.

Each request and each answer is one `koguma.v1.Frame`, behind its length in four bytes. Frames are protobuf, so reading
one runs no code of the sender, as unpickling would. Bytes that are no frame end the link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from socket import socket
from typing import Final, TypeAlias

from google.protobuf.message import DecodeError

from cp.serving.workers.messages import error_message, error_of
from koguma.v1 import workers_pb2 as pb

_LENGTH_BYTES: Final = 4
LONGEST_FRAME: Final = 256 * 1024 * 1024
"""In bytes. The NACKs of ten thousand proxies, with the reasons of their Envoys, stay far below."""

RequestHandler: TypeAlias = Callable[[pb.Request], Awaitable[pb.Answer]]
"""Answers requests of the other end. What it raises becomes a `RemoteError` there."""


class LinkClosed(Exception):
    """The other process has ended, or this end no longer listens: it read a broken frame, or was told to stop."""


class LinkTimeout(Exception):
    """No answer came within the time. An error that the other process answers with is a `RemoteError` instead."""


class BrokenFrame(Exception):
    """The other end sent bytes that are no frame. It is another program, or it is broken, so the link ends."""


class FrameTooLong(Exception):
    """A request or an answer is longer than the other end would read."""


class ProcessLink:
    """One end. Both ends may ask, and each request is answered by a task of its own.

    Each end numbers its requests from 1, and an answer, or the error in its place, has the number of its request. A
    frame says which of the three it is, so equal numbers of the two ends are not confused. `listen` has to run as long
    as the link is used.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: RequestHandler) -> None:
        self._reader, self._writer = reader, writer
        self._handler = handler
        self._answers: dict[int, asyncio.Future[pb.Answer]] = {}
        self._number = 0
        self._is_closed = False

    @classmethod
    async def connect(cls, end: socket, handler: RequestHandler) -> ProcessLink:
        """One end of a link, over one end of a pair of sockets."""
        return cls(*await asyncio.open_connection(sock=end), handler)

    async def ask(self, request: pb.Request, within: float | None = None) -> pb.Answer:
        """The answer of the other end, waited for without a limit unless `within` says how many seconds.

        Raises `RemoteError` with what was raised there, `LinkClosed`, `LinkTimeout` or `FrameTooLong`.
        """
        if self._is_closed:
            raise LinkClosed
        self._number += 1
        number = self._number
        answer: asyncio.Future[pb.Answer] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            self._send(pb.Frame(number=number, request=request))
            await asyncio.wait([answer], timeout=within)
            if not answer.done():
                raise LinkTimeout
            return answer.result()
        finally:
            self._answers.pop(number, None)

    async def listen(self) -> None:
        """Read frames until the other end hangs up. Raises `BrokenFrame`.

        While this does not run, no request of the other end is answered, and `ask` gets no answer. Handlers that are
        running when the other end hangs up finish first; only then does each `ask` raise `LinkClosed`.
        """
        try:
            async with asyncio.TaskGroup() as handlers:
                with suppress(asyncio.IncompleteReadError, ConnectionError):
                    while True:
                        self._receive(await self._frame(), handlers)
        except ExceptionGroup as group:  # of one exception: a broken frame, as handlers raise none
            raise group.exceptions[0] from None
        finally:
            self._close()

    def _receive(self, frame: pb.Frame, handlers: asyncio.TaskGroup) -> None:
        answer = self._answers.get(frame.number)
        is_waited_for = answer is not None and not answer.done()
        match frame.WhichOneof("content"):
            case "request":
                handlers.create_task(self._handle(frame.number, frame.request))
            case "answer" if answer is not None and is_waited_for:
                answer.set_result(frame.answer)
            case "error" if answer is not None and is_waited_for:
                answer.set_exception(error_of(frame.error))
            case None:
                raise BrokenFrame("a frame with neither a request nor an answer")

    def _close(self) -> None:
        self._is_closed = True
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(LinkClosed())
        self._writer.close()

    async def _handle(self, number: int, request: pb.Request) -> None:
        try:
            self._send(pb.Frame(number=number, answer=await self._handler(request)))
        except Exception as error:  # noqa: BLE001  # whoever asked is told, whatever it is
            self._send(pb.Frame(number=number, error=error_message(error)))

    def _send(self, frame: pb.Frame) -> None:
        length = frame.ByteSize()
        if length > LONGEST_FRAME:
            raise FrameTooLong(f"a frame of {length} bytes: {LONGEST_FRAME} are the most")
        if not self._writer.is_closing():
            self._writer.write(length.to_bytes(_LENGTH_BYTES) + frame.SerializeToString())

    async def _frame(self) -> pb.Frame:
        length = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES))
        if length > LONGEST_FRAME:
            raise BrokenFrame(f"a frame of {length} bytes: {LONGEST_FRAME} are the most")
        try:
            return pb.Frame.FromString(await self._reader.readexactly(length))
        except DecodeError as error:
            raise BrokenFrame(f"a frame that is no message: {error}") from None
