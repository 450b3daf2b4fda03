"""How far a change has come, also with proxies that are expected back: for a moment nobody can say what they have.

A control plane that has just begun knows of no proxy yet, and one that has gone took its memory along. To count those
proxies as not concerned would say that a change is in force everywhere which they have not been sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar

from cp.model.moments import moment
from cp.model.names import Key, dataplane_key, proxy_id
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.serving.delivery import ChangeProgress, Presence, ProxyState, is_awaited, last_left

T = TypeVar("T")

_EVERY: Final = 0.25
"""Seconds after which it is looked again who has come back, at the earliest."""

_SHARE: Final = 4.0
"""So many times as long as a look took nobody looks again: however many ask, others have most of the time."""

_SELDOM: Final = 5.0
"""Seconds after which it is looked again at the latest."""

_AT_ONCE: Final = 200
"""Proxies that are judged at a time. Streams go on between."""


class ProgressingProxies(Protocol):
    """Where proxies stand, in any process of any control plane."""

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]: ...

    def progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> AsyncIterator[ChangeProgress]: ...


@dataclass(frozen=True, slots=True)
class ProxyReturns:
    """Of the proxies that were expected, by their ids: what is known of them now."""

    returned: tuple[str, ...] = ()
    """Those that are connected, and have all that they are served."""

    awaited: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()
    """Those that are connected and refuse something, or for which something could not be made.

    Whether that comes from the change nobody can say.
    """


@dataclass(frozen=True, slots=True)
class WholeProgress:
    """How far a change has come, with those of whom nobody can say whether it concerns them."""

    progress: ChangeProgress
    returns: ProxyReturns = ProxyReturns()

    @property
    def unknown(self) -> tuple[str, ...]:
        """Those of whom it is not known that they have it, and who are counted nowhere else."""
        known = {*self.progress.refusing, *self.progress.failed}
        return tuple(proxy for proxy in (*self.returns.awaited, *self.returns.unfit) if proxy not in known)

    @property
    def is_certain(self) -> bool:
        """Whether nothing of it changes when those come back who are awaited."""
        return not self.returns.awaited or bool(self.progress.refusing or self.progress.failed)


class ReturnWatch:
    """Looks for proxies that are expected, in some meshes or, without any, in all. One for each question."""

    def __init__(
        self,
        proxies: ProgressingProxies,
        world: Callable[[], World],
        alike_since: Callable[[], float],
        clock: Callable[[], float],
        meshes: Collection[str],
    ) -> None:
        """`alike_since` is since when the same control planes and workers have been there."""
        self._proxies, self._world, self._meshes = proxies, world, meshes
        self._alike_since, self._clock = alike_since, clock
        self._expected: set[Key] = set()
        self._left: dict[Key, float] = {}
        """When those had left who were away when they were seen first."""

        self._looked_since: float | None = None

    async def look(self) -> ProxyReturns:
        if self._looked_since != self._alike_since():  # the first time, or when a control plane has gone meanwhile
            self._looked_since, self._left = self._alike_since(), {}
            await self._add_expected()
        world = self._world()
        presences = await self._proxies.presences([key for key in self._expected if world.get(key) is not None])
        returned, awaited, unfit = list[str](), list[str](), list[str]()
        async for key, seen in _by_turns(presences.items()):
            if seen.state.is_in_sync:
                returned.append(proxy_id(key))
            elif seen.state.is_unfit:
                unfit.append(proxy_id(key))
            elif not self._has_left_again(key, seen) and self._is_awaited(seen):
                awaited.append(proxy_id(key))
        return ProxyReturns(tuple(sorted(returned)), tuple(sorted(awaited)), tuple(sorted(unfit)))

    def leave_out(self, proxies: Iterable[str]) -> None:
        """Of some proxies it is told otherwise where they are."""
        self._expected -= set(map(dataplane_key, proxies))

    def expect(self, proxies: Iterable[str]) -> None:
        """Look after some proxies too, unless they are of other meshes: nobody waits for what those do."""
        dataplanes = map(dataplane_key, proxies)
        self._expected |= {key for key in dataplanes if not self._meshes or key.mesh in self._meshes}

    def _has_left_again(self, dataplane: Key, presence: Presence) -> bool:
        """Whether a proxy is away that came back meanwhile: it has gone, as one that ends at each start never stays."""
        left = last_left(presence) if presence.state is ProxyState.OFFLINE else None
        return left is not None and left > self._left.setdefault(dataplane, left)

    async def _add_expected(self) -> None:
        world = self._world()
        meshes = self._meshes or [mesh.name for mesh in world.table("Mesh")]
        dataplanes = {resource.key: resource for mesh in meshes for resource in world.table("Dataplane", mesh)}
        presences = await self._proxies.presences(dataplanes)
        async for key, seen in _by_turns(presences.items()):
            if self._is_expected(dataplanes[key], seen):
                self._expected.add(key)

    def _is_expected(self, dataplane: Resource, presence: Presence) -> bool:
        """Not one that was made when nobody could have been there. Who is connected counts himself."""
        was_there = bool(presence.connections) or _made(dataplane) < self._alike_since()
        return presence.state is ProxyState.OFFLINE and was_there and self._is_awaited(presence)

    def _is_awaited(self, presence: Presence) -> bool:
        now = self._clock()
        return is_awaited(presence, now, now - self._alike_since())


async def whole_progress(
    proxies: ProgressingProxies,
    watch: ReturnWatch,
    revisions: Collection[int],
    resources: Collection[Key],
    within: float,
) -> AsyncIterator[WholeProgress]:
    """How far a change has come, again and again until it is known of everybody, or the time is over."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    remaining, returns = within, await watch.look()
    while True:
        last = ChangeProgress(0, 0, 0, is_done=True)
        async for last in proxies.progress(revisions, resources, remaining):
            if not last.is_done:
                yield WholeProgress(last, returns)
        began = loop.time()
        watch.leave_out(last.gone)
        watch.expect(last.late)
        whole = WholeProgress(last, returns := await watch.look())
        remaining = max(0.0, deadline - loop.time())
        if whole.is_certain or remaining <= 0:
            yield whole
            return
        yield WholeProgress(replace(last, nack_reports=(), is_done=False), returns)
        await asyncio.sleep(min(_pause(loop.time() - began), remaining))


def _pause(took: float) -> float:
    """How long nobody looks again after a look, and what was told of it, that took so long."""
    return min(max(_EVERY, took * _SHARE), _SELDOM)


async def _by_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Some thousands, one after the other, with turns for streams."""
    for number, item in enumerate(items, 1):
        yield item
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)


def _made(dataplane: Resource) -> float:
    """When a Dataplane was made; long ago where that is not known."""
    made = moment(dataplane.source.created)
    return 0.0 if made is None else made.timestamp()
