"""A cable to a server that can be cut, that swallows what goes through it, and that listens to what is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from tests.support.loopback import Address, new_address

Listen = Callable[[bytes], None]


def _hear_nothing(_: bytes) -> None:
    pass


class Cable:
    """Carries bytes both ways, until it is told otherwise."""

    def __init__(self, target: Address) -> None:
        self.target, self.address = target, new_address()
        self.is_open = True
        """Whether new connections are taken."""

        self.before_sending: Listen = _hear_nothing
        """Called with what a client says, before it is passed on."""

        self.after_sending: Listen = _hear_nothing
        self._carries = asyncio.Event()
        self._carries.set()
        self._writers: set[asyncio.StreamWriter] = set()

    def swallow(self) -> None:
        """From now on nothing arrives, and nobody is told, as where packets are dropped."""
        self._carries.clear()

    def carry(self) -> None:
        self._carries.set()

    def cut(self) -> None:
        """End all connections at once."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.is_open:
            writer.transport.abort()
            return
        try:
            there_reader, there_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()  # nobody is there
            return
        with suppress(OSError):
            self._writers |= {writer, there_writer}
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pass_on(reader, there_writer, is_question=True))
                    group.create_task(self._pass_on(there_reader, writer, is_question=False))
            finally:
                self._writers -= {writer, there_writer}

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_question: bool) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self._carries.wait()
                if is_question:
                    self.before_sending(data)
                if writer.is_closing():
                    break
                writer.write(data)
                await writer.drain()
                if is_question:
                    self.after_sending(data)
        writer.transport.abort()


@asynccontextmanager
async def cable_to(target: Address) -> AsyncIterator[Cable]:
    cable = Cable(target)
    server = await asyncio.start_server(cable.serve, *cable.address)
    try:
        yield cable
    finally:
        server.close()
        cable.carry()
        cable.cut()
        await server.wait_closed()
