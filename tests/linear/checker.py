"""Whether a history is linearisable: whether each operation can have happened at one moment while its client waited.

In general that is a search. Here the store tells in which order it made its writes, so there is one order to judge:
each answer has to follow from it, and there have to be moments for all of them. A history that fails is a fault even if
another order would explain it, as revisions are promised to be in the order of writes. See record 0084.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.linear.claims import Claims
from tests.linear.history import GONE, LogEntry, Operation
from tests.linear.order import Order, Period, common


def faults(history: Sequence[Operation], log: Sequence[LogEntry]) -> list[str]:
    """Everything that speaks against a history. Nothing: it is linearisable, and nothing that was answered is lost."""
    order = Order(log, {name for operation in history for name in [*operation.writes, *operation.saw]})
    claims = Claims(order, history)
    return [*order.gaps(), *claims.faults()] or list(_out_of_order(order, claims, history))


@dataclass(frozen=True, slots=True)
class Look:
    """An operation that saw something, and at which revisions that was to be seen."""

    operation: Operation
    periods: Sequence[Period]


def _looks(order: Order, history: Sequence[Operation]) -> Iterator[Look]:
    for operation in history:
        if operation.saw:
            yield Look(operation, order.showing(operation.saw))
        elif operation.is_done_deletion and operation.revision is not None:
            gone = order.showing(dict.fromkeys(operation.writes, GONE))
            at_its_revision = (operation.revision, operation.revision + 1)
            yield Look(operation, list(common([at_its_revision], gone)))


def _out_of_order(order: Order, claims: Claims, history: Sequence[Operation]) -> Iterator[str]:
    looks = list(_looks(order, history))
    if inexplicable := [look.operation for look in looks if not look.periods]:
        yield from (f"nothing of the kind ever was: {operation}" for operation in inexplicable)
        return
    moments = Moments(order, claims)
    moments.settle(looks)
    yield from moments.faults(claims, looks)


class Moments:
    """The earliest moment at which each revision can have been made.

    It was made after its client began, and after the revision before. Who saw what it replaced, and began later than
    that moment, moves it: what he saw was still so when he began. Of several times at which that was to be seen the
    last moves least. So no moment is later than it must be, and where one is too late nothing explains all.
    """

    def __init__(self, order: Order, claims: Claims) -> None:
        self._end = order.end
        self._earliest = [-math.inf] * (order.end + 1)
        self._because: list[Operation | None] = [None] * (order.end + 1)
        for revision in sorted(claims.made, reverse=True):
            if operations := claims.made[revision]:
                self._move(revision, min(operations, key=lambda operation: operation.began))

    def settle(self, looks: Sequence[Look]) -> None:
        """Move until nothing has to be moved. Each move is to a moment at which some operation began."""
        in_order = sorted(looks, key=lambda look: look.operation.began)  # so that few have to be looked at again
        has_moved = True
        while has_moved:
            has_moved = sum(self._is_moved_by(look) for look in in_order) > 0

    def _is_moved_by(self, look: Look) -> bool:
        period = self._period(look)
        return period is not None and self._move(period[1], look.operation)

    def faults(self, claims: Claims, looks: Sequence[Look]) -> Iterator[str]:
        for look in looks:
            if self._period(look) is None:
                revision = look.periods[0][0]
                yield f"revision {revision} {self._since(revision)}, and was seen before: {look.operation}"
        for revision, operations in claims.made.items():
            for operation in operations:
                if self._earliest[revision] > operation.ended:
                    yield f"revision {revision} {self._since(revision)}, and was answered before: {operation}"

    def _since(self, revision: int) -> str:
        return f"cannot have been made before {self._earliest[revision]:.6f} (because {self._because[revision]})"

    def _period(self, look: Look) -> Period | None:
        """The last that can have begun when the operation ended."""
        place = bisect_right(look.periods, look.operation.ended, key=lambda period: self._earliest[period[0]])
        return look.periods[place - 1] if place else None

    def _move(self, revision: int, operation: Operation) -> bool:
        """A revision, and each after it, is as late as an operation began. The end of the log is never reached."""
        place = revision
        while place < self._end and self._earliest[place] < operation.began:
            self._earliest[place], self._because[place] = operation.began, operation
            place += 1
        return place > revision
