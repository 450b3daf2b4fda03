"""An xDS client of either protocol variant over a real connection, and a server whose resources a test changes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from envoy.config.core.v3.base_pb2 import Node
from envoy.service.discovery.v3.discovery_pb2 import (
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    DiscoveryRequest,
    DiscoveryResponse,
)

from cp.ads.hub import Hub
from cp.translate.packing import SECRET, PackedResource
from tests.ads.content import Content, pack, snapshot, unpack
from tests.ads.proxy import WITHIN, Proxy

Revisions: TypeAlias = dict[str, int]


@dataclass(frozen=True)
class Heard:
    """A response: the revision of each resource in it, and the names that it removes."""

    type_url: str
    nonce: str
    revisions: Revisions
    removed: frozenset[str] = frozenset()


class Target:
    """The resources that the server has for the client."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._revisions: dict[tuple[str, str], int] = {}

    def put(self, type_url: str, *names: str, revision: int = 1) -> None:
        self._revisions |= {(type_url, name): revision for name in names}
        self._publish()

    def remove(self, type_url: str, name: str) -> None:
        del self._revisions[type_url, name]
        self._publish()

    def _publish(self) -> None:
        packed = (pack(type_url, Content(name, revision)) for (type_url, name), revision in self._revisions.items())
        self._hub.publisher.publish("default.web", snapshot(*packed))


class XdsClient(Proxy):
    """It ACKs every response when it reads it."""

    def __init__(self, port: int, *, is_delta: bool) -> None:
        super().__init__(port, method="DeltaAggregatedResources" if is_delta else "StreamAggregatedResources")
        self._is_delta = is_delta
        self._names: dict[str, set[str]] = defaultdict(set)
        self._nonces: dict[str, str] = {}
        self._versions: dict[str, str] = {}
        self._markers = 0

    async def subscribe(self, type_url: str, *names: str) -> None:
        """Request these too; no names are a request for all."""
        self._names[type_url].update(names)
        await self._request(type_url, subscribe=names)

    async def unsubscribe(self, type_url: str, *names: str) -> None:
        self._names[type_url].difference_update(names)
        await self._request(type_url, unsubscribe=names)

    async def read(self) -> Heard:
        """The next response, after an ACK of it."""
        async with asyncio.timeout(WITHIN):
            data = await self._call.read()
        assert isinstance(data, bytes), "the stream ended"
        heard = self._decoded(data)
        self._nonces[heard.type_url] = heard.nonce
        await self._request(heard.type_url, nonce=heard.nonce)
        return heard

    async def read_rest(self, target: Target) -> list[Heard]:
        """All responses that the server sends because of what happened so far.

        A secret changes, which tells that all changes have arrived. Then another secret is requested, whose response is
        the last one, as the server does everything in order.
        """
        self._markers += 1
        requested = f"requested-{self._markers}"
        target.put(SECRET, "changed", requested, revision=self._markers)
        responses: list[Heard] = []
        for name in ("changed", requested):
            await self.subscribe(SECRET, name)
            while name not in (heard := await self.read()).revisions or heard.type_url != SECRET:
                responses.append(heard)
        return [heard for heard in responses if heard.type_url != SECRET]

    async def _request(
        self, type_url: str, *, subscribe: tuple[str, ...] = (), unsubscribe: tuple[str, ...] = (), nonce: str = ""
    ) -> None:
        # Only the first request has to name the node.
        node = None if self._nonces or self._versions else Node(id=self.name)
        request: DiscoveryRequest | DeltaDiscoveryRequest
        if self._is_delta:
            request = DeltaDiscoveryRequest(
                node=node,
                type_url=type_url,
                resource_names_subscribe=subscribe,
                resource_names_unsubscribe=unsubscribe,
                response_nonce=nonce,
            )
        else:
            request = DiscoveryRequest(
                node=node,
                type_url=type_url,
                resource_names=sorted(self._names[type_url]),
                response_nonce=self._nonces.get(type_url, ""),
                version_info=self._versions.get(type_url, ""),
            )
        await self.say(request.SerializeToString())

    def _decoded(self, data: bytes) -> Heard:
        if self._is_delta:
            response = DeltaDiscoveryResponse.FromString(data)
            revisions = dict(_revisions(entry.resource for entry in response.resources))
            return Heard(response.type_url, response.nonce, revisions, frozenset(response.removed_resources))
        full = DiscoveryResponse.FromString(data)
        self._versions[full.type_url] = full.version_info
        return Heard(full.type_url, full.nonce, dict(_revisions(full.resources)))


def _revisions(resources: Any) -> Iterator[tuple[str, int]]:
    for resource in resources:
        content = unpack(PackedResource.of(resource.type_url, "", resource.value))
        yield content.name, content.revision
