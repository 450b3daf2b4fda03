"""How far a change has come: which proxies have it, which refuse it, which have not answered yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from cp.ads.connection import Seat
from cp.serving.delivery.nacks import Complaint
from cp.translate.snapshot import Snapshot


class Stand(Enum):
    """Where one proxy is with a change."""

    WAITING = auto()
    HAS_IT = auto()
    REFUSES = auto()
    GONE = auto()
    """It is not connected. It is given the change when it comes back."""


def stand(seats: Sequence[Seat], newest: Snapshot | None, since: float) -> Stand:
    """Where a proxy is with what was published since a moment. What it refused before then does not count."""
    if not seats:
        return Stand.GONE
    if newest is None:
        return Stand.WAITING
    if all(seat.session.is_at(newest) for seat in seats):
        return Stand.HAS_IT
    if not all(seat.session.has_answered_all(newest) for seat in seats):
        return Stand.WAITING
    refused = (seat.refused_at.get(nack, since) for seat in seats for nack in seat.refusals)
    return Stand.REFUSES if any(at >= since for at in refused) else Stand.HAS_IT


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a change has come."""

    revision: int
    """Up to where changes have been worked out."""

    proxies: int
    """How many proxies it concerns."""

    have: int
    refusing: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    """Those for whom some part of it could not be made, by a fault of the control plane."""

    complaints: tuple[Complaint, ...] = ()
    is_done: bool = False
