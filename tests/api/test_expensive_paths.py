"""Every path on which much may have to be computed ends when its client leaves, and passes checkpoints all the way."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Final

import pytest
from starlette.types import Message, Scope

from bench.rules import documents
from cp.api import work
from cp.api.requirements import REQUIREMENTS
from cp.api.work import WorkQueue
from cp.model.checkpoint import Checkpoint, Stopped
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.store.port import Put
from cp.translate.compiler import Compiler
from cp.translate.snapshot import Snapshot
from tests.api.conftest import KINDS, Api, FixedState, Unit
from tests.support.waiting import eventually

WITHIN: Final = 20.0
MESH: Final = "/meshes/default"
PROXY: Final = f"{MESH}/dataplanes/dp1"
GATEWAY: Final = f"{MESH}/dataplanes/gateway"
BASE: Final = "/meshes/{mesh}/dataplanes/{name}"
EDIT: Final = {"type": "MeshTimeout", "mesh": "default", "name": "p1", "spec": {}}
APPLY: Final = json.dumps({"resources": [{"text": json.dumps(EDIT)}]}).encode()

CHEAP: Final = frozenset(
    {
        *("/", "/healthy", "/health", "/ready", "/who-am-i", "/config", "/_resources", "/policies", "/metrics"),
        *("/gui", "/gui/assets/{name}", "/gui/{path:path}"),
        *("/tokens/dataplane", "/tokens/zone", "/tokens/user"),
        *("/_feed", "/_instances/_ask"),  # an answer that lasts, and questions of other control planes
        *(f"{BASE}/_readiness", f"{BASE}/_link", f"{BASE}/_link/{{question}}", f"{BASE}/_envoy/log_level"),
        *("/{plural}/{name}", "/meshes/{mesh}/{plural}/{name}", "/meshes/{mesh}/_rollout"),  # one document
        *("/_rollouts", "/_instances"),  # a line for each
    }
)
"""Paths that answer from what is at hand, or look at one document."""

EXPENSIVE: Final = {
    ("POST", "/bootstrap"): ("/bootstrap", b'{"mesh": "default", "name": "dp1"}'),
    ("GET", "/_prometheus/targets"): ("/_prometheus/targets", b""),
    ("GET", "/_lint"): ("/_lint", b""),
    ("GET", "/meshes/{mesh}/_lint"): (f"{MESH}/_lint", b""),
    ("GET", "/meshes/{mesh}/_policies"): (f"{MESH}/_policies", b""),
    ("GET", "/meshes/{mesh}/_graph"): (f"{MESH}/_graph", b""),
    ("GET", "/_delivery"): ("/_delivery", b""),
    ("POST", "/_delivery"): ("/_delivery", b"{}"),
    ("GET", "/_fleet"): ("/_fleet", b""),
    ("GET", "/_changes"): ("/_changes", b""),
    ("GET", "/_history"): ("/_history", b""),
    ("GET", "/_diff"): ("/_diff?from=0&to=1", b""),
    ("GET", "/_diff/proxies"): ("/_diff/proxies?from=0&to=1", b""),
    ("GET", "/_diff/plan"): ("/_diff/plan?from=0&to=1", b""),
    ("GET", "/_export"): ("/_export", b""),
    ("POST", "/_rollback"): ("/_rollback", b'{"revision": 1}'),
    ("POST", "/_apply"): ("/_apply?dryRun=true&plan=true", APPLY),
    ("POST", "/validate"): ("/validate", json.dumps(EDIT | {"spec": {"to": [1] * 200}}).encode()),
    ("GET", f"{BASE}/_envoy/diff"): (f"{PROXY}/_envoy/diff", b""),
    ("GET", f"{BASE}/_envoy/{{subject}}"): (f"{PROXY}/_envoy/clusters", b""),
    ("GET", f"{BASE}/xds"): (f"{PROXY}/xds", b""),
    ("GET", f"{BASE}/stats"): (f"{PROXY}/stats", b""),
    ("GET", f"{BASE}/clusters"): (f"{PROXY}/clusters", b""),
    ("GET", f"{BASE}/_config"): (f"{GATEWAY}/_config", b""),
    ("GET", f"{BASE}/_rules"): (f"{GATEWAY}/_rules", b""),
    ("GET", f"{BASE}/_policies"): (f"{GATEWAY}/_policies", b""),
    ("GET", f"{BASE}/_delivery"): (f"{PROXY}/_delivery", b""),
    ("GET", f"{BASE}/_explain"): (f"{GATEWAY}/_explain?call=GET%20http://h1.example.com:8080/p1", b""),
    ("GET", f"{BASE}/_values"): (f"{GATEWAY}/_values", b""),
    ("GET", f"{BASE}/_overview"): (f"{PROXY}/_overview", b""),
    ("GET", "/meshes/{mesh}/{plural}/{name}/_resources/dataplanes"): (
        f"{MESH}/meshhttproutes/routes/_resources/dataplanes?size=1000",
        b"",
    ),
    ("GET", "/meshes/{mesh}/dataplanes/_overview"): (f"{MESH}/dataplanes/_overview?size=1000", b""),
    ("GET", "/meshes/{mesh}/dataplanes+insights"): (f"{MESH}/dataplanes+insights?size=1000", b""),
    ("GET", "/meshes/{mesh}/dataplanes+insights/{name}"): (f"{MESH}/dataplanes+insights/dp1", b""),
    ("GET", "/dataplanes/_overview"): ("/dataplanes/_overview?size=1000", b""),
    ("GET", "/dataplanes+insights"): ("/dataplanes+insights?size=1000", b""),
    ("GET", "/meshes/{mesh}/{plural}"): (f"{MESH}/dataplanes?size=1000", b""),
    ("GET", "/{plural}"): ("/dataplanes?size=1000", b""),
}
"""All other paths: a request to each of them, and its body."""

NO_ENVOY: Final = frozenset({f"{BASE}/_envoy/diff", f"{BASE}/_envoy/{{subject}}", f"{BASE}/xds"}) | {
    f"{BASE}/stats",
    f"{BASE}/clusters",
}
"""Paths that ask an Envoy first, of which there is none here."""


def document(type_: str, name: str, **fields: Any) -> Document:
    return Document(Key(type_, "default", name), {"type": type_, "mesh": "default", "name": name, **fields})


def large_mesh(size: int) -> list[Document]:
    """A mesh with services, policies, and a gateway with the square of a number of rows."""
    hosts = [{"port": 8080, "protocol": "HTTP", "hostname": f"h{number}.example.com"} for number in range(size)]
    tags = {"kuma.io/service": "gateway"}
    gateway = {"type": "BUILTIN", "tags": tags}
    default = {"backendRefs": [{"kind": "MeshService", "name": "s1", "port": 80}]}
    paths = ({"path": {"type": "Exact", "value": f"/p{number}"}} for number in range(size))
    to = [{"targetRef": {"kind": "Mesh"}, "rules": [{"matches": [path], "default": default} for path in paths]}]
    return [
        *documents(size),
        document("MeshGateway", "gateway", selectors=[{"match": tags}], conf={"listeners": hosts}),
        document("Dataplane", "gateway", networking={"address": "127.0.0.1", "gateway": gateway}),
        document("MeshHTTPRoute", "routes", spec={"targetRef": {"kind": "MeshGateway", "name": "gateway"}, "to": to}),
    ]


class CompilingState(FixedState):
    """A state that computes what proxies are served when somebody asks."""

    async def snapshot(self, dataplane: Resource, *, is_certified_client: bool = False) -> Snapshot:
        return await asyncio.to_thread(Compiler(discover()).snapshot, self.world, dataplane)


def loaded(api: Api, start: Unit, size: int) -> Api:
    stored = large_mesh(size)
    api.run(api.store.write(*map(Put, stored)))
    return start(store=api.store, state=CompilingState(World.of(stored, KINDS)))


def test_every_path_is_cheap_or_expensive() -> None:
    assert not CHEAP & {path for _, path in EXPENSIVE}
    assert {path for _, path in REQUIREMENTS} == CHEAP | {path for _, path in EXPENSIVE}
    assert EXPENSIVE.keys() == {key for key in REQUIREMENTS if key[1] not in CHEAP}


class Leaver:
    """A client that leaves as soon as something is computed for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()
        wait = WorkQueue.wait

        async def wait_for_ever(queue: WorkQueue, request: Any, _: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
            return await wait(queue, request, self._never)

        monkeypatch.setattr(WorkQueue, "wait", wait_for_ever)
        monkeypatch.setattr(work, "budgeted", lambda is_stopped, _: self._until(is_stopped))

    def _until(self, is_stopped: Callable[[], bool]) -> Checkpoint:
        """A checkpoint that holds work until it is to end."""

        def hold() -> None:
            self.begun.set()
            eventually(is_stopped, WITHIN, 0.001)
            self.ended.set()
            raise Stopped

        return hold

    async def _never(self) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()

    async def ask(self, api: Api, method: str, path: str, body: bytes) -> None:
        where, _, query = path.partition("?")
        headers = [(b"host", b"localhost:5681"), (b"content-type", b"application/json")]
        scope: Scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": where,
            "raw_path": where.encode(),
            "query_string": query.encode(),
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "scheme": "http",
            "server": ("localhost", 5681),
            "root_path": "",
        }
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if messages:
                return messages.pop()
            await asyncio.to_thread(self.begun.wait, WITHIN)
            return {"type": "http.disconnect"}

        async def send(_: Message) -> None:
            """Nobody reads it."""

        async with asyncio.timeout(WITHIN):
            await api.app(scope, receive, send)


