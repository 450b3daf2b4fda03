"""`ChangeTracer`: what became of each change, from the moment at which it was noticed to the last answer of a proxy.

A trace has a span for each part of the way and for each type of resources, with counts and the proxy that was the last;
so it is as long for five thousand proxies as for five (record 0091).
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final, Protocol

from cp.ads.hub import ObserverSide
from cp.ads.push_tally import PushTally
from cp.serving.delivery import ChangeReach
from cp.serving.turn import TurnRecord
from cp.tracing.spans import Attribute, Span, TraceContext
from cp.tracing.writes import WriteTraces

PATIENCE: Final = 60.0
"""Seconds after which a trace is sent though proxies have not answered."""

MOST_OPEN: Final = 16
"""Changes that are followed at the same time; of others there is no trace in this process."""

_LOOKS_EVERY: Final = 0.1
_SECOND: Final = 1_000_000_000


class ReachObserver(Protocol):
    """Who knows whom changes reached."""

    async def reaches(self, revisions: Collection[int]) -> Sequence[Sequence[ChangeReach]]: ...


@dataclass(frozen=True, slots=True)
class _OpenChange:
    record: TurnRecord
    tally: PushTally
    since: float  # when it was published, by the stopwatch


class ChangeTracer:
    """Told of each turn. What a trace is of is on the clock of the hub, in seconds since 1970."""

    def __init__(
        self,
        hub: ObserverSide,
        traces: WriteTraces,
        clock: Callable[[], float],
        stopwatch: Callable[[], float] = monotonic,
        *,
        is_shared: Callable[[], bool],
    ) -> None:
        """`is_shared`: whether other processes serve what is written here, each with a trace of its own."""
        self._hub, self._traces, self._clock, self._is_shared = hub, traces, clock, is_shared
        self._stopwatch = stopwatch
        self._open: list[_OpenChange] = []
        self._has_open = asyncio.Event()

    def turned(self, record: TurnRecord) -> None:
        """Follow what was published just now."""
        if len(self._open) < MOST_OPEN:
            tally = PushTally(record.publication.proxies, self._clock)
            self._hub.add_tally(tally)
            self._open.append(_OpenChange(record, tally, self._stopwatch()))
            self._has_open.set()

    async def run(self, observer: ReachObserver | None) -> None:
        """Until cancelled. Without an observer nobody is served in this process."""
        while True:
            await self._has_open.wait()
            await asyncio.sleep(_LOOKS_EVERY)
            for change in tuple(self._open):
                reach = await _reach(observer, change.record.publication.revision)
                is_late = self._stopwatch() - change.since > PATIENCE
                if reach is None or not reach.waiting or is_late:
                    self._end(change, reach)
            if not self._open:
                self._has_open.clear()

    def _end(self, change: _OpenChange, reach: ChangeReach | None) -> None:
        self._open.remove(change)
        self._hub.remove_tally(change.tally)
        publication = change.record.publication
        revisions = range(publication.previous_revision + 1, publication.revision + 1)
        derived = _derived(change.record)
        parent = self._traces.context_of(revisions)
        links = (derived,) if parent is not None and self._is_shared() else ()
        context = derived if parent is None else parent.within(secrets.token_bytes)
        if context.is_sampled:
            ended = self._ended(change, reach)
            attributes = {**_about(change.record), **_about_reach(reach)}
            fault = f"{reach.refusals} proxies refuse it" if reach is not None and reach.refusals else ""
            began, of_parent = _nanoseconds(change.record.noticed), b"" if parent is None else parent.span
            whole = Span("change", context, of_parent, began, _nanoseconds(ended), attributes, fault, links=links)
            self._traces.sink.take([whole, *_parts(change, context)])

    def _ended(self, change: _OpenChange, reach: ChangeReach | None) -> float:
        """The last answer, or now if proxies have not answered."""
        if reach is not None and reach.waiting:
            return self._clock()
        return max((change.record.published, *(push.ended for push in change.tally.types.values())))


async def _reach(observer: ReachObserver | None, revision: int) -> ChangeReach | None:
    of_processes = [] if observer is None else await observer.reaches([revision])
    return next((reach for of_process in of_processes for reach in of_process if reach.revision == revision), None)


def _parts(change: _OpenChange, context: TraceContext) -> Iterator[Span]:
    record = change.record
    for name, began, ended in (
        ("gather", record.noticed, record.began),
        ("turn", record.began, record.computed),
        ("publish", record.computed, record.published),
    ):
        yield _part(name, context, began, ended, {})
    for name, push in change.tally.types.items():
        about: dict[str, Attribute] = {
            "koguma.responses": push.responses,
            "koguma.resource_count": push.resources,
            "koguma.bytes": push.size,
            "koguma.acks": push.acks,
            "koguma.nacks": push.nacks,
            "koguma.last_proxy": push.last,
        }
        yield _part(f"push {name}", context, push.began, push.ended, about)


def _part(name: str, context: TraceContext, began: float, ended: float, about: dict[str, Attribute]) -> Span:
    within = context.within(secrets.token_bytes)
    return Span(name, within, context.span, _nanoseconds(began), _nanoseconds(ended), about)


def _about(record: TurnRecord) -> dict[str, Attribute]:
    publication = record.publication
    return {
        "koguma.revision": publication.revision,
        "koguma.previous_revision": publication.previous_revision,
        "koguma.authors": record.authors,
        "koguma.resources": record.resources,
        "koguma.resource_count": len(publication.changed),
        "koguma.proxies": len(publication.proxies),
        "koguma.failed": len(publication.failed),
    }


def _about_reach(reach: ChangeReach | None) -> dict[str, Attribute]:
    if reach is None:
        return {}
    counts = {"have": reach.have, "refusing": reach.refusals, "waiting": reach.waiting, "gone": reach.gone}
    return {**{f"koguma.{name}": count for name, count in counts.items()}, "koguma.refused_by": reach.refused}


def _derived(record: TurnRecord) -> TraceContext:
    """The same in every process that sees a change: of its revision and of the moment that the store noted."""
    text = f"{record.publication.revision} {record.written_at}"
    digest = hashlib.sha256(text.encode()).digest()
    return TraceContext(digest[:16], digest[16:24])


def _nanoseconds(moment: float) -> int:
    return int(moment * _SECOND)
