"""`open_store`: from a URL in the settings to a store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from cp.model.source import read_documents
from cp.store.files import FilesStore
from cp.store.memory import MemoryStore
from cp.store.port import KEPT_BYTES, Store
from cp.store.sqlite import SqliteStore

FORMS: Final = "sqlite:///PATH (from the root: sqlite:////PATH), dir:PATH or memory:"


@asynccontextmanager
async def open_store(url: str, kept_bytes: int = KEPT_BYTES) -> AsyncIterator[Store]:
    """The store that a URL names, until the context ends. Raises `ValueError` for a URL that names none."""
    store = await _opened(url, kept_bytes)
    try:
        yield store
    finally:
        await store.close()


async def _opened(url: str, kept_bytes: int) -> Store:
    scheme, _, path = url.partition(":")
    if url == "memory:":
        return MemoryStore(kept_bytes=kept_bytes)
    if scheme == "sqlite" and path.removeprefix("///") not in {path, ""}:
        return await SqliteStore.open(Path(path.removeprefix("///")), kept_bytes=kept_bytes)
    if scheme == "dir" and path:
        return await FilesStore.open(Path(path), read_documents, kept_bytes=kept_bytes)
    raise ValueError(f"there is no store {url!r}: a store is {FORMS}")
