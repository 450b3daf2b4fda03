"""Meshes next to each other: how late a change in one mesh is delivered while another one, and callers, keep it busy.

The other mesh has a gateway with many hostnames, whose routes change again and again. Callers ask expensive questions
about it without pause. The machine may be busy: compare the rows of one run.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import httpx
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest, DiscoveryResponse
from rich.console import Console
from rich.table import Table

from bench.serving.processes import ControlPlane
from cp.ads.server import SERVICE
from cp.translate.packing import CLUSTER, ROUTES

RULES: Final = 40
CALLERS: Final = 8
DELIVERED, HEALTHY = 1.0, 0.2
_WITHIN: Final = 60.0
_PROXY: Final = "/meshes/slow/dataplanes/gateway"
QUESTIONS: Final = (
    "/_lint",
    f"{_PROXY}/_config",
    f"{_PROXY}/_rules",
    f"{_PROXY}/_values",
    "/meshes/slow/_graph",
    "/_export",
    "/dataplanes/_overview?size=1000",
    "/meshes/slow/meshhttproutes/routes/_resources/dataplanes?size=1000",
)


@dataclass(frozen=True, slots=True)
class Options:
    hostnames: int = 5000
    edits: int = 30


@dataclass(slots=True)
class Times:
    """Seconds, and how often something was not answered in time."""

    seconds: list[float] = field(default_factory=list)
    late: int = 0

    def at(self, share: float) -> float:
        in_order = sorted(self.seconds)
        return in_order[min(int(len(in_order) * share), len(in_order) - 1)] if in_order else 0.0


def run(options: Options) -> dict[str, Any]:
    console, results = Console(), {}
    table = Table(
        title=f"a gateway with {options.hostnames} by {RULES} rows next to another mesh", title_justify="left"
    )
    for column in ("", "delivery p50 s", "p99 s", "late", "health p50 ms", "p99 ms", "memory MiB"):
        table.add_column(column, justify="right" if column else "left")
    for name, disturb in (
        ("nothing else", _idle),
        ("its routes change", _edits),
        (f"{CALLERS} callers ask", _questions),
    ):
        results[name] = result = asyncio.run(_measured(options, disturb))
        row = (f"{result['p50']:.3f}", f"{result['p99']:.3f}", str(result["late"]))
        health = (f"{result['health_p50'] * 1000:.0f}", f"{result['health_p99'] * 1000:.0f}")
        table.add_row(name, *row, *health, f"{result['memory']:.0f}")
    console.print(table)
    held = all(result["p99"] <= DELIVERED and not result["late"] for result in results.values())
    return {"held": held, "results": results}


def _document(kind: str, mesh: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "name": name, **({"mesh": mesh} if mesh else {}), **fields}


def _calling(number: int) -> dict[str, Any]:
    inbound = [{"port": 80, "tags": {"kuma.io/service": "web"}}]
    outbound = [{"port": 10000, "tags": {"kuma.io/service": f"s{number}"}}]
    networking = {"address": "127.0.0.1", "inbound": inbound, "outbound": outbound}
    return _document("Dataplane", "quick", "web", networking=networking)


def _routes(number: int) -> dict[str, Any]:
    default = {"backendRefs": [{"kind": "MeshService", "name": "backend"}]}
    paths = [{"path": {"type": "Exact", "value": f"/p{number}-{rule}"}} for rule in range(RULES)]
    to = [{"targetRef": {"kind": "Mesh"}, "rules": [{"matches": [path], "default": default} for path in paths]}]
    target = {"kind": "MeshGateway", "name": "gateway"}
    return _document("MeshHTTPRoute", "slow", "routes", spec={"targetRef": target, "to": to})


def _documents(hostnames: int) -> Iterator[dict[str, Any]]:
    tags = {"kuma.io/service": "gateway"}
    hosts = [{"port": 8080, "protocol": "HTTP", "hostname": f"h{number}.example.com"} for number in range(hostnames)]
    yield from (_document("Mesh", "", mesh) for mesh in ("quick", "slow"))
    yield _document("MeshGateway", "slow", "gateway", selectors=[{"match": tags}], conf={"listeners": hosts})
    gateway = {"address": "127.0.0.1", "gateway": {"type": "BUILTIN", "tags": tags}}
    yield _document("Dataplane", "slow", "gateway", networking=gateway)
    yield _routes(0)
    yield _calling(0)


class _Proxy:
    """A proxy that takes everything of one type."""

    def __init__(self, port: int, name: str, type_url: str) -> None:
        self._name, self._type_url = name, type_url
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", [("grpc.max_receive_message_length", -1)])
        self._call: Any = self._channel.stream_stream(f"/{SERVICE}/StreamAggregatedResources")()

    async def take(self) -> AsyncIterator[frozenset[str]]:
        """The resources of each response, as bytes that a test may search."""
        await self._ask()
        while isinstance(data := await self._call.read(), bytes):
            response = DiscoveryResponse.FromString(data)
            await self._ask(response.version_info, response.nonce)
            yield frozenset(resource.value.decode("latin-1") for resource in response.resources)

    async def _ask(self, version: str = "", nonce: str = "") -> None:
        names = ["gateway:8080"] if self._type_url == ROUTES else []
        request = DiscoveryRequest(type_url=self._type_url, resource_names=names)
        request.version_info, request.response_nonce = version, nonce
        request.node.id = self._name
        await self._call.write(request.SerializeToString())


async def _measured(
    options: Options, disturb: Callable[[httpx.AsyncClient], Coroutine[Any, Any, None]]
) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory() as folder,
        ControlPlane(f"sqlite:///{folder}/koguma.db", Path(folder) / "log") as control_plane,
    ):
        control_plane.apply(_documents(options.hostnames))
        async with httpx.AsyncClient(base_url=control_plane.api, timeout=_WITHIN) as client, _tasks() as group:
            group.create_task(_drain(_Proxy(control_plane.ads_port, "slow.gateway", ROUTES)))
            newest = asyncio.Queue[frozenset[str]]()
            group.create_task(_drain(_Proxy(control_plane.ads_port, "quick.web", CLUSTER), newest))
            await _delivered(newest, 0)
            await asyncio.to_thread(control_plane.until_idle)
            control_plane.forget_peak()
            group.create_task(disturb(client))
            health = Times()
            group.create_task(_health(client, health))
            delivery = await _delivery(client, newest, options.edits)
            peak = control_plane.peak
    figures = {"p50": delivery.at(0.5), "p99": delivery.at(0.99), "late": delivery.late, "memory": peak}
    return figures | {"health_p50": health.at(0.5), "health_p99": health.at(0.99)}


@asynccontextmanager
async def _tasks() -> AsyncIterator[asyncio.TaskGroup]:
    """A group whose tasks end with the block."""

    async def whole() -> None:
        async with asyncio.TaskGroup() as group:
            begun.set_result(group)
            await over.wait()
            raise _Over

    begun: asyncio.Future[asyncio.TaskGroup] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()
    async with asyncio.TaskGroup() as outer:
        outer.create_task(_until_over(whole))
        try:
            yield await begun
        finally:
            over.set()


class _Over(Exception):
    """The measurement is over."""


async def _until_over(whole: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with suppress(BaseExceptionGroup):
        await whole()


async def _drain(proxy: _Proxy, newest: asyncio.Queue[frozenset[str]] | None = None) -> None:
    async for resources in proxy.take():
        if newest is not None:
            newest.put_nowait(resources)


async def _delivered(newest: asyncio.Queue[frozenset[str]], number: int) -> None:
    async with asyncio.timeout(_WITHIN):
        while not any(f"s{number}" in text for text in await newest.get()):
            pass


async def _delivery(client: httpx.AsyncClient, newest: asyncio.Queue[frozenset[str]], edits: int) -> Times:
    """One edit of the quick mesh each second."""
    times = Times()
    for number in range(1, edits + 1):
        began = time.monotonic()
        try:
            await client.put("/meshes/quick/dataplanes/web", json=_calling(number))
            await _delivered(newest, number)
        except (TimeoutError, httpx.TimeoutException):
            times.late += 1
        times.seconds.append(time.monotonic() - began)
        await asyncio.sleep(max(0.0, 1.0 - times.seconds[-1]))
    return times


async def _health(client: httpx.AsyncClient, times: Times) -> None:
    while True:
        began = time.monotonic()
        await client.get("/healthy")
        times.seconds.append(time.monotonic() - began)
        await asyncio.sleep(0.1)


async def _idle(_: httpx.AsyncClient) -> None:
    """Nothing else goes on."""


async def _edits(client: httpx.AsyncClient) -> None:
    number = 0
    while True:
        number += 1
        with suppress(httpx.TimeoutException):
            await client.put("/meshes/slow/meshhttproutes/routes", json=_routes(number))
        await asyncio.sleep(1)


async def _questions(client: httpx.AsyncClient) -> None:
    async def ask(path: str) -> None:
        while True:
            with suppress(httpx.TimeoutException):
                await client.get(path)

    async with asyncio.TaskGroup() as group:
        for path in QUESTIONS[:CALLERS]:
            group.create_task(ask(path))
