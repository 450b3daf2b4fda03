"""No request has the event loop for long, whatever is in it: each endpoint with the worst that it takes.

What is measured is the processor time that the loop's thread spends in one callback, so a busy machine changes nothing.
`make bench ARGS=api` measures from outside, by the clock, how late the loop is.
"""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import httpx
import pytest
from starlette.routing import Match, Route

from cp.api.http import create_api
from cp.model.document import Document
from cp.model.names import Key
from cp.resources.world import World
from cp.store.port import Put
from cp.store.sqlite import SqliteStore
from tests.api.conftest import KINDS, Api, FixedState, Unit, no_metrics
from tests.api.samples import dataplane, timeout

LONGEST: Final = 0.05
"""Seconds: so late the event loop may be because of one request."""

PROXIES: Final = 1000
POLICIES: Final = 60
STORED: Final = 10_000
MIB: Final = 1024 * 1024
JSON: Final = {"content-type": "application/json"}
YAML: Final = {"content-type": "application/yaml"}
WEB: Final = "/meshes/default/dataplanes/web-1"
SLOW: Final = "/meshes/default/meshtimeouts/slow-1"


@dataclass(frozen=True)
class Asked:
    """A request, and the statuses with which it may be answered."""

    method: str
    path: str
    statuses: tuple[int, ...] = (200,)
    content: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.method} {self.path[:60]} {self.content[:20]!r}"


def get(path: str, *statuses: int) -> Asked:
    return Asked("GET", path, statuses or (200,))


def post(path: str, content: bytes, *statuses: int, headers: dict[str, str] = JSON) -> Asked:
    return Asked("POST", path, statuses or (400,), content, tuple(headers.items()))


def put(content: bytes, *statuses: int, headers: dict[str, str] = JSON) -> Asked:
    return Asked("PUT", SLOW, statuses or (400,), content, tuple(headers.items()))


def with_list(item: bytes, size: int) -> bytes:
    return b'{"type": "MeshTimeout", "mesh": "default", "name": "slow-1", "spec": {"to": [' + item * size + b"1]}}"


UNKNOWN = b"type: MeshTimeout\nmesh: default\nname: slow-1\nspec:\n" + b"".join(b"  f%d: 1\n" % n for n in range(5000))
SMALL_UNKNOWN = json.dumps(
    {"type": "MeshTimeout", "mesh": "default", "name": "slow-1", "spec": {f"{'to' * 15}{n}": n for n in range(95)}}
).encode()
"""As much as is read on the event loop, with a fault in each value."""

MISSING = [f"type: Mesh\nname: m{n:04}-{'a' * 40}\n" for n in range(300)] + [
    f"type: MeshTimeout\nname: t{n}\nmesh: n{n:04}-{'a' * 40}\nspec: {{}}\n" for n in range(300)
]
HAVING = "type: Dataplane\nmesh: default\nname: web-1\nnetworking:\n  address: 1.1.1.1\n  inbound:\n" + (
    "  - {port: 80}\n" * 1000
)


def _shuffled(seed: int) -> str:
    letters = list("ab" * 49)
    Random(seed).shuffle(letters)
    return f"a{''.join(letters)}b"


NEAR = list(map(_shuffled, range(400)))
"""Names of the same letters, which take long to compare."""

FAR = f"a{'abba' * 24}aab"
"""None of them, and like all of them."""

MANY = "---\n".join(
    f"type: MeshTimeout\nmesh: default\nname: n{n}\n"
    "spec: {to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 1s}}]}\n"
    for n in range(7000)
)

WORST_FOR_LONG: Final = (
    post("/_apply", json.dumps({"resources": [{"text": MANY}]}).encode(), 200),
    get("/_diff/proxies?from=1&to=1"),
    get("/_diff/plan?from=0"),
    get("/_lint"),
    post("/_apply", b'{"resources": [' + b'{"text":""},' * 500_000 + b'{"text":""}]}'),
)
"""Those that take long to answer."""

