"""What a hostile holder of one proxy's token does to a control plane, each until it is cancelled.

It runs as a process of its own, `python -m tests.hostile.attacks TARGET SECONDS NAMES…`, and prints how often each
attack was tried.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

import grpc
import httpx
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DiscoveryRequest

from cp.ads.server import SERVICE
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, RUNTIME, SECRET

TYPES: Final = (CLUSTER, ENDPOINTS, LISTENER, ROUTES, RUNTIME, SECRET)
SOTW: Final = "StreamAggregatedResources"
DELTA: Final = "DeltaAggregatedResources"
_MIB: Final = 1024 * 1024
_STREAMS: Final = 40
_PAUSE: Final = 0.01
"""Seconds between two tries of one attacker. Without it the attacker alone takes a processor."""


@dataclass(frozen=True, slots=True)
class Target:
    """The control plane, and the token that the attacker has got hold of."""

    ads: str
    api: str
    authority: str
    token: str
    mesh: str
    name: str

    @property
    def node(self) -> str:
        return f"{self.mesh}.{self.name}"

    @property
    def path(self) -> str:
        return f"/meshes/{self.mesh}/dataplanes/{self.name}"

    @classmethod
    def parse(cls, text: str) -> Target:
        return cls(**json.loads(text))

    def __str__(self) -> str:
        return json.dumps(asdict(self))


class Attacker:
    """The means of all attacks, and how often each was tried."""

    def __init__(self, target: Target, chance: random.Random) -> None:
        self.target, self.chance = target, chance
        self.tries: Counter[str] = Counter()
        self._bearer = {"authorization": f"Bearer {target.token}", "koguma-owner": "attacker"}

    def client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=200)
        return httpx.AsyncClient(base_url=self.target.api, headers=self._bearer, timeout=60, limits=limits)

    def long_name(self, size: int) -> str:
        return f"{self.chance.randrange(10**9)}".ljust(size, "x")

    def sotw(self, type_url: str, *names: str, node: str = "") -> bytes:
        request = DiscoveryRequest(type_url=type_url, resource_names=names)
        request.node.id = node or self.target.node
        return request.SerializeToString()

    def delta(self, type_url: str, *names: str, **fields: Any) -> bytes:
        request = DeltaDiscoveryRequest(type_url=type_url, resource_names_subscribe=names, **fields)
        request.node.id = self.target.node
        return request.SerializeToString()

    async def stream(self, method: str, requests: Callable[[], list[bytes]], *, reads: bool = True) -> None:
        """Hold one stream after the other, each on a connection of its own."""
        while True:
            async with self.channel() as channel:
                await self.hold(channel, method, requests, reads=reads)
            await asyncio.sleep(_PAUSE)

    def channel(self) -> grpc.aio.Channel:
        authority = grpc.ssl_channel_credentials(self.target.authority.encode())
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        return grpc.aio.secure_channel(self.target.ads, authority, options)

    async def reset(self, channel: grpc.aio.Channel, request: bytes) -> None:
        """Open a stream, and leave as soon as the request is sent."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            call = self._opened(channel, SOTW, self.target.token)
            await call.write(request)
            call.cancel()

    def _opened(self, channel: grpc.aio.Channel, method: str, token: str) -> Any:
        opened: Any = channel.stream_stream(f"/{SERVICE}/{method}")
        self.tries["streams"] += 1
        return opened(metadata=grpc.aio.Metadata(("authorization", token)))

    async def hold(
        self,
        channel: grpc.aio.Channel,
        method: str,
        requests: Callable[[], list[bytes]],
        *,
        reads: bool = True,
        token: str = "",
    ) -> None:
        """Hold one stream until it ends."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self._hold(channel, method, requests, reads=reads, token=token or self.target.token)

    async def _hold(
        self, channel: grpc.aio.Channel, method: str, requests: Callable[[], list[bytes]], *, reads: bool, token: str
    ) -> None:
        call = self._opened(channel, method, token)
        for request in requests():
            await call.write(request)
            self.tries["requests on streams"] += 1
        if reads:
            while isinstance(await call.read(), bytes):
                pass
        await call.code()


Attack = Callable[[Attacker], Coroutine[None, None, None]]


async def name_floods(attacker: Attacker) -> None:
    """Requests nearly as large as they may be, of few names and of many, of every type, in both protocols."""

    def long_names(write: Callable[..., bytes]) -> list[bytes]:
        return [
            write(type_url, *(attacker.long_name(650_000) for _ in range(3))) for type_url in TYPES for _ in range(4)
        ]

    def many_names(write: Callable[..., bytes]) -> list[bytes]:
        return [write(type_url, *(attacker.long_name(95) for _ in range(19_000))) for type_url in TYPES]

    async with asyncio.TaskGroup() as group:
        for names in (long_names, many_names):
            for method, write in ((DELTA, attacker.delta), (SOTW, attacker.sotw)):
                group.create_task(attacker.stream(method, partial(names, write)))


async def large_requests(attacker: Attacker) -> None:
    """Requests as large as gRPC receives them, the first of a stream and later ones."""

    def requests(begins: int, versions: Mapping[str, str]) -> list[bytes]:
        small = [attacker.delta(CLUSTER)] * begins
        large = (attacker.delta(type_url, initial_resource_versions=versions) for type_url in TYPES)
        return [*small, *large]

    versions = {f"{number:0100}": "v" * 40 for number in range(34_000)}
    async with asyncio.TaskGroup() as group:
        for begins in (0, 1) * 4:
            group.create_task(attacker.stream(DELTA, partial(requests, begins, versions)))


async def version_floods(attacker: Attacker) -> None:
    """Versions that the client says it has, in requests nearly as large as they may be."""

    def requests() -> list[bytes]:
        versions = {attacker.long_name(100): "v" * 50 for _ in range(12_000)}
        return [attacker.delta(type_url, initial_resource_versions=versions) for type_url in TYPES]

    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(attacker.stream(DELTA, requests))


async def many_streams(attacker: Attacker) -> None:
    """Many streams that are served, and as many that ask for nothing."""
    async with asyncio.TaskGroup() as group:
        for _ in range(_STREAMS):
            group.create_task(attacker.stream(SOTW, lambda: [attacker.sotw(CLUSTER), attacker.sotw(LISTENER)]))
            group.create_task(attacker.stream(DELTA, list))


async def slow_readers(attacker: Attacker) -> None:
    """Streams that ask for everything again and again, and read nothing."""

    def requests() -> list[bytes]:
        return [attacker.delta(type_url, "*", attacker.long_name(1000)) for type_url in TYPES for _ in range(50)]

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(attacker.stream(DELTA, requests, reads=False))


async def error_floods(attacker: Attacker) -> None:
    """NACKs with a megabyte of error each."""

    def requests() -> list[bytes]:
        asked = [attacker.delta(type_url, "*") for type_url in TYPES]
        for number in range(30):
            nack = DeltaDiscoveryRequest(type_url=TYPES[number % len(TYPES)], response_nonce=str(number))
            nack.error_detail.code, nack.error_detail.message = 13, attacker.long_name(_MIB)
            asked.append(nack.SerializeToString())
        return asked

    await attacker.stream(DELTA, requests)


async def reconnections(attacker: Attacker) -> None:
    """Streams for another Dataplane, each on a connection of its own, which are turned away."""
    async with asyncio.TaskGroup() as group:
        for _ in range(_STREAMS):
            group.create_task(attacker.stream(SOTW, lambda: [attacker.sotw(CLUSTER, node="default.other")]))


async def retries(attacker: Attacker) -> None:
    """The same on connections that are kept."""
    await _retry(attacker, attacker.target.token, [attacker.sotw(CLUSTER, node="default.other")])


async def anonymous_retries(attacker: Attacker) -> None:
    """Streams with a token that is none, on connections that are kept."""
    await _retry(attacker, "none", [attacker.sotw(CLUSTER)])


async def oversized_requests(attacker: Attacker) -> None:
    """First requests that are larger than gRPC receives, on connections that are kept."""
    await _retry(attacker, attacker.target.token, [attacker.sotw(CLUSTER, "x" * 9 * _MIB)])


async def _retry(attacker: Attacker, token: str, requests: list[bytes]) -> None:
    async def again_and_again() -> None:
        async with attacker.channel() as channel:
            while True:
                await attacker.hold(channel, SOTW, lambda: requests, token=token)
                await asyncio.sleep(_PAUSE)

    async with asyncio.TaskGroup() as group:
        for _ in range(_STREAMS):
            group.create_task(again_and_again())


async def resets(attacker: Attacker) -> None:
    """Streams that are reset as soon as they have sent a request, on connections that are kept."""
    request = attacker.sotw(CLUSTER, node="default.other")

    async def again_and_again() -> None:
        async with attacker.channel() as channel:
            while True:
                await attacker.reset(channel, request)

    async with asyncio.TaskGroup() as group:
        for _ in range(_STREAMS):
            group.create_task(again_and_again())


async def hang_ups(attacker: Attacker) -> None:
    """The same, each on a connection of its own."""
    request = attacker.sotw(CLUSTER, node="default.other")

    async def again_and_again() -> None:
        while True:
            async with attacker.channel() as channel:
                await attacker.reset(channel, request)

    async with asyncio.TaskGroup() as group:
        for _ in range(_STREAMS):
            group.create_task(again_and_again())


async def registrations(attacker: Attacker) -> None:
    """Dataplanes of 60 and of 200 KB, each different from the one before."""

    def document(size: int) -> Mapping[str, Any]:
        tags = {"kuma.io/service": attacker.target.name, "note": attacker.long_name(30)}
        inbound = [{"port": 10_000 + number, "tags": tags} for number in range(size // 100)]
        networking = {"address": "192.0.2.7", "inbound": inbound}
        return {
            "type": "Dataplane",
            "mesh": attacker.target.mesh,
            "name": attacker.target.name,
            "networking": networking,
        }

    async def store(client: httpx.AsyncClient, size: int) -> None:
        await client.put(attacker.target.path, json=document(size))

    sizes = 300, 50_000, 200_000
    await _requests(attacker, "registrations", lambda client: store(client, attacker.chance.choice(sizes)))


async def removals(attacker: Attacker) -> None:
    """The Dataplane is removed, said to be ready and not to be."""

    async def remove(client: httpx.AsyncClient) -> None:
        await client.delete(attacker.target.path)
        for ready in (True, False):
            await client.post(f"{attacker.target.path}/_readiness", json={"owner": "attacker", "ready": ready})

    await _requests(attacker, "removals", remove)


async def bootstraps(attacker: Attacker) -> None:
    """Bootstrap requests, small and large."""

    async def ask(client: httpx.AsyncClient) -> None:
        body = {"mesh": attacker.target.mesh, "name": attacker.target.name, "workdir": "x" * 200_000}
        await client.post("/bootstrap", json=body)

    await _requests(attacker, "bootstrap requests", ask)


async def links(attacker: Attacker) -> None:
    """Links of agents, which end one another."""

    async def hold(client: httpx.AsyncClient) -> None:
        async with client.stream("POST", f"{attacker.target.path}/_link", json={"owner": "attacker"}) as answer:
            async for _ in answer.aiter_bytes():
                return

    await _requests(attacker, "links", hold)


async def long_polls(attacker: Attacker) -> None:
    """Callers that wait until a revision is everywhere that there is not."""

    async def wait(client: httpx.AsyncClient) -> None:
        await client.post("/_delivery", json={"revisions": [10**9 + attacker.chance.randrange(3)], "wait": "30s"})

    await _requests(attacker, "waiting requests", wait, at_once=100)


async def bad_bodies(attacker: Attacker) -> None:
    """Bodies that are none, compressed ones, deep ones, and paths that are none."""
    bodies = (
        b"{" * 60_000,
        b"[" * 60_000 + b"]" * 60_000,
        gzip.compress(b" " * 20 * _MIB),
        b"a: &a [" + b"*a," * 10_000 + b"]",
        b"\xff" * 1000,
        b'{"type":"Dataplane","x":' + b"9" * 50_000 + b"}",
    )

    async def send(client: httpx.AsyncClient) -> None:
        body, kind = attacker.chance.choice(bodies), attacker.chance.choice(("application/json", "application/yaml"))
        method, path = attacker.chance.choice(
            (("PUT", attacker.target.path), ("POST", "/bootstrap"), ("POST", "/_delivery"), ("PUT", "/meshes/default"))
        )
        encoding = {"content-encoding": "gzip"} if body[:2] == b"\x1f\x8b" else {}
        await client.request(method, path, content=body, headers={"content-type": kind, **encoding})

    await _requests(attacker, "bad bodies", send)


async def slow_requests(attacker: Attacker) -> None:
    """Connections that send a byte now and then."""
    url = httpx.URL(attacker.target.api)

    async def drip() -> None:
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection(url.host, url.port)
                attacker.tries["slow requests"] += 1
                writer.write(b"PUT / HTTP/1.1\r\nhost: localhost\r\nx-")
                for _ in range(30):
                    await asyncio.sleep(1)
                    writer.write(b"a")
                    await writer.drain()
                writer.close()
            await asyncio.sleep(_PAUSE)

    async with asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(drip())


ATTACKS: Final[Mapping[str, Attack]] = {
    attack.__name__: attack
    for attack in (
        *(name_floods, large_requests, version_floods, many_streams, slow_readers, error_floods),
        *(reconnections, retries, anonymous_retries, oversized_requests, resets, hang_ups),
        *(registrations, removals, bootstraps, links, long_polls, bad_bodies, slow_requests),
    )
}


async def _requests(
    attacker: Attacker, name: str, send: Callable[[httpx.AsyncClient], Awaitable[None]], at_once: int = 3
) -> None:
    async def again_and_again(client: httpx.AsyncClient) -> None:
        while True:
            with suppress(httpx.HTTPError):
                await send(client)
            attacker.tries[name] += 1
            await asyncio.sleep(_PAUSE)

    async with attacker.client() as client, asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(again_and_again(client))


async def attack(attacker: Attacker, names: list[str]) -> None:
    async with asyncio.TaskGroup() as group:
        for name in names or ATTACKS:
            group.create_task(ATTACKS[name](attacker))


def main() -> None:
    text, seconds, *names = sys.argv[1:]
    attacker = Attacker(Target.parse(text), random.Random(1))
    timer = threading.Timer(float(seconds), end, [attacker])
    timer.daemon = True
    timer.start()
    asyncio.run(attack(attacker, names))


def end(attacker: Attacker) -> None:
    """End at once, as an attacker does who is cut off."""
    print(json.dumps(attacker.tries), flush=True)  # noqa: T201
    os._exit(0)


if __name__ == "__main__":
    main()
