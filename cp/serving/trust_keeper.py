"""`TrustKeeper`: makes built-in authorities, and writes into the trust record of each mesh how far a rotation has come.

See record 0056.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Protocol

import structlog

from cp.identity.authority import Authority
from cp.identity.backends import ReadFile
from cp.identity.identities import identity_of
from cp.identity.owners import AuthorityOwner, AuthoritySources, MeshOwner, PublishedTrust, owners
from cp.identity.providers import ReadVariable
from cp.identity.rotation import (
    DEFAULT_TIMES,
    READY,
    EnabledAuthority,
    Moment,
    TrustTimes,
    advanced,
    is_settled,
    switched_off,
    unexpired,
)
from cp.identity.trust import TrustedRoot, TrustRecord, record_document
from cp.model.document import Document
from cp.model.names import Key
from cp.model.secret_names import identity_of_trust, trust_key
from cp.model.violation import Finding, Severity, Violation
from cp.resources.parse import finding
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.serving.delivery import Presence, ProxyState
from cp.serving.identities import read_variable
from cp.serving.trust_moves import (
    MOST_NAMED,
    ProxyStanding,
    TrustMove,
    TrustStep,
    absent,
    awaited,
    end_of,
    readiness,
    step_of,
)
from cp.store.port import ABSENT, UNKNOWN, Author, Closed, Conflict, Delete, Put, ReadOnly, Stored, Unusable

CODE: Final = "no-authority"
"""The code of findings about an authority that cannot sign."""

_OFTEN: Final = 1.0
"""Seconds until the next look while a rotation is going on."""

_SELDOM: Final = 5.0
"""Otherwise: files may have changed, and the time of an old authority may be over."""

_AUTHOR: Final = Author("control plane", "certificate authorities")
_NEVER: Final = datetime.fromtimestamp(0, UTC)
_NOWHERE: Final = Violation(
    "",
    "cannot be built in: a folder of files has no place for its key",
    "say with `KOGUMA_REGISTRATIONS` where to keep it, or provide an authority",
)


class TrustStore(Protocol):
    """Where trust records and built-in authorities are kept."""

    async def get(self, key: Key) -> Stored | None: ...

    async def write(self, *writes: Put | Delete, author: Author = UNKNOWN) -> int: ...


class FollowedWorld(Protocol):
    """What is in force."""

    async def current(self) -> World:
        """With all in it that was written until now; as it is, if the store cannot be asked."""
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

    variable: ReadVariable = read_variable


class TrustKeeper:
    def __init__(
        self, store: TrustStore, followed: FollowedWorld, proxies: ProxyPresences, sources: TrustSources
    ) -> None:
        self._store, self._followed, self._proxies = store, followed, proxies
        self._sources = AuthoritySources(sources.read, sources.variable)
        self._clock, self._times = sources.clock, sources.times
        self._forgets = sources.forgets
        self._started = sources.clock()
        self._without: set[Key] = set()
        """The records of those who had no authority at some time."""

        self._known: set[Key] | None = None
        """The records of those who had one when the process began."""

        self._faults: dict[str, Finding] = {}
        self._named: dict[str, frozenset[Key]] = {}
        """The proxies of which the log says that a move waits for them, by the name of whose it is."""

        self._log = structlog.get_logger()

    @property
    def faults(self) -> Mapping[str, Finding]:
        """Why an authority cannot sign, by the name of its Mesh, or mesh and name of its MeshIdentity."""
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
        concerned = list(owners(world))
        names = {owner.name for owner in concerned}
        self._remember(world, concerned)
        self._faults = {name: fault for name, fault in self._faults.items() if name in names}
        self._named = {name: proxies for name, proxies in self._named.items() if name in names}
        return all([await self._try_to_keep(world, owner) for owner in concerned])

    async def _publish(self, trust: PublishedTrust | None) -> None:
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

    def _remember(self, world: World, concerned: Iterable[AuthorityOwner]) -> None:
        on = {owner.record_key for owner in concerned if owner.has_authority}
        self._known = on if self._known is None else self._known & on
        self._without |= {trust_key(mesh.name) for mesh in world.table("Mesh")} - on

    async def _try_to_keep(self, world: World, owner: AuthorityOwner) -> bool:
        try:
            return await self._keep(world, owner)
        except (Conflict, Unusable):  # another process has written it, or nobody can: look again
            return False
        except ReadOnly:
            self._fail(owner, _NOWHERE.at(owner.place))
            return True
        except Closed:
            raise
        except Exception:  # noqa: BLE001  # the other meshes go on, and this one is tried again
            self._log.exception("trust.unkept", mesh=owner.name)
            return False

    async def _keep(self, world: World, owner: AuthorityOwner) -> bool:
        is_settled_now = await self._step(world, owner)
        await self._publish(owner.trust(world))
        return is_settled_now

    async def _step(self, world: World, owner: AuthorityOwner) -> bool:
        record = self._record(world, owner)
        moment = Moment(self._clock(), self._started, times=self._times)
        if not owner.has_authority:
            self._faults.pop(owner.name, None)
            return await self._write(world, owner, record, switched_off(record, moment))
        if owner.is_to_be_made(world):
            await self._make(owner)
            return False
        authority = await asyncio.to_thread(owner.authority, world, self._sources, moment.now)
        if isinstance(authority, Violation):
            self._fail(owner, authority)
            return await self._write(world, owner, record, unexpired(record, moment.now))
        self._faults.pop(owner.name, None)
        enabled = self._as_trusted_before(owner, owner.enabled(world, authority))
        step, of_ready = (advanced(record, enabled, at) for at in (moment, replace(moment, proxies=READY)))
        if step != of_ready:  # it depends on the proxies
            standings = await self._standings(world, owner.mesh)
            step = advanced(record, enabled, replace(moment, proxies=readiness(standings)))
            self._name_awaited(owner, record, enabled, () if step == of_ready else standings)
        return await self._write(world, owner, record, step) and is_settled(step, enabled)

    def _as_trusted_before(self, owner: AuthorityOwner, enabled: EnabledAuthority) -> EnabledAuthority:
        """Where records are forgotten, whoever had an authority when the process began was trusted before."""
        was_known = self._forgets and owner.record_key in (self._known or ())
        return replace(enabled, waits=False) if was_known else enabled

    def _record(self, world: World, owner: AuthorityOwner) -> TrustRecord:
        record = owner.record(world)
        if self._forgets and not record.roots and self._spoke_tls(owner):
            return TrustRecord(callers=True)
        return record

    def _spoke_tls(self, owner: AuthorityOwner) -> bool:
        """Whether callers spoke TLS before the process began, as far as one can know."""
        if isinstance(owner, MeshOwner):
            return owner.record_key not in self._without
        return owner.record_key in (self._known or ())

    async def _make(self, owner: AuthorityOwner) -> None:
        """Make the authority that somebody enables. If another process does so too, the first one wins."""
        secrets = await asyncio.to_thread(owner.new_secrets, self._clock())
        await self._store.write(*(Put(secret, ABSENT) for secret in secrets), author=_AUTHOR)
        self._log.info("authority.made", mesh=owner.mesh, secrets=[secret.key.name for secret in secrets])

    async def _write(self, world: World, owner: AuthorityOwner, record: TrustRecord, step: TrustRecord) -> bool:
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

    async def _standings(self, world: World, mesh: str) -> tuple[ProxyStanding, ...]:
        dataplanes = {dataplane.key: dataplane for dataplane in world.table("Dataplane", mesh)}
        presences = await self._proxies.presences(dataplanes)
        return tuple(self._standing(world, dataplanes[key], presence) for key, presence in presences.items())

    def _standing(self, world: World, dataplane: Resource, presence: Presence) -> ProxyStanding:
        until = None if presence.state is not ProxyState.OFFLINE else self._expected_until(presence)
        return ProxyStanding(
            dataplane=dataplane.key,
            state=presence.state,
            is_expected=until is None or self._clock() < until,
            is_certified=presence.certificate is not None or identity_of(world, dataplane) is None,
            serves=bool(dataplane.spec.net.inbound),
            until=until,
        )

    def _expected_until(self, presence: Presence) -> float:
        """Until when a proxy that has disconnected is expected back. It still has what it was given before."""
        seen = max((record.until or 0.0 for record in presence.connections), default=0.0)
        return max(seen, self._started) + self._times.patience

    # --- who is waited for ---

    async def moves(self, world: World, mesh: str) -> tuple[TrustMove, ...]:
        """What goes on in a mesh, which proxies that waits for, and which it passes over."""
        moves = [move for owner in owners(world) if owner.mesh == mesh and (move := await self._move(world, owner))]
        standings = await self._standings(world, mesh) if moves else ()
        return tuple(self._with_proxies(move, standings) for move in moves)

    async def _move(self, world: World, owner: AuthorityOwner) -> TrustMove | None:
        """What goes on, before anybody is asked."""
        if not owner.has_authority or owner.resource is None:
            return None
        if owner.is_to_be_made(world):
            return TrustMove(owner.resource, owner.place, TrustStep.IS_MADE)
        authority, record = await asyncio.to_thread(owner.authority, world, self._sources, None), owner.record(world)
        if isinstance(authority, Violation):
            return None
        enabled = self._as_trusted_before(owner, owner.enabled(world, authority))
        step, root = step_of(record, enabled), record.root(enabled.fingerprint)
        # What is not trusted, or not needed before, is trusted from now on.
        since = self._clock() if root is None or root.until is not None else root.since
        return None if step is None else TrustMove(owner.resource, owner.place, step, enabled.backend, since)

    def _with_proxies(self, move: TrustMove, standings: Sequence[ProxyStanding]) -> TrustMove:
        proxies = awaited(move.step, standings)
        latest = max(move.since, self._started) + self._times.patience
        is_endless = move.step is TrustStep.CALLERS_WAIT
        until = end_of(proxies, None if is_endless else latest)
        earliest = move.since + self._times.propagation
        return replace(move, proxies=proxies, absent=absent(standings), until=until, earliest=earliest)

    def _name_awaited(
        self,
        owner: AuthorityOwner,
        record: TrustRecord,
        enabled: EnabledAuthority,
        standings: Sequence[ProxyStanding],
    ) -> None:
        """Log who is waited for, when others are than before."""
        step = step_of(record, enabled)
        names = frozenset(standing.dataplane for standing in (() if step is None else awaited(step, standings)))
        if names - self._named.get(owner.name, frozenset()):
            self._log.info("trust.waits", mesh=owner.name, proxies=sorted(key.name for key in names)[:MOST_NAMED])
        self._named[owner.name] = names

    def _fail(self, owner: AuthorityOwner, violation: Violation) -> None:
        if owner.resource is None:
            return
        fault = finding(owner.resource.document, CODE, Severity.ERROR, violation)
        if self._faults.get(owner.name) != fault:
            place = fault.place or None
            self._log.warning("finding", code=CODE, resource=str(fault.resource), place=place, reason=str(fault))
        self._faults[owner.name] = fault

    def _tell(self, owner: AuthorityOwner, record: TrustRecord) -> None:
        signer = record.root(record.signer)
        self._log.info(
            "trust.changed",
            mesh=owner.name,
            trusted=[root.backend for root in record.roots],
            signs=None if signer is None else signer.backend,
            callers_use_tls=record.callers,
        )


class LocalTrust:
    """Trust records in the World of this process alone, where the store cannot be written."""

    def __init__(self, put: Callable[[Key, Document | None], None]) -> None:
        self._put = put
        self._stored: dict[Key, Stored] = {}

    async def get(self, key: Key) -> Stored | None:
        return self._stored.get(key)

    async def write(self, *writes: Put | Delete, author: Author = UNKNOWN) -> int:  # noqa: ARG002  # no history
        if any(not _is_record(write.key) for write in writes if isinstance(write, Put)):
            raise ReadOnly("only trust records are kept in memory")
        for write in writes:
            document = write.document if isinstance(write, Put) else None
            self._stored.pop(write.key, None)
            if document is not None:
                self._stored[write.key] = Stored(document, 1, _NEVER, _NEVER)
            self._put(write.key, document)
        return 1


def _document(resource: Resource | None) -> Document | None:
    return None if resource is None else resource.document


def _is_record(key: Key) -> bool:
    return key == trust_key(key.mesh) or identity_of_trust(key.name) is not None
