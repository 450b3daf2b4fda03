"""`TrustRecords`: writes into the store what is trusted in a mesh: trust records, authorities made here, MeshTrusts.

Another control plane may do so at the same time. So each write is based on what it was decided by, and what was written
meanwhile is left as it is.

See record 0056.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol

import structlog

from cp.identity.authority import Authority
from cp.identity.owners import AuthorityOwner
from cp.identity.published_trust import PublishedTrust
from cp.identity.trust import TrustedRoot, TrustRecord, record_document
from cp.model.document import Document
from cp.model.names import Key
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.store.port import ABSENT, UNKNOWN, Author, Conflict, Delete, Put, ReadOnly, Stored, Unusable

_AUTHOR: Final = Author("control plane", "certificate authorities")


class TrustStore(Protocol):
    """Where trust records and built-in authorities are kept."""

    async def get(self, key: Key) -> Stored | None: ...

    async def write(self, *writes: Put | Delete, author: Author = UNKNOWN) -> int: ...


class TrustRecords:
    def __init__(self, store: TrustStore) -> None:
        self._store = store
        self._log = structlog.get_logger()

    async def make_authority(self, owner: AuthorityOwner, now: float) -> None:
        """Make the authority that somebody enables. If another process does so too, the first one wins."""
        secrets = await asyncio.to_thread(owner.new_secrets, now)
        await self._store.write(*(Put(secret, ABSENT) for secret in secrets), author=_AUTHOR)
        self._log.info("authority.made", mesh=owner.mesh, secrets=[secret.key.name for secret in secrets])

    async def write(self, world: World, owner: AuthorityOwner, record: TrustRecord, step: TrustRecord) -> bool:
        """Write the next record, unless nothing is new or somebody has written meanwhile. Returns whether it stands."""
        step, key = owner.of_now(step), owner.record_key
        in_force = world.get(key)
        if step == record or (not step.roots and in_force is None):  # no record says as much as one without roots
            return True
        stored = await self._store.get(key)
        if stored is not None and (in_force is None or stored.document != in_force.document):
            return False  # the World is behind
        based_on = ABSENT if stored is None else stored.revision
        write = Put(record_document(key, step), based_on) if step.roots else Delete(key, based_on)
        ended = [root for root in record.roots if step.root(root.fingerprint) is None]
        writes = [write, *[delete async for delete in self._deletions(world, owner, ended)]]
        trust = None if step.roots else owner.trust(world)
        await self._write_with(writes, () if trust is None else await self._writes_of(replace(trust, document=None)))
        self._tell(owner, step)
        return False

    async def publish(self, trust: PublishedTrust | None) -> None:
        """Write a MeshTrust as it should be. Nobody waits for it: a store that cannot be written has none."""
        if trust is not None and trust.document != _document(trust.present):
            with suppress(Conflict, ReadOnly, Unusable):
                await self._store.write(*await self._writes_of(trust), author=_AUTHOR)

    async def _writes_of(self, trust: PublishedTrust) -> tuple[Put | Delete, ...]:
        """None if it is not as the World has it: by that it was judged whose it is."""
        stored = await self._store.get(trust.key)
        if (None if stored is None else stored.document) != _document(trust.present):
            return ()
        based_on = ABSENT if stored is None else stored.revision
        if trust.document is not None:
            return (Put(trust.document, based_on),)
        return () if stored is None else (Delete(trust.key, based_on),)

    async def _write_with(self, writes: Iterable[Put | Delete], of_trust: Collection[Put | Delete]) -> None:
        """The MeshTrust ends with the record, as nobody would look for it afterwards; not where it is in a folder."""
        try:
            await self._store.write(*writes, *of_trust, author=_AUTHOR)
        except ReadOnly:
            if not of_trust:
                raise
            await self._store.write(*writes, author=_AUTHOR)

    async def _deletions(
        self, world: World, owner: AuthorityOwner, ended: Iterable[TrustedRoot]
    ) -> AsyncIterator[Delete]:
        """The Secrets of authorities that the control plane made and nobody trusts any more."""
        for root in ended:
            stored = owner.stored_authority(world, root.backend, root.since)
            if isinstance(stored, Authority) and stored.fingerprint == root.fingerprint:
                for key in owner.secret_keys(root.backend):
                    secret = await self._store.get(key)
                    if secret is not None:
                        yield Delete(key, secret.revision)

    def _tell(self, owner: AuthorityOwner, record: TrustRecord) -> None:
        signer = record.root(record.signer)
        self._log.info(
            "trust.changed",
            mesh=owner.name,
            trusted=[root.backend for root in record.roots],
            signs=None if signer is None else signer.backend,
            callers_use_tls=record.callers,
        )


def _document(resource: Resource | None) -> Document | None:
    return None if resource is None else resource.document
