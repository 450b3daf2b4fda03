"""A proxy's end of a stream, over a real connection, saying exactly what a test tells it to say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import grpc
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest, DiscoveryResponse

from cp.ads.server import SERVICE
from cp.translate.packing import SECRET
from tests.support.leaks import leaks

WITHIN = 20


class Proxy:
    """Speaks the state of the world, to the letter."""

    def __init__(
        self,
        port: int,
        name: str = "default.web",
        metadata: Iterable[tuple[str, str | bytes]] = (),
        *,
        trusted: str = "",
        method: str = "StreamAggregatedResources",
        host: str = "127.0.0.1",
        **channel: int,
    ) -> None:
        """`trusted`: the authority whose certificate it takes; without it, it speaks plain text."""
        options = [(f"grpc.{key}", value) for key, value in channel.items()]
        self.name = name
        self._channel = (
            grpc.aio.secure_channel(f"{host}:{port}", grpc.ssl_channel_credentials(trusted.encode()), options)
            if trusted
            else grpc.aio.insecure_channel(f"{host}:{port}", options=options)
        )
        stream: Any = self._channel.stream_stream(f"/{SERVICE}/{method}")
        self._call: Any = stream(metadata=grpc.aio.Metadata(*metadata))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call.cancel()
        await self._channel.close()

    async def say(self, message: bytes) -> None:
        await self._call.write(message)

    async def ask(self, type_url: str, *names: str) -> None:
        request = DiscoveryRequest(type_url=type_url, resource_names=names)
        request.node.id = self.name
        await self.say(request.SerializeToString())

    async def answer(self, response: DiscoveryResponse, *names: str, error: str = "") -> None:
        request = DiscoveryRequest(
            type_url=response.type_url,
            version_info=response.version_info,
            response_nonce=response.nonce,
            resource_names=names,
        )
        if error:
            request.version_info, request.error_detail.message = "", error
        await self.say(request.SerializeToString())

    async def hear(self, within: float = WITHIN) -> DiscoveryResponse:
        """The next response."""
        async with asyncio.timeout(within):
            data = await self._call.read()
        assert isinstance(data, bytes), f"the stream ended: {await self.end()}"
        response = DiscoveryResponse.FromString(data)
        assert response.type_url == SECRET or not list(leaks(data)), f"secrets are told as {response.type_url}"
        return response

    async def hang_up(self) -> None:
        """Say that no more will be said."""
        await self._call.done_writing()

    async def end(self) -> tuple[grpc.StatusCode, str]:
        """How the stream ended, once it has; what was still sent until then is passed over."""
        async with asyncio.timeout(WITHIN):
            with suppress(grpc.aio.AioRpcError):
                while isinstance(await self._call.read(), bytes):
                    pass
            return await self._call.code(), await self._call.details()
