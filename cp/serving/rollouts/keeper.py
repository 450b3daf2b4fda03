"""`RolloutKeeper`: takes each rollout from step to step, to its end, or back. One control plane does it for all.

about to begin   the first step begins: some proxies are served what is new (Going)
Going            all of them have it (Holding), or have not in time (RolledBack)
Holding          the hold has passed: the next step begins (Going), or all get it (Done)
Paused           nothing, until somebody lets it go on (Going)
in a step        a proxy refuses it, or goes away; the requests fail (RolledBack)
at any time      somebody writes what it changes (RolledBack)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Protocol

import structlog
from msgspec.structs import replace

from cp.model.memo import ByIdentity
from cp.model.moments import timestamp
from cp.model.names import Key
from cp.model.wording import few
from cp.policies import Policies
from cp.resources.assignment import Candidate, candidate_of
from cp.resources.rollout import RolloutSpec, RolloutState, changes_of, rollout_document, step_origin
from cp.resources.world import World
from cp.serving.delivery import BACK_WITHIN, GONE_AFTER, Attendance, Presence
from cp.serving.rollouts.choice import chosen
from cp.serving.rollouts.conditions import RequestVerdict, limit_of
from cp.serving.rollouts.proxies import ProxyObserver, RolloutProxies
from cp.serving.rollouts.readiness import readiness
from cp.serving.rollouts.requests import NoCounts, RequestCounters, RequestWatch
from cp.serving.rollouts.steps import steps_of
from cp.serving.rollouts.watch import RolloutInForce, StepWatch
from cp.store.port import ABSENT, UNKNOWN, Author, Closed, Conflict, Delete, LeaseLost, Put, Stored, Unusable

OFTEN: Final = 0.5
"""Seconds until the next look while a rollout is under way."""

_SELDOM: Final = 5.0
PATIENCE: Final = 60.0
"""Seconds in which the proxies of a step have to answer."""

_SOON: Final = 5.0
"""Seconds after which it is told who has not answered yet."""

_PROLONGED: Final = 10
"""So many times as long as it should a hold lasts at the most, and `PATIENCE` at least, if its requests cannot be
judged."""

_AWAITED: Final = "it is not known yet what"
_LONGEST_REASON: Final = 1000


class RolloutStore(Protocol):
    """Where rollouts are kept. `write` raises `LeaseLost` where another control plane looks after them."""

    async def get(self, key: Key) -> Stored | None: ...

    async def write(self, *writes: Put | Delete, author: Author = UNKNOWN) -> int: ...


class RolloutWorlds(Protocol):
    """What is in force."""

    async def current(self) -> World: ...

    async def wait_for_change(self, world: World, within: float) -> None: ...


class RolloutKeeper:
    """`leads` says whether this control plane looks after rollouts.

    The clock is for moments that are stored, or compared with those of others. What lasts is measured with the
    stopwatch, as nobody can set it.
    """

    def __init__(  # noqa: PLR0913  # what it looks at, and what it acts on
        self,
        store: RolloutStore,
        followed: RolloutWorlds,
        proxies: ProxyObserver,
        counters: RequestCounters,
        policies: Policies,
        *,
        leads: Callable[[], bool] = lambda: True,
        control_planes: Callable[[], AbstractSet[str]] = frozenset,
        clock: Callable[[], float] = time.time,
        stopwatch: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._followed = store, followed
        self._proxies, self._counters, self._leads = RolloutProxies(proxies, policies, stopwatch), counters, leads
        self._clock, self._stopwatch = clock, stopwatch
        self._control_planes = control_planes
        self._attendance = Attendance(stopwatch())
        """The control planes that were there while this one led; None: another one looks after rollouts."""

        self._watches: dict[str, StepWatch] = {}
        self._log = structlog.get_logger()

    async def run(self) -> None:
        while True:
            world = await self._followed.current()
            try:
                is_under_way = await self.sweep(world)
            except Closed:
                return
            if is_under_way:
                await asyncio.sleep(OFTEN)  # whatever changes meanwhile: all control planes are asked each time
            else:
                await self._followed.wait_for_change(world, _SELDOM)

    async def sweep(self, world: World) -> bool:
        """Look after every rollout once. Returns whether any is under way."""
        candidates = [candidate_of(world, mesh.name) for mesh in world.table("Mesh")]
        under_way = [candidate for candidate in candidates if candidate is not None]
        self._look_around()
        if self._attendance.present is None:
            self._watches.clear()
            return bool(under_way)
        meshes = {candidate.rollout.mesh for candidate in under_way}
        self._watches = {mesh: watch for mesh, watch in self._watches.items() if mesh in meshes}
        looks = (self._look_after(world, candidate) for candidate in under_way)
        for error in await asyncio.gather(*looks, return_exceptions=True):
            if error is not None:
                raise error
        return bool(under_way)

    def _look_around(self) -> None:
        """See which control planes are there: proxies of one that has gone come back to another one."""
        self._attendance.note(self._control_planes() if self._leads() else None, self._stopwatch())

    async def _look_after(self, world: World, candidate: Candidate) -> None:
        try:
            await self._look(RolloutInForce(world, candidate))
        except (LeaseLost, Unusable):  # another one does it from now on, or nobody can: look again
            return
        except Closed:
            raise
        except Conflict as conflict:
            await self._stopped_by(candidate, conflict)
        except Exception as error:  # noqa: BLE001  # the other meshes go on, and this one is tried again for a while
            await self._bear(candidate, error)

    async def _bear(self, candidate: Candidate, error: Exception) -> None:
        """Log a fault of ours once for each step. If it still comes after a while, the rollout goes back."""
        mesh, now = candidate.rollout.mesh, self._stopwatch()
        watch = self._watches.get(mesh)
        if watch is None or watch.faulty_since is None:
            self._log.error("rollout.unkept", mesh=mesh, exc_info=error)
        if watch is not None and watch.faulty_since is None:
            watch.faulty_since = now
        elif watch is not None and watch.faulty_since is not None and now - watch.faulty_since > PATIENCE:
            with suppress(Conflict, LeaseLost, Unusable):
                await self._end(candidate, "RolledBack", "by a fault of the control plane, it cannot be looked after")

    async def _stopped_by(self, candidate: Candidate, conflict: Conflict) -> None:
        """Somebody wrote what the rollout changes. If it is the rollout itself, it is looked at again."""
        if conflict.key != candidate.rollout.key:
            with suppress(Conflict, Unusable):
                await self._end(candidate, "RolledBack", f"{conflict.key} was written by somebody else meanwhile")

    async def _look(self, rollout: RolloutInForce) -> None:
        """Look after a rollout once. The head of this file says what may come of it."""
        spec, watch = rollout.spec, self._watch(rollout)
        await self._compare(rollout, watch)
        if spec.state == "Paused":
            return
        if spec.step == 0:
            await self._begin_next(rollout, watch)
        elif trouble := await self._proxies.trouble(rollout, watch, self._absence):
            await self._end(rollout.candidate, "RolledBack", trouble)
        elif spec.state == "Going":
            await self._await_answers(rollout, watch)
        else:
            await self._hold(rollout, watch)

    @property
    def _absence(self) -> float:
        """For how many seconds a proxy of a step may be away."""
        return GONE_AFTER if self._are_settled else BACK_WITHIN

    def _watch(self, rollout: RolloutInForce) -> StepWatch:
        watch = self._watches.get(rollout.mesh)
        if watch is None or not watch.is_of(rollout.spec):
            spec, requests = rollout.spec, RequestWatch(self._counters, rollout.mesh, rollout.spec.proxies)
            self._watches[rollout.mesh] = watch = StepWatch.of(spec, requests, self._stopwatch())
        return watch

    async def _compare(self, rollout: RolloutInForce, watch: StepWatch) -> None:
        """Check that nobody wrote what the rollout changes. Raises `Conflict`."""
        in_force = tuple(
            ByIdentity(rollout.world.get(resource.key(rollout.mesh))) for resource in rollout.spec.resources
        )
        if watch.based_on == in_force:
            return
        for resource in rollout.spec.resources:
            key = resource.key(rollout.mesh)
            stored = await self._store.get(key)
            revision = ABSENT if stored is None else stored.revision
            if revision != resource.based_on:
                raise Conflict(key, resource.based_on, revision)
        watch.based_on = in_force

    # --- from step to step ---

    async def _begin_next(self, rollout: RolloutInForce, watch: StepWatch) -> None:
        """Serve it to more proxies; where that would be none, it is stored for all.

        No step is passed over while it is unknown what a proxy has that the rollout reaches. If such proxies counted as
        none, every step could be passed over, and all of them would be served it at once, unwatched.
        """
        spec, steps = rollout.spec, steps_of(",".join(rollout.spec.steps))
        presences = await self._proxies.presences(rollout)
        reached = {proxy.name: proxy for proxy in await self._proxies.reached(rollout, watch, presences)}
        of_reached = {key: presence for key, presence in presences.items() if key.name in reached}
        now_ready = readiness(of_reached, self._clock(), self._attendance.alike_for(self._stopwatch()))
        watch.note_awaited(now_ready.awaited, self._stopwatch())
        if now_ready.awaited:
            await self._await_proxies(rollout, watch)
            return
        if now_ready.unfit and not now_ready.ready:
            unfit = few(now_ready.unfit)
            reason = f"nobody can be watched, as all that it reaches refuse something already: {unfit}"
            await self._end(rollout.candidate, "RolledBack", reason)
            return
        ready = [proxy for name, proxy in reached.items() if name in now_ready.ready]
        versions = {key.name: _version(presence) for key, presence in of_reached.items()}
        have_it = set(spec.proxies)
        for number, step in enumerate(steps[spec.step :], spec.step + 1):
            names = {*chosen(ready, versions, step, spec.proxies, rollout.seed), *have_it}
            if names > have_it:
                going = replace(spec, step=number, proxies=sorted(names), reached=len(ready))
                await self._begin(rollout, watch, going)
                return
        await self._finish(rollout, "" if have_it else "it makes no difference for a connected proxy")

    async def _await_proxies(self, rollout: RolloutInForce, watch: StepWatch) -> None:
        """Wait for proxies of which it is unknown what they have: some time for each, ten times that for all."""
        now, since = self._stopwatch(), watch.awaited_since
        unknown = [name for name in since if now - since[name] > PATIENCE]
        if unknown:
            reason = f"not known within {PATIENCE:g} s what {few(unknown)} have, so nobody else is sent it"
            await self._end(rollout.candidate, "RolledBack", reason)
        elif watch.waiting_since is not None and now - watch.waiting_since > _PROLONGED * PATIENCE:
            reason = f"for {_PROLONGED * PATIENCE:g} s it was never known of all proxies at once what they have"
            await self._end(rollout.candidate, "RolledBack", reason)
        elif not (rollout.spec.reason or "").startswith(_AWAITED):
            await self._tell(rollout, f"{_AWAITED} {few(list(since))} have")

    async def _tell(self, rollout: RolloutInForce, reason: str) -> None:
        """Store what the rollout waits for, if it is not stored yet."""
        if rollout.spec.reason != reason:
            await self._write(rollout.candidate, replace(rollout.spec, reason=reason))

    async def _begin(self, rollout: RolloutInForce, watch: StepWatch, spec: RolloutSpec) -> None:
        """Begin a step. Its counters are read first: if they cannot be, no proxy is sent anything."""
        requests = RequestWatch(self._counters, rollout.mesh, spec.proxies)
        if spec.until is not None:
            try:
                await requests.begin()
            except NoCounts as why:
                await self._await_counters(rollout, watch, f"`{spec.until}` cannot be judged: {why}")
                return
        going = self._moved(spec, "Going")
        await self._write(rollout.candidate, going)
        self._watches[rollout.mesh] = StepWatch.of(going, requests, self._stopwatch())

    async def _await_counters(self, rollout: RolloutInForce, watch: StepWatch, why: str) -> None:
        """Wait for agents to reconnect, for as long as a control plane that has started or gone may be the reason."""
        waited = watch.uncounted_for(self._stopwatch())
        if waited > PATIENCE or (waited > GONE_AFTER and self._are_settled):
            await self._end(rollout.candidate, "RolledBack", why)
        else:
            await self._tell(rollout, "the counters of some proxies cannot be read, so the next step waits")

    @property
    def _are_settled(self) -> bool:
        """True if every proxy and agent of a control plane that has started or gone had the time to reconnect."""
        return self._attendance.alike_for(self._stopwatch()) >= BACK_WITHIN

    async def _await_answers(self, rollout: RolloutInForce, watch: StepWatch) -> None:
        waiting = await self._waiting(rollout)
        if not waiting:
            holding = self._moved(rollout.spec, "Holding")
            await self._write(rollout.candidate, holding)
            watch.note_state(holding, self._stopwatch())
            return
        elapsed = watch.elapsed(rollout.spec, self._stopwatch())
        if elapsed > PATIENCE:
            reason = f"not answered within {PATIENCE:g} s: {few(waiting)}"
            await self._end(rollout.candidate, "RolledBack", reason)
        elif elapsed > _SOON and not rollout.spec.reason:  # once, as each is a write; it stays true when some answer
            await self._tell(
                rollout, f"not answered within {_SOON:g} s: {few(waiting)}; after {PATIENCE:g} s it goes back"
            )

    async def _waiting(self, rollout: RolloutInForce) -> list[str]:
        """Who has not answered yet: proxies that are served the rollout, and control planes that do not know of it."""
        stored = await self._store.get(rollout.key)
        if stored is None or stored.document != rollout.candidate.rollout.document:
            return ["the control plane itself"]
        return await self._proxies.waiting(rollout, stored.revision)

    async def _hold(self, rollout: RolloutInForce, watch: StepWatch) -> None:
        elapsed, hold = watch.elapsed(rollout.spec, self._stopwatch()), rollout.spec.hold.seconds
        unsteady = [name for name in rollout.spec.proxies if name not in watch.steady]
        if elapsed >= hold + PATIENCE and unsteady:
            reason = f"connected anew again and again: {few(unsteady)}"
            await self._end(rollout.candidate, "RolledBack", reason)
        elif elapsed >= hold and (unsettled := await self._proxies.unsettled(rollout) or unsteady):
            watch.note_awaited((), self._stopwatch())
            if watch.unsettled_for(self._stopwatch()) >= PATIENCE:
                reason = f"not known to have it {PATIENCE:g} s after the hold: {few(unsettled)}"
                await self._end(rollout.candidate, "RolledBack", reason)
        else:
            watch.unsettled_since = None
            if rollout.spec.until is not None:
                await self._hold_until(rollout, watch, elapsed, rollout.spec.until)
            elif elapsed >= hold:
                await self._begin_next(rollout, watch)

    async def _hold_until(self, rollout: RolloutInForce, watch: StepWatch, elapsed: float, until: str) -> None:
        hold, now = rollout.spec.hold.seconds, self._stopwatch()
        if not watch.is_time_to_look(now, elapsed, hold):
            return
        watch.looked = now
        limit = limit_of(until)
        verdict, reason = await watch.requests.verdict(limit)
        if verdict is RequestVerdict.FAILS:
            await self._end(rollout.candidate, "RolledBack", f"not `{until}`: {reason}")
        elif elapsed < hold:
            return
        elif verdict is RequestVerdict.HOLDS:
            await self._begin_next(rollout, watch)
        elif elapsed >= max(_PROLONGED * hold, PATIENCE):
            reason = f"`{until}` could not be judged in {elapsed:.0f} s: {reason}"
            await self._end(rollout.candidate, "RolledBack", reason)
        else:
            await self._tell(rollout, _PROLONGED_BECAUSE[verdict])

    # --- its end ---

    async def _finish(self, rollout: RolloutInForce, reason: str) -> None:
        """Store what it proposes, in one write with its end: whoever is served it already is sent nothing."""
        spec = rollout.spec
        changes = changes_of(rollout.mesh, spec)
        writes = [
            Delete(key, resource.based_on) if document is None else Put(document, resource.based_on)
            for resource, (key, document) in zip(spec.resources, changes.items(), strict=True)
        ]
        author = Author(spec.author, step_origin(spec.number))
        await self._end(rollout.candidate, "Done", reason, writes, author)

    async def _end(
        self,
        candidate: Candidate,
        state: RolloutState,
        reason: str,
        writes: Sequence[Put | Delete] = (),
        author: Author = UNKNOWN,
    ) -> None:
        spec = ended(candidate.spec, state, reason, self._now)
        if not await self._write(candidate, spec, writes, author):
            return
        mesh = candidate.rollout.mesh
        self._log.info("rollout.ended", mesh=mesh, number=spec.number, state=state, reason=spec.reason)

    async def _write(
        self, candidate: Candidate, spec: RolloutSpec, writes: Sequence[Put | Delete] = (), author: Author = UNKNOWN
    ) -> bool:
        """Store how far it has come, unless somebody has stored something else meanwhile. Returns whether it is."""
        key = candidate.rollout.key
        stored = await self._store.get(key)
        if stored is None or stored.document != candidate.rollout.document:
            return False  # the World is behind
        put = Put(rollout_document(key.mesh, spec), stored.revision)
        by = Author("control plane", step_origin(spec.number)) if author == UNKNOWN else author
        await self._store.write(*writes, put, author=by)
        if spec.is_under_way and spec.step != candidate.spec.step:
            self._log.info("rollout.step", mesh=key.mesh, number=spec.number, step=spec.step, proxies=len(spec.proxies))
        return True

    def _moved(self, spec: RolloutSpec, state: RolloutState) -> RolloutSpec:
        return replace(spec, state=state, since=self._now, reason=None)

    @property
    def _now(self) -> str:
        return timestamp(datetime.fromtimestamp(self._clock(), UTC))


_PROLONGED_BECAUSE: Final = {
    RequestVerdict.TOO_FEW: "there are too few requests to judge, so it is held for longer",
    RequestVerdict.UNREADABLE: "the counters of some proxies cannot be read, so it is held for longer",
}


def ended(spec: RolloutSpec, state: RolloutState, reason: str, now: str) -> RolloutSpec:
    """A rollout at its end: nobody is served it as such any more, and what it proposed is not kept."""
    short = reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}…"
    return replace(spec, state=state, reason=short or None, since=now, content=None)


def _version(presence: Presence) -> str:
    return presence.connections[0].node.version if presence.connections else ""
