"""No request has the event loop for long, whatever is in it: each endpoint with the worst that it takes.

What is measured is the processor time that the loop's thread spends in one callback, so a busy machine changes nothing.
`make bench ARGS=api` measures from outside, by the clock, how late the loop is.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import httpx
import pytest

from cp.api.http import create_api
from cp.model.document import Document
from cp.model.names import Key
from cp.resources.world import World
from cp.store.memory import MemoryStore
from cp.store.port import Put
from tests.api.conftest import KINDS, FixedState, Unit
from tests.api.samples import dataplane, timeout

LONGEST: Final = 0.05
"""Seconds: so late the event loop may be because of one request."""

PROXIES: Final = 1000
POLICIES: Final = 60
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

WORST: Final = (
    get("/"),
    get("/config"),
    get("/_resources"),
    get("/policies"),
    get("/_lint"),
    get("/meshes/default/_lint"),
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
    post("/_apply", b'{"resources": [' + b'{"text":""},' * 500_000 + b'{"text":""}]}'),
    post("/_apply", b'{"resources": [], "more": [' + b"[]," * 4 * MIB + b"1]}"),
    post("/_apply", b'{"resources":' + b"[" * 1_000_000),
    post("/_delivery", json.dumps({"revisions": [1] * 100_000}).encode()),
    post("/_delivery", json.dumps({"resources": ["Mesh/default"] * 10_000}).encode(), 200),
    post("/_delivery", b"[" * 900_000),
    post("/bootstrap", b'{"mesh": "default", "name": "web-1"}', 200),
    post("/bootstrap", b'{"a": ' * 40_000),
    post("/bootstrap", b'{"mesh": "default", "name": "web-1", "version": {"a": [' + b"[]," * 80_000 + b"1]}}", 422),
    post("/bootstrap", json.dumps({"mesh": "default", "name": "web-1", "dataplaneResource": HAVING}).encode(), 200),
)


def documents() -> Iterator[Document]:
    yield Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})
    for number in range(PROXIES):
        name = f"web-{number}"
        yield Document(Key("Dataplane", "default", name), dataplane(name, address=f"10.0.{number >> 8}.{number & 255}"))
    for number in range(POLICIES):
        name = f"slow-{number}"
        yield Document(Key("MeshTimeout", "default", name), timeout(name, request_timeout=f"{number + 1}s"))


@contextmanager
def callbacks_timed() -> Iterator[list[tuple[float, str]]]:
    """The processor time of each callback that an event loop of this thread calls."""
    spent: list[tuple[float, str]] = []
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        spent.append((time.thread_time() - began, repr(handle)[:200]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", timed)
        yield spent


@pytest.fixture(scope="module")
def world() -> World:
    return World.of(documents(), KINDS, revision=1)


@pytest.mark.parametrize("asked", WORST, ids=str)
def test_no_request_has_the_event_loop_for_long(start: Unit, world: World, asked: Asked) -> None:
    store = MemoryStore()
    api = start(store=store, state=FixedState(world))
    api._runner.run(store.write(*map(Put, documents())))
    app = create_api(api.collaborators)

    async def exchange() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:5681") as client:
            return await client.request(
                asked.method, asked.path, content=asked.content, headers=list(asked.headers), timeout=60
            )

    gc.collect()  # it would otherwise count what others left
    gc.disable()
    try:
        with callbacks_timed() as spent:
            answer = api._runner.run(exchange())
    finally:
        gc.enable()

    assert answer.status_code in asked.statuses, answer.text[:500]
    assert len(answer.content) < 8 * MIB
    assert max(spent)[0] < LONGEST, max(spent)
