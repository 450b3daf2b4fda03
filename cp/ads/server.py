"""The ADS server: streams over gRPC. It moves bytes and decides nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import grpc

from cp.ads.admission import Doorkeeper
from cp.ads.hub import Hub
from cp.ads.large_messages import LargeMessageSlots
from cp.ads.proxy_shares import ProxyShares, ShareLimits
from cp.ads.refusal_log import RefusalLog
from cp.ads.rounds import LoopRounds
from cp.ads.stream import DELTA, MOST_SILENT, STATE_OF_THE_WORLD, Stream, StreamKind, StreamSurroundings, end_with
from cp.ads.stream_limits import StreamLimits
from cp.ads.turned_away import TurnedAway
from cp.ads.unknown_nodes import UnknownNodes
from cp.listening import reason_not_bound

SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
_MIB = 1024 * 1024
_MOST_PENDING = 5_000  # streams; beyond it gRPC ends some at random, and all beyond twice as many
_LARGEST_METADATA = 20 * 1024  # a token has 16 KiB at the most; beyond 8 gRPC would otherwise refuse some at random


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How to serve. Times are in seconds."""

    host: str = "127.0.0.1"
    port: int = 0  # any that is free
    socket: str = ""  # a socket in the file system in place of host and port
    credentials: grpc.ServerCredentials | None = None
    shares_port: bool = False  # with other processes; otherwise a port that is taken is an error
    patience: float = 5.0  # how long listeners and routes wait for the word that their clusters are in force
    handshake: float = 10.0  # how long a connection may take to begin to speak HTTP/2
    first_request: float = 30.0  # how long a stream may be open before its proxy asks for something
    max_age: float | None = None  # after which a stream is closed, so that proxies spread over new servers
    large_at_once: int = 32  # large messages that are being written at the same time
    large_patience: float = 1.0  # after which a large message that is not taken no longer counts
    round_seconds: float = 0.02  # of a round of the event loop are for streams
    round_streams: int = 256  # that is, for so many at most
    grace: float = 5.0  # how long a stream may take to end
    drain: float = 0.0  # over how long streams are ended when the server stops
    most_streams: int | None = None
    most_streams_of_address: int | None = None
    most_streams_of_proxy: int | None = 4
    most_bytes_of_proxy: int = 8 * _MIB  # of names and versions, on all its streams
    silence: float = 60.0  # how long a connection may have no stream
    most_unknown: int = 1000  # streams of proxies that have no Dataplane
    request_limit: int = 5 * _MIB  # bytes of one request
    doorkeeper: Doorkeeper | None = None  # who is let in; without it everybody is

    @property
    def streams_of_connection(self) -> int:
        """The most streams of one connection. Each takes some 30 KiB until gRPC is done with it, also if it was reset.

        A proxy has a connection of its own, and gateways in front of the server open more of them.
        """
        return 100 if self.most_streams_of_proxy is None else 4 * self.most_streams_of_proxy

    def stream_age(self, chance: float) -> float | None:
        """After how long to close a stream: up to half of `max_age` earlier, so that proxies that connected together do
        not connect again together."""
        return None if self.max_age is None else self.max_age * (0.5 + 0.5 * chance)


def channel_arguments(options: ServerOptions) -> tuple[tuple[str, int], ...]:
    return (
        # When a thousand proxies reconnect at once gRPC otherwise cancels some at random (grpc/grpc#34782). Each takes
        # some 20 KiB until it is looked at, also if its client has reset it meanwhile.
        ("grpc.server.max_pending_requests", _MOST_PENDING),
        ("grpc.server.max_pending_requests_hard_limit", 2 * _MOST_PENDING),
        # Otherwise whoever connects and says nothing has a file descriptor for two minutes.
        ("grpc.server_handshake_timeout_ms", int(options.handshake * 1000)),
        # Otherwise a second server on the same port starts, and silently takes half of the proxies.
        ("grpc.so_reuseport", int(options.shares_port)),
        # Otherwise whoever has connected, and asks for nothing, stays for as long as it likes.
        ("grpc.max_connection_idle_ms", int(options.silence * 1000)),
        # Otherwise gRPC takes megabytes from clients that send fast, before a stream reads them.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", 64 * 1024),
        # Otherwise the buffer of a connection that once sent megabytes stays as large (grpc/grpc#42194).
        ("grpc.experimental.tcp_max_read_buffer_size", 64 * 1024),
        ("grpc.max_concurrent_streams", options.streams_of_connection),
        # Envoy is told to ping every 30 s. gRPC takes more than one ping in 5 minutes for an attack.
        ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.max_send_message_length", 64 * _MIB),
        ("grpc.max_receive_message_length", options.request_limit),
        ("grpc.max_metadata_size", _LARGEST_METADATA),
    )


