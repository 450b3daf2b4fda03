"""When a Dataplane goes that a proxy registered, and when it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import structlog
import yaml

from cp.model.document import Document
from cp.model.managed import managed
from cp.model.names import Key
from cp.model.registration import MISSED_BY, NOT_READY, OWNER, label, labelled, registered, written_by_hand
from cp.policies import discover, kinds
from cp.resources.world import World
from cp.serving.registrar import Registrar, RegistrarTimes
from cp.store.memory import MemoryStore
from cp.store.port import Closed, Delete, Put, StoreUnreachable, Unusable
from cp.store.roster import Fence
from tests.random_mesh import MESH, document

KINDS = kinds(discover())
DELAY, GRACE = 10.0, 60.0
WEB = Key("Dataplane", "default", "web")
OTHER = "default.other"
"""A proxy that is connected all the time: a control plane that sees nobody thinks that it is to blame itself."""


def dataplane(**labels: str) -> Document:
    inbound = [{"port": 80, "tags": {"kuma.io/service": "web"}}]
    plain = document("Dataplane", "web", networking={"address": "127.0.0.1", "inbound": inbound})
    return labelled(plain, **labels)


@dataclass
class ControlPlane:
    """One of those that share a store: what it sees, and its clock."""

    store: MemoryStore
    name: str = "first"
    now: float = 0.0
    connected: dict[str, str] = field(default_factory=lambda: {OTHER: ""})
    text: str = ""
    world: World = field(default_factory=lambda: World.of((), KINDS))

    def __post_init__(self) -> None:
        self._registrar = Registrar(
            self.store, self, self, RegistrarTimes(DELAY, GRACE, lambda: self.now), name=self.name
        )

    async def owners(self) -> Mapping[str, frozenset[str]]:
        return {proxy: frozenset({owner}) for proxy, owner in self.connected.items()}

    async def dataplane_text(self, proxy: str, owner: str) -> str:
        return self.text if self.connected.get(proxy) == owner else ""

    async def after(self, seconds: float) -> Document | None:
        """The Dataplane, when time has passed and the control plane has looked each second."""
        for _ in range(round(seconds)):
            self.now += 1
            await self.sweep()
        return await self.stored()

    async def sweep(self) -> None:
        contents = await self.store.read()
        self.world = World.of([held.document for held in contents.stored], KINDS, contents.revision)
        await self._registrar.sweep()

    async def stored(self) -> Document | None:
        held = await self.store.get(WEB)
        return None if held is None else held.document

    async def settled(self) -> None:
        await self.after(GRACE + 1)


def play(scenario: Callable[[ControlPlane], Awaitable[None]]) -> None:
    """A scenario with a control plane that runs for a while, and a Dataplane that the run `one` has registered."""

    async def whole() -> None:
        store = MemoryStore()
        await store.write(Put(MESH), Put(dataplane(owner="one")))
        control_plane = ControlPlane(store)
        control_plane.connected["default.web"] = "one"
        await control_plane.settled()
        await scenario(control_plane)

    asyncio.run(whole())


def test_it_goes_a_while_after_its_proxy() -> None:
    async def scenario(cp: ControlPlane) -> None:
        del cp.connected["default.web"]
        assert await cp.after(DELAY - 1) is not None
        assert await cp.after(3) is None

    play(scenario)


def test_it_stays_while_the_proxy_is_connected_or_if_nobody_registered_it() -> None:
    async def scenario(cp: ControlPlane) -> None:
        assert await cp.after(5 * DELAY) == dataplane(owner="one")
        await cp.store.write(Put(dataplane()))
        del cp.connected["default.web"]
        assert await cp.after(5 * DELAY) == dataplane()

    play(scenario)


@pytest.mark.parametrize("away", [3, 8])
def test_a_proxy_that_comes_back_in_time_keeps_it_without_a_trace(away: int) -> None:
    async def scenario(cp: ControlPlane) -> None:
        del cp.connected["default.web"]
        await cp.after(away)
        cp.connected["default.web"] = "one"
        assert await cp.after(3 * DELAY) == dataplane(owner="one")

    play(scenario)


def test_another_run_that_registered_it_meanwhile_keeps_it() -> None:
    """The old run's connection ended; the new one has written the same Dataplane and not connected yet."""

    async def scenario(cp: ControlPlane) -> None:
        del cp.connected["default.web"]
        await cp.after(DELAY - 1)
        await cp.store.write(Put(dataplane(owner="two")))
        assert await cp.after(4) == dataplane(owner="two")

    play(scenario)