WORST: Final = (
    get("/"),
    get("/who-am-i"),
    get("/healthy"),
    get("/health"),
    get("/ready"),
    get("/meshes/default"),
    Asked("HEAD", WEB),
    Asked("DELETE", WEB),
    Asked("DELETE", "/meshes/default", (400,)),
    Asked("DELETE", "/meshes/default?cascade=true"),
    Asked("PUT", "/meshes/default", (400,), UNKNOWN, (("content-type", "application/yaml"),)),
    get("/_rollouts"),
    get("/meshes/default/_rollout", 404),
    Asked("POST", "/meshes/default/_rollout", (404,), b'{"action": "abort"}', (("content-type", "application/json"),)),
    get(f"/meshes/{FAR}", 404),
    get(f"/meshes/{FAR}/dataplanes", 404),
    get(f"/meshes/{FAR}/_lint", 404),
    get(f"/meshes/default/meshretries/{FAR}", 404),
    get(f"/meshes/default/meshretries/{FAR}/_resources/dataplanes", 404),
    get("/meshes/default/dataplanes/_overview?size=1000"),
    get("/meshes/default/dataplanes+insights?size=1000"),
    get("/dataplanes+insights?size=1000"),
    get("/meshes/default/dataplanes+insights/web-1"),
    get("/dataplanes?" + "tag=kuma.io/service:&" * 2000),
    post(f"{WEB}/_readiness", b'{"a":' * 700),
    post(f"{WEB}/_readiness", b"[" * 4 * MIB, 413),
    get("/_fleet"),
    get(f"/_fleet?mesh={FAR}", 404),
    get("/_feed?wait=0s&since=" + "9" * 5000),
    get("/_feed?wait=" + "9" * 5000, 400),
    get("/_changes?size=1000"),
    get("/meshes/default/_policies"),
    get(f"/meshes/{FAR}/_policies", 404),
    get("/meshes/default/_graph"),
    get(f"/meshes/{FAR}/_graph", 404),
    get("/_history?size=1000"),
    get("/_diff?from=0"),
    get("/_diff?from=" + "9" * 5000, 400),
    get("/_diff/proxies?from=0"),
    get("/_prometheus/targets"),
    get("/gui", 200, 404),
    get("/gui/" + "a" * 5000, 200, 404),
    get("/gui/assets/" + "a" * 5000, 404),
    get(f"{WEB}/_values"),
    get(f"{WEB}/_values?outbound=" + "9" * 5000, 400),
    get(f"{WEB}/clusters", 409),
    get(f"{WEB}/stats", 409),
    get(f"{WEB}/xds", 409),
    get(f"{WEB}/_envoy/clusters", 409),
    get(f"{WEB}/_envoy/stats?filter=" + "(" * 5000, 400),
    get(f"{WEB}/_envoy/diff", 409),
    Asked("PUT", f"{WEB}/_envoy/log_level", (400,), b"[" * 4000, tuple(JSON.items())),
    post(f"{WEB}/_link", b"[" * 4000),
    post(f"{WEB}/_link/1", b"[" * 4000, 409),
    get("/_export"),
    get("/_export?at=1"),
    get(f"/_export?mesh={FAR}&at=1", 404),
    get("/dataplanes?size=1000&at=1"),
    get(f"{WEB}?at=1"),
    get(f"/meshes/default/meshretries/{FAR}?at=1", 404),
    get(f"/meshes/{FAR}/dataplanes?at=1", 404),
    post("/_rollback?dryRun=true", b'{"revision": 0, "deleteMeshes": true}', 200),
    post("/_rollback", b'{"revision": 0, "deleteMeshes": true}', 200),
    post("/_rollback", b'{"revision": 0, "only": ' + b"[" * 100_000),
    post("/_rollback?dryRun=true", json.dumps({"revision": 0, "only": [{"type": "a"}] * 5000}).encode(), 200),
    get("/config"),
    get("/metrics"),
    get("/_resources"),
    get("/policies"),
    get("/meshes/default/_lint"),
    get("/_instances"),
    post("/_instances/_ask", b"[" * 8000, 503),
    get("/dataplanes?size=1000"),
    get("/meshes/default/dataplanes?size=1000&tag=a:b&filter[labels.a]=b"),
    get("/dataplanes/_overview?size=1000"),
    get("/meshes?size=" + "9" * 5000, 400),
    get("/_delivery?revision=" + "9" * 5000, 400),
    get("/_delivery?" + "revision=1&" * 4000),
    get(f"/meshes/default/dataplanes/{'web-' * 60}", 404),
    get(f"/meshes/default/dataplanes/{'w' * 30_000}", 404),
    get(WEB),
    get(f"{WEB}/_overview"),
    get(f"{WEB}/_delivery"),
    get(f"{WEB}/_config"),
    get(f"{WEB}/_rules"),
    get(f"{WEB}/_policies"),
    get(f"{WEB}/_explain?call=http://backend:80/", 200, 400),
    get(f"{WEB}/_explain?call=G1{'+' * 60_000}x", 400),
    get(f"{WEB}/_explain?call={'GET+' * 15_000}", 400),
    get(f"{SLOW}/_resources/dataplanes"),
    get(f"{SLOW}/_resources/dataplanes?size=1000"),
    put(b'{"type":' * 50_000),
    put(with_list(b"1,", 2 * MIB), 413),
    put(with_list(b'"",', MIB)),
    put(with_list(b"{},", 30_000)),
    put(UNKNOWN, headers=YAML),
    put(SMALL_UNKNOWN),
    put(SMALL_UNKNOWN, headers=YAML),
    put(with_list(b"{},", 95)),
    put(with_list(b"a" * 3 + b",", 95), headers=YAML),
    put(b'{"type": "MeshTimeout", "mesh": "default", "name": "slow-1", "spec": "' + b"(" * 3900 + b'"}'),
    get(SLOW),
    put(b"x: " + b"[" * 4 * MIB, 400, 413, headers=YAML),
    put(b"x: " + b"a" * (4 * MIB - 10), headers=YAML),
    post("/validate", UNKNOWN, 200, headers=YAML),
    post("/validate", b"a: 1\n---\n" * 5000, 200, headers=YAML),
    post("/_apply", json.dumps({"resources": [{"text": text} for text in MISSING]}).encode()),
    post("/_apply", b'{"resources": [], "more": [' + b"[]," * 4 * MIB + b"1]}"),
    post("/_apply", b'{"resources":' + b"[" * 1_000_000),
    post("/_delivery", json.dumps({"revisions": [1] * 100_000}).encode()),
    post("/_delivery", json.dumps({"resources": ["Mesh/default"] * 10_000}).encode(), 200),
    post("/_delivery", b"[" * 900_000),
    post("/bootstrap", b'{"mesh": "default", "name": "web-1"}', 200),
    post("/bootstrap", b'{"a": ' * 40_000),
    post("/bootstrap", b'{"mesh": "default", "name": "web-1", "version": {"a": [' + b"[]," * 80_000 + b"1]}}", 422),
    post("/bootstrap", json.dumps({"mesh": "default", "name": "web-1", "dataplaneResource": HAVING}).encode(), 200),
    post("/tokens/dataplane", json.dumps({"mesh": "default", "tags": {"a": ["b"] * 1000}}).encode(), 200),
    post("/tokens/dataplane", json.dumps({"mesh": "default", "tags": {"a": [1] * 2000}}).encode()),
    post("/tokens/user", b"[" * 8000),
    post("/tokens/zone", json.dumps({f"zone{number}": 1 for number in range(500)}).encode()),
    post("/tokens/zone", json.dumps({"zone": "east", "scope": ["\x00"] * 800}).encode()),
)


