"""What is read of the store for many who ask at once."""

from __future__ import annotations

import asyncio

import httpx

from cp.store.memory import MemoryStore
from cp.store.port import Contents
from tests.api.conftest import Unit
from tests.api.samples import dataplane


class Counting(MemoryStore):
    """A store that takes a moment to be read, and counts how often it is."""

    reads = 0

    async def read(self) -> Contents:
        self.reads += 1
        await asyncio.sleep(0)
        return await super().read()


def test_those_who_ask_at_once_share_what_is_read(start: Unit) -> None:
    store = Counting()
    api = start(store=store).with_mesh()
    for number in range(300):  # so many that they are shown beside the event loop
        api.put(f"/meshes/default/dataplanes/web-{number}", dataplane(f"web-{number}")).raise_for_status()

    async def ask(count: int) -> list[int]:
        transport = httpx.ASGITransport(api.app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answers = await asyncio.gather(*(client.get("/meshes/default/dataplanes") for _ in range(count)))
        return [answer.json()["total"] for answer in answers]

    store.reads = 0
    assert api.run(ask(10)) == [300] * 10
    assert store.reads == 1
    api.delete("/meshes/default/dataplanes/web-7").raise_for_status()
    assert api.run(ask(1)) == [299], "what was written meanwhile is read"


def test_nothing_is_kept_for_those_who_do_not_ask(start: Unit) -> None:
    api = start().with_mesh()

    assert api.get("/meshes").json()["total"] == 1
    assert api.collaborators.last_read.contents is None