def test_a_proxy_that_is_connected_to_another_control_plane_keeps_it() -> None:
    async def scenario(cp: ControlPlane) -> None:
        other = ControlPlane(cp.store, "second")
        other.connected["default.web"] = "one"
        await other.settled()
        del cp.connected["default.web"]
        before = await cp.store.revision()
        for _ in range(round(30 * DELAY)):
            await cp.after(1)
            await other.after(1)
            assert await cp.stored() is not None
        assert await cp.store.revision() - before <= 6, "a mark and an objection, less and less often"
        del other.connected["default.web"]
        for _ in range(round(5 * DELAY)):
            await cp.after(1)
            await other.after(1)
        assert await cp.stored() is None

    play(scenario)


def test_what_goes_together_with_the_control_plane_that_objected_is_removed_in_the_end() -> None:
    async def scenario(cp: ControlPlane) -> None:
        other = ControlPlane(cp.store, "second")
        other.connected["default.web"] = "one"
        await other.settled()
        del cp.connected["default.web"]
        for _ in range(round(2 * DELAY)):
            await cp.after(1)
            await other.after(1)
        assert await cp.after(3 * DELAY) is not None, "it has been told that the proxy is there"
        assert await cp.after(5 * DELAY) is None

    play(scenario)


def test_the_mark_of_a_control_plane_that_ended_is_taken_over() -> None:
    async def scenario(cp: ControlPlane) -> None:
        del cp.connected["default.web"]
        await cp.store.write(Put(dataplane(owner="one", missed_by="long-gone")))
        assert await cp.after(2 * DELAY) is not None
        assert await cp.after(2 * DELAY) is None

    play(scenario)


def test_a_control_plane_that_starts_waits_for_proxies_that_have_not_come_back_yet() -> None:
    async def scenario(cp: ControlPlane) -> None:
        started = ControlPlane(cp.store, "started-again")
        assert await started.after(GRACE - 1) == dataplane(owner="one")
        assert await started.after(DELAY + 2) is None

    play(scenario)


def test_when_all_proxies_vanish_at_once_they_get_time_to_come_back() -> None:
    """It is the network of the control plane; and who comes back first must not lose the others."""

    async def scenario(cp: ControlPlane) -> None:
        cp.connected.clear()
        assert await cp.after(GRACE - 1) is not None
        cp.connected[OTHER] = ""
        assert await cp.after(GRACE - 1) is not None
        assert await cp.after(DELAY + 2) is None

    play(scenario)


@pytest.mark.parametrize("brought", [True, False])
def test_a_proxy_whose_dataplane_was_removed_while_it_was_cut_off_brings_it_again(brought: bool) -> None:
    async def scenario(cp: ControlPlane) -> None:
        del cp.connected["default.web"]
        assert await cp.after(2 * DELAY) is None
        cp.connected["default.web"] = "one"
        cp.text = yaml.safe_dump(dict(dataplane().data)) if brought else ""
        assert await cp.after(2) == (dataplane(owner="one") if brought else None)

    play(scenario)


def test_a_dataplane_is_brought_again_when_the_store_can_be_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unusable(*_writes: Put | Delete, **_options: object) -> int:
        raise Unusable("the disk is full")

    async def scenario(cp: ControlPlane) -> None:
        del cp.connected["default.web"]
        assert await cp.after(2 * DELAY) is None
        cp.connected["default.web"] = "one"
        cp.text = yaml.safe_dump(dict(dataplane().data))
        with monkeypatch.context() as broken:
            broken.setattr(cp.store, "write", unusable)
            assert await cp.after(2) is None
        assert await cp.after(2) == dataplane(owner="one")

    play(scenario)


def test_a_dataplane_that_was_never_there_is_not_stored_for_whoever_connects() -> None:
    async def scenario(cp: ControlPlane) -> None:
        stranger = ControlPlane(MemoryStore(), "stranger")
        await stranger.store.write(Put(MESH))
        stranger.connected["default.web"] = "one"
        stranger.text = yaml.safe_dump(dict(dataplane().data))
        assert await stranger.after(2) is None

    play(scenario)