class AdsServer:
    """Serves a hub's snapshots. `chance` returns numbers in [0, 1): streams of one age end at different times."""

    def __init__(
        self,
        hub: Hub,
        options: ServerOptions,
        chance: Callable[[], float],
        is_known: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`is_known` tells whether a proxy has a Dataplane."""
        self._hub = hub
        self._options = options
        self._chance = chance
        self._surroundings = StreamSurroundings(
            hub=hub.streams,
            slots=LargeMessageSlots(options.large_at_once, options.large_patience),
            rounds=LoopRounds(options.round_seconds, options.round_streams, hub.precedence),
            limits=StreamLimits(options.most_streams, options.most_streams_of_address),
            shares=ProxyShares(ShareLimits(options.most_streams_of_proxy, options.most_bytes_of_proxy), time.monotonic),
            silent=ProxyShares(ShareLimits(MOST_SILENT), time.monotonic),
            turned_away=TurnedAway(time.monotonic),
            unknown_nodes=UnknownNodes(options.most_unknown, is_known),
            refusals=RefusalLog(time.monotonic),
            doorkeeper=options.doorkeeper,
            patience=options.patience,
            first_request=options.first_request,
        )
        self._streams: set[Stream] = set()
        self._none_left = asyncio.Event()
        self._stopping = False
        self._server = grpc.aio.server(options=channel_arguments(options))
        self._server.add_generic_rpc_handlers((self._handlers(),))
        self.port = self._bind()

    async def start(self) -> None:
        """Whoever breaks it off waits until the server has started: gRPC cannot end one that is halfway there."""
        start = asyncio.get_running_loop().create_task(self._server.start())  # not in a group, which would cancel it
        try:
            await asyncio.shield(start)
        finally:
            await start

    async def judge(self) -> None:
        """End the streams of proxies that may no longer be served, because keys, revocations or Dataplanes changed."""
        for stream in [stream for stream in self._streams if stream.is_to_be_judged]:
            await self._surroundings.rounds.turn()
            stream.judge()

    async def stop(self) -> None:
        """Let every stream finish what it is writing; a stream that takes longer than `grace` is cut off."""
        self._stopping = True
        await self._drain_streams()
        for stream in self._streams:
            stream.end()
        await self._server.stop(self._options.grace)

    async def _drain_streams(self) -> None:
        """End the streams one after the other, so that other servers get their proxies one after the other too."""
        if not self._streams or self._options.drain <= 0:
            return
        loop = asyncio.get_running_loop()
        for stream in self._streams:
            loop.call_later(self._options.drain * self._chance(), stream.end)
        self._none_left.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._none_left.wait(), self._options.drain)

    def _bind(self) -> int:
        if self._options.socket:
            return self._server.add_insecure_port(f"unix:{self._options.socket}")
        host = f"[{self._options.host}]" if ":" in self._options.host else self._options.host
        address = f"{host}:{self._options.port}"
        try:
            if self._options.credentials is None:
                return self._server.add_insecure_port(address)
            return self._server.add_secure_port(address, self._options.credentials)
        except RuntimeError as error:  # gRPC does not say why
            raise reason_not_bound(self._options.host, self._options.port, error) from error

    def _handlers(self) -> grpc.GenericRpcHandler:
        methods = {"StreamAggregatedResources": STATE_OF_THE_WORLD, "DeltaAggregatedResources": DELTA}
        return grpc.method_handlers_generic_handler(
            SERVICE, {name: self._handler(kind) for name, kind in methods.items()}
        )

    def _handler(self, kind: StreamKind) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def serve(_: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
            await self._serve(kind, context)

        return grpc.stream_stream_rpc_method_handler(serve)

    async def _serve(self, kind: StreamKind, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        if self._stopping:
            self._hub.metrics.refused.labels("stopping").inc()
            end_with(grpc.StatusCode.UNAVAILABLE, "this control plane is stopping; ask another one", context)
            return
        stream = Stream(kind, self._surroundings)
        self._streams.add(stream)
        timer = self._start_age_timer(stream)
        try:
            await stream.serve(context)
        finally:
            self._streams.remove(stream)
            if not self._streams:
                self._none_left.set()
            if timer is not None:
                timer.cancel()

    def _start_age_timer(self, stream: Stream) -> asyncio.TimerHandle | None:
        age = self._options.stream_age(self._chance())
        return None if age is None else asyncio.get_running_loop().call_later(age, stream.end)


@asynccontextmanager
async def serving(
    hub: Hub, options: ServerOptions, chance: Callable[[], float], is_known: Callable[[str], bool] = lambda _: True
) -> AsyncIterator[AdsServer]:
    """A server that is there for as long as the block lasts."""
    server = AdsServer(hub, options, chance, is_known)
    try:
        await server.start()  # may be broken off, when the port is open already
        yield server
    finally:
        await server.stop()
