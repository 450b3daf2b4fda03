"""`Stream`: one proxy's stream: bytes in, bytes out, and the clock that its session does not have.

One task reads, another writes. Both hold back, so that a slow client costs a bounded amount of memory:

- the writer takes the newest snapshot only when it has written everything and the client has answered most of it. So a
  slow client gets the newest state, and never a queue of older ones;
- the reader waits while many responses wait to be written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import grpc
import structlog
from google.protobuf.message import DecodeError

from cp.access.tokens import DataplaneClaims
from cp.ads.admission import Admission, Doorkeeper, NotAdmitted, token_of
from cp.ads.connection import Connection, StreamSession
from cp.ads.hub import StreamSide
from cp.ads.large_messages import LargeMessageSlots
from cp.ads.proxy_shares import (
    TOO_MANY_OF_PROXY,
    TOO_MUCH_OF_PROXY,
    ProxyShare,
    ProxyShares,
    SharedStream,
    TooMuchHeld,
)
from cp.ads.refusal_log import RefusalLog
from cp.ads.rounds import LoopRounds
from cp.ads.session import wire
from cp.ads.session.delta import DeltaSession
from cp.ads.session.messages import Answer, Nack, Node, ProtocolViolation, Response, TooManyNames
from cp.ads.session.name_sets import NameSets
from cp.ads.session.request_sizes import check_size
from cp.ads.session.sotw import SotwSession
from cp.ads.stream_limits import StreamLimits, TooManyStreams, address_of
from cp.ads.turned_away import TurnedAway
from cp.ads.unknown_nodes import TooManyUnknownNodes, UnknownNodes
from cp.model.names import Key, proxy_id
from cp.translate.packing import SHORT
from cp.translate.snapshot import Snapshot

_MOST_WAITING = 16  # with so many responses waiting to be written, requests wait too
_MOST_UNANSWERED = 8  # with so many responses waiting for an answer, what is newer waits too
_LARGE = 64 * 1024  # a message of so many bytes needs a slot
_LARGE_REQUEST = 256 * 1024  # it has some 2,000 names, which are measured by what the proxy is sent
_LONGEST_COMPUTATION = 30.0  # seconds to wait for that
_UNTIL_NEXT_LOOK = 0.1  # seconds until it is looked again whether it is known
_LONGEST_TIMER = 3600.0  # seconds

NO_REQUEST: Final = "no request"
MOST_SILENT = 256  # streams of one token, or of one address without tokens, that ask for nothing yet

E = TypeVar("E", bound=BaseException)

Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]


class SilentClient(Exception):
    """A client opened a stream and asked for nothing."""


_REFUSALS: Final[dict[type[Exception], tuple[grpc.StatusCode, str]]] = {
    TooManyUnknownNodes: (grpc.StatusCode.RESOURCE_EXHAUSTED, "unknown"),
    TooMuchHeld: (grpc.StatusCode.RESOURCE_EXHAUSTED, TOO_MUCH_OF_PROXY),
    TooManyNames: (grpc.StatusCode.RESOURCE_EXHAUSTED, "too many names"),
    SilentClient: (grpc.StatusCode.DEADLINE_EXCEEDED, "silent"),
    ProtocolViolation: (grpc.StatusCode.INVALID_ARGUMENT, "protocol"),
    DecodeError: (grpc.StatusCode.INVALID_ARGUMENT, "protocol"),
}
"""The status with which a stream ends, and the word that metrics have for it."""

_REFUSED: Final[tuple[type[Exception], ...]] = (NotAdmitted, TooManyStreams, *_REFUSALS)


class _Session(StreamSession, Protocol):
    """What a stream needs of its session, whichever variant it is."""

    answer: Answer | None

    @property
    def held_bytes(self) -> int: ...

    def receive(self, request: Any) -> list[Response]: ...
    def publish(self, snapshot: Snapshot) -> list[Response]: ...
    def expire(self, nonce: str) -> list[Response]: ...
    def remove_unknown(self) -> list[Response]: ...

    @property
    def awaited_answer(self) -> str | None: ...

    @property
    def unanswered(self) -> int: ...

    @property
    def is_fresh(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class StreamKind:
    """How state-of-the-world and delta streams differ."""

    name: str  # as metrics and logs have it
    session: Callable[..., _Session]  # its class
    decoded: Callable[[bytes, NameSets], Any]  # a request, of the type that the session receives
    node_of: Callable[[bytes], Node | None]  # the node that a request names, if it names one
    encoded: Callable[[Response], bytes]


STATE_OF_THE_WORLD = StreamKind("sotw", SotwSession, wire.decoded, wire.node_of, wire.encoded)
DELTA = StreamKind("delta", DeltaSession, wire.decoded_delta, wire.node_of_delta, wire.encoded_delta)


@dataclass(frozen=True, slots=True)
class StreamSurroundings:
    """What all streams of a server share."""

    hub: StreamSide
    slots: LargeMessageSlots
    rounds: LoopRounds
    limits: StreamLimits
    shares: ProxyShares
    silent: ProxyShares
    turned_away: TurnedAway
    unknown_nodes: UnknownNodes
    refusals: RefusalLog
    doorkeeper: Doorkeeper | None
    """None: whoever comes is served."""

    patience: float
    first_request: float
    """Seconds after which a stream is ended whose client has not said which proxy it is."""


class Stream:
    """One stream, from the first request to the end of the connection."""

    # These exist once the first request has told which proxy it is.
    _session: _Session
    _connection: Connection
    _first_request: bytes | None
    _share: ProxyShare

    def __init__(self, kind: StreamKind, surroundings: StreamSurroundings) -> None:
        self._kind = kind
        self._hub = surroundings.hub
        self._slots = surroundings.slots
        self._rounds = surroundings.rounds
        self._limits = surroundings.limits
        self._shares, self._silent = surroundings.shares, surroundings.silent
        self._turned_away = surroundings.turned_away
        self._shared = SharedStream(self._make_way)
        self._unknown_nodes = surroundings.unknown_nodes
        self._refusals = surroundings.refusals
        self._doorkeeper = surroundings.doorkeeper
        self._patience = surroundings.patience
        self._seconds_to_ask = surroundings.first_request
        self._proxy: dict[str, str] = {}  # for the log, once they are known
        self._token: dict[str, str] = {}
        self._admission: Admission | None = None
        self._expulsion: NotAdmitted | None = None
        self._writer: asyncio.Task[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._published: Snapshot | None = None  # the newest that the session was given
        self._outbox: deque[Response] = deque()
        self._recently_sent = 0  # no more responses than these can await an answer
        self._wake = asyncio.Event()  # the writer has something to do
        self._outbox_is_empty = asyncio.Event()
        self._is_ending = False
        self._has_read = False
        self._asker = ""
        self._has_asked = self._is_named = False
        self._first_request = None
        self._awaited_answer: str | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._log = structlog.get_logger("cp.ads").bind(stream=kind.name)

    async def serve(self, context: Context) -> None:
        """Serve the client until it goes, or until `end`."""
        # A task group wraps what its tasks raise, so that errors arrive here as groups.
        try:
            await self._serve(context)
        except* _REFUSED as errors:
            refusal = _leaf(errors)
            reason, (status, sort) = str(refusal), _status_and_sort(refusal)
            _drop_frames(errors)
            del refusal
        else:
            return
        finally:
            self._forget()
        self._hub.metrics.refused.labels(sort).inc()
        self._refusals.tell(sort, reason, stream=self._kind.name, peer=context.peer(), **self._proxy)
        await self._hold_back(context)
        end_with(status, reason, context)

    async def _hold_back(self, context: Context) -> None:
        """Answer a client that was turned away often later, unless it has sent requests.

        gRPC may hold megabytes of them for as long as a stream lasts. The next stream waits instead, before it is read.
        """
        if self._has_read:
            if self._is_named or self._has_asked:  # of others, a silent stream makes way for newer ones
                self._turned_away.note(self._asker)
            return
        with self._turned_away.waiting(address_of(context.peer())) as seconds:
            await self._wait_for_end(seconds)

    def _forget(self) -> None:
        """Drop what the client sent and was to be sent, as it may wait for its end for a while.

        Some of it refers back to the stream. Only the garbage collector could free both, and it seldom runs.
        """
        self._outbox.clear()
        self._expulsion = self._first_request = self._published = self._writer = None
        for name in ("_session", "_connection", "_shared", "_share"):
            self.__dict__.pop(name, None)

    async def _wait_for_end(self, within: float) -> None:
        """Return after so many seconds, or when the server ends its streams."""
        if within <= 0:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while not self._is_ending:
                    self._wake.clear()
                    await self._wake.wait()

    async def _serve(self, context: Context) -> None:
        token, claims = "", None
        if self._doorkeeper is not None:  # before anything is read: a request may have megabytes
            token = token_of(context.invocation_metadata() or ())
            await self._doorkeeper.loaded()
            await self._rounds.turn()
            claims = self._doorkeeper.claims(token)
        with self._limits.counted(context.peer()):
            await self._serve_claims(token, claims, context)

    async def _serve_claims(self, token: str, claims: DataplaneClaims | None, context: Context) -> None:
        node = await self._admit_in_time(token, claims, context)
        if node is None:
            return
        with self._unknown_nodes.counted(node.id), self._shares.entered(node.id, self._shared) as self._share:
            if self._is_named:  # or anyone with a token for many Dataplanes could spend the budget of this one
                self._share.note_request(len(self._first_request or b""))
            await self._serve_node(node, context)

    async def _admit_in_time(self, token: str, claims: DataplaneClaims | None, context: Context) -> Node | None:
        """Return the node of the first request, once it is admitted, or None if the client sends none.

        Until then no one knows whose stream it is, so none is kept for long, or many. A stream with a token for one
        Dataplane counts as one of that.
        """
        loop, peer = asyncio.get_running_loop(), context.peer()
        # A token without a name may be that of a whole fleet, of which no machine delays the others.
        address = address_of(peer)
        shares, self._asker = self._silent, address if claims is None else f"{claims.id} {address}"
        self._is_named = claims is not None and bool(claims.name)
        if claims is not None and claims.name:
            shares, self._asker = self._shares, proxy_id(Key("Dataplane", claims.mesh, claims.name))

        def end() -> None:
            with suppress(RuntimeError):  # its time is over already
                limit.reschedule(loop.time())

        try:
            async with asyncio.timeout(self._seconds_to_ask) as limit:
                with ExitStack() as counted:
                    share = counted.enter_context(shares.entered(self._asker, SharedStream(end)))
                    await self._wait_for_end(self._turned_away.delay(self._asker))
                    self._first_request = await self._next_request(share, context)
                    if self._first_request is None:
                        self._note_no_request(peer)
                        return None
                    self._has_asked = True
                    if not self._is_named:
                        counted.close()  # it has asked, so it is silent no longer
                    await self._rounds.turn()
                    return await self._admitted_node(token, claims, self._first_request)
        except asyncio.CancelledError:  # the client has reset the stream
            if self._first_request is None and not self._is_ending:
                self._note_no_request(peer)
            raise
        except TimeoutError:
            reason = f"there was no first request within {self._seconds_to_ask:g} s"
            raise SilentClient(f"{reason}, or too many newer streams wait for theirs too") from None

    def _note_no_request(self, peer: str) -> None:
        """Count a stream that ended without a request. gRPC does not tell whether it received one that is too large."""
        if self._is_named:
            self._turned_away.note(self._asker)
        reason = "the stream ended without a request: its client left, or sent one larger than KOGUMA_REQUEST_LIMIT"
        self._hub.metrics.refused.labels(NO_REQUEST).inc()
        self._refusals.tell(NO_REQUEST, reason, stream=self._kind.name, peer=peer, asker=self._asker)

    async def _admitted_node(self, token: str, claims: DataplaneClaims | None, first_request: bytes) -> Node:
        node = self._node(first_request)
        self._proxy = {"proxy": node.id}
        if self._doorkeeper is not None and claims is not None:
            self._admission = await self._doorkeeper.admission(token, claims, node)
            self._token = {"token": claims.id}
        return node

    async def _next_request(self, share: ProxyShare, context: Context) -> bytes | None:
        """Return the next message, or None once the client will send no more."""
        await _pause(share)
        self._has_read = True
        data: object = await context.read()
        return data if isinstance(data, bytes) else None

    def _make_way(self) -> None:
        """End the stream: its Dataplane has newer ones, and as many as it may have."""
        most = self._share.limits.streams
        reason = f"this proxy has {most} newer streams, which is the most (KOGUMA_MOST_STREAMS_OF_PROXY)"
        self._expulsion = NotAdmitted(grpc.StatusCode.RESOURCE_EXHAUSTED, TOO_MANY_OF_PROXY, reason)
        if self._writer is not None:
            self._writer.cancel()

    def end(self) -> None:
        """Write the responses that wait to be written, then close the stream."""
        self._is_ending = True
        self._wake.set()

    @property
    def is_to_be_judged(self) -> bool:
        """Whether something changed on which it depends whether the proxy may be served."""
        return self._admission is not None and self._admission.is_outdated()

    def judge(self) -> None:
        """End the stream if its proxy may no longer be served. What waits to be written is dropped."""
        if self._admission is None or self._writer is None:
            return
        try:
            self._admission.judge()
        except NotAdmitted as expulsion:
            self._expulsion = expulsion
            self._writer.cancel()

    def _must_be_admitted(self) -> None:
        """Raises `NotAdmitted` if what changed in the meantime keeps the proxy out."""
        if self._admission is not None and self._admission.is_outdated():
            self._admission.judge()

    @contextmanager
    def _until_token_expires(self) -> Iterator[None]:
        """While this lasts: the stream is judged again when the token expires."""
        self._wait_for_expiry()
        try:
            yield
        finally:
            if self._expiry is not None:
                self._expiry.cancel()

    def _wait_for_expiry(self) -> None:
        if self._admission is not None and self._expulsion is None:
            # The clock of the machine may be set meanwhile, so no timer is long.
            seconds = min(max(0.0, self._admission.seconds_left), _LONGEST_TIMER)
            self._expiry = asyncio.get_running_loop().call_later(seconds, self._look_at_clock)

    def _look_at_clock(self) -> None:
        if self._admission is not None and self._admission.seconds_left <= 0:
            self.judge()
        self._wait_for_expiry()

    def _node(self, first_request: bytes) -> Node:
        # Later requests need not have a node: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#basic-protocol-overview
        node = self._kind.node_of(first_request)
        if node is None or node.id == "":
            raise ProtocolViolation("the first request on a stream has to say in node.id which proxy it comes from")
        return node

    async def _serve_node(self, node: Node, context: Context) -> None:
        drain_time = self._hub.unknown_drain_time(node)
        self._session = self._kind.session(
            self._hub.names.shared,
            trusts_versions=self._hub.trusts_versions(node.id),
            keeps_unknown=drain_time > 0,
            is_envoy=node.is_envoy,
            given=lambda: self._hub.given(node.id),
        )
        self._log = self._log.bind(proxy=node.id)
        self._connection = Connection(node, self._kind.name, self._session, self._wake.set)
        with self._hub.connected(self._connection):
            self._hub.metrics.opened.labels(self._kind.name).inc()
            self._log.info("proxy.connected", peer=context.peer(), envoy=node.version, **self._token)
            removal = asyncio.get_running_loop().call_later(drain_time + self._patience, self._remove_unknown)
            try:
                with self._until_token_expires():
                    await self._exchange(context)
            finally:
                removal.cancel()
                if self._deadline is not None:
                    self._deadline.cancel()
                self._log.info("proxy.disconnected")

    async def _wait_for_snapshot(self, size: int) -> None:
        """Wait until it is known how large a request of this proxy may be, if this one is large."""
        proxy = self._connection.node.id
        if size <= _LARGE_REQUEST or not self._unknown_nodes.is_known(proxy):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_COMPUTATION):
                while self._hub.newest(proxy) is None and not self._is_ending and self._expulsion is None:
                    self._must_be_admitted()
                    await asyncio.sleep(_UNTIL_NEXT_LOOK)  # the event belongs to the writer

    def _take_first_request(self) -> bytes:
        """The first request, which may have megabytes: no frame may keep it for as long as the stream lasts."""
        request, self._first_request = self._first_request, None
        return request or b""

    async def _exchange(self, context: Context) -> None:
        with suppress(grpc.aio.InternalError):  # the client has gone, as the reader will see
            # Not with the first response: if that is cancelled on its way, gRPC sends the metadata again beside the
            # status, which fails, and the client is never told that the stream has ended.
            await context.send_initial_metadata(())
        await self._wait_for_snapshot(len(self._first_request or b""))
        if self._expulsion is not None:
            raise self._expulsion
        self._receive(self._take_first_request())
        if self._session.is_fresh:
            self._hub.note_start(self._connection)
        self._wake.set()
        if self._expulsion is not None:
            raise self._expulsion
        await self._read_and_write(context)
        if self._expulsion is not None:
            raise self._expulsion

    async def _read_and_write(self, context: Context) -> None:
        # Whichever of the two ends first, by the client's or by our decision, ends the other.
        try:
            async with asyncio.TaskGroup() as tasks:
                reader = tasks.create_task(self._read(context))
                self._writer = writer = tasks.create_task(self._write(context))
                reader.add_done_callback(lambda _: writer.cancel())
                writer.add_done_callback(lambda _: reader.cancel())
        except (asyncio.CancelledError, BaseExceptionGroup) as error:
            error.__traceback__ = None  # a frame of Python 3.11's TaskGroup refers to the error, and so to the stream
            raise

    # --- requests ---

    async def _read(self, context: Context) -> None:
        while (data := await self._next_request(self._share, context)) is not None:
            while len(self._outbox) >= _MOST_WAITING:
                self._outbox_is_empty.clear()
                await self._outbox_is_empty.wait()
            await self._rounds.turn()
            self._share.note_request(len(data))
            await self._wait_for_snapshot(len(data))
            self._receive(data)
            del data  # it may have megabytes, and the next request may come late

    def _receive(self, data: bytes) -> None:
        self._must_be_admitted()
        check_size(len(data), self._hub.given(self._connection.node.id))
        request = self._kind.decoded(data, self._hub.names)
        if request.node_id not in {"", self._connection.node.id}:
            raise ProtocolViolation("node.id is another one than in the first request on the stream")
        if responses := self._session.receive(request):
            self._wake.set()
        self._share.hold(self._shared, self._session.held_bytes)
        self._queue(responses)
        answer = self._session.answer
        if answer is not None:
            self._report(SHORT[request.type_url], answer, request.error)
            self._hub.answered(self._connection, request.type_url, answer if isinstance(answer, Nack) else None)
            if self._hub.newest(self._connection.node.id) is not self._published:
                self._wake.set()  # a newer snapshot may have waited for this answer

    def _report(self, type_name: str, answer: Answer, error: str | None) -> None:
        if isinstance(answer, Nack):
            self._hub.metrics.nacks.labels(type_name).inc()
            self._log.debug(
                "resources.refused", type=type_name, version=answer.version, names=answer.names, reason=answer.text
            )
        else:
            self._hub.metrics.acks.labels(type_name).inc()
            self._log.debug("resources.accepted", type=type_name, version=answer, earlier_refusal=error)

    # --- responses ---

    async def _write(self, context: Context) -> None:
        with suppress(grpc.aio.InternalError):  # the client has gone, and there is nobody to whom to write
            while not self._is_ending:
                await self._wake.wait()
                self._wake.clear()
                await self._rounds.turn()
                self._publish_newest()
                while self._outbox:
                    await self._send(self._outbox.popleft(), context)
                    self._publish_newest()
                self._outbox_is_empty.set()

    def _publish_newest(self) -> None:
        newest = self._hub.newest(self._connection.node.id)
        if newest is None or newest is self._published or self._outbox or self._has_many_unanswered:
            return
        self._must_be_admitted()
        # Before the session sees it: a snapshot that needs no response is not to be published again and again.
        self._published = newest
        responses = self._session.publish(newest)
        self._queue(responses)
        if not responses:
            self._hub.caught_up(self._connection)

    @property
    def _has_many_unanswered(self) -> bool:
        # The session counts by going through its channels, which is done only when the bound may have been reached.
        if self._recently_sent >= _MOST_UNANSWERED:
            self._recently_sent = self._session.unanswered
        return self._recently_sent >= _MOST_UNANSWERED

    async def _send(self, response: Response, context: Context) -> None:
        if response.size < _LARGE:
            await self._write_response(response, context)
        else:
            async with self._slots.slot():
                await self._write_response(response, context)

    async def _write_response(self, response: Response, context: Context) -> None:
        self._must_be_admitted()  # it may have waited for the client, or for a slot
        data, type_name = self._kind.encoded(response), SHORT[response.type_url]
        resources = sum(map(len, response.batches))
        self._hub.sending(self._connection, type_name, resources, len(data))
        await context.write(data)
        self._hub.metrics.sent(self._kind.name, type_name, resources, len(data))

    def _queue(self, responses: list[Response]) -> None:
        self._outbox.extend(responses)
        self._recently_sent += len(responses)
        self._set_deadline()

    # --- the clock ---

    def _set_deadline(self) -> None:
        """Start, keep or stop the clock, according to what the session waits for now."""
        awaited_answer = self._session.awaited_answer
        if awaited_answer == self._awaited_answer:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._awaited_answer, self._deadline = awaited_answer, None
        if awaited_answer is not None:
            self._deadline = asyncio.get_running_loop().call_later(self._patience, self._expire, awaited_answer)

    def _remove_unknown(self) -> None:
        """The listeners have drained that the proxy had when it connected to this process for the first time."""
        self._queue(self._session.remove_unknown())
        self._wake.set()

    def _expire(self, nonce: str) -> None:
        self._log.warning("clusters.unanswered", seconds=self._patience)
        self._queue(self._session.expire(nonce))
        self._wake.set()


def end_with(status: grpc.StatusCode, reason: str, context: Context) -> None:
    """Set the status of a stream, which gRPC sends once its handler returns.

    `context.abort` raises an error that refers to its own frames: only the garbage collector could free the stream.
    """
    context.set_code(status)
    context.set_details(reason)


async def _pause(share: ProxyShare) -> None:
    """Wait until a request may be read: gRPC receives none that has more than 64 KiB before it is to be read."""
    while (pause := share.pause) > 0:  # noqa: ASYNC110  # nothing but time ends it
        await asyncio.sleep(pause)


def _status_and_sort(refusal: Exception) -> tuple[grpc.StatusCode, str]:
    if isinstance(refusal, NotAdmitted):
        return refusal.status, refusal.sort
    if isinstance(refusal, TooManyStreams):
        return grpc.StatusCode.RESOURCE_EXHAUSTED, refusal.sort
    return next(answer for kind, answer in _REFUSALS.items() if isinstance(refusal, kind))


def _drop_frames(error: BaseException) -> None:
    """Let go of the frames that raised an error: they hold what the client sent, and refer to the error in turn."""
    error.__traceback__ = None
    for inner in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        _drop_frames(inner)


def _leaf(errors: BaseExceptionGroup[E]) -> E:
    error: E | BaseExceptionGroup[E] = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
