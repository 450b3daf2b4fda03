"""The fleet in few bytes, and the feed: who is told of what, from where on, and when it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cp.access.rights import Rights
from cp.access.rights_file import rights_of
from cp.api import feed
from cp.api.authentication import AccessControl, Authentication
from cp.api.door import ApiDoor, guarded
from cp.api.errors import ApiError
from cp.api.feed import FeedHandler, FeedPace
from cp.api.feed_reader import FeedPlace
from cp.api.shares import WaitingLimits
from cp.model.document import Document
from cp.model.names import Key, proxy_id
from cp.model.registration import WAY
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.serving.delivery import FleetDelta, ProxyState, ProxyStatus
from cp.serving.instances.fleet import Fleet
from cp.serving.instances.observers import FleetRound
from cp.store.memory import MemoryStore
from cp.store.port import Author, ChangeNote, Delete, Put, StoreUnreachable
from cp.translate.snapshot import Snapshot
from tests.access import forge
from tests.api.conftest import ADMINS, KINDS, RIGHTS, Api, NobodyThere, Unit
from tests.api.samples import dataplane, timeout
from tests.api.test_door import JANE, OF_ADMIN, OF_MEMBER, OF_TEAM, bearer
from tests.support.waiting import eventually_on_loop

WITHIN = 10
HOSTILE = "<script>alert(1)</script>\u202e\r\ndata: {}"
BY_JANE = Author("jane", "apply from 192.0.2.7")
IMPATIENT = FeedPace(pause=0.01, judged=0.02, heartbeat=0.05)
READERS = "rights: [{groups: [team], may: [read], meshes: [default], kinds: [Dataplane]}]"


@dataclass
class Changing:
    """A control plane of which the World can be another one."""

    world: World
    is_ready: bool = True
    is_stopping: bool = False
    follows: bool = True

    async def current(self) -> World:
        return self.world

    @property
    def loaded_world(self) -> World:
        return self.world

    async def snapshot(self, dataplane: Resource, *, is_certified_client: bool) -> Snapshot:
        return Snapshot()


@dataclass
class Seen(NobodyThere):
    """Proxies that are as somebody says."""

    states: dict[str, ProxyState] = field(default_factory=dict)
    since: float = 1000.0
    version: int = 0
    revision: int = 0
    silent: Sequence[str] = ()
    when_asked: Callable[[], None] = lambda: None  # a field

    async def fleets(self, versions: Mapping[str, int]) -> FleetRound:
        self.version += 1
        self.when_asked()
        statuses = (ProxyStatus(proxy, state, self.since, "1.36.0") for proxy, state in self.states.items())
        return FleetRound({"": [FleetDelta("x", self.version, self.revision, True, tuple(statuses))]}, self.silent)


def documents(*names: str, meshes: tuple[str, ...] = ("default", "other")) -> list[Document]:
    of_meshes = [Document(Key("Mesh", "", mesh), {"type": "Mesh", "name": mesh}) for mesh in meshes]
    proxies = [Document(Key("Dataplane", mesh, name), dataplane(name, mesh=mesh)) for mesh in meshes for name in names]
    return [*forge.signing_keys(), *of_meshes, *proxies]


@dataclass
class Stage:
    """An API, and what happens at it."""

    api: Api
    seen: Seen
    state: Changing
    rights: list[Rights]
    app: Starlette
    now: list[float]

    def turn(self, proxy: str, state: ProxyState) -> None:
        self.seen.states[f"default.{proxy}"] = state
        self.seen.states[f"other.{proxy}"] = state

    async def write(self, *writes: Put | Delete, author: Author = BY_JANE) -> int:
        self.seen.revision = await self.api.store.write(*writes, author=author)
        return self.seen.revision


@pytest.fixture
def stage(start: Unit) -> Stage:
    rights, now = [RIGHTS], [float(forge.NOW)]
    seen, state = Seen(), Changing(World.of(documents("web-1", "web-2"), KINDS))
    seen.states = {f"{mesh}.web-1": ProxyState.ONLINE for mesh in ("default", "other")}
    access = AccessControl(lambda: rights[-1], clock=lambda: now[-1])
    api = start(state=state, observed=seen, access=access)
    return Stage(api, seen, state, rights, feed_app(api), now)


def feed_app(api: Api, pace: FeedPace = IMPATIENT) -> Starlette:
    """The feed alone, which has little patience."""
    given = api.collaborators
    fleet = Fleet(given.observed.fleets, lambda: given.state.loaded_world, pause=0.0)
    route = guarded(Route("/_feed", FeedHandler(given, fleet, pace).__call__), KINDS, given.state.current)

    async def refused(_request: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        return error.response()

    app = Starlette(routes=[route], exception_handlers={ApiError: refused})
    app.add_middleware(ApiDoor, authentication=Authentication(given.access, lambda: given.state.loaded_world))
    return app


@dataclass
class Reading:
    """Somebody who reads a feed, at whatever speed."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    text: str = ""
    may_read: asyncio.Event = field(default_factory=asyncio.Event)
    waits: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)
    has_ended: bool = False

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Mapping[str, Any]) -> None:
        self.waits += 1
        await self.may_read.wait()
        self.waits -= 1
        self.status = message.get("status", self.status)
        self.headers |= {name.decode(): text.decode() for name, text in message.get("headers", ())}
        self.text += message.get("body", b"").decode()

    @property
    def events(self) -> list[tuple[str, Any]]:
        """Their names and what they say."""
        blocks = (dict(line.split(": ", 1) for line in block.splitlines() if ": " in line) for block in self._blocks)
        return [(block["event"], json.loads(block["data"])) for block in blocks if "event" in block]

    @property
    def _blocks(self) -> list[str]:
        return self.text.split("\n\n")

    @property
    def last_id(self) -> str:
        return next(line[4:] for line in reversed(self.text.splitlines()) if line.startswith("id: "))

    @property
    def ids(self) -> list[str]:
        """That of each event."""
        return [line[4:] for line in self.text.splitlines() if line.startswith("id: ")]

    def named(self, name: str) -> list[Any]:
        return [data for event, data in self.events if event == name]

    async def until(self, condition: Callable[[], object]) -> None:
        await eventually_on_loop(lambda: bool(condition()), WITHIN)


