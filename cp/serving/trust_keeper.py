"""`TrustKeeper`: has authorities made, and takes the trust record of each mesh from step to step of a rotation.

See record 0056.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import structlog

from cp.identity.backends import ReadFile
from cp.identity.owners import AuthorityOwner, AuthoritySources, owners
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
from cp.identity.trust import TrustRecord
from cp.model.names import Key
from cp.model.violation import Finding, Severity, Violation
from cp.resources.parse import finding
from cp.resources.world import World
from cp.serving.earlier_trust import EarlierTrust
from cp.serving.signers import read_variable
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
from cp.serving.trust_proxies import ProxyPresences, TrustProxies
from cp.serving.trust_records import TrustRecords, TrustStore
from cp.store.port import Closed, Conflict, ReadOnly, Unusable

CODE: Final = "no-authority"
"""The code of findings about an authority that cannot sign."""

_OFTEN: Final = 1.0
"""Seconds until the next look while a rotation is going on."""

_SELDOM: Final = 5.0
"""Otherwise: files may have changed, and the time of an old authority may be over."""

_NOWHERE: Final = Violation(
    "",
    "cannot be built in: a folder of files has no place for its key",
    "say with `KOGUMA_REGISTRATIONS` where to keep it, or provide an authority",
)


class FollowedWorld(Protocol):
    """What is in force."""

    async def current(self) -> World:
        """With all in it that was written until now; as it is, if the store cannot be asked."""
        ...

    async def wait_for_change(self, world: World, within: float) -> None: ...


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
        self._records, self._followed = TrustRecords(store), followed
        self._sources = AuthoritySources(sources.read, sources.variable)
        self._clock, self._times = sources.clock, sources.times
        self._started = sources.clock()
        self._proxies = TrustProxies(proxies, sources.clock, self._started, sources.times.patience)
        self._earlier = EarlierTrust(is_needed=sources.forgets)
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
        self._earlier.note(world, concerned)
        self._faults = {name: fault for name, fault in self._faults.items() if name in names}
        self._named = {name: proxies for name, proxies in self._named.items() if name in names}
        return all([await self._try_to_keep(world, owner) for owner in concerned])

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
        await self._records.publish(owner.trust(world))
        return is_settled_now

    async def _step(self, world: World, owner: AuthorityOwner) -> bool:
        record = self._earlier.record(world, owner)
        moment = Moment(self._clock(), self._started, times=self._times)
        if not owner.has_authority:
            self._faults.pop(owner.name, None)
            return await self._records.write(world, owner, record, switched_off(record, moment))
        if owner.is_to_be_made(world):
            await self._records.make_authority(owner, self._clock())
            return False
        authority = await asyncio.to_thread(owner.authority, world, self._sources, moment.now)
        if isinstance(authority, Violation):
            self._fail(owner, authority)
            return await self._records.write(world, owner, record, unexpired(record, moment.now))
        self._faults.pop(owner.name, None)
        enabled = self._earlier.as_trusted(owner, owner.enabled(world, authority))
        step, of_ready = (advanced(record, enabled, at) for at in (moment, replace(moment, proxies=READY)))
        if step != of_ready:  # it depends on the proxies
            standings = await self._proxies.standings(world, owner.mesh)
            step = advanced(record, enabled, replace(moment, proxies=readiness(standings)))
            self._name_awaited(owner, record, enabled, () if step == of_ready else standings)
        return await self._records.write(world, owner, record, step) and is_settled(step, enabled)

    # --- who is waited for ---

    async def moves(self, world: World, mesh: str) -> tuple[TrustMove, ...]:
        """What goes on in a mesh, which proxies that waits for, and which it passes over."""
        moves = [move for owner in owners(world) if owner.mesh == mesh and (move := await self._move(world, owner))]
        standings = await self._proxies.standings(world, mesh) if moves else ()
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
        enabled = self._earlier.as_trusted(owner, owner.enabled(world, authority))
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
