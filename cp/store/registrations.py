"""The budget that registrations of proxies have in the log, apart from that of all other writes.

A registration is the write of one Dataplane by its proxy, or by the control plane because the proxy came or went. The
log is kept small by two rules, which every store applies:

- of one Dataplane, consecutive registrations beyond a few are merged into one change. The first of them says what was
  before, the last what came after, so going back over the log and following it lead to the same documents;
- beyond the budget of all registrations, the oldest ones of the meshes with the most are forgotten.

See record 0100.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from cp.model.registration import is_by_proxies
from cp.store.port import Change, HistoryLimits

OF_DATAPLANE: Final = 16
"""Consecutive registrations of one Dataplane that are kept."""

OF_DATAPLANE_BYTES: Final = 256 * 1024
"""Their size together. Two are kept, however large they are."""

_KEPT_OF_DATAPLANE: Final = OF_DATAPLANE // 2
"""So many stay as they are when the others are merged, so that not every write merges."""

_CHECKS: Final = 64
"""The sum over all Dataplanes is checked with every 64th revision, as it takes a while to compute."""


class LoggedRegistration(NamedTuple):
    """A registration in the log."""

    revision: int
    size: int


class RegistrationTally(NamedTuple):
    """The registrations of a mesh, or the most that it may keep."""

    number: int
    size: int


@dataclass(frozen=True, slots=True)
class RegistrationMerge:
    """Registrations of one Dataplane that become one change: that of `target`, from what was before `first`."""

    first: int
    target: int


def is_registration(changes: Sequence[Change]) -> bool:
    """True if a write is a registration."""
    return len(changes) == 1 and changes[0].key.type == "Dataplane" and is_by_proxies(changes[0].author)


def merge_for(run: Sequence[LoggedRegistration]) -> RegistrationMerge | None:
    """Return the merge that a run of consecutive registrations of a Dataplane needs, newest first."""
    if len(run) <= 2 or (len(run) <= OF_DATAPLANE and _size(run) <= OF_DATAPLANE_BYTES):  # noqa: PLR2004  # see there
        return None
    kept = 1
    while kept < min(_KEPT_OF_DATAPLANE, len(run) - 2) and _size(run[: kept + 1]) <= OF_DATAPLANE_BYTES // 2:
        kept += 1
    return RegistrationMerge(run[-1].revision, run[kept].revision)


def is_check_due(before: int, newest: int, limits: HistoryLimits) -> bool:
    """True if the sum over all Dataplanes is to be checked after writes up to `newest`."""
    interval = max(1, min(_CHECKS, limits.kept_registrations // _CHECKS))
    return newest // interval != before // interval


def shares(tallies: Mapping[str, RegistrationTally], limits: HistoryLimits) -> Mapping[str, RegistrationTally]:
    """Return the most that each mesh may keep, for the meshes that have more. Small meshes keep all they have."""
    count = _level([tally.number for tally in tallies.values()], limits.kept_registrations)
    size = _level([tally.size for tally in tallies.values()], limits.kept_registration_bytes)
    most = RegistrationTally(count, size)
    return {mesh: most for mesh, tally in tallies.items() if tally.number > count or tally.size > size}


def tally(registrations: Sequence[LoggedRegistration]) -> RegistrationTally:
    return RegistrationTally(len(registrations), _size(registrations))


def cut(newest_first: Iterable[LoggedRegistration], most: RegistrationTally) -> int:
    """Return the revision up to which a mesh forgets its registrations, to keep no more than it may."""
    count = size = 0
    for logged in newest_first:
        count, size = count + 1, size + logged.size
        if count > most.number or size > most.size:
            return logged.revision
    return 0


def _level(amounts: Iterable[int], budget: int) -> int:
    """Return the amount to which the largest are cut so that all together stay within a budget."""
    left, ascending = budget, sorted(amounts)
    for index, amount in enumerate(ascending):
        share = left // (len(ascending) - index)
        if amount > share:
            return share
        left -= amount
    return budget


def _size(run: Iterable[LoggedRegistration]) -> int:
    return sum(logged.size for logged in run)
