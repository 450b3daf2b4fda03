"""What the answers of several control planes come to, also where one of them is missing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import pytest

from cp.model.names import Key, dataplane_key, proxy_id
from cp.serving.delivery import (
    ChangeProgress,
    ChangeReach,
    Delivery,
    FleetDelta,
    NackReport,
    OwnRevision,
    Presence,
    ProxyState,
    ProxyStatus,
)
from cp.serving.instances.circle import InstanceCircle
from cp.serving.instances.members import Members
from cp.serving.instances.observers import ChoresObserver, SharedObserver
from cp.serving.instances.peers import PeerAnswers, Peers
from cp.serving.workers.answers import answer_of
from cp.serving.workers.crew import SilentWorkers
from cp.serving.workers.messages import to_message
from cp.store.memory_roster import MemoryRoster
from cp.store.roster import Fence, Instance
from koguma.v1 import workers_pb2 as pb

T = TypeVar("T")

A, B, C = (Key("Dataplane", "default", name) for name in "abc")
SERVED = 7
OFFLINE = Presence(ProxyState.OFFLINE, None, ())
ONLINE = Presence(ProxyState.ONLINE, 1.0, ())
NOBODY = ChangeProgress(7, 0, 0, is_done=True)


@dataclass
class Served:
    """A control plane with these proxies."""

    states: Mapping[Key, Presence] = field(default_factory=dict)
    made: ChangeProgress = NOBODY

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]:
        return {key: self.states.get(key, OFFLINE) for key in dataplanes}

    async def owners(self) -> Mapping[str, frozenset[str]]:
        return {proxy_id(key): frozenset({"run"}) for key in self.states}

    async def dataplane_text(self, proxy: str, owner: str) -> str:
        return f"{owner} of {proxy}" if dataplane_key(proxy) in self.states else ""

    async def delivery(self, dataplane: Key) -> Delivery:
        return Delivery(dataplane, self.states.get(dataplane, OFFLINE), ())

    async def nack_reports(self) -> Sequence[NackReport]:
        return ()

    async def fleet(self, versions: Mapping[str, int]) -> Sequence[FleetDelta]:
        statuses = (ProxyStatus(proxy_id(key), each.state, each.since) for key, each in self.states.items())
        return [FleetDelta("source", 1, 7, is_whole=not versions, statuses=tuple(statuses))]

    async def reaches(self, revisions: Collection[int]) -> Sequence[Sequence[ChangeReach]]:
        return [[ChangeReach(0, revision, 1.0, 2, have=1) for revision in revisions]]

    async def final_progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> ChangeProgress:
        return self.made

    async def progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> AsyncIterator[ChangeProgress]:
        yield self.made


@dataclass
class FixedPeers:
    """Others, of whom some are silent (None)."""

    served: Mapping[str, Served | None]

    async def others_present(self) -> Sequence[Instance]:
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        return [Instance(id_, id_, f"http://{id_}", "", "0.1.0", moment, 0) for id_ in self.served]

    async def ask(self, request: pb.Request, read: Callable[[pb.Answer], T]) -> PeerAnswers[T]:
        served = {id_: served for id_, served in self.served.items() if served is not None}
        given = {id_: read(await answer_of(observer, request)) for id_, observer in served.items()}
        silent = {id_: "no answer" for id_, served in self.served.items() if served is None}
        return PeerAnswers(given, silent, {id_: f"instance {id_}" for id_ in self.served})


def shared(own: Served, **served: Served | None) -> SharedObserver:
    return over(own, FixedPeers(served))


def over(own: Served, peers: FixedPeers) -> SharedObserver:
    return SharedObserver(own, cast("Peers", peers), lambda: OwnRevision(SERVED, {6: 5.0}.get))


def states(observer: SharedObserver) -> Sequence[ProxyState]:
    presences = asyncio.run(observer.presences([A, B, C]))
    return [presences[key].state for key in (A, B, C)]


def last(observer: SharedObserver, *revisions: int) -> ChangeProgress:
    async def lines() -> list[ChangeProgress]:
        return [line async for line in observer.progress(revisions, (), 0.0)]

    return asyncio.run(lines())[-1]


def test_a_proxy_is_as_the_one_says_that_serves_it() -> None:
    refused = replace(ONLINE, state=ProxyState.REFUSED)
    observer = shared(Served({A: ONLINE}), x=Served({B: refused}))

    assert states(observer) == [ProxyState.ONLINE, ProxyState.REFUSED, ProxyState.OFFLINE]
    assert asyncio.run(observer.delivery(B)).presence.state is ProxyState.REFUSED
    assert asyncio.run(observer.owners()).keys() == {"default.a", "default.b"}
    assert asyncio.run(observer.dataplane_text("default.b", "run")) == "run of default.b"


def test_what_nobody_knows_is_said_to_be_unknown() -> None:
    observer = shared(Served({A: ONLINE}), x=Served({B: ONLINE}), y=None)

    assert states(observer) == [ProxyState.ONLINE, ProxyState.ONLINE, ProxyState.UNKNOWN]
    assert asyncio.run(observer.delivery(C)).presence.state is ProxyState.UNKNOWN
    assert asyncio.run(observer.delivery(B)).presence.state is ProxyState.ONLINE


@dataclass
class At(FixedPeers):
    """Others that serve some revision."""

    revision: int

    async def ask(self, request: pb.Request, read: Callable[[pb.Answer], T]) -> PeerAnswers[T]:
        def read_at(answer: pb.Answer) -> T:
            return read(self.dated(answer))

        return await super().ask(request, read_at)

    def dated(self, answer: pb.Answer) -> pb.Answer:
        answer.revision = self.revision
        return answer


class EarlierAt(At):
    """Of an earlier version, which says it of presences alone."""

    def dated(self, answer: pb.Answer) -> pb.Answer:
        answer.presences.revision = self.revision
        return answer


@pytest.mark.parametrize(
    ("revision", "state"),
    [(0, ProxyState.ONLINE), (6, ProxyState.OUT_OF_SYNC), (7, ProxyState.ONLINE), (8, ProxyState.ONLINE)],
)
def test_a_proxy_of_one_that_is_behind_is_not_in_sync(revision: int, state: ProxyState) -> None:
    """Else a mesh would go to another authority before the proxies of one without its database trust it."""
    observer = over(Served({A: ONLINE}), At({"x": Served({B: ONLINE})}, revision))
    earlier = over(Served({A: ONLINE}), EarlierAt({"x": Served({B: ONLINE})}, revision))

    assert states(observer) == states(earlier) == [ProxyState.ONLINE, state, ProxyState.OFFLINE]
    assert asyncio.run(observer.delivery(B)).presence.state is state, "what is said of one is what lists say"
    assert asyncio.run(observer.delivery(C)).late == ()


def test_of_a_proxy_that_one_serves_who_is_behind_it_is_told_since_when_and_who() -> None:
    observer = over(Served(), At({"x": Served({B: ONLINE})}, 6))

    delivery = asyncio.run(observer.delivery(B))

    assert delivery.late == ("instance x serves revision 6, and not 7",)
    assert delivery.presence.since == 5.0, "when revision 7 was published here, and not when it was in sync"
    assert asyncio.run(observer.presences([B]))[B] == delivery.presence
    forgotten = over(Served(), At({"x": Served({B: ONLINE})}, 4))
    assert asyncio.run(forgotten.delivery(B)).presence.since is None


@pytest.mark.parametrize("question", ["presences", "delivery"])
def test_another_control_plane_is_told_which_revision_an_answer_is_about(question: str) -> None:
    asked = {"presences": pb.Keys(keys=[to_message(A)])} if question == "presences" else {"delivery": to_message(A)}
    nobody: Any = None
    members = Members(MemoryRoster(time.time), "a")
    members.note_lost_worker()
    circle = InstanceCircle(members, nobody, nobody, Served({A: ONLINE}), nobody, lambda: 6)

    frame = pb.Frame.FromString(asyncio.run(circle.answer(pb.Request(**asked).SerializeToString())))

    assert frame.answer.revision == 6
    assert frame.answer.answered_at >= frame.answer.worker_lost_at == members.worker_lost_at > 0
    assert not frame.answer.HasField("presences") or frame.answer.presences.revision == 6, "for an earlier version"


class Forgetful(Served):
    """It says nothing of a proxy that it does not know."""

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]:
        return {key: self.states[key] for key in dataplanes if key in self.states}


def test_who_leaves_out_a_proxy_does_not_serve_it() -> None:
    observer = shared(Served({A: ONLINE}), x=Forgetful({B: replace(ONLINE, state=ProxyState.UNKNOWN)}))

    assert states(observer) == [ProxyState.ONLINE, ProxyState.UNKNOWN, ProxyState.OFFLINE]


def test_who_is_alone_is_not_asked_by_anybody() -> None:
    own = ChangeProgress(7, 2, 1, refusing=("default.b",), is_done=True)

    assert last(shared(Served(made=own)), 7) is own
    assert states(shared(Served({A: ONLINE}))) == [ProxyState.ONLINE, ProxyState.OFFLINE, ProxyState.OFFLINE]


def test_a_change_is_waited_for_everywhere() -> None:
    own, other = ChangeProgress(7, 2, 2, is_done=True), ChangeProgress(7, 2, 1, waiting=("default.c",), is_done=True)

    progress = last(shared(Served(made=own), x=Served(made=other)), 7)

    assert (progress.proxies, progress.have, progress.waiting) == (4, 3, ("default.c",))


def test_who_is_silent_or_behind_is_waited_for_by_name() -> None:
    own, late = ChangeProgress(7, 2, 2, is_done=True), ChangeProgress(5, 0, 0, is_done=True)

    progress = last(shared(Served(made=own), x=Served(made=late), y=None), 7)

    assert progress.revision == 7
    assert progress.waiting == ("all of instance y", "all of instance x, which serves revision 5")


def test_a_proxy_that_went_from_one_to_another_is_not_gone() -> None:
    gone = ChangeProgress(7, 3, 1, gone=("default.a", "default.b"), is_done=True)

    progress = last(shared(Served(made=gone), x=Served({A: ONLINE})), 7)

    assert (progress.have, progress.gone) == (2, ("default.b",))


def having(*proxies: str, gone: Sequence[str] = (), waiting: Sequence[str] = ()) -> ChangeProgress:
    total = len(proxies) + len(gone) + len(waiting)
    return ChangeProgress(
        7, total, len(proxies), having=proxies, gone=tuple(gone), waiting=tuple(waiting), is_done=True
    )


def test_a_proxy_of_which_two_tell_counts_once() -> None:
    """It has moved while both were asked: one saw it before, the other after."""
    own, other = having("default.a", "default.b"), having("default.a", "default.c")

    progress = last(shared(Served(made=own), x=Served(made=other)), 7)

    assert (progress.proxies, progress.have) == (3, 3)


def test_a_proxy_that_one_has_seen_go_and_another_one_counts_is_not_counted_again() -> None:
    own, other = having("default.b", gone=["default.a"]), having("default.a")

    progress = last(shared(Served(made=own), x=Served({A: ONLINE}, made=other)), 7)

    assert (progress.proxies, progress.have, progress.gone) == (2, 2, ())


def test_a_proxy_that_has_not_answered_where_it_is_now_is_waited_for() -> None:
    own, other = having("default.a"), having(waiting=["default.a"])

    progress = last(shared(Served(made=own), x=Served(made=other)), 7)

    assert (progress.proxies, progress.have, progress.waiting) == (1, 0, ("default.a",))


@dataclass
class Leading:
    fence: Fence | None


def test_who_does_no_chores_looks_at_his_own_proxies() -> None:
    own = Served({A: ONLINE})
    observer = shared(own, x=Served({B: ONLINE}))

    def seen(fence: Fence | None) -> set[str]:
        return set(asyncio.run(ChoresObserver(own, observer, Leading(fence)).owners()))

    assert seen(None) == {"default.a"}
    assert seen(Fence("chores", 1)) == {"default.a", "default.b"}


def test_the_fleet_has_what_each_says_and_who_does_not() -> None:
    observer = shared(Served({A: ONLINE}), second=Served({B: ONLINE}), third=None)

    fleet = asyncio.run(observer.fleets({}))

    proxies = {
        id_: [status.proxy for delta in deltas for status in delta.statuses] for id_, deltas in fleet.deltas.items()
    }
    assert proxies == {"": ["default.a"], "second": ["default.b"]}
    assert fleet.silent == ["instance third"]


def test_of_a_worker_that_is_silent_the_others_are_known_all_the_same() -> None:
    class HalfSilent(Served):
        async def fleet(self, versions: Mapping[str, int]) -> Sequence[FleetDelta]:
            answer = await answer_of(Served(self.states), pb.Request(fleet=pb.FleetVersions(versions=versions)))
            raise SilentWorkers([2], {1: answer})

    fleet = asyncio.run(shared(HalfSilent({A: ONLINE})).fleets({}))

    assert [status.proxy for delta in fleet.deltas[""] for status in delta.statuses] == ["default.a"]
    assert fleet.silent == ["worker 2"]


def test_of_a_change_each_process_says_whom_it_reached_and_who_is_silent_says_nothing() -> None:
    observer = shared(Served(), second=Served(), third=None)

    reaches = asyncio.run(observer.reaches([7]))

    assert [[(reach.revision, reach.have) for reach in of_process] for of_process in reaches] == [
        [(7, 1)],
        [(7, 1)],
        [],
    ]
