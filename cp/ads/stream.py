"""`Stream`: one proxy's stream: bytes in, bytes out, and the clock that its session does not have.

A task reads and a task writes. The writer asks for the newest snapshot only when it has nothing left to write and the
client has answered most of what it was told, so a slow client gets the newest state and never a queue of older ones;
and the reader waits while the writer is behind.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import grpc
import structlog
from google.protobuf.message import DecodeError

from cp.ads import hub
from cp.ads.large_messages import LargeMessageSlots
from cp.ads.rounds import LoopRounds
from cp.ads.session import wire
from cp.ads.session.delta import DeltaSession
from cp.ads.session.messages import Nack, Node, ProtocolViolation, Response
from cp.ads.session.name_sets import NameSets
from cp.ads.session.sotw import SotwSession
from cp.ads.unknown_nodes import TooManyUnknownNodes, UnknownNodes
from cp.translate.packing import SHORT
from cp.translate.snapshot import Snapshot

_BEHIND = 16  # with so many responses waiting to be written, requests wait too
_UNANSWERED = 8  # with so many responses waiting for an answer, what is newer waits too
_LARGE = 64 * 1024  # a message of so many bytes waits for its turn


Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]


class _Session(hub.StreamSession, Protocol):
    heard: Nack | str | None

    def receive(self, request: Any) -> list[Response]: ...
    def publish(self, snapshot: Snapshot) -> list[Response]: ...
    def expire(self, nonce: str) -> list[Response]: ...

    @property
    def awaits(self) -> str | None: ...

    @property
    def unanswered(self) -> int: ...


@dataclass(frozen=True, slots=True)
class StreamKind:
    """What tells the two kinds of streams apart."""

    name: str
    session: Callable[..., _Session]
    decoded: Callable[[bytes, NameSets], Any]
    node_of: Callable[[bytes], Node | None]
    encoded: Callable[[Response], bytes]


STATE_OF_THE_WORLD = StreamKind("sotw", SotwSession, wire.decoded, wire.node_of, wire.encoded)
DELTA = StreamKind("delta", DeltaSession, wire.decoded_delta, wire.node_of_delta, wire.encoded_delta)


class Stream:
    _session: _Session  # from the first request on, as that says whose it is
    _seat: hub.Connection
    _opening: bytes | None

    def __init__(  # noqa: PLR0913  # what all streams of a server share
        self,
        kind: StreamKind,
        served: hub.Hub,
        turns: LargeMessageSlots,
        rounds: LoopRounds,
        strangers: UnknownNodes,
        *,
        patience: float,
    ) -> None:
        self._kind = kind
        self._hub = served
        self._turns = turns
        self._rounds = rounds
        self._strangers = strangers
        self._patience = patience
        self._published: Snapshot | None = None
        self._outbox: deque[Response] = deque()
        self._open = 0  # responses that may await an answer: these at most
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._ending = False
        self._awaited: str | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._log = structlog.get_logger("cp.ads").bind(stream=kind.name)

    async def serve(self, context: Context) -> None:
        """Serve the client until it goes, or until `end`."""
        self._opening = await _read(context)
        if self._opening is None:
            return
        await self._rounds.turn()
        try:
            node = self._node(self._opening)
            with self._strangers.admitted(node.id):
                await self._seated(node, context)
        except* TooManyUnknownNodes as strangers:
            fault, status = str(strangers.exceptions[0]), grpc.StatusCode.RESOURCE_EXHAUSTED
            self._hub.metrics.refused.labels("unknown").inc()
        except* (ProtocolViolation, DecodeError) as refused:
            fault, status = str(refused.exceptions[0]), grpc.StatusCode.INVALID_ARGUMENT
            self._hub.metrics.refused.labels("protocol").inc()
        else:
            return
        self._log.warning("proxy.refused", reason=fault)
        await context.abort(status, fault)

    def end(self) -> None:
        """Write what is waiting to be written, then close the stream."""
        self._ending = True
        self._wake.set()

    def _node(self, first: bytes) -> Node:
        node = self._kind.node_of(first)
        if node is None or node.id == "":
            raise ProtocolViolation("the first request on a stream has to say in node.id which proxy it comes from")
        return node

    async def _seated(self, node: Node, context: Context) -> None:
        self._session = self._kind.session(self._hub.names.shared, trusting=self._hub.trusts(node.id))
        self._log = self._log.bind(proxy=node.id)
        self._seat = hub.Connection(node, self._kind.name, self._session, self._wake.set)
        with self._hub.seat(self._seat):
            self._hub.metrics.opened.labels(self._kind.name).inc()
            self._log.info("proxy.connected", peer=context.peer(), envoy=node.version)
            try:
                await self._converse(context)
            finally:
                if self._alarm is not None:
                    self._alarm.cancel()
                self._log.info("proxy.disconnected")

    def _opened(self) -> bytes:
        """The first request, which may have 4 MiB of metadata: no frame may keep it for as long as the stream lasts."""
        opening, self._opening = self._opening, None
        return opening or b""

    async def _converse(self, context: Context) -> None:
        self._receive(self._opened())
        self._wake.set()
        async with asyncio.TaskGroup() as tasks:
            reader = tasks.create_task(self._read(context))
            writer = tasks.create_task(self._write(context))
            reader.add_done_callback(lambda _: writer.cancel())
            writer.add_done_callback(lambda _: reader.cancel())

    # --- what the client says ---

    async def _read(self, context: Context) -> None:
        while (data := await _read(context)) is not None:
            while len(self._outbox) >= _BEHIND:
                self._room.clear()
                await self._room.wait()
            await self._rounds.turn()
            self._receive(data)

    def _receive(self, data: bytes) -> None:
        request = self._kind.decoded(data, self._hub.names)
        if responses := self._session.receive(request):
            self._wake.set()
        self._queue(responses)
        heard = self._session.heard
        if heard is not None:
            self._report(SHORT[request.type_url], heard, request.error)
            self._hub.answered(self._seat, request.type_url, heard if isinstance(heard, Nack) else None)
            if self._hub.newest(self._seat.node.id) is not self._published:
                self._wake.set()  # what is newer may have waited for this answer

    def _report(self, type_name: str, heard: Nack | str, error: str | None) -> None:
        if isinstance(heard, Nack):
            self._hub.metrics.nacks.labels(type_name).inc()
            self._log.debug(
                "resources.refused", type=type_name, version=heard.version, names=heard.names, reason=heard.text
            )
        else:
            self._hub.metrics.acks.labels(type_name).inc()
            self._log.debug("resources.accepted", type=type_name, version=heard, earlier_refusal=error)

    # --- what it is told ---

    async def _write(self, context: Context) -> None:
        while not self._ending:
            await self._wake.wait()
            self._wake.clear()
            await self._rounds.turn()
            self._catch_up()
            while self._outbox:
                await self._put(self._outbox.popleft(), context)
                self._catch_up()
            self._room.set()

    def _catch_up(self) -> None:
        newest = self._hub.newest(self._seat.node.id)
        if newest is None or newest is self._published or self._outbox or self._is_unanswered:
            return
        self._published = newest
        responses = self._session.publish(newest)
        self._queue(responses)
        if not responses:
            self._hub.caught_up(self._seat)

    @property
    def _is_unanswered(self) -> bool:
        """The client has much to answer still. It is looked up only if it was told so much since that was done last."""
        if self._open >= _UNANSWERED:
            self._open = self._session.unanswered
        return self._open >= _UNANSWERED

    async def _put(self, response: Response, context: Context) -> None:
        if response.size < _LARGE:
            await self._say(response, context)
        else:
            async with self._turns.turn():
                await self._say(response, context)

    async def _say(self, response: Response, context: Context) -> None:
        data = self._kind.encoded(response)
        await context.write(data)
        resources = sum(map(len, response.batches))
        self._hub.metrics.sent(self._kind.name, SHORT[response.type_url], resources, len(data))

    def _queue(self, responses: list[Response]) -> None:
        self._outbox.extend(responses)
        self._open += len(responses)
        self._watch()

    # --- the clock ---

    def _watch(self) -> None:
        """The session may wait for an answer, but not for ever."""
        awaits = self._session.awaits
        if awaits == self._awaited:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._awaited, self._alarm = awaits, None
        if awaits is not None:
            self._alarm = asyncio.get_running_loop().call_later(self._patience, self._expire, awaits)

    def _expire(self, nonce: str) -> None:
        self._log.warning("clusters.unanswered", seconds=self._patience)
        self._queue(self._session.expire(nonce))
        self._wake.set()


async def _read(context: Context) -> bytes | None:
    """The next message, or None once the client will send no more."""
    data: object = await context.read()
    return data if isinstance(data, bytes) else None
