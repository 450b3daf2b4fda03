"""`ChangeReach`: whom a change reached, how long that took, and who refused it, as far as that is remembered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


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


def combined_reach(revision: int, of_processes: Iterable[Iterable[ChangeReach]]) -> CombinedReach | None:
    """Of each process what it knows of some revisions. None: nobody knows of this one."""
    by_process = [_of(revision, reaches) for reaches in of_processes]
    known = [reach for reach in by_process if reach is not None]
    if not known:
        return None
    answers = [reach.answered_at for reach in known if reach.answered_at is not None]
    reach = ChangeReach(
        previous_revision=max(reach.previous_revision for reach in known),
        revision=min(reach.revision for reach in known),
        published_at=max(reach.published_at for reach in known),
        proxies=sum(reach.proxies for reach in known),
        have=sum(reach.have for reach in known),
        waiting=sum(reach.waiting for reach in known),
        gone=sum(reach.gone for reach in known),
        refusals=sum(reach.refusals for reach in known),
        failed=sum(reach.failed for reach in known),
        answered_at=max(answers, default=None),
        refused=tuple(sorted({proxy for reach in known for proxy in reach.refused})),
    )
    return CombinedReach(reach, len(known) == len(by_process))


def _of(revision: int, reaches: Iterable[ChangeReach]) -> ChangeReach | None:
    return next((reach for reach in reaches if reach.previous_revision < revision <= reach.revision), None)
