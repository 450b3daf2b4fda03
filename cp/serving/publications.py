"""`PublicationLog`: what was published at which revision and to whom, as far back as anybody may ask."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from cp.model.names import Key

KEPT: Final = 256
"""Publications. A client asks about its write within seconds; a proxy may refuse something for hours."""


@dataclass(frozen=True, slots=True)
class Publication:
    """What one turn of the reconciler published: the changes of all revisions above
    `previous_revision`, up to `revision`."""

    previous_revision: int
    revision: int
    at: float
    """When it was published, on the clock of the hub."""

    proxies: frozenset[str] = frozenset()
    """The proxies that were given a new snapshot, without those that had just connected for the first time: these are
    given everything, whatever was changed."""

    changed: frozenset[Key] = frozenset()
    failed: frozenset[str] = frozenset()
    """The proxies for which something could not be made, by a fault of ours that they did not meet before or that is
    about a policy that was changed."""

    is_whole: bool = True
    """Whether `changed` has all changes. If not, anybody may be concerned."""


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
    """The newest publications, in order."""

    _publications: deque[Publication] = field(default_factory=lambda: deque(maxlen=KEPT))

    def add(self, publication: Publication) -> None:
        self._publications.append(publication)

    def audience(self, revisions: Iterable[int]) -> PublicationAudience:
        """Whom the changes of these revisions concern, together with all other changes of the same publications."""
        publications = [self._of(revision) for revision in sorted(set(revisions))]
        complete = [publication for publication in publications if publication is not None and publication.is_whole]
        return PublicationAudience(
            proxies=frozenset[str]().union(*(publication.proxies for publication in complete)),
            failed=frozenset[str]().union(*(publication.failed for publication in complete)),
            at=min((publication.at for publication in complete), default=0.0),
            is_known=len(complete) == len(publications),
        )

    def changes_behind(self, proxy: str, trouble_began: float) -> tuple[frozenset[Key], ...]:
        """What was changed in the last publication to a proxy before its trouble began, and in each one after that.

        `trouble_began` is a moment on the clock of the hub.
        """
        to_proxy = [publication for publication in self._publications if proxy in publication.proxies]
        earlier = [publication for publication in to_proxy if publication.at <= trouble_began]
        later = [publication for publication in to_proxy if publication.at > trouble_began]
        return tuple(publication.changed for publication in (*earlier[-1:], *later))

    def _of(self, revision: int) -> Publication | None:
        return next(
            (entry for entry in self._publications if entry.previous_revision < revision <= entry.revision), None
        )