@pytest.mark.parametrize(
    "key", sorted(EXPENSIVE.keys() - {key for key in EXPENSIVE if key[1] in NO_ENVOY}), ids=" ".join
)
def test_path_ends_when_its_client_leaves(
    key: tuple[str, str], api: Api, start: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, body = EXPENSIVE[key]
    asked = loaded(api, start, 2)
    client = Leaver(monkeypatch)

    asked.run(client.ask(asked, key[0], path, body))

    assert client.begun.is_set(), "nothing was computed in a thread"
    eventually(client.ended.is_set)


MOST_CALLS: Final = 40_000
"""Calls of functions between two checkpoints: some milliseconds."""


class Gaps:
    """Counts the calls of Python functions in each thread between two checkpoints."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._calls, self.largest, self.passed = threading.local(), 0, 0
        monkeypatch.setattr(work, "budgeted", lambda _is_stopped, _memory: self._pass)
        monkeypatch.setattr(threading, "_profile_hook", self._count)

    def _count(self, _frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            self._calls.count = getattr(self._calls, "count", 0) + 1

    def _pass(self) -> None:
        self.largest = max(self.largest, getattr(self._calls, "count", 0))
        self._calls.count, self.passed = 0, self.passed + 1


@pytest.mark.parametrize("key", sorted(key for key in EXPENSIVE if key[1] not in NO_ENVOY), ids=" ".join)
def test_path_passes_checkpoints_all_the_way(
    key: tuple[str, str], api: Api, start: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = loaded(api, start, 20)
    path, body = EXPENSIVE[key]
    gaps = Gaps(monkeypatch)

    asked.request(key[0], path, content=body, headers={"content-type": "application/json"})

    assert gaps.largest < MOST_CALLS