def test_what_an_operator_deleted_is_not_brought_again() -> None:
    async def scenario(cp: ControlPlane) -> None:
        cp.text = yaml.safe_dump(dict(dataplane().data))
        await cp.store.write(Delete(WEB))
        assert await cp.after(2 * DELAY) is None

    play(scenario)


def test_what_somebody_writes_by_hand_has_no_owner_and_goes_on_draining() -> None:
    read = dataplane(owner="one", not_ready="one", missed_by="first")

    changed = replace(read, data={**read.data, "labels": {**read.data["labels"], "team": "web"}})

    written = written_by_hand(changed, read)

    assert [label(written, name) for name in (OWNER, MISSED_BY, NOT_READY)] == ["", "", "one"]
    assert written_by_hand(dataplane(), None) == dataplane()


def test_what_a_run_registered_stays_its_own_where_somebody_writes_the_same_by_hand() -> None:
    registered_by_one = dataplane(owner="one", not_ready="one", missed_by="first")

    assert written_by_hand(dataplane(), registered_by_one) == registered_by_one
    assert written_by_hand(replace(dataplane(), data={**dataplane().data, "labels": {}}), registered_by_one).data == (
        registered_by_one.data
    )


def test_a_run_that_registers_owns_what_it_stores_unless_it_is_somebody_elses() -> None:
    assert registered(dataplane(), None, "one", ready=True) == dataplane(owner="one")
    assert registered(dataplane(), dataplane(owner="one", not_ready="one"), "two", ready=True) == dataplane(owner="two")
    assert registered(dataplane(), dataplane(not_ready="one"), "two", ready=True) == dataplane()
    pushed = managed(dataplane(), "team")
    assert registered(dataplane(), pushed, "one", ready=True) == pushed
    late = registered(dataplane(), None, "one", ready=False)
    assert late == registered(dataplane(), late, "one", ready=True) == dataplane(owner="one", not_ready="one")


@pytest.mark.parametrize(
    ("trouble", "lines"),
    [
        (StoreUnreachable("the database is away"), 0),
        (Unusable("the disk is full"), 1),
        (RuntimeError("a fault of ours"), 1),
    ],
)
def test_what_keeps_it_from_looking_is_told_at_most_once(trouble: Exception, lines: int) -> None:
    """A database that is away is told of by the store, at the beginning and at the end."""
    looks = 0

    class Blind(ControlPlane):
        async def owners(self) -> Mapping[str, frozenset[str]]:
            nonlocal looks
            looks += 1
            if looks == 5:
                raise Closed
            raise trouble

    async def scenario() -> list[MutableMapping[str, Any]]:
        blind = Blind(MemoryStore())
        registrar = Registrar(blind.store, blind, blind, RegistrarTimes(0, GRACE), name="blind")
        with structlog.testing.capture_logs() as logs:
            await asyncio.wait_for(registrar.run(), 10)
        return logs

    logs = asyncio.run(scenario())

    assert looks == 5
    assert [(line["event"], line["reason"]) for line in logs] == [("registrations.unswept", str(trouble))] * lines
    assert all(line["exc_info"] == isinstance(trouble, RuntimeError) for line in logs)


@dataclass
class Chores:
    """Whether they are for this control plane."""

    leads: bool = False
    fence: Fence | None = None


def test_who_does_no_chores_removes_nothing_and_takes_marks_off_all_the_same() -> None:
    async def scenario(cp: ControlPlane) -> None:
        chores = Chores()
        cp._registrar._leadership = chores
        del cp.connected["default.web"]
        assert await cp.after(5 * DELAY) == dataplane(owner="one")

        chores.leads = True  # what it did not know as another's does not count
        assert await cp.after(DELAY - 2) is not None
        assert await cp.after(4) is None

        await cp.store.write(Put(labelled(dataplane(owner="one"), missed_by="another")))
        chores.leads, cp.connected["default.web"] = False, "one"
        await cp.sweep()
        assert await cp.stored() == dataplane(owner="one")

    play(scenario)


def test_what_was_begun_under_a_lease_that_was_lost_since_is_not_done() -> None:
    async def scenario(cp: ControlPlane) -> None:
        first = await cp.store.roster.lease("chores", "first", 3600)
        cp._registrar._leadership = Chores(leads=True, fence=first.fence)
        del cp.connected["default.web"]
        await cp.store.roster.leave("first")
        await cp.store.roster.lease("chores", "second", 3600)

        assert await cp.after(5 * DELAY) == dataplane(owner="one")

    play(scenario)
