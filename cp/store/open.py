"""`open_store`: from a URL in the settings to a store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from cp.model.document import Document
from cp.model.secret_names import is_of_authority
from cp.model.source import read_documents
from cp.model.wording import without_password
from cp.store.at_rest import NO_SECRETS, SecretsPolicy
from cp.store.beside import combined
from cp.store.files import FilesStore
from cp.store.memory import MemoryStore
from cp.store.port import USUAL_LIMITS, HistoryLimits, Store
from cp.store.postgres.address import FORM, SCHEMES, DatabaseAddress
from cp.store.postgres.connections import Database
from cp.store.postgres.schema import is_made
from cp.store.postgres.store import PostgresStore
from cp.store.sqlite import SqliteStore

FORMS: Final = f"sqlite:///PATH (from the root: sqlite:////PATH), {FORM}, dir:PATH or memory:"


@asynccontextmanager
async def open_store(
    url: str,
    registrations: str = "",
    limits: HistoryLimits = USUAL_LIMITS,
    secrets: SecretsPolicy = NO_SECRETS,
) -> AsyncIterator[Store]:
    """The store that a URL names, until the context ends. Raises `ValueError` for a URL that names none.

    With a second URL, what proxies register is kept there, and what the control plane keeps of authorities.
    """
    async with AsyncExitStack() as stack:
        store: Store = await _opened(url, limits, secrets)
        stack.push_async_callback(store.close)
        if registrations:
            beside = await _opened(registrations, limits, secrets)
            stack.push_async_callback(beside.close)
            store = await stack.enter_async_context(combined(store, beside, _is_kept_beside, limits=limits))
        yield store


async def is_there(url: str) -> bool:
    """Whether there is a store already: whoever opens one in a file or a database makes it if need be.

    Raises `ValueError` for the URL of no database, `Unusable` if nobody answers there.
    """
    scheme, _, path = url.partition(":")
    if scheme == "sqlite":
        return await asyncio.to_thread(Path(path.removeprefix("///")).is_file)
    if scheme in SCHEMES:
        async with Database(DatabaseAddress.parse(url)).connected() as connection:
            return await is_made(connection)
    return True


def _is_kept_beside(document: Document) -> bool:
    return document.key.type == "Dataplane" or is_of_authority(document)


async def _opened(url: str, limits: HistoryLimits, secrets: SecretsPolicy) -> Store:
    scheme, _, path = url.partition(":")
    if url == "memory:":
        return MemoryStore(limits=limits)
    if scheme == "sqlite" and path.removeprefix("///") not in {path, ""}:
        return await SqliteStore.open(Path(path.removeprefix("///")), limits=limits, secrets=secrets)
    if scheme == "dir" and path:
        return await FilesStore.open(Path(path), read_documents, limits=limits, secrets=secrets)
    if scheme in SCHEMES and path.startswith("//"):
        return await PostgresStore.open(url, limits=limits, secrets=secrets)
    raise ValueError(f"there is no store {without_password(url)!r}: a store is {FORMS}")
