"""`ReachWatch`: notes for each of the newest publications which of its proxies took it, when, and which refused it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from cp.ads.hub import ObserverSide
from cp.model.names import dataplane_key
from cp.resources.assignment import is_held
from cp.resources.world import World
from cp.serving.delivery import ChangeReach, ChangeStanding, change_standing, summed
from cp.serving.publications import KEPT, Publication, PublicationLog

_GATHERING: Final = 0.1
"""Seconds for which news are gathered: a proxy answers several times after a change."""

_AT_ONCE: Final = 50
_NAMED: Final = 20


@dataclass(slots=True)
class _OpenReach:
    """A publication, and the proxies that have not answered it yet."""

    publication: Publication
    waiting: set[str]
    have: int = 0
    gone: int = 0
    refusals: int = 0
    answered_at: float | None = None
    refused: list[str] = field(default_factory=list)

    def note(self, proxy: str, standing: ChangeStanding, at: float) -> None:
        """A proxy that waited does so no longer."""
        self.waiting.remove(proxy)
        if standing is ChangeStanding.HAS_IT:
            self.have += 1
            self.answered_at = max(at, self.answered_at or at)
        elif standing is ChangeStanding.GONE:
            self.gone += 1
        else:
            self.refusals += 1
            self.refused += [proxy][: _NAMED - len(self.refused)]

    def reach(self) -> ChangeReach:
        publication = self.publication
        return ChangeReach(
            previous_revision=publication.previous_revision,
            revision=publication.revision,
            published_at=publication.at,
            proxies=len(publication.concerned),
            have=self.have,
            waiting=len(self.waiting),
            gone=self.gone,
            refusals=self.refusals,
            failed=len(publication.failed),
            limited=len(publication.limited),
            answered_at=self.answered_at,
            refused=tuple(self.refused),
        )


class ReachWatch:
    def __init__(self, hub: ObserverSide, publications: PublicationLog, world: Callable[[], World]) -> None:
        """`world` is the one in force."""
        self._hub, self._publications, self._world = hub, publications, world
        self._seen = 0
        self._reaches: deque[_OpenReach] = deque(maxlen=KEPT)

    async def run(self) -> None:
        """Follow what proxies answer, until cancelled."""
        with self._hub.watch() as watch:
            while True:
                proxies = await watch.news()
                await asyncio.sleep(_GATHERING)
                await self._note(proxies | watch.take())

    def reaches(self, revisions: Collection[int]) -> list[ChangeReach]:
        """What is known of some revisions, and of others of the same publications."""
        self._open()
        asked = [entry for entry in self._reaches if any(map(entry.publication.has, revisions))]
        for entry in asked:
            self._look_at_all(entry, entry.publication.held)  # who is sent nothing new at the end of a rollout
        return [self._reach(entry) for entry in asked if not entry.publication.mesh]

    def _reach(self, entry: _OpenReach) -> ChangeReach:
        """The reach of a publication, with that of the same changes in meshes that were set aside."""
        later = [other.reach() for other in self._reaches if other.publication.completes(entry.publication)]
        return summed(entry.reach(), later)

    def _open(self) -> None:
        """Begin with the publications that are new."""
        publications = self._publications.newest(self._publications.count - self._seen)
        self._seen = self._publications.count
        for publication in publications:
            entry = _OpenReach(publication, set(publication.concerned))
            self._look_at_all(entry, publication.forerunners)  # who has it already has nothing to answer
            self._reaches.append(entry)

    def _look_at_all(self, entry: _OpenReach, proxies: frozenset[str]) -> None:
        for proxy in proxies & entry.waiting:
            self._look(entry, proxy)

    async def _note(self, proxies: Iterable[str]) -> None:
        self._open()
        pending = [entry for entry in self._reaches if entry.waiting]
        for number, proxy in enumerate(proxies, 1):
            for entry in pending:
                if proxy in entry.waiting:
                    self._look(entry, proxy)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)

    def _look(self, entry: _OpenReach, proxy: str) -> None:
        publication, connections = entry.publication, self._hub.of(proxy)
        held = proxy in publication.held and is_held(self._world(), dataplane_key(proxy), publication.changed)
        standing = change_standing(connections, self._hub.newest(proxy), publication.at, held=held)
        if standing is not ChangeStanding.WAITING:
            entry.note(proxy, standing, max([publication.at, *(connection.answered_at for connection in connections)]))
