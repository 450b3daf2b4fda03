"""Questions to Envoys over the HTTP API, and what agents may say on their links."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, cast

import httpx
import pytest

from cp.api.authentication import AccessControl
from cp.model.document import Document
from cp.model.envoy_questions import HEARTBEAT, LARGEST_ANSWER, LARGEST_SENT
from cp.model.names import Key
from cp.resources.world import World
from cp.serving.agent_links import AgentLinks, Judge, Send
from cp.serving.instances.envoy_links import EnvoyLinks
from tests.access import forge
from tests.api.conftest import KINDS, RIGHTS, Api, FixedState, Unit
from tests.api.samples import dataplane
from tests.api.test_feed import Changing

WEB = "/meshes/default/dataplanes/web-1"
DOCUMENTS = (
    Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"}),
    Document(Key("Dataplane", "default", "web-1"), dataplane("web-1")),
    Document(Key("Dataplane", "default", "caller"), dataplane("caller") | {"labels": {"koguma.io/client": "grpc"}}),
)


class NotedLinks(AgentLinks):
    """Those of which one knows when the first is there."""

    def __init__(self) -> None:
        super().__init__()
        self.is_held = asyncio.Event()

    @asynccontextmanager
    async def held(
        self, dataplane: Key, subjects: Collection[str], send: Send, may_stay: Judge = lambda: True
    ) -> AsyncIterator[None]:
        async with super().held(dataplane, subjects, send, may_stay):
            self.is_held.set()
            yield


@pytest.fixture
def linked(start: Unit) -> Api:
    """An API that knows a proxy."""
    return start(state=FixedState(World.of(DOCUMENTS, KINDS)), envoys=EnvoyLinks(NotedLinks()))


def said(api: Api, content: bytes, path: str = "stats", **headers: str) -> tuple[httpx.Response, httpx.Response]:
    """What the operator and the agent are answered, if the agent says this."""
    transport = httpx.ASGITransport(api.app, client=("127.0.0.1", 123))

    async def exchange() -> tuple[httpx.Response, httpx.Response]:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:5681") as client:
            async with asyncio.TaskGroup() as group:
                hello = {"owner": "run", "subjects": ["stats", "config_dump"]}
                link = group.create_task(client.post(f"{WEB}/_link", json=hello))
                await cast("NotedLinks", api.collaborators.envoys.own).is_held.wait()
                asked = group.create_task(client.get(f"{WEB}/_envoy/{path}"))
                question = json.loads((await link).text)
                sent = {"content-type": "application/json"} | {
                    name.replace("_", "-"): headers[name] for name in headers
                }
                taken = await client.post(f"{WEB}/_link/{question['id']}", content=content, headers=sent)
                if taken.is_error:  # a bad answer is none, and the agent may say so
                    fault = {"fault": "I was told to"}
                    await client.post(f"{WEB}/_link/{question['id']}", json=fault)
            return asked.result(), taken

    return api.run(exchange())


def answered(api: Api, answer: Any, path: str = "stats") -> Any:
    return said(api, json.dumps({"answer": answer}).encode(), path)[0].raise_for_status().json()


def test_what_an_agent_says_is_answered_compressed_or_not(linked: Api) -> None:
    assert answered(linked, {"stats": [{"name": "a", "value": 1}]}) == {"stats": [{"name": "a", "value": 1}]}
    shown, _ = said(linked, gzip.compress(b'{"answer": {"stats": []}}'), content_encoding="gzip")
    assert shown.json() == {"stats": []}


def test_why_there_is_no_answer_is_told_without_what_moves_a_terminal(linked: Api) -> None:
    shown, taken = said(linked, b'{"fault": "no\\u001b[2J"}')

    assert (shown.status_code, shown.json()["detail"]) == (409, "no\\x1b[2J")
    assert taken.status_code == 200


@pytest.mark.parametrize(
    ("content", "encoding", "status"),
    [
        (b"\xff", "", 400),
        (b'{"answer": ' + b"[" * 100_000, "", 400),
        (b"[1]", "", 400),
        (b"no gzip", "gzip", 400),
        (gzip.compress(b'{"answer": 1}')[:-10], "gzip", 400),
        (gzip.compress(b" " * (LARGEST_ANSWER + 1)), "gzip", 400),
        (gzip.compress(b'{"answer": [' + b"1," * 1_500_000 + b"1]}", 1), "gzip", 400),
        (gzip.compress(b'{"answer": [' + b"{}," * 250_000 + b"1]}", 1), "gzip", 400),
        (b" " * (LARGEST_SENT + 1), "", 413),
    ],
    ids=["bytes", "depth", "list", "plain", "cut", "bomb", "values", "objects", "size"],
)
def test_what_is_no_answer_is_refused(linked: Api, content: bytes, encoding: str, status: int) -> None:
    headers = {"content_encoding": encoding} if encoding else {}
    shown, taken = said(linked, content, **headers)

    assert taken.status_code == status
    assert shown.json()["detail"] == "I was told to"


def test_what_nobody_asked_is_not_taken(linked: Api) -> None:
    answer = linked.post(f"{WEB}/_link/0123456789abcdef", json={"answer": {"stats": []}})

    assert (answer.status_code, answer.json()["title"]) == (409, "Not asked")


def test_who_says_to_be_a_proxy_that_nobody_knows_holds_no_link(linked: Api, start: Unit) -> None:
    nobodys = "/meshes/default/dataplanes/invented/_link"
    refused = linked.post(nobodys, json={})

    assert (refused.status_code, refused.json()["detail"]) == (404, "there is no Dataplane `invented`")
    no_places = EnvoyLinks(AgentLinks(0))
    open_door = start(state=FixedState(World.of(DOCUMENTS, KINDS)), envoys=no_places, trusts_proxies=True)
    assert open_door.post(nobodys, json={}).json()["title"] == "No room"


def test_who_gets_no_place_is_told_when_to_try_again(start: Unit) -> None:
    full = start(state=FixedState(World.of(DOCUMENTS, KINDS)), envoys=EnvoyLinks(AgentLinks(0)))

    answer = full.post(f"{WEB}/_link", json={})

    assert (answer.status_code, answer.json()["title"], answer.headers["retry-after"]) == (503, "No room", "30")


def test_a_proxy_has_one_place_however_many_links_are_opened_for_it(linked: Api) -> None:
    transport = httpx.ASGITransport(linked.app, client=("127.0.0.1", 123))

    async def opened() -> tuple[int, int]:
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://localhost:5681") as client,
            asyncio.TaskGroup() as group,
        ):
            held = {group.create_task(client.post(f"{WEB}/_link", json={})) for _ in range(20)}
            while len(held) > 1:
                _, held = await asyncio.wait(held, return_when=asyncio.FIRST_COMPLETED)
            places = linked.collaborators.envoys.own.count
            for last in held:
                last.cancel()
        return len(held), places

    assert linked.run(opened()) == (1, 1)


def test_secrets_that_an_agent_lets_through_are_shown_to_nobody(linked: Api) -> None:
    token = "eyJhbGciOiJub25lIn0.eyJuYW1lIjoid2ViIn0.c2lnbmF0dXJl"
    header = {"header": {"key": "Authorization", "value": "Basic YTpi"}}
    dump = {"a": header, "private_key": {"inline_string": "abc"}, "b": [f"Bearer {token}"], "password": "p"}

    assert answered(linked, dump, "config_dump") == {
        "a": {"header": {"key": "Authorization", "value": "[redacted]"}},
        "private_key": {"inline_string": "[redacted]"},
        "b": ["Bearer [redacted]"],
        "password": "[redacted]",
    }


def test_who_has_no_agent_of_ours_is_told_what_would_have_one(linked: Api) -> None:
    answer = linked.get(f"{WEB}/_envoy/stats")

    assert answer.status_code == 409
    assert "no agent of Dataplane default/web-1 is connected; `koguma dp run`" in answer.json()["detail"]
    of_client = linked.get("/meshes/default/dataplanes/caller/_envoy/stats")
    assert "is a gRPC client without a proxy" in of_client.json()["detail"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{WEB}/_envoy/heap", 404),
        ("/meshes/default/dataplanes/nobody/_envoy/stats", 404),
        (f"{WEB}/_envoy/config_dump?type=stars", 400),
        (f"{WEB}/_envoy/stats?filter={'a' * 1001}", 400),
    ],
)
def test_what_cannot_be_asked_is_refused(linked: Api, path: str, status: int) -> None:
    assert linked.get(path).status_code == status


@pytest.mark.parametrize(
    "wish", [{}, {"level": "loud"}, {"level": "debug", "validFor": "2h"}, {"level": "debug", "validFor": "0s"}]
)
def test_a_level_of_a_log_is_one_and_for_an_hour_at_the_most(linked: Api, wish: dict[str, str]) -> None:
    assert linked.put(f"{WEB}/_envoy/log_level", wish).status_code == 400


def test_who_is_not_known_holds_no_link(linked: Api) -> None:
    assert linked.post(f"{WEB}/_link", json={"subjects": 7}).status_code == 400
    assert linked.post(f"{WEB}/_link", json={}, peer="192.0.2.1").status_code == 401


@pytest.mark.parametrize(
    ("change", "token_id", "stays"),
    [("nothing", "id-1", True), ("another is revoked", "id-2", True), ("it is revoked", "id-1", False)],
)
def test_a_link_ends_with_the_revocation_of_its_token(start: Unit, change: str, token_id: str, *, stays: bool) -> None:
    links, state = NotedLinks(), Changing(World.of([*DOCUMENTS, *forge.signing_keys()], KINDS))
    access = AccessControl(lambda: RIGHTS, clock=lambda: forge.NOW)
    api = start(state=state, envoys=EnvoyLinks(links), access=access)
    hello, token = {"owner": "run", "subjects": []}, forge.token({**forge.DATAPLANE, "Name": "web-1"})

    async def scene() -> None:
        transport = httpx.ASGITransport(api.app, client=("192.0.2.1", 123))
        headers = {"authorization": f"Bearer {token}"}
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://localhost:5681", headers=headers) as client,
            asyncio.TaskGroup() as group,
        ):
            held = group.create_task(client.post(f"{WEB}/_link", json=hello))
            await links.is_held.wait()
            if change != "nothing":
                revoked = forge.secret("dataplane-token-revocations-default", token_id.encode(), "default")
                state.world = World.of([*DOCUMENTS, *forge.signing_keys(), revoked], KINDS)
            links.beat(asyncio.get_running_loop().time() + HEARTBEAT)
            link = links._proxies[DOCUMENTS[1].key].link
            assert link is not None
            assert link.is_over is not stays
            link.end()
        assert held.result().status_code == HTTPStatus.OK

    api.run(scene())
