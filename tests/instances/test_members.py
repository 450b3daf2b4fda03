"""Who is there, who does the chores, and what somebody writes who was taken for gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs

from cp.access.tokens import TokenRefused
from cp.policies import discover, kinds
from cp.resources.world import World
from cp.serving.instances.members import LEASE, LeadersStore, Members
from cp.serving.instances.tokens import InstanceTokens
from cp.serving.signing_keys import SigningKeys
from cp.store.memory import MemoryStore
from cp.store.memory_roster import MemoryRoster
from cp.store.port import Conflict, LeaseLost, StoreUnreachable
from cp.store.roster import Instance, RosterEntry
from tests.store.harness import put

OWN = Instance("a", "machine", "http://127.0.0.1:5681", "", "0.1.0", datetime(2026, 1, 1, tzinfo=UTC), 0)
OTHER = replace(OWN, id="b", address="http://127.0.0.2:5681")
NOW = 1_800_000_000.0


class Times:
    """A clock that stands still until somebody moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class LostRoster(MemoryRoster):
    """One that cannot be asked while it is away."""

    is_away = False

    async def instances(self) -> Sequence[RosterEntry]:
        if self.is_away:
            raise StoreUnreachable("away")
        return await super().instances()


def play(scenario: Callable[[Times, LostRoster, Members], Awaitable[None]]) -> None:
    times = Times()
    roster = LostRoster(times)
    asyncio.run(scenario(times, roster, Members(roster, "a", times)))  # type: ignore[arg-type]


def test_who_is_silent_for_the_length_of_a_lease_is_gone() -> None:
    async def scenario(times: Times, roster: LostRoster, members: Members) -> None:
        async with members.joined(lambda: OWN):
            await roster.report(OTHER)
            times.now = 1.0
            assert await members.others_present() == [OTHER]
            times.now = LEASE + 1
            assert await members.others_present() == []
            members.overdue = {"b"}
            assert await members.others_present() == [OTHER]

    play(scenario)


def test_since_when_they_are_alike_is_told_by_the_clock_of_proxies() -> None:
    """When one has gone, its proxies come back to another one. Who comes, or is away himself, changes nothing."""

    async def scenario(times: Times, roster: LostRoster, members: Members) -> None:
        began = members.alike_since
        async with members.joined(lambda: OWN):
            await members.entries()
            since = members.alike_since
            await roster.report(OTHER)
            times.now = 1.0
            await members.others_present()
            times.now = LEASE
            await roster.report(OTHER)
            await members.others_present()
            assert began <= since == members.alike_since

            times.now = 3 * LEASE
            assert await members.others_present() == []
            assert members.alike_since > since

    play(scenario)


def test_lost_worker_counts_as_a_lost_control_plane() -> None:
    async def scenario(_: Times, __: LostRoster, members: Members) -> None:
        began, processes = members.alike_since, members.present_processes
        members.note_lost_elsewhere(0.0)
        assert (members.alike_since, members.present_processes) == (began, processes)

        members.note_lost_worker()
        lost_at, of_lost = members.alike_since, members.present_processes
        members.note_lost_elsewhere(began)
        assert began < lost_at == members.alike_since
        assert not processes <= of_lost

        members.note_lost_elsewhere(time.time())
        assert members.alike_since > lost_at
        assert not of_lost <= members.present_processes
        members.note_lost_elsewhere(time.time() + 3600)  # a machine whose clock is fast
        assert members.alike_since <= time.time()
        assert members.worker_lost_at == lost_at

    play(scenario)


def test_while_the_store_is_away_nobody_goes() -> None:
    async def scenario(times: Times, roster: LostRoster, members: Members) -> None:
        async with members.joined(lambda: OWN):
            await roster.report(OTHER)
            times.now = 1.0
            await members.others_present()
            roster.is_away = True
            times.now = 100.0
            assert await members.others_present() == [OTHER]

            roster.is_away = False  # and who lost it together with us needs a moment to say so
            times.now = 101.0
            assert await members.others_present() == [OTHER]
            times.now = 101.0 + LEASE
            assert await members.others_present() == []

    play(scenario)


def test_who_sleeps_through_his_lease_neither_leads_nor_writes() -> None:
    async def scenario(times: Times, roster: LostRoster, members: Members) -> None:
        store = MemoryStore()
        store.roster = roster
        async with members.joined(lambda: OWN):
            chores = LeadersStore(store, members)
            assert members.leads
            await chores.write(put("by us", 1))
            before = members.fence
            times.now = LEASE
            assert not members.leads
            with pytest.raises(LeaseLost):
                await chores.write(put("by us", 2))

            await roster.lease("chores", "b", LEASE)
            with pytest.raises(Conflict):  # also if he does not know yet that he slept
                await store.write(put("by us", 3), fence=before)
            assert await store.revision() == 1

    play(scenario)


def test_a_roster_that_cannot_be_read_ends_no_control_plane() -> None:
    class Garbled(MemoryRoster):
        async def instances(self) -> Sequence[RosterEntry]:
            raise OverflowError("days=-1252698793")

    async def scenario() -> None:
        members = Members(Garbled(), "a")
        with capture_logs() as lines:
            async with members.joined(lambda: OWN):
                await members._beat(OWN)
                assert members.leads
        told = [line["reason"] for line in lines if line["event"] == "instance.unreported"]
        assert told == ["days=-1252698793"]

    asyncio.run(scenario())


def test_who_leaves_ends_his_lease() -> None:
    async def scenario(times: Times, roster: LostRoster, members: Members) -> None:
        async with members.joined(lambda: OWN):
            assert (await roster.lease("chores", "b", LEASE)).holder == "a"
        assert not members.leads
        assert (await roster.lease("chores", "b", LEASE)).holder == "b"
        assert await roster.instances() == ()

    play(scenario)


# --- tokens -----------------------------------------------------------------------------------------------------------


def tokens(store: MemoryStore, id_: str, times: Times) -> InstanceTokens:
    known = kinds(discover())

    async def current() -> World:
        return World.of([held.document for held in (await store.read()).stored], known)

    return InstanceTokens(SigningKeys(store, known), current, id_, times)


def test_a_token_is_for_one_instance_and_for_a_short_time() -> None:
    async def scenario() -> None:
        store, times = MemoryStore(), Times()
        times.now = NOW
        of_a, of_b, of_c = (tokens(store, id_, times) for id_ in "abc")
        token = await of_a.token("b")

        assert await of_b.caller(token) == "a"
        assert await of_a.token("b") == token
        with pytest.raises(TokenRefused, match="another control plane"):
            await of_c.caller(token)
        times.now += 20
        assert await of_a.token("b") != token
        times.now += 20
        with pytest.raises(TokenRefused, match="expired"):
            await of_b.caller(token)
        with pytest.raises(TokenRefused):
            await of_b.caller("")

    asyncio.run(scenario())
