"""The HTTP API over a store in memory, called without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import httpx
import pytest
from starlette.applications import Starlette

from cp.access.rights import ADMIN, AUTHENTICATED, AccessLists, Subjects, default_rights
from cp.api.authentication import AccessControl
from cp.api.collaborators import BootstrapDefaults, Collaborators, ControlPlaneIdentity
from cp.api.http import create_api
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.kinds import Kinds
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.serving.delivery import ChangeProgress, ChangeReach, Delivery, NackReport, Presence, ProxyState
from cp.serving.instances.observers import FleetRound
from cp.store.memory import MemoryStore
from cp.store.port import Store
from cp.translate.snapshot import Snapshot
from tests.support.leaks import leaks_of_answer

KINDS = kinds(discover())
ADMINS = Subjects(frozenset({ADMIN}), frozenset({ADMIN}))
HOLDERS = Subjects(groups=frozenset({AUTHENTICATED}))
RIGHTS = default_rights(AccessLists(ADMINS, ADMINS, ADMINS, ADMINS, HOLDERS, HOLDERS))

T = TypeVar("T")
Unit = Callable[..., "Api"]


@dataclass(frozen=True)
class FixedState:
    """A State in which nothing happens."""

    world: World
    is_ready: bool = True
    is_stopping: bool = False
    follows: bool = True
    is_stuck: bool = False
    late_meshes: Mapping[str, float] = field(default_factory=dict)
    served: Snapshot = field(default_factory=Snapshot)

    async def current(self) -> World:
        return self.world

    @property
    def loaded_world(self) -> World:
        return self.world

    async def snapshot(self, dataplane: Resource, *, is_certified_client: bool) -> Snapshot:
        return self.served


class NobodyThere:
    """A control plane without proxies."""

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]:
        return {key: Presence(ProxyState.OFFLINE, None, ()) for key in dataplanes}

    async def delivery(self, dataplane: Key) -> Delivery:
        return Delivery(dataplane, Presence(ProxyState.OFFLINE, None, ()), ())

    async def nack_reports(self) -> Iterable[NackReport]:
        return ()

    async def reaches(self, revisions: Collection[int]) -> Sequence[Sequence[ChangeReach]]:
        return ()

    async def fleets(self, versions: Mapping[str, int]) -> FleetRound:
        return FleetRound({}, ())

    async def progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> AsyncIterator[ChangeProgress]:
        yield ChangeProgress(max(revisions, default=0), 0, 0, is_done=True)


class Api:
    """An HTTP API under test, and its store."""

    def __init__(self, runner: asyncio.Runner, **changes: Any) -> None:
        self._runner = runner
        self.store: Store = MemoryStore()
        self.kinds: Kinds = KINDS
        given = Collaborators(
            store=self.store,
            kinds=KINDS,
            state=FixedState(World.of((), KINDS)),
            observed=NobodyThere(),
            about=ControlPlaneIdentity("here", "1.2.3", "instance-1"),
            for_proxies=BootstrapDefaults(5678, (), "127.0.0.1", 9901, admin_unix_socket=True),
            body_limit=16 * 1024 * 1024,
            access=AccessControl(lambda: RIGHTS),
        )
        self.collaborators = replace(given, **changes)
        self.store = self.collaborators.store
        self.app: Starlette = create_api(self.collaborators, no_metrics)

    def request(self, method: str, path: str, *, peer: str = "127.0.0.1", **options: Any) -> httpx.Response:
        async def exchange() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, client=(peer, 123))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost:5681") as client:
                return await client.request(method, path, **options)

        answer = self._runner.run(exchange())
        secrets = list(leaks_of_answer(path, answer.url.query, answer.content))
        assert not secrets, f"{method} {path} has told secrets: {secrets}"
        return answer

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def put(self, path: str, data: Any, **headers: str) -> httpx.Response:
        return self.request("PUT", path, json=data, headers=named(headers))

    def put_yaml(self, path: str, text: str | bytes, **headers: str) -> httpx.Response:
        headers = {"content-type": "application/yaml"} | named(headers)
        return self.request("PUT", path, content=text, headers=headers)

    def delete(self, path: str, **options: Any) -> httpx.Response:
        return self.request("DELETE", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)

    def with_mesh(self, *names: str) -> Api:
        for name in names or ("default",):
            self.put(f"/meshes/{name}", {"type": "Mesh", "name": name}).raise_for_status()
        return self

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something with the store, in the loop of the API."""
        return self._runner.run(work)

    def world(self) -> World:
        stored = self.run(self.store.read()).stored
        return World.of((one.document for one in stored), KINDS)


async def no_metrics() -> bytes:
    return b""


def named(headers: dict[str, str]) -> dict[str, str]:
    """`if_match` is the header `if-match`."""
    return {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.fixture
def start() -> Iterator[Unit]:
    """Makes APIs that differ from the usual one."""
    with asyncio.Runner() as runner:
        yield lambda **changes: Api(runner, **changes)


@pytest.fixture
def api(start: Unit) -> Api:
    """An API with a Mesh `default`."""
    return start().with_mesh()
