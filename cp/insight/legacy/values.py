"""The values that a legacy policy sets at some place: which of them act, and what keeps the others (record 0077)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cp.insight.effects import MATCHES_NOTHING, Build, FieldEffect, effect
from cp.insight.legacy.conf_parts import ConfPart, ConfParts, of_clients
from cp.model.names import Key, kri
from cp.model.paths import step, steps
from cp.policies import Policy
from cp.resources.resource import Resource
from cp.rules.legacy import LegacyClient
from cp.rules.merging import MergedConf, MergedField, Origin, Setting, put
from cp.translate.inbound import InboundResult

_UNITS: Final = frozenset("smh")
_LONG: Final = "77s"
_USUAL_BALANCER: Final = "RoundRobin"
_OTHER_BALANCER: Final = "Random"
_NOTHING_THERE: Final = "has no effect: nothing there does what it says"


@dataclass(frozen=True, slots=True)
class LegacyValue:
    """One value of a legacy policy at a place that it is for."""

    setting: Setting
    overridden_by: Setting | None = None
    idle_reason: str = ""
    """Why it has no effect although nothing overrides it; empty if it has one."""

    @property
    def is_in_force(self) -> bool:
        return self.overridden_by is None and not self.idle_reason


class ActingValues:
    """Which values of legacy policies act. What is asked of parts that are built alike is asked once."""

    def __init__(self) -> None:
        self._acting: dict[Hashable, bool] = {}

    def of_parts(self, policy: Key, parts: Iterable[ConfPart]) -> tuple[LegacyValue, ...]:
        """The values that a policy sets in some parts. One that acts in any of them is in force."""
        values: dict[Hashable, LegacyValue] = {}
        for part in parts:
            for field in _fields(part.conf):
                for value in self._of_field(policy, part, field):
                    place = value.setting.path, repr(value.setting.value)
                    if place not in values or _strength(value) > _strength(values[place]):
                        values[place] = value
        return tuple(values.values())

    def of_changes(self, policy: Key, parts: ConfParts) -> tuple[LegacyValue, ...]:
        """Those of a policy that changes what is finished: each change has to find something."""
        used = parts.changes()
        return tuple(
            LegacyValue(field.winner, idle_reason="" if (kind, path) in used else MATCHES_NOTHING)
            for kind, conf in parts.of_finished()
            for path, field in conf.fields.items()
            if field.winner.origin.policy == policy
        )

    def of_clients(
        self, policy: Policy[Any], reached: InboundResult, clients: Iterable[LegacyClient]
    ) -> Iterator[LegacyValue]:
        """Those of a policy that is for some clients of an inbound."""
        for conf in dict.fromkeys(client.conf for client in clients):
            for path, field in conf.fields.items():
                build = of_clients(policy, reached, kri(field.winner.origin.identity))
                does = _has_effect(build, conf, path)
                yield LegacyValue(field.winner, idle_reason="" if does else unspoken(reached.inbound.protocol))

    def _of_field(self, policy: Key, part: ConfPart, field: MergedField) -> Iterator[LegacyValue]:
        winner = field.winner if field.value is not None else None
        settings = (*(() if winner is None else (winner,)), *field.losers)
        own = next((setting for setting in settings if setting.origin.policy == policy), None)
        is_winner = own is winner
        if own is None:
            return
        if not is_winner:
            yield LegacyValue(own, own.removed_by or winner)
        elif self._acts(part, field.path):
            yield LegacyValue(own)
        else:
            yield LegacyValue(own, idle_reason=unspoken(part.protocol))

    def _acts(self, part: ConfPart, path: str) -> bool:
        key = part.policy.kind.name, part.conf.canonical, path, part.key
        if key not in self._acting:
            self._acting[key] = _has_effect(part.build, part.conf, path)
        return self._acting[key]


def _has_effect(build: Build, conf: MergedConf, path: str) -> bool:
    """Whether something else is built without a value, or with another one in its place."""
    if effect(build, conf.value, path) is not FieldEffect.NONE:
        return True
    return any(
        build(put(conf.value, path, other)) != build(conf.value) for other in _other_values(conf.fields[path].value)
    )


def _other_values(value: Any) -> Iterator[Any]:
    """Another value of the same sort: what holds without one may be the same."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value + 1
    elif isinstance(value, str) and value[:1].isdigit() and value[-1:] in _UNITS:
        yield _LONG
    elif value == _USUAL_BALANCER:
        yield _OTHER_BALANCER


def _fields(conf: MergedConf) -> Iterable[MergedField]:
    return {**conf.nulls, **conf.removed, **conf.fields}.values()


def _strength(value: LegacyValue) -> int:
    """What is said of a value that several parts have: that it acts goes before all, then what overrides it."""
    return 2 if value.is_in_force else 1 if value.overridden_by is not None else 0


def unspoken(protocol: str) -> str:
    return f"has no effect: no meaning where {protocol} is spoken" if protocol else _NOTHING_THERE


def whole(policy: Resource, *, reason: str = "") -> LegacyValue:
    """All that a policy says, as one value."""
    path = "conf" if "conf" in policy.data else "sources"
    origin = Origin(policy.key, policy.identity, "conf", path=path, source=policy.source)
    return LegacyValue(Setting(origin, policy.data.get(path), path), idle_reason=reason)


def written_values(policy: Resource, values: Sequence[LegacyValue]) -> Iterator[LegacyValue]:
    """Those that the document says. Confs have words of their own, which stand for a part with values (record 0073)."""
    paths = {written_path(policy, value) for value in values}
    for value in values:
        prefix = f"{written_path(policy, value)}."
        is_part = isinstance(value.setting.value, Mapping | list)
        if is_part or not any(path.startswith(prefix) for path in paths):
            yield value


def written_path(policy: Resource, value: LegacyValue) -> str:
    """Where a value is written in the document. What a policy refers to in its Mesh is where it refers to it."""
    path = ""
    data: Any = policy.data
    for name in steps(value.setting.path):
        if not _has_step(data, name):
            break
        path, data = step(path, name), data[name]
    return path or value.setting.path


def _has_step(data: Any, name: int | str) -> bool:
    """Return True if a path goes on in plain data. A conf may have an object where the document has a list."""
    if isinstance(data, Mapping):
        return name in data
    return isinstance(data, list) and isinstance(name, int) and name < len(data)