@asynccontextmanager
async def reading(
    app: Starlette, query: str = "", token: str = "", host: str = "", **headers: str
) -> AsyncIterator[Reading]:
    sent = [(name.replace("_", "-").encode(), text.encode()) for name, text in (bearer(token) | headers).items()]
    host = host or ("192.0.2.1" if token else "127.0.0.1")
    scope = {"type": "http", "method": "GET", "path": "/_feed", "query_string": query.encode(), "headers": sent}
    reader = Reading()
    reader.may_read.set()

    async def read() -> None:
        await app({**scope, "client": (host, 1), "server": ("127.0.0.1", 80)}, reader.receive, reader.send)
        reader.has_ended = True

    async with asyncio.TaskGroup() as group:
        task = group.create_task(read())
        yield reader
        reader.left.set()
        task.cancel()


def run(stage: Stage, test: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await test()

    stage.api.run(whole())


def states_of(data: Any, mesh: str = "default") -> dict[str, Any]:
    return {row[0]: row[1] for row in data["meshes"].get(mesh, [])}


# --- the fleet -----------------------------------------------------------------------------------------------------


def test_the_fleet_has_a_row_for_each_proxy(stage: Stage) -> None:
    stage.seen.states["default.web-1"] = ProxyState.REFUSED
    data = stage.api.get("/_fleet").json()

    rows = {row[0]: dict(zip(data["columns"], row, strict=True)) for row in data["meshes"]["default"]}
    assert rows["web-1"] == {
        "name": "web-1",
        "state": "Refused",
        "since": 1_000_000,
        "kind": "sidecar",
        "zone": "",
        "instance": "",
        "envoy": "1.36.0",
        "findings": 0,
        "tags": ["kuma.io/service=web", "kuma.io/protocol=http"],
    }
    assert (rows["web-2"]["state"], rows["web-2"]["since"]) == ("Offline", None)
    assert (data["silent"], data["revision"]) == (0, 0)
    assert data["meshes"].keys() == {"default", "other"}


def test_who_may_read_one_mesh_sees_its_proxies_alone(stage: Stage) -> None:
    stage.rights.append(OF_TEAM)

    seen = stage.api.get("/_fleet", headers=bearer(OF_MEMBER), peer="192.0.2.1").json()

    assert seen["meshes"].keys() == {"default"}
    assert stage.api.get("/_fleet?mesh=other").json()["meshes"].keys() == {"other"}
    assert stage.api.get("/_fleet?mesh=nowhere").status_code == 404


def test_five_thousand_proxies_are_far_less_than_a_megabyte(stage: Stage) -> None:
    names = [f"checkout-service-{number:05}-7f9c" for number in range(5000)]
    stage.state.world = World.of(documents(*names, meshes=("default",)), KINDS)
    stage.seen.states = {f"default.{name}": ProxyState.ONLINE for name in names}
    stage.seen.since = 1763560000.123

    answer = stage.api.get("/_fleet")

    assert len(answer.json()["meshes"]["default"]) == 5000
    assert len(answer.content) < 700_000


# --- the feed ------------------------------------------------------------------------------------------------------


def test_a_reader_is_told_what_happens_from_now_on(stage: Stage) -> None:
    async def test() -> None:
        async with reading(stage.app) as reader:
            await reader.until(lambda: reader.events)
            assert reader.events == [
                ("world", {"revision": 0}),
                ("contact", {"follows": True, "writes": True, "silent": 0}),
            ]
            assert reader.text.startswith("retry: ")

            stage.turn("web-1", ProxyState.OUT_OF_SYNC)
            await reader.until(lambda: reader.named("fleet"))
            assert states_of(reader.named("fleet")[0]) == {"web-1": "Out of sync"}

            revision = await stage.write(Put(Document(Key("MeshTimeout", "default", "slow"), timeout())))
            await reader.until(lambda: reader.named("changes"))
            (change,) = reader.named("changes")
            assert reader.named("world")[-1] == {"revision": revision}
            assert (change["revision"], change["author"], change["origin"]) == (
                revision,
                "jane",
                "apply from 192.0.2.7",
            )
            assert change["resources"] == [
                {"type": "MeshTimeout", "mesh": "default", "name": "slow", "change": "Created"}
            ]

            stage.state.world = World.of(documents("web-1"), KINDS)
            await reader.until(lambda: states_of(reader.named("fleet")[-1]) == {"web-2": None})

    run(stage, test)


def test_nobody_is_told_of_what_he_may_not_read(stage: Stage) -> None:
    stage.rights.append(OF_TEAM)

    async def test() -> None:
        async with reading(stage.app, token=OF_MEMBER) as member, reading(stage.app) as admin:
            await member.until(lambda: member.events and admin.events)
            stage.turn("web-1", ProxyState.REFUSED)
            of_other = Document(Key("MeshTimeout", "other", "slow"), timeout(mesh="other"))
            secret = Document(Key("Secret", "default", "key"), {"type": "Secret", "mesh": "default", "name": "key"})
            await stage.write(Put(of_other))
            await stage.write(Put(secret))
            await stage.write(Put(Document(Key("MeshTimeout", "default", "slow"), timeout())))
            await admin.until(lambda: len(admin.named("changes")) == 3 and admin.named("fleet"))
            await member.until(lambda: member.named("changes") and member.named("fleet"))

            assert [event["resources"][0]["mesh"] for event in member.named("changes")] == ["default"]
            assert {mesh for data in member.named("fleet") for mesh in data["meshes"]} == {"default"}
            assert {mesh for data in admin.named("fleet") for mesh in data["meshes"]} == {"default", "other"}
            assert "Secret" not in member.text
            assert "other" not in member.text

    run(stage, test)


def test_a_reader_goes_on_where_he_was(stage: Stage) -> None:
    async def test() -> None:
        async with reading(stage.app) as reader:
            await reader.until(lambda: reader.events)
            place = reader.last_id
        stage.turn("web-1", ProxyState.REFUSED)
        revision = await stage.write(Put(Document(Key("MeshTimeout", "default", "slow"), timeout())))
        for options in ({"last-event-id": place}, {}):
            async with reading(stage.app, "" if options else f"since={place}", **options) as again:
                await again.until(lambda: {"world", "changes", "fleet"} <= {name for name, _ in again.events})

                assert again.named("world") == [{"revision": revision}]
                assert states_of(again.named("fleet")[0]) == {"web-1": "Refused"}
                assert FeedPlace.parse(again.last_id).revision == revision

    run(stage, test)


@pytest.mark.parametrize("place", ["", "x", "another.one.1.1", "a.b.c.d", "…", ".".join(["9" * 100] * 4)])
def test_a_reader_whose_place_is_not_known_is_to_begin_anew(stage: Stage, place: str) -> None:
    async def test() -> None:
        async with reading(stage.app, f"since={place}") as reader:
            await reader.until(lambda: reader.events)

            assert [name for name, _ in reader.events] == ["reload", "world", "contact"]
            assert reader.last_id != place

    run(stage, test)


def test_a_reader_is_to_begin_anew_where_too_much_was_written_since(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cp.api.recent_changes._KEPT", 2)

    async def test() -> None:
        async with reading(stage.app) as reader:
            await reader.until(lambda: reader.events)
            reader.may_read.clear()
            for number in range(5):
                name = f"slow-{number}"
                await stage.write(Put(Document(Key("MeshTimeout", "default", name), timeout(name))))
            async with reading(stage.app) as other:
                await other.until(lambda: other.events)
            reader.may_read.set()
            await reader.until(lambda: reader.named("reload") or len(reader.named("changes")) == 5)
            place = reader.last_id
        for number in range(5):
            await stage.write(Delete(Key("MeshTimeout", "default", f"slow-{number}")))
        async with reading(stage.app, f"since={place}") as again:
            await again.until(lambda: again.named("reload"))

    run(stage, test)


def test_each_event_has_the_place_from_which_the_rest_is_told(stage: Stage) -> None:
    async def test() -> None:
        async with reading(stage.app) as reader:
            await reader.until(lambda: reader.events)
            place = reader.last_id
        revisions = [
            await stage.write(Put(Document(Key("MeshTimeout", "default", name), timeout(name)))) for name in "ab"
        ]
        stage.turn("web-1", ProxyState.REFUSED)
        async with reading(stage.app, f"since={place}") as reader:
            await reader.until(lambda: reader.named("fleet"))
            ids, events = reader.ids, reader.events
        for number, id_ in enumerate(ids):
            async with reading(stage.app, f"since={id_}") as again:
                rest = [name for name, _ in events[number + 1 :] if name in {"changes", "fleet"}]
                await again.until(partial(_has_told, again, rest))
                told = [data["revision"] for data in again.named("changes")]

                assert told == revisions[len(revisions) - rest.count("changes") :]
                assert [name for name, _ in again.events[:2]] == ["world", "contact"]

    run(stage, test)


def _has_told(reader: Reading, names: Sequence[str]) -> bool:
    """Whether it told these and nothing else after what each connection begins with."""
    told = [name for name, _ in reader.events if name in {"changes", "fleet"}]
    return _has_begun(reader) and told == list(names)


def test_a_reader_who_comes_back_and_may_see_other_things_is_to_begin_anew(stage: Stage) -> None:
    stage.rights.append(OF_TEAM)

    async def test() -> None:
        async with reading(stage.app, token=OF_MEMBER) as reader:
            await reader.until(lambda: reader.events)
            place = reader.last_id
        async with reading(stage.app, f"since={place}", token=OF_MEMBER) as again:
            await again.until(lambda: again.events)
            assert not again.named("reload")
        async with reading(stage.app, f"since={place}") as other:
            await other.until(lambda: other.named("reload"))
        stage.rights.append(rights_of(READERS, "access.yaml", KINDS, ADMINS))
        async with reading(stage.app, f"since={place}", token=OF_MEMBER) as again:
            await again.until(lambda: again.named("reload"))

    run(stage, test)


class FailingStore(MemoryStore):
    """A store that may be away, refuse writes, or be replaced by an older copy of itself."""

    outage = ""
    refusal = ""

    async def log(self, key: Key | None = None, limit: int = 100, before: int | None = None) -> Sequence[ChangeNote]:
        if self.outage:
            raise StoreUnreachable(self.outage)
        return await super().log(key, limit, before)

    async def replace_by_copy(self, *writes: Put) -> None:
        copy = MemoryStore()
        for write in writes:
            await copy.write(write)
        self._contents = copy._contents


@pytest.fixture
def store(stage: Stage, start: Unit) -> FailingStore:
    store = FailingStore()
    stage.api = start(store=store, state=stage.state, observed=stage.seen, access=stage.api.collaborators.access)
    stage.app = feed_app(stage.api)
    return store


def test_a_reader_is_told_of_lost_contact_and_afterwards_of_what_was_written_meanwhile(
    stage: Stage, store: FailingStore
) -> None:
    async def test() -> None:
        async with reading(stage.app) as reader:
            await reader.until(lambda: reader.events)
            store.outage = "the store is away since noon"
            await reader.until(lambda: len(reader.named("contact")) == 2)
            revision = await stage.write(Put(Document(Key("MeshTimeout", "default", "slow"), timeout())))
            await reader.until(lambda: {"revision": revision} in reader.named("world"))
            assert not reader.named("changes")
            store.outage, store.refusal, stage.seen.silent = "", "the disk is full", ("peer",)
            await reader.until(lambda: reader.named("changes") and len(reader.named("contact")) == 3)

            assert [data["revision"] for data in reader.named("changes")] == [revision]
            assert reader.named("contact") == [
                {"follows": True, "writes": True, "silent": 0},
                {"follows": False, "writes": False, "silent": 0},
                {"follows": True, "writes": False, "silent": 1},
            ]

    run(stage, test)


def test_a_reader_is_to_begin_anew_where_an_older_copy_has_taken_the_place_of_the_store(
    stage: Stage, store: FailingStore
) -> None:
    writes = [Put(Document(Key("MeshTimeout", "default", name), timeout(name))) for name in "abcd"]

    async def test() -> None:
        for write in writes[:3]:
            stage.state.world = World.of(documents("web-1"), KINDS, await stage.write(write))
        async with reading(stage.app) as reader:
            await reader.until(lambda: reader.events)
            await store.replace_by_copy(writes[0])
            stage.state.world, stage.seen.revision = World.of(documents("web-1"), KINDS, 1), 1
            await reader.until(lambda: reader.named("reload"))
            revision = await stage.write(writes[3])
            await reader.until(lambda: reader.named("changes"))

            assert [data["revision"] for data in reader.named("changes")] == [revision]

    run(stage, test)


def test_a_slow_reader_gets_the_newest_and_no_queue(stage: Stage) -> None:
    async def test() -> None:
        async with reading(stage.app) as slow, reading(stage.app) as fast:
            await fast.until(lambda: fast.events and slow.events)
            slow.may_read.clear()
            for number in range(20):
                stage.turn("web-1", ProxyState.REFUSED if number % 2 else ProxyState.OUT_OF_SYNC)
                expected = len(fast.named("fleet")) + 1
                await fast.until(partial(_has_events, fast, expected))
            slow.may_read.set()
            stage.turn("web-2", ProxyState.ONLINE)
            await slow.until(lambda: any("web-2" in states_of(data) for data in slow.named("fleet")))

            assert len(slow.named("fleet")) <= 3
            told = {name: state for data in slow.named("fleet") for name, state in states_of(data).items()}
            assert told == {"web-1": "Refused", "web-2": "Online"}

    run(stage, test)


def _has_events(reader: Reading, count: int) -> bool:
    return len(reader.named("fleet")) >= count


def test_registrations_are_told_by_the_fleet_alone(stage: Stage) -> None:
    async def test() -> None:
        async with reading(stage.app) as reader:
            await reader.until(lambda: reader.events)
            registered = Document(Key("Dataplane", "default", "web-9"), dataplane("web-9"))
            await stage.write(Put(registered), author=Author("proxy", f"{WAY} from 192.0.2.9"))
            await stage.write(Put(Document(Key("MeshTimeout", "default", "slow"), timeout())))
            await reader.until(lambda: reader.named("changes"))

            assert [data["resources"][0]["type"] for data in reader.named("changes")] == ["MeshTimeout"]

    run(stage, test)


def test_a_write_of_many_resources_names_some_and_counts_the_rest(stage: Stage) -> None:
    async def test() -> None:
        async with reading(stage.app) as reader:
            await reader.until(lambda: reader.events)
            names = [f"slow-{number}" for number in range(300)]
            await stage.write(*(Put(Document(Key("MeshTimeout", "default", name), timeout(name))) for name in names))
            await reader.until(lambda: reader.named("changes"))

            (change,) = reader.named("changes")
            assert (len(change["resources"]), change["more"]) == (100, 200)

    run(stage, test)


def test_a_feed_ends_with_the_token(stage: Stage) -> None:
    async def test() -> None:
        async with reading(stage.app, token=JANE) as reader:
            await reader.until(lambda: reader.events)
            stage.now.append(forge.NOW + 10**9)
            await reader.until(lambda: reader.has_ended)

            assert "expired" in reader.named("end")[0]["reason"]
        async with reading(stage.app, token=JANE) as again:
            await again.until(lambda: again.has_ended)
            assert again.status == 401

    run(stage, test)


def test_a_feed_ends_with_the_revocation_of_the_token(stage: Stage) -> None:
    async def test() -> None:
        async with reading(stage.app, token=JANE) as reader:
            await reader.until(lambda: reader.events)
            revoked = forge.secret("user-token-revocations", b"id-1")
            stage.state.world = World.of([*documents("web-1"), revoked], KINDS)
            await reader.until(lambda: reader.has_ended)

            assert "revoked" in reader.named("end")[0]["reason"]

    run(stage, test)


def test_who_may_see_other_things_by_now_is_to_begin_anew_and_who_may_see_none_is_told_nothing(stage: Stage) -> None:
    async def test() -> None:
        async with reading(stage.app, token=OF_MEMBER) as reader:
            await reader.until(lambda: reader.events)
            stage.rights.append(rights_of(READERS, "access.yaml", KINDS, ADMINS))
            await reader.until(lambda: reader.named("reload"))
            stage.turn("web-1", ProxyState.REFUSED)
            await reader.until(lambda: reader.named("fleet"))
            assert reader.named("fleet")[-1]["meshes"].keys() == {"default"}

            stage.rights.append(rights_of("rights: []", "access.yaml", KINDS, ADMINS))
            await reader.until(lambda: reader.has_ended)
            assert reader.named("end")

    run(stage, test)


def test_a_feed_ends_when_its_time_is_over_and_when_the_control_plane_ends(stage: Stage) -> None:
    async def test() -> None:
        async with reading(stage.app, "wait=0s") as reader:
            await reader.until(lambda: reader.has_ended)
            assert reader.events
        async with reading(stage.app) as reader:
            await reader.until(lambda: reader.events)
            stage.state.is_stopping = True
            await reader.until(lambda: reader.has_ended)

    run(stage, test)


@pytest.mark.parametrize("moment", ["before it is asked", "while it is asked"])
def test_nobody_is_told_that_proxies_are_gone_by_a_control_plane_that_lets_them_go(moment: str, stage: Stage) -> None:
    def stop() -> None:
        stage.state.is_stopping = True
        stage.turn("web-1", ProxyState.OFFLINE)

    async def test() -> None:
        async with reading(stage.app) as reader:
            await reader.until(lambda: reader.named("contact"))
            if moment == "before it is asked":
                stop()
            else:
                stage.seen.when_asked = stop
            await reader.until(lambda: reader.has_ended)
        assert reader.named("end") == [{"reason": "the control plane is being stopped", "stopping": True}]
        assert not reader.named("fleet")
        assert (await answer_of(stage, last_event_id=reader.last_id)).status == 503

    run(stage, test)
    answers = [stage.api.get(path) for path in ("/_fleet", "/meshes/default/_graph")]
    assert {(answer.status_code, answer.json()["detail"]) for answer in answers} == {
        (503, "the control plane is being stopped")
    }


def test_a_feed_in_which_nothing_happens_beats(stage: Stage) -> None:
    async def test() -> None:
        async with reading(stage.app) as reader:
            await reader.until(lambda: "\n\n:\n\n" in reader.text)

    run(stage, test)


async def answer_of(stage: Stage, **options: str) -> Reading:
    """The answer to somebody who begins to read."""
    async with reading(stage.app, "wait=0s", **options) as reader:
        await reader.until(lambda: reader.has_ended)
        return reader


@asynccontextmanager
async def feeds(stage: Stage, count: int, **options: str) -> AsyncIterator[None]:
    """Feeds that stay open until the block ends."""
    async with AsyncExitStack() as stack:
        for _ in range(count):
            reader = await stack.enter_async_context(reading(stage.app, **options))
            await reader.until(partial(_has_begun, reader))
        yield


def _has_begun(reader: Reading) -> bool:
    return bool(reader.events)


@pytest.fixture
def few_feeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "LIMITS", WaitingLimits("feeds", most=4, most_without_token=3, most_of_caller=2))


ANYBODY = "rights: [{groups: [mesh-system:unauthenticated, mesh-system:authenticated], may: [read]}]"


@pytest.mark.usefixtures("few_feeds")
def test_a_caller_has_so_many_feeds_from_whatever_address_and_leaves_the_others_theirs(stage: Stage) -> None:
    async def test() -> None:
        async with feeds(stage, 1, token=JANE, host="192.0.2.1"), feeds(stage, 1, token=JANE, host="192.0.2.2"):
            sent_away = await answer_of(stage, token=JANE, host="192.0.2.3")

            assert sent_away.status == 429
            assert sent_away.headers["retry-after"] == "5"
            assert "2 feeds are open for user jane" in sent_away.text
            assert (await answer_of(stage, token=OF_ADMIN, host="192.0.2.1")).status == 200
        assert (await answer_of(stage, token=JANE, host="192.0.2.3")).status == 200

    run(stage, test)


@pytest.mark.usefixtures("few_feeds")
def test_without_a_token_an_address_has_so_many_feeds_and_all_of_them_together(stage: Stage) -> None:
    stage.rights.append(rights_of(ANYBODY, "access.yaml", KINDS, ADMINS))

    async def test() -> None:
        async with feeds(stage, 2, host="192.0.2.1"):
            assert (await answer_of(stage, host="192.0.2.1")).status == 429
            async with feeds(stage, 1, host="192.0.2.2"):
                sent_away = await answer_of(stage, host="192.0.2.3")

                assert sent_away.status == 503
                assert sent_away.headers["retry-after"] == "5"
                assert (await answer_of(stage, token=JANE, host="192.0.2.3")).status == 200

    run(stage, test)


@pytest.mark.usefixtures("few_feeds")
def test_administrators_on_this_machine_find_room_where_nobody_else_does(stage: Stage) -> None:
    stage.rights.append(rights_of(ANYBODY, "access.yaml", KINDS, ADMINS))

    async def test() -> None:
        async with feeds(stage, 2, token=JANE), feeds(stage, 2, host="192.0.2.1"):
            sent_away = await answer_of(stage, token=OF_ADMIN)

            assert sent_away.status == 503
            assert sent_away.headers["retry-after"] == "5"
            async with feeds(stage, 2, host="127.0.0.1"):
                assert (await answer_of(stage, host="127.0.0.1")).status == 429
            assert (await answer_of(stage, host="::1")).status == 200
            assert (await answer_of(stage, token=OF_ADMIN, host="127.0.0.1")).status == 200
            assert (await answer_of(stage, host="127.0.0.1", x_forwarded_for="192.0.2.9")).status == 503

    run(stage, test)


def test_a_feed_begins_once_the_store_was_read(start: Unit) -> None:
    app = feed_app(api := start(state=Unread()))

    async def test() -> None:
        async with reading(app) as reader:
            await reader.until(lambda: reader.has_ended)
            assert (reader.status, reader.headers["retry-after"]) == (503, "1")

    api.run(test())


class Unread(Changing):
    """A control plane that has not read its store yet."""

    def __init__(self) -> None:
        super().__init__(World.of((), KINDS), is_ready=False)

    @property
    def loaded_world(self) -> None:  # type: ignore[override]  # not yet
        return None


def test_a_hostile_name_cannot_make_an_event_of_its_own(stage: Stage) -> None:
    async def test() -> None:
        async with reading(stage.app) as reader:
            await reader.until(lambda: reader.events)
            stage.state.world = World.of(documents(HOSTILE), KINDS)
            key = Key("Dataplane", "default", HOSTILE)
            stage.seen.states[proxy_id(key)] = ProxyState.ONLINE
            await stage.write(
                Put(Document(Key("MeshTimeout", "default", HOSTILE), timeout(HOSTILE))), author=Author(HOSTILE)
            )
            await reader.until(lambda: reader.named("changes"))

            assert reader.named("changes")[0]["author"] == HOSTILE
            assert {name for name, _ in reader.events} <= {"world", "contact", "changes", "fleet"}
            assert "\r" not in reader.text

    run(stage, test)
