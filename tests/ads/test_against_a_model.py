"""Whatever happens in whatever order, a client ends up with exactly the newest snapshot and never points at nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cp.ads.session.base import CLUSTER_USERS, SessionBase
from cp.ads.session.delta import DeltaSession
from cp.ads.session.sotw import SotwSession
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES
from cp.translate.snapshot import Snapshot
from tests.ads.content import BAD, GOOD, POISON, Content, Mesh
from tests.ads.model import Client, DeltaClient, SotwClient

NAMES = ("a", "b", "c", "d")
revisions = st.integers(0, 2)


@st.composite
def meshes(draw: st.DrawFn, tastes: tuple[str, ...] = (GOOD,)) -> Mesh:
    """Clusters with endpoints each; tables that point at some of them; listeners that use all tables."""
    taste = st.sampled_from(tastes)
    clusters = draw(st.lists(st.sampled_from(NAMES), unique=True))
    tables = draw(st.lists(st.sampled_from(NAMES), unique=True))
    to = st.lists(st.sampled_from(clusters), unique=True) if clusters else st.just([])
    return Mesh(
        clusters=tuple(Content(name, draw(revisions), draw(taste)) for name in clusters),
        assignments=tuple(Content(name, draw(revisions)) for name in clusters),
        tables=tuple(Content(name, draw(revisions), draw(taste), tuple(draw(to))) for name in tables),
        listeners=tuple(Content(name, draw(revisions), draw(taste), (name,)) for name in tables),
    )


class Conversation(RuleBasedStateMachine):
    """A session, a client, and the two directions between them, which may each lag behind."""

    tastes: tuple[str, ...] = (GOOD,)
    make_session: Any
    make_client: Any

    def __init__(self) -> None:
        super().__init__()
        self.client: Client = self.make_client()
        self.newest: Snapshot | None = None
        self.under_way: list[Any] = []

    @initialize(naming=st.booleans())
    def connected(self, naming: bool) -> None:
        self.client.naming = naming
        self.begin(trusts_versions=True)

    def begin(self, *, trusts_versions: bool) -> None:
        self.session: SessionBase = self.make_session(trusts_versions=trusts_versions)
        self.under_way.clear()
        self.client.connect()
        if self.newest is not None:
            self.under_way += self.session.publish(self.newest)

    @rule(data=st.data())
    def a_newer_snapshot(self, data: st.DataObject) -> None:
        self.publish(data.draw(meshes(self.tastes)), data.draw(st.sets(st.sampled_from(NAMES))))

    def publish(self, mesh: Mesh, shared: set[str]) -> None:
        self.newest = mesh.snapshot(shared)
        self.under_way += self.session.publish(self.newest)

    @precondition(lambda self: self.under_way)
    @rule()
    def the_client_reads(self) -> None:
        self.client.receive(self.under_way.pop(0))

    @precondition(lambda self: self.client.outbox)
    @rule()
    def the_session_reads(self) -> None:
        self.under_way += self.session.receive(self.client.outbox.popleft())  # type: ignore[attr-defined]

    @rule()
    def all_is_read(self) -> None:
        while self.step():
            pass
        self.check()

    def step(self) -> bool:
        if self.under_way:
            self.the_client_reads()
        elif self.client.outbox:
            self.the_session_reads()
        elif self.session.awaited_answer == CLUSTER_USERS:  # it may have no routes to ask for
            self.under_way += self.session.expire(CLUSTER_USERS)
        else:
            return False
        return True

    @rule()
    def the_stream_breaks(self) -> None:
        trusts_versions = self.session.is_settled
        self.client.suspended = self.client.suspended or self.is_blind()
        if not trusts_versions:  # it may be waiting for endpoints that it has
            self.client.awaits_endpoints = True
            self.client.asked_again.update((ENDPOINTS, name) for name in NAMES)
        self.begin(trusts_versions=trusts_versions)

    @precondition(lambda self: self.session.awaited_answer is not None)
    @rule()
    def the_deadline_passes(self) -> None:
        """The client may well be on its way; what should come first then does not."""
        awaited = self.session.awaited_answer
        assert awaited is not None
        self.under_way += self.session.expire(awaited)
        self.client.suspended = True

    def is_blind(self) -> bool:
        """A state-of-the-world client does not say what it has, so the old cannot be kept until the new is there."""
        return isinstance(self.client, SotwClient)

    @invariant()
    def what_is_held_back_is_a_deviation(self) -> None:
        for channel in self.session._channels.values():
            assert channel._resources.nacked.keys() <= channel._resources.deviations.keys()

    def check(self) -> None:
        assert self.session.awaited_answer is None, "only the deadline would help"
        self.client.rest()
        if self.newest is not None:
            self.expect(self.newest)

    def expect(self, snapshot: Snapshot) -> None:
        for type_url in (CLUSTER, ENDPOINTS, LISTENER, ROUTES):
            wanted = {packed.name: packed.version for packed in snapshot.of(type_url)}
            assert {name: packed.version for name, packed in self.client.has[type_url].items()} == wanted
        assert self.session.is_at(snapshot)
        assert all(status.in_sync for status in self.session.statuses)

    def teardown(self) -> None:
        self.all_is_read()


class Sotw(Conversation):
    make_session = SotwSession
    make_client = SotwClient


class Delta(Conversation):
    make_session = DeltaSession
    make_client = DeltaClient


class Refusing(Conversation):
    """Some resources are refused. Once none are any more, all is as it should be."""

    tastes = (GOOD, GOOD, GOOD, BAD, POISON)

    def step(self) -> bool:
        """A cluster may wait for endpoints that are gone until it gives up, as its removal was refused."""
        if super().step():
            return True
        stuck = self.session.awaited_answer
        if stuck is not None:
            self.under_way += self.session.expire(stuck)
            self.client.give_up()
        return stuck is not None

    def check(self) -> None:
        assert self.session.awaited_answer is None, "only the deadline would help"

    def teardown(self) -> None:
        self.all_is_read()
        healthy = Mesh(
            clusters=tuple(Content(name, 7) for name in NAMES),
            assignments=tuple(Content(name, 7) for name in NAMES),
            tables=(Content("a", 7, to=NAMES),),
            listeners=(Content("a", 7, to=("a",)),),
        )
        self.publish(healthy, set())
        self.all_is_read()
        self.expect(healthy.snapshot())


class RefusingSotw(Refusing, Sotw):
    pass


class RefusingDelta(Refusing, Delta):
    pass


MACHINES = (Sotw, Delta, RefusingSotw, RefusingDelta)


def converse(machine: type[Conversation], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None)
    )


@pytest.mark.drawn
@pytest.mark.parametrize("machine", MACHINES)
def test_whatever_happens_the_client_ends_up_with_the_newest(machine: type[Conversation]) -> None:
    converse(machine, examples=40, steps=25)


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
@pytest.mark.parametrize("machine", MACHINES)
def test_whatever_happens_for_long_the_client_ends_up_with_the_newest(machine: type[Conversation], part: int) -> None:
    converse(machine, examples=100, steps=50)


@pytest.mark.parametrize("machine", [Sotw, Delta])
def test_clusters_that_come_back_after_a_reconnect_get_their_endpoints(machine: type[Conversation]) -> None:
    """The client names the version of the stream before, but it dropped the endpoints with their clusters."""
    conversation = machine()
    conversation.connected(naming=True)
    full = Mesh(tuple(Content(name) for name in NAMES), tuple(Content(name) for name in NAMES))
    conversation.publish(full, set())
    conversation.all_is_read()
    conversation.the_stream_breaks()
    conversation.publish(Mesh(), set())
    conversation.all_is_read()
    conversation.publish(full, set())

    conversation.all_is_read()


def test_a_warming_cluster_that_is_gone_does_not_hold_up_others() -> None:
    """The stream broke off while the client waited for endpoints that it has."""
    conversation = Delta()
    conversation.connected(naming=True)
    for name, revision in (("b", 0), ("b", 1)):
        conversation.all_is_read()
        conversation.publish(Mesh((Content(name, revision),), (Content(name),)), set())
    conversation.the_client_reads()
    conversation.the_stream_breaks()
    conversation.publish(Mesh((Content("a"),), (Content("a"),)), set())

    conversation.all_is_read()


def test_a_version_that_was_never_taken_does_not_stand_for_a_later_one() -> None:
    """The client NACKs two snapshots one after the other, and says of neither which resource is to blame."""
    conversation = RefusingSotw()
    conversation.connected(naming=False)
    conversation.all_is_read()
    conversation.publish(Mesh(clusters=(Content("b", 0, BAD),), assignments=(Content("b", 0),)), set())
    later = Mesh(
        clusters=(*(Content(name, 0) for name in "abc"), Content("d", 0, BAD)),
        assignments=tuple(Content(name, 0) for name in NAMES),
        tables=(Content("a", 0, to=("a",)),),
        listeners=(Content("a", 0, to=("a",)),),
    )
    conversation.publish(later, set())

    conversation.all_is_read()

    assert conversation.client.has[CLUSTER].keys() == {"a", "b", "c"}
    conversation.teardown()


def test_a_resource_that_was_released_is_to_blame_for_the_next_nack() -> None:
    """The snapshot that the client ACKed while it was held back has it too."""
    conversation = RefusingSotw()
    conversation.connected(naming=False)
    conversation.all_is_read()
    conversation.publish(Mesh(clusters=(Content("c", 0),), assignments=(Content("c", 0),)), set())
    later = Mesh(
        clusters=(Content("a", 0), Content("b", 0, POISON), Content("d", 0)),
        assignments=tuple(Content(name, 0) for name in ("a", "b", "d")),
        tables=(Content("a", 0), Content("b", 0), Content("c", 0, to=("d",))),
        listeners=tuple(Content(name, 0, to=(name,)) for name in ("a", "b", "c")),
    )
    conversation.publish(later, set())

    conversation.all_is_read()

    assert conversation.client.has[CLUSTER].keys() == {"a", "d"}
    conversation.teardown()


def test_what_went_with_what_was_refused_may_come_again() -> None:
    """The client NACKs a response without a name. Whether it removed `b` nobody can know, so `b` is sent."""
    conversation = RefusingDelta()
    conversation.connected(naming=False)
    first = Mesh(
        clusters=(),
        assignments=(),
        tables=(Content("a", 0), Content("b", 0)),
        listeners=(Content("a", 0, to=("a",)), Content("b", 0, to=("b",))),
    )
    conversation.publish(first, set())
    conversation.all_is_read()
    poisonous = Mesh(
        clusters=(Content("a", 0),),
        assignments=(Content("a", 0),),
        tables=(Content("a", 0), Content("d", 0)),
        listeners=(Content("a", 0, to=("a",)), Content("d", 0, POISON, ("d",))),
    )
    conversation.publish(poisonous, set())
    conversation.publish(first, set())

    conversation.all_is_read()

    assert conversation.client.has[LISTENER].keys() == {"a", "b"}
    conversation.teardown()
