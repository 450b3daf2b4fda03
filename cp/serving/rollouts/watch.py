"""`RolloutInForce`: a rollout in the World that is served. `StepWatch`: what is seen of the step that is under way."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cp.model.memo import ByIdentity
from cp.model.names import Key
from cp.resources.assignment import Candidate
from cp.resources.resource import Resource
from cp.resources.rollout import ROLLOUT_KIND, RolloutSpec, RolloutState, rollout_key
from cp.resources.world import World
from cp.serving.delivery import Presence, ProxyState
from cp.serving.rollouts.choice import ReachedProxy
from cp.serving.rollouts.requests import RequestWatch

_LOOKS: Final = 5
_LOOK_EVERY: Final = (1.0, 10.0)


@dataclass(frozen=True, slots=True)
class RolloutInForce:
    """A rollout in the World in force."""

    world: World
    candidate: Candidate

    @property
    def spec(self) -> RolloutSpec:
        return self.candidate.spec

    @property
    def mesh(self) -> str:
        return self.candidate.rollout.mesh

    @property
    def key(self) -> Key:
        return rollout_key(self.mesh)

    @property
    def seed(self) -> str:
        return f"{self.mesh}/{self.spec.number}"

    @property
    def basis(self) -> tuple[object, ...]:
        """On which it depends whom the rollout reaches: all tables of the mesh, as they are and with the rollout."""
        worlds, kinds = (self.world, self.candidate.world), self.world.kinds
        tables = (
            world.table(kind, mesh)
            for world in worlds
            for kind in kinds
            if kind != ROLLOUT_KIND
            for mesh in ("", self.mesh)
        )
        return tuple(map(ByIdentity, tables))

    @property
    def proxies(self) -> list[Key]:
        """The Dataplanes of those that are served it."""
        return [Key("Dataplane", self.mesh, name) for name in self.spec.proxies]


@dataclass(slots=True)
class StepWatch:
    """What is seen of one step. A new watch begins where a pause ends, and where another control plane takes over.

    All times are those of the stopwatch of this process, which knows nothing from before. So a control plane that takes
    over holds a step for its whole time again, whatever the clock says.
    """

    number: int
    """That of the rollout."""

    step: int
    sent: str
    """When the step began to be sent, or was taken up again after a pause."""

    requests: RequestWatch
    states_since: dict[tuple[RolloutState, str], float]
    """Since when each state of the step is seen, by the state and when it was stored."""

    away_since: Mapping[str, float] = field(default_factory=dict)
    awaited_since: Mapping[str, float] = field(default_factory=dict)
    """Since when nobody can say of a proxy what it has, for which the next step waits."""

    waiting_since: float | None = None
    """Since when the next step waits for anybody."""

    uncounted_since: float | None = None
    """When the next step could not begin for the first time, as counters could not be read."""

    unsettled_since: float | None = None
    """Since when some proxy of the step is not known to have it, though the hold has passed."""

    steady: set[str] = field(default_factory=set)
    """Those that have been connected for long enough, without a break."""

    connected: dict[str, tuple[float, float]] = field(default_factory=dict)
    """When the newest connection of each began, and since when it is seen."""

    faulty_since: float | None = None
    """Since when a fault of ours keeps us from looking after it, now and again."""

    looked: float = -math.inf
    """When the requests were looked at last."""

    based_on: tuple[ByIdentity[Resource | None], ...] | None = None
    """The resources in force, when they were last found to be those on which the rollout is based."""

    reached: tuple[object, list[ReachedProxy]] | None = None
    """The proxies that the rollout reaches, and before them what they were worked out from."""

    @classmethod
    def of(cls, spec: RolloutSpec, requests: RequestWatch, now: float) -> StepWatch:
        return cls(spec.number, spec.step, spec.since, requests, {(spec.state, spec.since): now})

    def note_state(self, spec: RolloutSpec, now: float) -> None:
        """Note since when the step is in this state, if it is new."""
        self.states_since.setdefault((spec.state, spec.since), now)

    def elapsed(self, spec: RolloutSpec, now: float) -> float:
        """Seconds in this state, as far as this process has watched."""
        self.note_state(spec, now)
        return now - self.states_since[spec.state, spec.since]

    def is_of(self, spec: RolloutSpec) -> bool:
        is_of_step = (self.number, self.step) == (spec.number, spec.step)
        return is_of_step and (spec.state != "Going" or self.sent == spec.since)

    def is_time_to_look(self, now: float, elapsed: float, hold: float) -> bool:
        """Whether to look at the requests: some times during the hold, at its end, and as often while it goes on."""
        shortest, longest = _LOOK_EVERY
        next_look = self.looked + min(longest, max(shortest, hold / _LOOKS))
        end = now - elapsed + hold
        return now >= (min(next_look, end) if self.looked < end else next_look)

    def uncounted_for(self, now: float) -> float:
        """Seconds since the next step could not begin for the first time. Called when it cannot."""
        self.uncounted_since = now if self.uncounted_since is None else self.uncounted_since
        return now - self.uncounted_since

    def unsettled_for(self, now: float) -> float:
        """Seconds since all proxies of the step were known to have it. Called when they are not."""
        self.unsettled_since = now if self.unsettled_since is None else self.unsettled_since
        return now - self.unsettled_since

    def gone(self, away: Sequence[str], now: float, absence: float) -> list[str]:
        """Of those that are not connected now, those that have not been for so many seconds."""
        self.away_since = {name: self.away_since.get(name, now) for name in away}
        return [name for name, since in self.away_since.items() if now - since >= absence]

    def note_connections(self, presences: Mapping[Key, Presence], now: float, enough: float) -> None:
        """Note who is connected, and who has been for long enough. An Envoy that ends again and again never is."""
        for key, presence in presences.items():
            open_since = [record.since for record in presence.connections if record.until is None]
            if presence.state is ProxyState.OFFLINE or not open_since:
                self.connected.pop(key.name, None)
                continue
            newest, seen = self.connected.get(key.name, (0.0, now))
            if newest != max(open_since):
                seen = now
            self.connected[key.name] = max(open_since), seen
            if now - seen >= enough:
                self.steady.add(key.name)

    def note_awaited(self, awaited: Sequence[str], now: float) -> None:
        """Note for whom the next step waits now."""
        self.awaited_since = {name: self.awaited_since.get(name, now) for name in awaited}
        self.waiting_since = None if not awaited else now if self.waiting_since is None else self.waiting_since
