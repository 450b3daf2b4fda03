"""`open_store`: from a URL in the settings to a store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from cp.model.document import Document
from cp.model.secret_names import is_of_authority
from cp.model.source import read_documents
from cp.store.at_rest import NO_SECRETS, SecretsPolicy
from cp.store.beside import combined
from cp.store.files import FilesStore
from cp.store.memory import MemoryStore
from cp.store.port import KEPT_BYTES, Store
from cp.store.sqlite import SqliteStore

FORMS: Final = "sqlite:///PATH (from the root: sqlite:////PATH), dir:PATH or memory:"


@asynccontextmanager
async def open_store(
    url: str, registrations: str = "", kept_bytes: int = KEPT_BYTES, secrets: SecretsPolicy = NO_SECRETS
) -> AsyncIterator[Store]:
    """The store that a URL names, until the context ends. Raises `ValueError` for a URL that names none.

    With a second URL, what proxies register is kept there, and what the control plane keeps of authorities.
    """
    async with AsyncExitStack() as stack:
        store: Store = await _opened(url, kept_bytes, secrets)
        stack.push_async_callback(store.close)
        if registrations:
            beside = await _opened(registrations, kept_bytes, secrets)
            stack.push_async_callback(beside.close)
            store = await stack.enter_async_context(combined(store, beside, _is_kept_beside, kept_bytes=kept_bytes))
        yield store


def _is_kept_beside(document: Document) -> bool:
    return document.key.type == "Dataplane" or is_of_authority(document)


async def _opened(url: str, kept_bytes: int, secrets: SecretsPolicy) -> Store:
    scheme, _, path = url.partition(":")
    if url == "memory:":
        return MemoryStore(kept_bytes=kept_bytes)
    if scheme == "sqlite" and path.removeprefix("///") not in {path, ""}:
        return await SqliteStore.open(Path(path.removeprefix("///")), kept_bytes=kept_bytes, secrets=secrets)
    if scheme == "dir" and path:
        return await FilesStore.open(Path(path), read_documents, kept_bytes=kept_bytes, secrets=secrets)
    raise ValueError(f"there is no store {url!r}: a store is {FORMS}")
