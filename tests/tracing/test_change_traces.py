"""A trace of a change is short, however many proxies it reaches."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace

from cp.ads.hub import Hub
from cp.model.names import Key
from cp.serving.change_traces import MOST_OPEN, PATIENCE, ChangeTracer
from cp.serving.delivery import ChangeReach
from cp.serving.publications import Publication
from cp.serving.turn import TurnRecord
from cp.tracing.spans import Span, TraceContext
from cp.tracing.writes import WriteTraces
from tests.support.waiting import eventually_on_loop

NOW = 1000.0
PROXIES = frozenset(f"default.web-{number}" for number in range(5000))
PUBLICATION = Publication(6, 7, NOW, PROXIES, frozenset({Key("MeshTimeout", "default", "t")}))
RECORD = TurnRecord(
    PUBLICATION, NOW - 3, NOW - 2, NOW - 1, NOW, "2026-01-01T00:00:00", ("MeshTimeout default/t",), ("ann",)
)
SECOND = 1_000_000_000


class Sink:
    def __init__(self) -> None:
        self.spans: list[Span] = []

    def take(self, spans: Sequence[Span]) -> None:
        self.spans += spans


class Rig:
    """A tracer on a clock of ours, of which we say whom changes reached."""

    def __init__(self, *, is_shared: bool = False) -> None:
        self.now, self.waiting, self.sink, self.hub = NOW, len(PROXIES), Sink(), Hub()
        self.elapsed = 0.0
        self.traces = WriteTraces(self.sink)
        self.tracer = ChangeTracer(
            self.hub.observer, self.traces, lambda: self.now, lambda: self.elapsed, is_shared=lambda: is_shared
        )

    async def reaches(self, revisions: Collection[int]) -> Sequence[Sequence[ChangeReach]]:
        have = len(PROXIES) - self.waiting
        return [[ChangeReach(revision - 1, revision, NOW, len(PROXIES), have, self.waiting) for revision in revisions]]

    def answer(self) -> None:
        """Every proxy is sent something, and accepts it, a moment later each."""
        (tally,) = self.hub.observer._state.tallies
        for proxy in sorted(PROXIES):
            tally.sent(proxy, "routes", 1, 100)
        for proxy in sorted(PROXIES):
            self.now += 0.001
            tally.answered(proxy, "routes", is_ack=True)
        self.waiting = 0

    async def span(self, name: str) -> Span:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(self.tracer.run(self))
            await eventually_on_loop(lambda: any(span.name == name for span in self.sink.spans))
            running.cancel()
        return next(span for span in self.sink.spans if span.name == name)


def test_five_thousand_proxies_are_as_many_spans_as_five_and_the_last_is_named() -> None:
    async def test() -> None:
        rig = Rig()
        rig.tracer.turned(RECORD)
        rig.answer()
        push = await rig.span("push routes")

        assert [span.name for span in rig.sink.spans] == ["change", "gather", "turn", "publish", "push routes"]
        assert push.attributes["koguma.acks"] == 5000
        assert push.attributes["koguma.last_proxy"] == "default.web-999"
        assert rig.sink.spans[0].ended == push.ended == int(rig.now * SECOND)
        assert rig.hub.observer._state.tallies == []

    asyncio.run(test())


def test_push_span_counts_nacks_apart_from_acks() -> None:
    async def test() -> None:
        rig = Rig()
        rig.tracer.turned(RECORD)
        (tally,) = rig.hub.observer._state.tallies
        for proxy, is_ack in (("default.web-1", True), ("default.web-2", True), ("default.web-3", False)):
            tally.sent(proxy, "routes", 1, 100)
            tally.answered(proxy, "routes", is_ack=is_ack)
        rig.waiting = 0
        push = await rig.span("push routes")

        assert (push.attributes["koguma.acks"], push.attributes["koguma.nacks"]) == (2, 1)

    asyncio.run(test())


def test_change_is_no_part_of_later_write() -> None:
    async def test() -> None:
        rig = Rig()
        later = rig.traces.begin("")
        rig.traces.note_write(int(NOW * SECOND), 8, {})
        rig.waiting = 0
        rig.tracer.turned(RECORD)
        change = await rig.span("change")

        assert change.context.trace != later.context.trace

    asyncio.run(test())


def test_a_proxy_that_never_answers_does_not_keep_a_trace_for_ever() -> None:
    async def test() -> None:
        rig = Rig()
        rig.tracer.turned(RECORD)
        rig.now -= 1  # the clock was set back
        rig.elapsed += PATIENCE + 1
        change = await rig.span("change")

        assert change.attributes["koguma.waiting"] == 5000
        assert change.ended == int(rig.now * SECOND)

    asyncio.run(test())


def test_of_very_many_changes_at_once_some_have_no_trace() -> None:
    rig = Rig()
    for _ in range(2 * MOST_OPEN):
        rig.tracer.turned(RECORD)

    assert len(rig.hub.observer._state.tallies) == MOST_OPEN


def test_processes_that_do_not_know_the_write_make_one_trace_of_it() -> None:
    async def test() -> None:
        of_processes = []
        for _ in range(2):
            rig = Rig()
            rig.tracer.turned(RECORD)
            rig.waiting = 0
            of_processes.append((await rig.span("change")).context)

        first, second = of_processes
        assert first.trace == second.trace

    asyncio.run(test())


def test_where_others_serve_the_change_its_trace_leads_to_theirs() -> None:
    async def test() -> None:
        written, elsewhere = Rig(is_shared=True), Rig()
        request = written.traces.begin("")
        written.traces.note_write(int((NOW - 4) * SECOND), 7, {})
        for rig in (written, elsewhere):
            rig.waiting = 0
            rig.tracer.turned(RECORD)
        here, there = await written.span("change"), await elsewhere.span("change")

        assert here.context.trace == request.context.trace
        assert [link.trace for link in here.links] == [there.context.trace]

    asyncio.run(test())


def test_write_is_within_its_request() -> None:
    rig = Rig()
    request = rig.traces.begin("")
    rig.traces.note_write(0, 7, {})

    (write,) = rig.sink.spans
    assert (write.context.trace, write.parent) == (request.context.trace, request.context.span)


def test_no_trace_is_sent_that_the_caller_does_not_want() -> None:
    async def test() -> None:
        rig = Rig()
        request = rig.traces.begin(f"00-{'a' * 32}-{'b' * 16}-00")
        assert request.context == TraceContext(b"\xaa" * 16, request.context.span, is_sampled=False)
        rig.traces.note_write(0, 7, {})
        rig.tracer.turned(RECORD)
        rig.tracer.turned(replace(RECORD, publication=replace(PUBLICATION, previous_revision=7, revision=8)))
        rig.waiting = 0
        change = await rig.span("change")

        assert change.attributes["koguma.revision"] == 8

    asyncio.run(test())
