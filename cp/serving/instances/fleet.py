"""`Fleet`: the state of each proxy of the World, kept up to date for as long as somebody asks, and once for all who do.

Callers do not wait here for news: they ask, and an answer that is less than a moment old is given again. So the cost
does not depend on how many ask.

See record 0090.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from cp.model.names import Key, dataplane_key, proxy_id
from cp.resources.client import is_grpc_client
from cp.resources.labels import zone_of
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.serving.delivery import SEVERITY, FleetDelta, ProxyState, ProxyStatus, combined_status
from cp.serving.instances.observers import FleetRound

EVERY: Final = 0.5
"""Seconds for which an answer is given again."""

GRACE: Final = 3.0
"""Seconds that a process has to serve what we serve; after these it counts as behind."""

_DATAPLANE: Final = "Dataplane"
_AT_ONCE: Final = 200
_MOST_GONE: Final = 10_000
"""The most proxies that are gone and still remembered."""


@dataclass(frozen=True, slots=True)
class FleetProxy:
    """One proxy, as a list of thousands shows it."""

    key: Key
    kind: str
    zone: str
    state: ProxyState
    since: float | None
    instance: str
    """The id of the control plane that serves it; empty if this one does, or none."""

    envoy: str
    findings: int
    tags: tuple[str, ...] = ()
    """Each tag that an inbound or the gateway of its Dataplane has, as `name=value`."""


@dataclass(slots=True)
class _Source:
    """What one process says of its proxies."""

    instance: str
    version: int = 0
    revision: int = 0
    is_behind: bool = False
    """Whether it serves an older revision than we did a while ago, for example without its database."""

    statuses: dict[str, ProxyStatus] = field(default_factory=dict)

    def take(self, delta: FleetDelta) -> Iterator[str]:
        """Note what has changed. Returns the proxies."""
        if delta.is_whole:
            yield from self.statuses
            self.statuses = {}
        self.version, self.revision = delta.version, delta.revision
        for status in delta.statuses:
            self.statuses[status.proxy] = status
            yield status.proxy


class Fleet:
    """`ask` asks all who serve proxies, `world` is the World whose Dataplanes are listed."""

    def __init__(
        self,
        ask: Callable[[Mapping[str, int]], Awaitable[FleetRound]],
        world: Callable[[], World | None],
        pause: float = EVERY,
        grace: float = GRACE,
    ) -> None:
        self._ask, self._world_now, self._pause = ask, world, pause
        self._grace = grace
        self._served: deque[tuple[float, int]] = deque([(0.0, 0)])
        """When we began to serve which revisions: those of the last seconds (`grace`), and the one before them."""

        self._refreshing: asyncio.Task[None] | None = None
        self._asked_at = -inf
        self._is_overdue = False
        self._sources: dict[str, _Source] = {}
        self._world: World | None = None
        self._findings: Counter[Key] = Counter()
        self._proxies: dict[Key, FleetProxy] = {}
        self._changed: dict[Key, int] = {}
        """The version at which each proxy changed, or went, the newest last."""

        self._oldest = 0
        self.id = _new_id()
        """While it stays the same, versions and revisions can be compared; a new id makes earlier ones void."""

        self.version = 0
        self.silent = 0
        """How many processes and control planes do not answer."""

    @property
    def revision(self) -> int:
        """The revision that all processes serve that answer."""
        own = 0 if self._world is None else self._world.revision
        return min((source.revision for source in self._sources.values()), default=own)

    @property
    def instances(self) -> list[str]:
        """The ids of the control planes that serve proxies; that of this one is empty."""
        return sorted({source.instance for source in self._sources.values()})

    def proxies(self) -> list[FleetProxy]:
        return list(self._proxies.values())

    def since(self, version: int) -> dict[Key, FleetProxy | None] | None:
        """The proxies that have changed since a version, and None for those that are gone.

        None instead of all that: that is too long ago.
        """
        if not self._oldest <= version <= self.version:
            return None
        changed: dict[Key, FleetProxy | None] = {}
        for key in reversed(self._changed):
            if self._changed[key] <= version:
                break
            changed[key] = self._proxies.get(key)
        return changed

    async def refreshed(self) -> None:
        """Find out what is new, unless that was just done. A caller that goes away does not stop it for the others."""
        loop = asyncio.get_running_loop()
        if self._refreshing is None or self._refreshing.done():
            if loop.time() - self._asked_at < self._pause and not self._is_overdue:
                return
            self._is_overdue = False
            self._refreshing = loop.create_task(self._refresh())
        await asyncio.shield(self._refreshing)

    async def refreshed_with_world(self) -> None:
        """The same, with all Dataplanes of the present World."""
        await self.refreshed()
        if self._world_now() is not self._world:
            self._is_overdue = True
            await self.refreshed()

    async def _refresh(self) -> None:
        asked = await self._ask({id_: source.version for id_, source in self._sources.items()})
        touched = dict.fromkeys((*self._of_round(asked), *self._of_those_behind()))
        if len(asked.silent) != self.silent:
            self.silent = len(asked.silent)
            touched |= dict.fromkeys(proxy_id(key) for key, proxy in self._proxies.items() if _is_absent(proxy))
        keys = dict.fromkeys((*map(dataplane_key, touched), *self._of_world()))
        for number, key in enumerate(keys, 1):
            self._update(key)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        self.version += 1  # at the end: a reader with this version knows all that has changed with it
        self._forget_gone()
        self._asked_at = asyncio.get_running_loop().time()

    def _of_round(self, asked: FleetRound) -> Iterator[str]:
        """Note all answers. Returns the proxies of which something may have changed."""
        known, self._sources = self._sources, {}
        for instance, deltas in asked.deltas.items():
            for delta in deltas:
                source = known.pop(delta.source, None) or _Source(instance)
                self._sources[delta.source] = source
                yield from source.take(delta)
        for source in known.values():
            yield from source.statuses

    def _of_those_behind(self) -> Iterator[str]:
        """Find out which processes are behind. Returns the proxies of those for which that has changed."""
        wanted = self._wanted()
        for source in self._sources.values():
            is_behind = source.revision < wanted
            if is_behind != source.is_behind:
                source.is_behind = is_behind
                yield from source.statuses

    def _wanted(self) -> int:
        """The revision that we served a while ago (`grace`), and that all others have had time to serve.

        After a time in which nobody asked, it is the present one: a process that is just late counts as behind at once.
        """
        now, world = asyncio.get_running_loop().time(), self._world_now()
        revision = 0 if world is None else world.revision
        if now - self._asked_at >= self._grace:
            self._served = deque([(now - self._grace, revision)])
        elif self._served[-1][1] != revision:
            self._served.append((now, revision))
        while len(self._served) > 1 and self._served[1][0] <= now - self._grace:
            self._served.popleft()
        return self._served[0][1] if self._served[0][0] <= now - self._grace else 0

    def _of_world(self) -> Iterator[Key]:
        """Enter the present World. Returns the Dataplanes that are different, or have other findings."""
        world, before = self._world_now(), self._world
        if world is None or world is before:
            return
        if before is not None and world.revision < before.revision:  # an older copy has taken the place of the store
            self.id = _new_id()
        self._world = world
        meshes = {mesh.name for side in (world, before) if side is not None for mesh in side.table("Mesh")}
        for mesh in meshes:
            table = world.table(_DATAPLANE, mesh)
            changed: Iterable[Resource] = table if before is None else table.differing(before.table(_DATAPLANE, mesh))
            yield from (dataplane.key for dataplane in changed)
        keys = (finding.resource for finding in world.findings)
        findings = Counter(key for key in keys if key is not None and key.type == _DATAPLANE)
        yield from (key for key in findings.keys() | self._findings.keys() if findings[key] != self._findings[key])
        self._findings = findings

    def _update(self, key: Key) -> None:
        dataplane = None if self._world is None else self._world.get(key)
        proxy = None if dataplane is None else self._proxy(dataplane)
        if self._proxies.get(key) == proxy:
            return
        if proxy is None:
            del self._proxies[key]
        else:
            self._proxies[key] = proxy
        self._changed.pop(key, None)
        self._changed[key] = self.version + 1

    def _proxy(self, dataplane: Resource) -> FleetProxy:
        proxy = proxy_id(dataplane.key)
        of_sources = [(known, source) for source in self._sources.values() if (known := source.statuses.get(proxy))]
        status = combined_status(known for known, _ in of_sources) or ProxyStatus(proxy, ProxyState.OFFLINE, None)
        serving = next((source for known, source in of_sources if known is status), None)
        state = self._state(status, serving)
        return FleetProxy(
            key=dataplane.key,
            kind=kind_of_proxy(dataplane),
            zone=zone_of(dataplane.document.data),
            state=state,
            since=status.since if state is status.state else None,  # else it is since when it has less than all
            instance="" if serving is None or status.state not in SEVERITY else serving.instance,
            envoy=status.envoy,
            findings=status.findings + self._findings[dataplane.key],
            tags=dataplane.derived(_tags),
        )

    def _state(self, status: ProxyStatus, serving: _Source | None) -> ProxyState:
        """A proxy that is in sync with a process that is behind is out of sync."""
        if status.state not in SEVERITY and self.silent > 0:
            return ProxyState.UNKNOWN
        is_behind = serving is not None and serving.is_behind and status.state.is_in_sync
        return ProxyState.OUT_OF_SYNC if is_behind else status.state

    def _forget_gone(self) -> None:
        excess = len(self._changed) - len(self._proxies) - _MOST_GONE
        gone = (key for key in tuple(self._changed) if key not in self._proxies) if excess > 0 else iter(())
        for key, _ in zip(gone, range(excess), strict=False):
            self._oldest = max(self._oldest, self._changed.pop(key))


def _new_id() -> str:
    return uuid.uuid4().hex[:12]


def _tags(dataplane: Resource) -> tuple[str, ...]:
    networking = dataplane.spec.networking
    holders = (*(networking.inbound or ()), *filter(None, (networking.gateway,)))
    return tuple(dict.fromkeys(f"{name}={value}" for holder in holders for name, value in (holder.tags or {}).items()))


def kind_of_proxy(dataplane: Resource) -> str:
    """What a proxy is, in words."""
    if dataplane.spec.is_builtin_gateway:
        return "builtin gateway"
    if dataplane.spec.is_delegated_gateway:
        return "delegated gateway"
    return "gRPC client" if is_grpc_client(dataplane) else "sidecar"


def _is_absent(proxy: FleetProxy) -> bool:
    return proxy.state in {ProxyState.OFFLINE, ProxyState.UNKNOWN}
