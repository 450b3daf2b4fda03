"""`TrustKeeper`: makes built-in authorities, and writes into the trust record of each mesh how far a rotation has come.

See record 0056.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Protocol

import structlog

from cp.identity.authority import Authority, new_pair
from cp.identity.backends import ReadFile, builtin_authority, enabled_authority, is_missing, secrets_of
from cp.identity.identities import identity_of
from cp.identity.rotation import (
    DEFAULT_TIMES,
    READY,
    EnabledAuthority,
    Moment,
    ProxyReadiness,
    TrustTimes,
    advanced,
    is_settled,
    switched_off,
    unexpired,
)
from cp.identity.trust import TrustedRoot, TrustRecord, document_of, trust_of
from cp.model.document import Document
from cp.model.names import Key
from cp.model.secret_names import authority_certificate_key, authority_private_key, trust_key
from cp.model.violation import Finding, Severity, Violation
from cp.resources.parse import finding
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.serving.delivery import Presence, ProxyState
from cp.store.port import ABSENT, Closed, Conflict, Delete, Put, ReadOnly, Stored, Unusable

CODE: Final = "no-authority"
"""The code of findings about an authority that cannot sign."""

_OFTEN: Final = 1.0
"""Seconds until the next look while a rotation is going on."""

_SELDOM: Final = 5.0
"""Otherwise: files may have changed, and the time of an old authority may be over."""

_NEVER: Final = datetime.fromtimestamp(0, UTC)
_NOWHERE: Final = Violation(
    "",
    "cannot be built in: a folder of files has no place for its key",
    "say with `KOGUMA_REGISTRATIONS` where to keep it, or provide an authority",
)


class TrustStore(Protocol):
    """Where trust records and built-in authorities are kept."""

    async def get(self, key: Key) -> Stored | None: ...

    async def write(self, *writes: Put | Delete) -> int: ...


class FollowedWorld(Protocol):
    """What is in force."""

    async def current(self) -> World:
        """With all in it that was written until now."""
        ...

    async def wait_for_change(self, world: World, within: float) -> None: ...


class ProxyPresences(Protocol):
    """Where proxies stand, in any process of this control plane."""

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]: ...


@dataclass(frozen=True, slots=True)
class TrustSources:
    """What the outside is to the keeper."""

    read: ReadFile
    clock: Callable[[], float] = time.time
    times: TrustTimes = DEFAULT_TIMES

    forgets: bool = False
    """Whether the store loses what is written when the process ends. Then callers of a mesh that had mTLS before the
    process began speak TLS at once, as they did then."""


class TrustKeeper:
    def __init__(
        self, store: TrustStore, followed: FollowedWorld, proxies: ProxyPresences, sources: TrustSources
    ) -> None:
        self._store, self._followed, self._proxies = store, followed, proxies
        self._read, self._clock, self._times = sources.read, sources.clock, sources.times
        self._forgets = sources.forgets
        self._started = sources.clock()
        self._without: set[str] = set()
        """The meshes that had no mTLS at some time."""

        self._faults: dict[str, Finding] = {}
        self._log = structlog.get_logger()

    @property
    def faults(self) -> Mapping[str, Finding]:
        """Why the authority of a mesh cannot sign, by mesh."""
        return self._faults

    async def run(self) -> None:
        while True:
            world = await self._followed.current()
            try:
                is_settled_everywhere = await self.sweep(world)
            except Closed:
                return
            await self._followed.wait_for_change(world, _SELDOM if is_settled_everywhere else _OFTEN)

    async def sweep(self, world: World) -> bool:
        """Take every step that is due. Returns whether nothing is to be waited for."""
        self._without |= {mesh.name for mesh in world.table("Mesh") if mesh.spec.authority is None}
        meshes = [mesh for mesh in world.table("Mesh") if _concerns(world, mesh)]
        self._faults = {name: self._faults[name] for name in self._faults if any(mesh.name == name for mesh in meshes)}
        settled = [await self._swept(world, mesh) for mesh in meshes]
        return all(settled)

    async def _swept(self, world: World, mesh: Resource) -> bool:
        try:
            return await self._stepped(world, mesh)
        except (Conflict, Unusable):  # another process has written it, or nobody can: look again
            return False
        except ReadOnly:
            self._fail(mesh, _NOWHERE.at(_path(mesh)))
            return True
        except Closed:
            raise
        except Exception:  # noqa: BLE001  # the other meshes go on, and this one is tried again
            self._log.exception("trust.unkept", mesh=mesh.name)
            return False

    async def _stepped(self, world: World, mesh: Resource) -> bool:
        record = self._record(world, mesh.name)
        moment = Moment(self._clock(), self._started, times=self._times)
        if mesh.spec.authority is None:
            self._faults.pop(mesh.name, None)
            return await self._write(world, mesh, record, switched_off(record, moment))
        if is_missing(world, mesh.name, mesh.spec.authority):
            await self._make(mesh)
            return False
        authority = await asyncio.to_thread(enabled_authority, world, mesh, self._read, moment.now)
        if isinstance(authority, Violation):
            self._fail(mesh, authority)
            return await self._write(world, mesh, record, unexpired(record, moment.now))
        self._faults.pop(mesh.name, None)
        enabled = _enabled(mesh, authority)
        step = advanced(record, enabled, moment)
        if step != advanced(record, enabled, replace(moment, proxies=READY)):  # it depends on the proxies
            step = advanced(record, enabled, replace(moment, proxies=await self._readiness(world, mesh)))
        return await self._write(world, mesh, record, step) and is_settled(step, enabled)

    def _record(self, world: World, mesh: str) -> TrustRecord:
        record = trust_of(world.get(trust_key(mesh)))
        if self._forgets and not record.roots and mesh not in self._without:
            return TrustRecord(callers=True)
        return record

    async def _make(self, mesh: Resource) -> None:
        """Make the built-in authority that a Mesh enables. If another process does so too, the first one wins."""
        backend = mesh.spec.authority
        pair = await asyncio.to_thread(new_pair, mesh.name, backend, self._clock())
        await self._store.write(*(Put(secret, ABSENT) for secret in secrets_of(mesh.name, backend.name, pair)))
        self._log.info("authority.made", mesh=mesh.name, backend=backend.name)

    async def _write(self, world: World, mesh: Resource, record: TrustRecord, step: TrustRecord) -> bool:
        """Write the next record, unless nothing is new or somebody has written meanwhile. Returns whether it stands."""
        if step == record:
            return True
        key = trust_key(mesh.name)
        stored, in_force = await self._store.get(key), world.get(key)
        if stored is not None and (in_force is None or stored.document != in_force.document):
            return False  # the World is behind
        based_on = ABSENT if stored is None else stored.revision
        write = Put(document_of(mesh.name, step), based_on) if step.roots else Delete(key, based_on)
        ended = [root for root in record.roots if step.root(root.fingerprint) is None]
        await self._store.write(write, *[delete async for delete in self._deletions(world, mesh, ended)])
        self._tell(mesh, step)
        return False

    async def _deletions(self, world: World, mesh: Resource, ended: Iterable[TrustedRoot]) -> AsyncIterator[Delete]:
        """The Secrets of built-in authorities that nobody trusts any more."""
        for root in ended:
            stored = builtin_authority(world, mesh.name, root.backend, root.since)
            if isinstance(stored, Authority) and stored.fingerprint == root.fingerprint:
                for key in _secret_keys(mesh.name, root.backend):
                    secret = await self._store.get(key)
                    if secret is not None:
                        yield Delete(key, secret.revision)

    async def _readiness(self, world: World, mesh: Resource) -> ProxyReadiness:
        dataplanes = {dataplane.key: dataplane for dataplane in world.table("Dataplane", mesh.name)}
        presences = await self._proxies.presences(dataplanes)
        expected = {key: presence for key, presence in presences.items() if self._is_expected(presence)}
        return ProxyReadiness(
            trust=all(presence.state is ProxyState.ONLINE for presence in expected.values()),
            identities=all(
                presence.certificate is not None or identity_of(world, dataplanes[key]) is None
                for key, presence in expected.items()
            ),
        )

    def _is_expected(self, presence: Presence) -> bool:
        """Whether a proxy is connected, or was a moment ago. One that is away still has what it was given before."""
        if presence.state is not ProxyState.OFFLINE:
            return True
        seen = max((record.until or 0.0 for record in presence.connections), default=0.0)
        return self._clock() < max(seen, self._started) + self._times.patience

    def _fail(self, mesh: Resource, violation: Violation) -> None:
        of_mesh = finding(mesh.document, CODE, Severity.ERROR, violation)
        if self._faults.get(mesh.name) != of_mesh:
            place = of_mesh.place or None
            self._log.warning("finding", code=CODE, resource=str(mesh.key), place=place, reason=str(of_mesh))
        self._faults[mesh.name] = of_mesh

    def _tell(self, mesh: Resource, record: TrustRecord) -> None:
        signer = record.root(record.signer)
        self._log.info(
            "trust.changed",
            mesh=mesh.name,
            trusted=[root.backend for root in record.roots],
            signs=None if signer is None else signer.backend,
            callers_use_tls=record.callers,
        )


@asynccontextmanager
async def trust_kept(keeper: TrustKeeper) -> AsyncIterator[None]:
    """While the block lasts."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(keeper.run())
        try:
            yield
        finally:
            task.cancel()


