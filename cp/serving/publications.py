"""`PublicationLog`: what was published at which revision and to whom, for the newest publications.

It answers two questions: which proxies a write concerns, so that one can wait until they have it; and which changes may
have made a proxy NACK a resource. It does no I/O and reads no clock: moments are given to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from cp.model.names import Key

KEPT: Final = 256
"""How many publications are kept. A client asks about its write within seconds; a NACK may stand for hours."""


@dataclass(frozen=True, slots=True)
class Publication:
    """What one turn of the reconciler published: the changes of all revisions above
    `previous_revision`, up to `revision`."""

    previous_revision: int
    revision: int
    at: float
    """When it was published: a moment of the hub's clock, in seconds since 1970."""

    proxies: frozenset[str] = frozenset()
    """The ids of the proxies for which something is new: those that were given a new snapshot, and those that came back
    while the turn was computed, which the next turn serves. A proxy that connected for the first time is left out: it
    is given everything, whatever was changed."""

    changed: frozenset[Key] = frozenset()
    """The resources that were changed; only a part of them if it is not `is_whole`."""

    failed: frozenset[str] = frozenset()
    """The ids of the proxies for which something could not be made, by a fault of ours that is new to the proxy or that
    is about a policy that was changed."""

    limited: frozenset[str] = frozenset()
    """The ids of the proxies for which a part is left out because documents exceed a limit, as `failed`."""

    is_whole: bool = True
    """Whether `changed` has all changes. If the store no longer knew them, any proxy may be concerned."""

    held: frozenset[str] = frozenset()
    """The ids of connected proxies that a rollout serves something else in place of what was changed."""

    forerunners: frozenset[str] = frozenset()
    """The ids of connected proxies that a rollout served it before it was stored, or something else in its place until
    it was: what is new to them is in `proxies` too."""

    newcomers: frozenset[str] = frozenset()
    """The ids of the proxies that connected for the first time, and were given it with all else."""

    mesh: str = ""
    """The only mesh that it is about, if that was set aside when its revisions were published in the others."""

    revisions: frozenset[int] | None = None
    """Those of its revisions that concern this mesh; None: all."""

    @property
    def concerned(self) -> frozenset[str]:
        """The ids of the proxies for which it makes a difference, whenever they are served it."""
        return self.proxies | self.held | self.forerunners

    def has(self, revision: int) -> bool:
        if self.revisions is not None:
            return revision in self.revisions
        return self.previous_revision < revision <= self.revision

    def completes(self, publication: Publication) -> bool:
        """True if it is about a mesh that was set aside when a publication of the same changes was made."""
        if not self.mesh or publication.mesh:
            return False
        revisions = (self.revision,) if self.revisions is None else self.revisions
        return any(map(publication.has, revisions))


@dataclass(frozen=True, slots=True)
class PublicationAudience:
    """The proxies that some revisions concern."""

    proxies: frozenset[str] = frozenset()
    """The `concerned` of all publications of these revisions."""

    failed: frozenset[str] = frozenset()
    limited: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()
    """Those that a rollout served something else in place of what was changed, when it was."""

    changed: frozenset[Key] = frozenset()
    newcomers: frozenset[str] = frozenset()
    at: float = 0.0
    """When the first of the revisions was published for any of them, on the clock of the hub."""

    is_of_everything: bool = False
    """True if it is about all that proxies should have, whatever was changed."""

    is_known: bool = True
    """False if one of the revisions is not in the log, no longer or not yet, or its publication is not whole.

    Then all else is about the other revisions only."""


@dataclass(slots=True)
class PublicationLog:
    """The newest publications, in order."""

    _publications: deque[Publication] = field(default_factory=lambda: deque(maxlen=KEPT))
    count: int = 0
    """How many there have been."""

    def add(self, publication: Publication) -> None:
        self._publications.append(publication)
        self.count += 1

    def newest(self, count: int) -> list[Publication]:
        """So many of the newest, or as many as are kept; the oldest first."""
        return list(self._publications)[len(self._publications) - min(count, len(self._publications)) :]

    def audience(self, revisions: Iterable[int]) -> PublicationAudience:
        """The proxies that these revisions concern, and all other revisions of the same publications."""
        by_revision = [self._of(revision) for revision in sorted(set(revisions))]
        complete = [publication for of_revision in by_revision for publication in of_revision if publication.is_whole]
        with_proxies = [publication for publication in complete if publication.concerned]
        return PublicationAudience(
            proxies=frozenset[str]().union(*(publication.concerned for publication in complete)),
            failed=frozenset[str]().union(*(publication.failed for publication in complete)),
            limited=frozenset[str]().union(*(publication.limited for publication in complete)),
            held=frozenset[str]().union(*(publication.held for publication in complete)),
            newcomers=frozenset[str]().union(*(publication.newcomers for publication in complete)),
            changed=frozenset[Key]().union(*(publication.changed for publication in complete)),
            at=min((publication.at for publication in with_proxies or complete), default=0.0),
            is_known=all(of_revision and all(entry.is_whole for entry in of_revision) for of_revision in by_revision),
        )

    def after(self, revision: int) -> list[Publication]:
        """The publications of later revisions, the oldest first, without those in meshes that were set aside."""
        return [entry for entry in self._publications if entry.revision > revision and not entry.mesh]

    def suspected_changes(self, proxy: str, nacked_since: float) -> tuple[frozenset[Key], ...]:
        """What was changed in the last publication to a proxy before it began to NACK, and in each one after that.

        `nacked_since` is a moment of the hub's clock. Of a publication that is not whole, some changes are missing.
        """
        to_proxy = [publication for publication in self._publications if proxy in publication.proxies]
        earlier = [publication for publication in to_proxy if publication.at <= nacked_since]
        later = [publication for publication in to_proxy if publication.at > nacked_since]
        return tuple(publication.changed for publication in (*earlier[-1:], *later))

    def _of(self, revision: int) -> list[Publication]:
        """The publication of a revision, and those in meshes that were set aside."""
        return [entry for entry in self._publications if entry.has(revision)]
