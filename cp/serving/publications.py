"""`PublicationLog`: what was published at which revision and to whom, as far back as anybody may ask."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from cp.model.names import Key

KEPT: Final = 256


@dataclass(frozen=True, slots=True)
class Publication:
    """What one turn of the loop made of the changes after one revision, up to another."""

    since: int
    revision: int
    at: float
    """When it was published, on the clock of the hub."""

    proxies: frozenset[str] = frozenset()
    """Those who were given something new."""

    changed: frozenset[Key] = frozenset()
    failed: frozenset[str] = frozenset()
    """Those for whom some part of it could not be made, by a fault of ours; not who met the same fault before it."""

    is_whole: bool = True
    """False if the changes are not known one by one: then it may concern anybody."""


@dataclass(frozen=True, slots=True)
class PublicationAudience:
    """Whom some revisions concern."""

    proxies: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    at: float = 0.0
    """When the first of them was published."""

    is_known: bool = True
    """False where it is too long ago to say."""


@dataclass(slots=True)
class PublicationLog:
    """The newest of them, in order."""

    _kept: deque[Publication] = field(default_factory=lambda: deque(maxlen=KEPT))

    def add(self, edition: Publication) -> None:
        self._kept.append(edition)

    def reach(self, revisions: Iterable[int]) -> PublicationAudience:
        """Whom the changes of these revisions concern; others that were published together with them count too."""
        found = [self._of(revision) for revision in sorted(set(revisions))]
        known = [edition for edition in found if edition is not None and edition.is_whole]
        return PublicationAudience(
            proxies=frozenset[str]().union(*(edition.proxies for edition in known)),
            failed=frozenset[str]().union(*(edition.failed for edition in known)),
            at=min((edition.at for edition in known), default=0.0),
            is_known=len(known) == len(found),
        )

    def suspects(self, proxy: str, since: float) -> tuple[frozenset[Key], ...]:
        """What was changed in the edition after which a proxy was in trouble, and in each one later that reached it."""
        reached = [edition for edition in self._kept if proxy in edition.proxies]
        before = [edition for edition in reached if edition.at <= since]
        later = [edition for edition in reached if edition.at > since]
        return tuple(edition.changed for edition in (*before[-1:], *later))

    def _of(self, revision: int) -> Publication | None:
        return next((one for one in self._kept if one.since < revision <= one.revision), None)
