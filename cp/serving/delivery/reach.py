"""`ChangeReach`: whom a change reached, how long that took, and who refused it, as far as that is remembered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain


@dataclass(frozen=True, slots=True)
class ChangeReach:
    """What became of the changes of all revisions above `previous_revision`, up to `revision`, in one process."""

    previous_revision: int
    revision: int
    published_at: float
    proxies: int
    """How many it concerned."""

    have: int = 0
    """How many took all of it."""

    waiting: int = 0
    gone: int = 0
    """How many left before they had answered. They are given it when they come back."""

    refusals: int = 0
    """How many refused something of it when they answered. Some of them may have taken a later change."""

    failed: int = 0
    """For how many something could not be made, by a fault of ours."""

    limited: int = 0
    """The number of proxies for which a part is left out because documents exceed a limit."""

    answered_at: float | None = None
    """When the last of those took it who did; None: none did, or none had to."""

    refused: tuple[str, ...] = ()
    """The names of some of those who refused."""


@dataclass(frozen=True, slots=True)
class CombinedReach:
    """What became of one revision everywhere."""

    reach: ChangeReach
    is_complete: bool
    """Whether all who serve proxies know it. One that began later, or has forgotten it, does not."""


def summed(reach: ChangeReach, further: Iterable[ChangeReach]) -> ChangeReach:
    """The reach of the same changes among several groups of proxies."""
    reaches = (reach, *further)
    answers = [part.answered_at for part in reaches if part.answered_at is not None]
    return replace(
        reach,
        published_at=max(part.published_at for part in reaches),
        proxies=sum(part.proxies for part in reaches),
        have=sum(part.have for part in reaches),
        waiting=sum(part.waiting for part in reaches),
        gone=sum(part.gone for part in reaches),
        refusals=sum(part.refusals for part in reaches),
        failed=sum(part.failed for part in reaches),
        limited=sum(part.limited for part in reaches),
        answered_at=max(answers, default=None),
        refused=tuple(chain.from_iterable(part.refused for part in reaches)),
    )


def combined_reach(revision: int, of_processes: Iterable[Iterable[ChangeReach]]) -> CombinedReach | None:
    """Of each process what it knows of some revisions. None: nobody knows of this one."""
    by_process = [_of(revision, reaches) for reaches in of_processes]
    known = [reach for reach in by_process if reach is not None]
    if not known:
        return None
    first, *further = known
    reach = replace(
        summed(first, further),
        previous_revision=max(reach.previous_revision for reach in known),
        revision=min(reach.revision for reach in known),
        refused=tuple(sorted({proxy for reach in known for proxy in reach.refused})),
    )
    return CombinedReach(reach, len(known) == len(by_process))


def _of(revision: int, reaches: Iterable[ChangeReach]) -> ChangeReach | None:
    return next((reach for reach in reaches if reach.previous_revision < revision <= reach.revision), None)
