"""Whatever happens to the store, to control planes and to connections: a reader of the feed is told each write once and
in order, or is told to begin anew."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from starlette.applications import Starlette

from cp.access.rights_file import rights_of
from cp.api.authentication import AccessControl
from cp.api.feed import FeedPace
from cp.model.document import Document
from cp.model.names import Key
from cp.model.registration import WAY
from cp.resources.world import World
from cp.serving.delivery import FleetDelta
from cp.serving.instances.observers import FleetRound
from cp.store.memory import MemoryStore
from cp.store.port import Author, ChangeNote, HistoryLimits, Put, StoreUnreachable
from tests.access import forge
from tests.api.conftest import ADMINS, KINDS, Api, NobodyThere
from tests.api.samples import timeout
from tests.api.test_door import OF_MEMBER, bearer
from tests.api.test_feed import BY_JANE, Changing, documents, feed_app

KEPT: Final = (3, 20)
"""Revisions that a store remembers: fewer than the feed does, or more."""

TURNS: Final = 400
"""Turns of the event loop within which everybody knows everything, once nothing is in the way."""

RESTLESS: Final = FeedPace(pause=0.0, judged=0.0)
MESHES: Final = ({"default"}, {"default", "other"})
RIGHTS: Final = tuple(
    rights_of(f"rights: [{{groups: [team], may: [read], meshes: {sorted(meshes)}}}]", "access.yaml", KINDS, ADMINS)
    for meshes in MESHES
)


class PatchyStore(MemoryStore):
    """A store that may be away, and takes its time."""

    is_away = False
    turns = 0

    async def log(self, key: Key | None = None, limit: int = 100, before: int | None = None) -> Sequence[ChangeNote]:
        await self._reached()
        return await super().log(key, limit, before)

    async def oldest(self) -> int:
        await self._reached()
        return await super().oldest()

    async def _reached(self) -> None:
        for _ in range(self.turns):
            await asyncio.sleep(0)
        if self.is_away:
            raise StoreUnreachable("the store is away")


@dataclass
class Serving(NobodyThere):
    """Two control planes, with the revisions that they serve."""

    revisions: dict[str, int] = field(default_factory=lambda: {"own": 0, "peer": 0})
    starts: int = 0
    asked: int = 0
    turns: int = 0

    async def fleets(self, versions: Mapping[str, int]) -> FleetRound:
        self.asked += 1
        answers = {name: self._delta(name) for name in self.revisions}
        for _ in range(self.turns):
            await asyncio.sleep(0)
        return FleetRound({"": [answers["own"]], "peer": [answers["peer"]]}, ())

    def _delta(self, name: str) -> FleetDelta:
        return FleetDelta(f"{name} {self.starts}", self.asked, self.revisions[name], True, ())


@dataclass(frozen=True)
class Written:
    """A write, as the model has it."""

    mesh: str
    names: frozenset[str]
    is_registration: bool


@dataclass
class Reader:
    """Who reads the feed, and what he may believe by now."""

    token: str
    last_id: str = ""
    known: int | None = None
    """The revision up to which he has asked for everything; None: he has not begun."""

    meshes: set[str] = field(default_factory=set)
    """Those that he could read when he did that."""

    told: list[int] = field(default_factory=list)
    """The writes of which the feed has told him since."""

    unread: list[str] = field(default_factory=list)
    connection: asyncio.Task[None] | None = None

    async def send(self, message: Mapping[str, Any]) -> None:
        while self.unread:  # noqa: ASYNC110  # the machine counts turns of the loop
            await asyncio.sleep(0)
        assert message.get("status", 200) == 200
        self.unread += filter(None, message.get("body", b"").decode().split("\n\n"))

    async def receive(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}


class Machine(RuleBasedStateMachine):
    """A store, two control planes, the feed of one, and its readers."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.serving = Serving()
        self.log: list[Written] = []
        self.readers: list[Reader] = []
        self.rights = 0
        self.store: PatchyStore
        self.app: Starlette

    @initialize(kept=st.sampled_from(KEPT))
    def begin(self, kept: int) -> None:
        self.store = PatchyStore(limits=HistoryLimits(kept=kept))
        self.run(self.start())

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.runner.run(work)

    async def start(self) -> None:
        access = AccessControl(lambda: RIGHTS[self.rights], clock=lambda: float(forge.NOW))
        state = Changing(World.of(documents("web-1"), KINDS))
        api = Api(self.runner, store=self.store, state=state, observed=self.serving, access=access)
        self.app = feed_app(api, RESTLESS)

    # --- what happens ---

    @rule(mesh=st.sampled_from(["default", "other"]), count=st.integers(1, 8), is_registration=st.booleans())
    def write(self, mesh: str, count: int, is_registration: bool) -> None:
        self.run(self.written(Written(mesh, self.names(count), is_registration)))

    @rule(count=st.integers(2, 7))
    def write_often(self, count: int) -> None:
        for _ in range(count):
            self.run(self.written(Written("default", self.names(1), is_registration=False)))

    def names(self, count: int) -> frozenset[str]:
        return frozenset(f"t-{len(self.log)}-{number}" for number in range(count))

    async def written(self, write: Written) -> None:
        puts = [
            Put(Document(Key("MeshTimeout", write.mesh, name), timeout(name, mesh=write.mesh))) for name in write.names
        ]
        author = Author("proxy", f"{WAY} from 192.0.2.9") if write.is_registration else BY_JANE
        self.log.append(write)
        assert await self.store.write(*puts, author=author) == len(self.log)

    def serve(self, names: tuple[str, ...]) -> None:
        self.serving.revisions |= dict.fromkeys(names, len(self.log))

    @rule(share=st.floats(0, 1))
    def restart_peer(self, share: float) -> None:
        """It begins with what it has read by then."""
        self.serving.starts += 1
        self.serving.revisions["peer"] = int(share * len(self.log))

    @rule(is_away=st.booleans(), turns=st.integers(0, 3), turns_of_fleet=st.integers(0, 3))
    def hinder(self, is_away: bool, turns: int, turns_of_fleet: int) -> None:
        self.store.is_away, self.store.turns, self.serving.turns = is_away, turns, turns_of_fleet

    @rule(rights=st.integers(0, len(RIGHTS) - 1))
    def grant(self, rights: int) -> None:
        self.rights = rights

    @rule()
    def restart(self) -> None:
        for reader in self.readers:
            self.run(self.left(reader))
        self.run(self.start())

    @rule(
        turns=st.integers(1, 40),
        names=st.sampled_from([(), ("own",), ("own", "peer")]),
        is_read=st.booleans(),
    )
    def wait(self, turns: int, names: tuple[str, ...], is_read: bool) -> None:
        self.serve(names)
        self.run(self.waited(turns, is_read=is_read))

    async def waited(self, turns: int, *, is_read: bool) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
            for reader in self.readers if is_read else ():
                self.receive(reader, len(reader.unread))

    # --- readers ---

    @precondition(lambda self: len(self.readers) < 3)
    @rule(token=st.sampled_from(["", OF_MEMBER]))
    def come(self, token: str) -> None:
        reader = Reader(token)
        self.readers.append(reader)
        self.run(self.connected(reader))
        self.run(self.waited(30, is_read=True))

    @precondition(lambda self: self.readers)
    @rule(number=st.integers(0, 2))
    def go_or_come_back(self, number: int) -> None:
        reader = self.readers[number % len(self.readers)]
        self.run(self.connected(reader) if reader.connection is None else self.left(reader))

    @precondition(lambda self: self.readers)
    @rule(number=st.integers(0, 2), count=st.integers(0, 4))
    def break_off(self, number: int, count: int) -> None:
        """A connection ends between two events, and is made again."""
        reader = self.readers[number % len(self.readers)]
        self.receive(reader, count)
        self.run(self.left(reader))
        self.run(self.connected(reader))

    async def connected(self, reader: Reader) -> None:
        headers = bearer(reader.token) | ({"last-event-id": reader.last_id} if reader.last_id else {})
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/_feed",
            "query_string": b"",
            "headers": [(name.encode(), text.encode()) for name, text in headers.items()],
            "client": ("192.0.2.1" if reader.token else "127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        reader.connection = asyncio.get_running_loop().create_task(self.app(scope, reader.receive, reader.send))

    async def left(self, reader: Reader) -> None:
        """What is on the way is lost."""
        if reader.connection is not None:
            reader.connection.cancel()
            with suppress(asyncio.CancelledError):
                await reader.connection
        reader.connection = None
        reader.unread.clear()

    def receive(self, reader: Reader, count: int) -> None:
        for block in reader.unread[:count]:
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            reader.last_id = fields.get("id", reader.last_id)
            if "event" in fields:
                self.heed(reader, fields["event"], json.loads(fields["data"]))
        del reader.unread[:count]

    def heed(self, reader: Reader, event: str, data: Any) -> None:
        if event == "reload" or reader.known is None:
            reader.known, reader.told = len(self.log), []
            reader.meshes = self.readable(reader)
        if event == "changes":
            write = self.log[data["revision"] - 1]
            assert {resource["name"] for resource in data["resources"]} == write.names
            assert not write.is_registration
            assert data["revision"] > max(reader.told, default=0), "a write is told twice, or out of order"
            reader.told.append(data["revision"])

    def readable(self, reader: Reader) -> set[str]:
        return MESHES[self.rights] if reader.token else {"default", "other"}

    # --- what is promised ---

    @precondition(lambda self: self.readers)
    @rule()
    def settle(self) -> None:
        """Once nothing is in the way, everybody knows everything."""
        self.store.is_away = False
        self.serving.revisions = dict.fromkeys(self.serving.revisions, len(self.log))
        self.run(self.settled())
        for reader in self.readers:
            assert reader.known is not None, "a reader has begun, and is told nothing"
            assert reader.meshes == self.readable(reader), "a reader may read something else, and is told no reload"
            missing = self.untold(reader)
            assert not missing, f"of {missing} a reader is told neither the writes nor a reload"

    async def settled(self) -> None:
        for reader in self.readers:
            if reader.connection is None:
                await self.connected(reader)
        for _ in range(TURNS):
            await asyncio.sleep(0)
            for reader in self.readers:
                self.receive(reader, len(reader.unread))
            if all(self.knows_all(reader) for reader in self.readers):
                return

    def knows_all(self, reader: Reader) -> bool:
        is_up_to_date = reader.known is not None and reader.meshes == self.readable(reader)
        return is_up_to_date and not self.untold(reader)

    def untold(self, reader: Reader) -> list[int]:
        numbered = enumerate(self.log, 1)
        revisions = [
            revision
            for revision, write in numbered
            if revision > (reader.known or 0) and write.mesh in reader.meshes and not write.is_registration
        ]
        return [revision for revision in revisions if revision not in reader.told]

    @invariant()
    def nobody_is_sent_away(self) -> None:
        for reader in self.readers:
            if reader.connection is not None and reader.connection.done():
                reader.connection.result()
                raise AssertionError("a feed has ended by itself")

    def teardown(self) -> None:
        try:
            if self.readers:
                self.settle()
        finally:
            for reader in self.readers:
                self.run(self.left(reader))
            self.runner.close()


@pytest.fixture
def little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cp.api.recent_changes._AT_ONCE", 3)
    monkeypatch.setattr("cp.api.recent_changes._KEPT", 6)


@pytest.mark.drawn
@pytest.mark.usefixtures("little_is_kept")
def test_a_reader_is_told_each_write_once_and_in_order_or_is_told_to_begin_anew() -> None:
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=50, stateful_step_count=30, deadline=None, phases=[Phase.generate])
    )
