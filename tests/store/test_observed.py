"""A store of which it is counted what it does answers as it would by itself."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from cp.metrics import Metrics
from cp.model.document import Document
from cp.model.names import Key
from cp.store.memory import MemoryStore
from cp.store.observed import ObservedStore
from cp.store.port import ABSENT, Conflict, Put, Store, StoreUnreachable

MESH = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})


class AwayStore(MemoryStore):
    async def revision(self) -> int:
        raise StoreUnreachable("nobody answers")


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_what_is_read_and_written_is_timed() -> None:
    async def test() -> None:
        metrics = Metrics()
        store: Store = ObservedStore(MemoryStore(), metrics)

        assert await store.write(Put(MESH)) == 1
        assert [stored.document for stored in (await store.read()).stored] == [MESH]
        assert (await store.get(MESH.key), await store.oldest()) == (
            (await store.find(MESH.key))[MESH.key],
            await store.oldest(),
        )
        for operation in ("write", "read", "get", "find"):
            assert value(metrics, "koguma_store_seconds_count", operation=operation) == 1
        assert value(metrics, "koguma_store_errors_total", operation="write", error="conflict") is None

    asyncio.run(test())


def test_an_error_is_counted_by_its_sort_and_raised() -> None:
    async def test() -> None:
        metrics = Metrics()
        store = ObservedStore(AwayStore(), metrics)
        await store.write(Put(MESH))

        with pytest.raises(Conflict):
            await store.write(Put(MESH, based_on=ABSENT))
        with pytest.raises(StoreUnreachable):
            await store.revision()

        assert value(metrics, "koguma_store_errors_total", operation="write", error="conflict") == 1
        assert value(metrics, "koguma_store_errors_total", operation="revision", error="unreachable") == 1
        assert value(metrics, "koguma_store_seconds_count", operation="revision") == 1

    asyncio.run(test())


def test_it_has_all_that_a_store_has() -> None:
    def members(of: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(of) if not name.startswith("_")}

    assert members(Store) == members(ObservedStore)