def documents() -> Iterator[Document]:
    yield Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})
    for number in range(PROXIES):
        name = f"web-{number}"
        yield Document(Key("Dataplane", "default", name), dataplane(name, address=f"10.0.{number >> 8}.{number & 255}"))
    for name in NEAR:
        yield Document(Key("MeshRetry", "default", name), {"type": "MeshRetry", "mesh": "default", "name": name})
        yield Document(Key("Mesh", "", name), {"type": "Mesh", "name": name})
    for number in range(POLICIES):
        name = f"slow-{number}"
        yield Document(Key("MeshTimeout", "default", name), timeout(name, request_timeout=f"{number + 1}s"))


@contextmanager
def callbacks_timed() -> Iterator[list[tuple[float, str]]]:
    """The processor time of each callback that an event loop of this thread calls, and of a long one what it is."""
    spent: list[tuple[float, str]] = []
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        seconds = time.thread_time() - began
        spent.append((seconds, "" if seconds < LONGEST else repr(handle)[:200]))  # what it shows may be long

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", timed)
        yield spent


@pytest.fixture(scope="module")
def world() -> World:
    return World.of(documents(), KINDS, revision=1)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("usual"), documents())


@pytest.fixture(scope="module")
def database_of_many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    mesh = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})
    names = (f"many-{number}" for number in range(STORED))
    others = (Document(Key("MeshTimeout", "default", name), timeout(name)) for name in names)
    return written(tmp_path_factory.mktemp("many"), (mesh, *others))


