"""How far a change has come: which proxies have it, which refuse it, which have not answered yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from cp.ads.connection import Connection
from cp.serving.delivery.nacks import NackReport
from cp.translate.snapshot import Snapshot


class ChangeStanding(Enum):
    """Whether one proxy has a change."""

    WAITING = auto()
    HAS_IT = auto()
    REFUSES = auto()
    GONE = auto()
    """It is not connected. It is given the change when it comes back."""


def change_standing(
    connections: Sequence[Connection], newest: Snapshot | None, since: float, *, held: bool
) -> ChangeStanding:
    """Whether a proxy has what was published since a moment. What it NACKed before then does not count.

    `held`: a rollout serves it something else in place of that.
    """
    if not connections:
        return ChangeStanding.GONE
    if held or newest is None:
        return ChangeStanding.WAITING
    if all(connection.session.is_at(newest) for connection in connections):
        return ChangeStanding.HAS_IT
    if not all(connection.session.has_answered_all(newest) for connection in connections):
        return ChangeStanding.WAITING
    refused = (connection.nacked_at.get(nack, since) for connection in connections for nack in connection.nacks)
    return ChangeStanding.REFUSES if any(at >= since for at in refused) else ChangeStanding.HAS_IT


@dataclass(frozen=True, slots=True)
class ChangeProgress:
    """How far a change has come."""

    revision: int
    """The revision up to which changes are published."""

    proxies: int
    """How many proxies it concerns."""

    have: int
    refusing: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    """The proxies for which a part of it could not be made, by a fault of the control plane."""

    limited: tuple[str, ...] = ()
    """The proxies that are served without some part, because documents exceed a limit."""

    late: tuple[str, ...] = ()
    """Connected proxies that it does not count, as they were given it with all else, and that have not taken all yet.

    They connected when it was published, or since then.
    """

    nack_reports: tuple[NackReport, ...] = ()
    is_done: bool = False
    having: tuple[str, ...] = ()
    """Those who have it, by name, so that a proxy counts once of which several processes tell.

    They are fewer than `have` where another control plane, of an earlier version, counts alone.
    """
