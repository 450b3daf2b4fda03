"""A proxy without traffic: it asks for what an Envoy asks for, takes it over, and may be slow, moody or gone."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

import grpc
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.service.discovery.v3.discovery_pb2 import (
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    DiscoveryRequest,
    DiscoveryResponse,
)

from cp.ads.server import SERVICE
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES
from tests.support.loopback import Address

FOLLOWS = {CLUSTER: ENDPOINTS, LISTENER: ROUTES}
_MANAGER = HttpConnectionManager.DESCRIPTOR.full_name


@dataclass(frozen=True, slots=True)
class Temper:
    """How a proxy behaves."""

    slow: float = 0.0
    """Seconds that it may take before it reads."""

    moody: bool = False
    """It refuses some contents, always the same ones."""

    restless: float = 0.0
    """How likely it goes away after a message, to come back at once."""


class Fake:
    """One proxy. It keeps what it has while it is not connected."""

    def __init__(self, name: str, address: Address, temper: Temper, chance: Random) -> None:
        self.name = name
        self.temper = temper
        self.has: dict[str, dict[str, str]] = {url: {} for url in (CLUSTER, ENDPOINTS, LISTENER, ROUTES)}
        self.refusals = 0
        self._address = address
        self._chance = chance
        self._needs: dict[str, dict[str, frozenset[str]]] = {CLUSTER: {}, LISTENER: {}}
        self._visit: asyncio.Task[None] | None = None
        self._call: Any = None

    async def live(self) -> None:
        """Connect, and connect again whenever the stream ends, until cancelled."""
        while True:
            async with asyncio.TaskGroup() as group:
                self._visit = group.create_task(self._visited())
            await asyncio.sleep(self._chance.uniform(0.05, 0.5))

    def leave(self) -> None:
        if self._visit is not None:
            self._visit.cancel()

    async def _visited(self) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own, as a proxy has
        async with grpc.aio.insecure_channel(str(self._address), options) as channel:
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await self._stream(channel)

    async def _stream(self, channel: grpc.aio.Channel) -> None:
        raise NotImplementedError

    async def _read(self) -> bytes | None:
        if self.temper.slow > 0:
            await asyncio.sleep(self._chance.uniform(0, self.temper.slow))
        data: object = await self._call.read()
        leaves = self._chance.random() < self.temper.restless
        return data if isinstance(data, bytes) and not leaves else None

    def _take(self, type_url: str, name: str, body: bytes) -> bool:
        """Take a resource over, or refuse it. As Envoy does, it passes over what comes when it is needed no more."""
        if type_url in FOLLOWS.values() and name not in self._wanted(type_url):
            return True
        version = hashlib.sha256(body).hexdigest()[:16]
        if self.temper.moody and self.has[type_url].get(name) != version and int(version, 16) % 7 == 0:
            self.refusals += 1
            return False
        self.has[type_url][name] = version
        if type_url in FOLLOWS:
            self._needs[type_url][name] = _needed(type_url, body)
        return True

    def _drop(self, type_url: str, name: str) -> None:
        self.has[type_url].pop(name, None)
        if type_url in FOLLOWS:
            self._needs[type_url].pop(name, None)

    def _wanted(self, type_url: str) -> frozenset[str]:
        """The endpoints or routes that are needed; what is needed no more is forgotten."""
        names = frozenset[str]().union(*self._needs[CLUSTER if type_url == ENDPOINTS else LISTENER].values())
        self.has[type_url] = {name: version for name, version in self.has[type_url].items() if name in names}
        return names


class SotwFake(Fake):
    async def _stream(self, channel: grpc.aio.Channel) -> None:
        self._call = channel.stream_stream(f"/{SERVICE}/StreamAggregatedResources")()
        asked: dict[str, frozenset[str]] = {}
        versions: dict[str, str] = {}
        for type_url in (CLUSTER, LISTENER):
            await self._ask(type_url, "", "", frozenset())
        nonces: dict[str, str] = {}
        while (data := await self._read()) is not None:
            response = DiscoveryResponse.FromString(data)
            url, nonces[response.type_url] = response.type_url, response.nonce
            refused = [name for name, body in _named(response.resources) if not self._take(url, name, body)]
            if url in FOLLOWS:
                there = {name for name, _ in _named(response.resources)}
                for name in set(self.has[url]) - there:
                    self._drop(url, name)
            if not refused:
                versions[url] = response.version_info
            await self._ask(url, versions.get(url, ""), response.nonce, asked.get(url, frozenset()), refused=refused)
            if (follower := FOLLOWS.get(url)) and (wanted := self._wanted(follower)) != asked.get(follower):
                asked[follower] = wanted
                await self._ask(follower, versions.get(follower, ""), nonces.get(follower, ""), wanted)

    async def _ask(
        self, url: str, version: str, nonce: str, names: frozenset[str], *, refused: list[str] | None = None
    ) -> None:
        request = DiscoveryRequest(type_url=url, version_info=version, response_nonce=nonce, resource_names=names)
        request.node.id = self.name
        if refused:
            request.error_detail.message = f"Error adding/updating: {', '.join(refused)}: not to my taste"
        await self._call.write(request.SerializeToString())


class DeltaFake(Fake):
    async def _stream(self, channel: grpc.aio.Channel) -> None:
        self._call = channel.stream_stream(f"/{SERVICE}/DeltaAggregatedResources")()
        asked: dict[str, frozenset[str]] = {}
        for url in (CLUSTER, ENDPOINTS, LISTENER, ROUTES):
            asked[url] = self._wanted(url) if url in FOLLOWS.values() else frozenset()
            if url in FOLLOWS or asked[url]:
                await self._ask(url, subscribe=asked[url], held=self.has[url])
        while (data := await self._read()) is not None:
            response = DeltaDiscoveryResponse.FromString(data)
            url = response.type_url
            refused = [one.name for one in response.resources if not self._take(url, one.name, one.resource.value)]
            for name in response.removed_resources:
                self._drop(url, name)
            await self._ask(url, nonce=response.nonce, refused=refused)
            if (follower := FOLLOWS.get(url)) and (wanted := self._wanted(follower)) != asked[follower]:
                more, less = wanted - asked[follower], asked[follower] - wanted
                asked[follower] = wanted
                await self._ask(follower, subscribe=more, unsubscribe=less)

    async def _ask(
        self,
        url: str,
        *,
        subscribe: frozenset[str] = frozenset(),
        unsubscribe: frozenset[str] = frozenset(),
        held: dict[str, str] | None = None,
        nonce: str = "",
        refused: list[str] | None = None,
    ) -> None:
        request = DeltaDiscoveryRequest(
            type_url=url,
            resource_names_subscribe=subscribe,
            resource_names_unsubscribe=unsubscribe,
            initial_resource_versions=held or {},
            response_nonce=nonce,
        )
        request.node.id = self.name
        if refused:
            request.error_detail.message = f"Error adding/updating: {', '.join(refused)}: not to my taste"
        await self._call.write(request.SerializeToString())


def _named(resources: Any) -> list[tuple[str, bytes]]:
    return [(_name(one.type_url, one.value), one.value) for one in resources]


@lru_cache(maxsize=100_000)
def _name(type_url: str, body: bytes) -> str:
    if type_url == ENDPOINTS:
        return ClusterLoadAssignment.FromString(body).cluster_name
    messages: dict[str, Any] = {CLUSTER: Cluster, LISTENER: Listener, ROUTES: RouteConfiguration}
    return str(messages[type_url].FromString(body).name)


@lru_cache(maxsize=100_000)
def _needed(type_url: str, body: bytes) -> frozenset[str]:
    """The endpoints that a cluster needs, or the route tables that a listener does: a gateway's has several chains."""
    if type_url == CLUSTER:
        cluster = Cluster.FromString(body)
        name = cluster.eds_cluster_config.service_name or cluster.name
        return frozenset({name}) if cluster.type == Cluster.EDS else frozenset()
    filters = [one.typed_config for chain in Listener.FromString(body).filter_chains for one in chain.filters]
    configs = [config.value for config in filters if config.type_url.rpartition("/")[2] == _MANAGER]
    tables = (HttpConnectionManager.FromString(config).rds.route_config_name for config in configs)
    return frozenset(filter(None, tables))
