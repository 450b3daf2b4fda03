"""A control plane with its API and its port for proxies, which is asked for a plan before something is written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import envoy.config.cluster.v3.cluster_pb2
import envoy.config.endpoint.v3.endpoint_pb2
import envoy.config.listener.v3.listener_pb2
import envoy.config.route.v3.route_pb2
import envoy.extensions.transport_sockets.tls.v3.secret_pb2
import envoy.service.runtime.v3.rtds_pb2  # noqa: F401  # as all of these: to decode what is sent
import grpc
import httpx
import yaml
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DeltaDiscoveryResponse
from google.protobuf import json_format

from cp.ads.hub import Hub
from cp.ads.server import SERVICE, ServerOptions, serving
from cp.api.authentication import AccessControl
from cp.api.collaborators import BootstrapDefaults, Collaborators, ControlPlaneIdentity
from cp.api.http import create_api
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import kinds
from cp.serving.reconcile import Reconciler
from cp.store.memory import MemoryStore
from cp.store.port import Put
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, RUNTIME, SECRET, SHORT
from generators.bootstrap import RUNTIME as LIMITS
from tests.api.conftest import RIGHTS, NobodyThere, no_metrics
from tests.snapshots import policies
from tests.support.waiting import eventually_on_loop

Sent: TypeAlias = Mapping[tuple[str, str], Any]
"""What a proxy was sent: each resource by its type and name, decoded from the bytes on the stream."""

_WITHIN: Final = 20
_NAMES: Final = {ROUTES: "routeConfigName", SECRET: "name"}
_AROUND: Final = {ROUTES: "configSource", SECRET: "sdsConfig"}


@dataclass(frozen=True)
class PlannedControlPlane:
    """A control plane at work."""

    api: httpx.AsyncClient
    store: MemoryStore
    reconciler: Reconciler
    hub: Hub
    port: int

    async def plan(self, *documents: Document) -> Mapping[str, Any]:
        answer = await self._apply(documents, dryRun="true", plan="true")
        plan: Mapping[str, Any] = answer["plan"]
        return plan

    async def apply(self, *documents: Document) -> None:
        await self._apply(documents)

    async def plan_of_deletion(self, key: Key) -> Mapping[str, Any]:
        answer = await self._delete(key, dryRun="true", plan="true")
        plan: Mapping[str, Any] = answer["plan"]
        return plan

    async def delete(self, key: Key) -> None:
        await self._delete(key)

    async def _delete(self, key: Key, **parameters: str) -> Any:
        folder = f"/meshes/{key.mesh}" if key.mesh else ""
        plural = kinds(policies())[key.type].plural
        answer = await self.api.delete(f"{folder}/{plural}/{key.name}", params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def _apply(self, documents: Iterable[Document], **parameters: str) -> Any:
        texts = [{"text": yaml.safe_dump(dict(each.data)), "place": f"{each.key.name}.yaml:1"} for each in documents]
        answer = await self.api.post("/_apply", json={"resources": texts}, params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def sent(self) -> dict[str, Sent]:
        """What each proxy of the mesh is sent that connects now."""
        world = await self.reconciler.current()
        proxies = [dataplane.name for dataplane in world.table("Dataplane", "default")]
        return {proxy: {key: value async for key, value in self._sent(proxy)} for proxy in proxies}

    async def _sent(self, proxy: str) -> AsyncIterator[tuple[tuple[str, str], Any]]:
        """Everything that a proxy is sent, asked for as Envoy does: what names others first."""
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            stream: Any = channel.stream_stream(f"/{SERVICE}/DeltaAggregatedResources")()
            roots: list[Any] = []
            for type_url in (CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET, RUNTIME):
                names = self._there(proxy, type_url, set(_named(type_url, roots)))
                if not names and type_url not in {CLUSTER, LISTENER}:
                    continue
                async for name, resource in _asked(stream, proxy, type_url, names):
                    roots += [resource] if type_url in {CLUSTER, LISTENER} else []
                    yield (SHORT[type_url], name), resource
            stream.cancel()

    def _there(self, proxy: str, type_url: str, names: set[str]) -> set[str]:
        """Those of some names of which something is sent: of others there may be no word."""
        snapshot = self.hub.observer.newest(f"default.{proxy}")
        return names if snapshot is None else names & set(snapshot.names(type_url))


@asynccontextmanager
async def planned_control_plane(documents: Iterable[Document]) -> AsyncIterator[PlannedControlPlane]:
    store, hub = MemoryStore(), Hub()
    await store.write(*map(Put, documents))
    reconciler = Reconciler(store, hub, policies())
    collaborators = Collaborators(
        store=store,
        kinds=kinds(policies()),
        state=reconciler,
        observed=NobodyThere(),
        about=ControlPlaneIdentity("here", "1.2.3", "instance-1"),
        for_proxies=BootstrapDefaults(5678, (), "127.0.0.1", 9901, admin_unix_socket=True),
        body_limit=16 * 1024 * 1024,
        access=AccessControl(lambda: RIGHTS),
    )
    transport = httpx.ASGITransport(create_api(collaborators, no_metrics), client=("127.0.0.1", 123))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reconciler.run())
        async with serving(hub, ServerOptions(grace=0.1), lambda: 0.5) as server:
            await eventually_on_loop(lambda: reconciler.is_ready)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost:5681") as client:
                yield PlannedControlPlane(client, store, reconciler, hub, server.port)
        with suppress(asyncio.CancelledError):
            task.cancel()


async def _asked(stream: Any, proxy: str, type_url: str, names: set[str]) -> AsyncIterator[tuple[str, Any]]:
    request = DeltaDiscoveryRequest(type_url=type_url, resource_names_subscribe=sorted(names))
    request.node.id = f"default.{proxy}"
    await stream.write(request.SerializeToString())
    awaited = set(names)
    while True:
        async with asyncio.timeout(_WITHIN):
            response = DeltaDiscoveryResponse.FromString(await stream.read())
        answer = DeltaDiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce)
        await stream.write(answer.SerializeToString())
        if response.type_url != type_url:
            continue
        for resource in response.resources:
            data = json.loads(json_format.MessageToJson(resource.resource))
            yield resource.name, {name: value for name, value in data.items() if name != "@type"}
        awaited -= {resource.name for resource in response.resources}.union(response.removed_resources)
        if not awaited:
            return


def _named(type_url: str, roots: Iterable[Any]) -> Iterator[str]:
    """The names of a type that clusters and listeners refer to."""
    if type_url == RUNTIME:
        yield LIMITS
    for root in roots:
        if type_url == ENDPOINTS and root.get("type") == "EDS":
            yield root.get("edsClusterConfig", {}).get("serviceName") or root["name"]
        elif type_url in _NAMES:
            yield from _within(root, _AROUND[type_url], _NAMES[type_url])


def _within(value: Any, beside: str, name: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        if beside in value and name in value:
            yield value[name]
        for inner in value.values():
            yield from _within(inner, beside, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _within(inner, beside, name)