def _concerns(world: World, mesh: Resource) -> bool:
    """Whether there is anything to keep for a mesh."""
    return mesh.spec.authority is not None or world.get(trust_key(mesh.name)) is not None


def _enabled(mesh: Resource, authority: Authority) -> EnabledAuthority:
    backend = mesh.spec.authority
    return EnabledAuthority(
        fingerprint=authority.fingerprint,
        certificates=authority.certificates,
        backend=backend.name,
        lifetime=backend.leaf_lifetime,
        is_permissive=backend.mode == "PERMISSIVE",
    )


def _path(mesh: Resource) -> str:
    names = [backend.name for backend in mesh.spec.mtls.backends]
    return f"mtls.backends[{names.index(mesh.spec.mtls.enabled_backend)}]"


def _secret_keys(mesh: str, backend: str) -> Iterator[Key]:
    yield authority_certificate_key(mesh, backend)
    yield authority_private_key(mesh, backend)


class LocalTrust:
    """Trust records in the World of this process alone, where the store cannot be written."""

    def __init__(self, put: Callable[[Key, Document | None], None]) -> None:
        self._put = put
        self._stored: dict[Key, Stored] = {}

    async def get(self, key: Key) -> Stored | None:
        return self._stored.get(key)

    async def write(self, *writes: Put | Delete) -> int:
        if any(write.key != trust_key(write.key.mesh) for write in writes if isinstance(write, Put)):
            raise ReadOnly("only trust records are kept in memory")
        for write in writes:
            document = write.document if isinstance(write, Put) else None
            self._stored.pop(write.key, None)
            if document is not None:
                self._stored[write.key] = Stored(document, 1, _NEVER, _NEVER)
            self._put(write.key, document)
        return 1
