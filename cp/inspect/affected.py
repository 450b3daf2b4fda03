"""One policy seen from its proxies: whom it selects, and what of it survives on each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from cp.inspect.idle import IdleValues
from cp.inspect.standing import Place, standing
from cp.matching import ByKind, Matched, match
from cp.merging import Field, Setting
from cp.model.names import Key
from cp.pipeline import Compiler
from cp.policies import discover
from cp.resources.resource import Resource
from cp.resources.world import World


@dataclass(frozen=True, slots=True)
class Effect:
    """One value that a policy sets at one place of a proxy, and the one that took it away, if any did."""

    place: Place
    path: str
    setting: Setting
    overridden_by: Setting | None = None
    idle: str = ""
    """Why it does nothing although nobody overrides it."""


@dataclass(frozen=True, slots=True)
class Affected:
    """One proxy that a policy selects."""

    dataplane: Key
    matched: Matched
    effects: tuple[Effect, ...]

    @property
    def survives(self) -> tuple[Effect, ...]:
        """What is in force."""
        return tuple(one for one in self.effects if one.overridden_by is None and not one.idle)

    @property
    def idle(self) -> tuple[Effect, ...]:
        """What nobody overrides, and what does nothing all the same."""
        return tuple(one for one in self.effects if one.overridden_by is None and one.idle)

    @property
    def lost(self) -> tuple[Effect, ...]:
        """What somebody else overrides, or took away."""
        return tuple(one for one in self.effects if one.overridden_by is not None)

    @property
    def data(self) -> dict[str, Any]:
        return {
            "type": self.dataplane.type,
            "mesh": self.dataplane.mesh,
            "name": self.dataplane.name,
            "survives": [_data(one) for one in self.survives],
            "overridden": [_data(one) for one in self.lost],
            "withoutEffect": [_data(one) for one in self.idle],
        }


def affected(world: World, policy: Resource, compiler: Compiler | None = None) -> Iterator[Affected]:
    """Every proxy that a policy selects, with what of it survives there.

    A compiler that is in use has worked out already what is served; without one that is done here.
    """
    idle = IdleValues(compiler or Compiler(discover()), world, policy)
    for dataplane in world.table("Dataplane", policy.mesh):
        found = _matched(match(world, dataplane), policy)
        if found is not None:
            yield Affected(dataplane.key, found, tuple(_effects(world, dataplane, policy, idle)))


def _matched(by_kind: ByKind, policy: Resource) -> Matched | None:
    return next((one for one in by_kind.get(policy.type, ()) if one.policy is policy), None)


def _effects(world: World, dataplane: Resource, policy: Resource, idle: IdleValues) -> Iterator[Effect]:
    for place, merged in (*standing(world, dataplane, policy.kind), *idle.by_routes(dataplane)):
        for field in (*merged.fields.values(), *merged.removed.values()):
            for effect in _of_field(place, field, policy.key):
                yield replace(effect, idle=idle.why(dataplane, place, field.path, effect.setting))


def _of_field(place: Place, field: Field, policy: Key) -> Iterator[Effect]:
    """What a policy says of a field: the strongest of it alone, for its others lose to that."""
    stronger: Setting | None = None
    for setting in (field.winner, *field.losers):
        if setting.origin.policy == policy:
            yield Effect(place, field.path, setting, stronger)
            return
        stronger = stronger or setting


def _data(effect: Effect) -> dict[str, Any]:
    by = effect.overridden_by
    return {
        "where": str(effect.place),
        "field": effect.path,
        "value": effect.setting.value,
        "file": effect.setting.origin.file,
        "line": effect.setting.line,
        **({} if by is None else {"by": _setting(by)}),
        **({"reason": effect.idle} if effect.idle else {}),
    }


def _setting(by: Setting) -> dict[str, Any]:
    key = by.origin.policy
    place = {"level": by.origin.level, "file": by.origin.file, "line": by.line}
    return {"type": key.type, "mesh": key.mesh, "name": key.name, "value": by.value, **place}