def written(folder: Path, documents: Iterable[Document]) -> Path:
    """The file of a store that has them."""

    async def write() -> Path:
        path = folder / "store.db"
        store = await SqliteStore.open(path)
        await store.write(*map(Put, documents))
        await store.close()
        return path

    return asyncio.run(write())


def test_each_route_is_asked(api: Api) -> None:
    routes = [route for route in create_api(api.collaborators, no_metrics).routes if isinstance(route, Route)]
    asked = {(_route_of(routes, one), one.method) for one in (*WORST, *WORST_FOR_LONG)}
    every = {(route.path, method) for route in routes for method in (route.methods or set()) - {"HEAD"}}

    assert every - asked == set()


def _route_of(routes: list[Route], asked: Asked) -> str:
    """The path of the one that answers: the first that matches."""
    scope = {"type": "http", "method": asked.method, "path": asked.path.partition("?")[0]}
    return next(route.path for route in routes if route.matches(scope)[0] is Match.FULL)


OF_MANY: Final = (
    get(f"{SLOW}0", 404),
    get(f"{SLOW}0?at=1", 404),
    get("/meshtimeouts?size=1000&at=0"),
    get("/_history?size=1"),
    get("/_diff?from=0"),
    get("/_diff/proxies?from=0"),
    get("/_export?at=1"),
    post("/_rollback?dryRun=true", b'{"revision": 0, "deleteMeshes": true}', 200),
    post("/_rollback", b'{"revision": 0, "deleteMeshes": true}', 200),
    Asked("DELETE", "/meshes/default", (400,)),
    Asked("DELETE", "/meshes/default?cascade=true"),
    post("/_apply", json.dumps({"resources": [{"text": MANY}]}).encode(), 200),
    post("/bootstrap", b'{"mesh": "default", "name": "nobody"}', 404),
)


@pytest.mark.parametrize(
    "asked", [*WORST, *(pytest.param(asked, marks=pytest.mark.long) for asked in WORST_FOR_LONG)], ids=str
)
def test_no_request_has_the_event_loop_for_long(
    start: Unit, world: World, asked: Asked, database: Path, tmp_path: Path
) -> None:
    must_be_short(start, asked, Path(shutil.copy(database, tmp_path)), world)


@pytest.mark.long
@pytest.mark.parametrize("asked", OF_MANY, ids=str)
def test_nor_has_one_that_concerns_many_resources(
    start: Unit, world: World, asked: Asked, database_of_many: Path, tmp_path: Path
) -> None:
    must_be_short(start, asked, Path(shutil.copy(database_of_many, tmp_path)), world)


def must_be_short(start: Unit, asked: Asked, database: Path, world: World) -> None:
    """Over a store as operators have it: the one in memory writes on the event loop."""
    runner = start()._runner
    store = runner.run(SqliteStore.open(database))
    app = create_api(start(store=store, state=FixedState(world)).collaborators, no_metrics)

    async def exchange() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:5681") as client:
            return await client.request(
                asked.method, asked.path, content=asked.content, headers=list(asked.headers), timeout=60
            )

    gc.disable()  # it would count what others left
    try:
        with callbacks_timed() as spent:
            answer = runner.run(exchange())
    finally:
        gc.enable()
        runner.run(store.close())

    assert answer.status_code in asked.statuses, answer.text[:500]
    assert len(answer.content) < 8 * MIB
    assert max(spent)[0] < LONGEST, max(spent)
