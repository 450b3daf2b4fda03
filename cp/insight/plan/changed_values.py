"""Which values of confs are others after a change, of those from which a resource is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cp.insight.plan.model import PlannedValue, ValueChange
from cp.insight.sources import WHOLE, ResourceSource
from cp.rules.merging import MergedField
from cp.translate.effective import BUILT_IN

UNDIVIDED = ""
"""In place of the part of a resource that has no parts."""


@dataclass(frozen=True, slots=True)
class ConfField:
    """A field of the conf of a policy, as one part of a resource has it for one route."""

    part: str
    """The hostname that the part of a gateway's resource is for, or `UNDIVIDED`."""

    route: str
    kind: str
    name: str
    """Of a field in a list it is that of the list: a list is merged as one value."""


@dataclass(frozen=True, slots=True)
class ResourceSides:
    """What a resource is made of before and after a change. None: there is no such resource."""

    before: ResourceSource | None
    after: ResourceSource | None

    @property
    def parts(self) -> Mapping[str, ResourceSides]:
        """The parts of which it is put together; the whole, where it is made in one piece."""
        old, new = (_parts(side) for side in (self.before, self.after))
        return {name: ResourceSides(old.get(name), new.get(name)) for name in dict.fromkeys((*old, *new))}

    @property
    def values(self) -> Mapping[ConfField, tuple[ValueChange, ...]]:
        """The values that are others, by the field of a conf in which they are."""
        by_field: dict[ConfField, list[ValueChange]] = {}
        for part, sides in self.parts.items():
            for value in _changes_of_part(sides):
                conf_field = ConfField(part, value.route, value.kind, value.field.partition("[")[0])
                by_field.setdefault(conf_field, []).append(value)
        return {conf_field: tuple(values) for conf_field, values in by_field.items()}

    @property
    def changes(self) -> Iterator[ValueChange]:
        """The same values, one after the other."""
        return (value for of_field in self.values.values() for value in of_field)

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset[str]().union(*(side.kinds for side in (self.before, self.after) if side is not None))


def _parts(side: ResourceSource | None) -> Mapping[str, ResourceSource]:
    if side is None:
        return {}
    return side.parts or {UNDIVIDED: side}


def _changes_of_part(sides: ResourceSides) -> Iterator[ValueChange]:
    old, new = ({} if side is None else side.by_route for side in (sides.before, sides.after))
    for route in dict.fromkeys((*old, *new)):
        of_old, of_new = (side.get(route, side.get(WHOLE, {})) for side in (old, new))
        for kind in sorted(sides.kinds & (of_old.keys() | of_new.keys())):
            fields = [of_side[kind].fields if kind in of_side else {} for of_side in (of_old, of_new)]
            yield from _changes_of_conf(kind, route, *fields)


def _changes_of_conf(
    kind: str, route: str, before: Mapping[str, MergedField], after: Mapping[str, MergedField]
) -> Iterator[ValueChange]:
    for path in dict.fromkeys((*before, *after)):
        was, is_now = before.get(path), after.get(path)
        if was is None or is_now is None or was.value != is_now.value:
            yield ValueChange(kind, path, route, _planned(was), _planned(is_now))


def _planned(field: MergedField | None) -> PlannedValue | None:
    if field is None:
        return None
    winner, origin = field.winner, field.winner.origin
    if origin.part == BUILT_IN:
        return PlannedValue(field.value, None)
    return PlannedValue(field.value, origin.policy, winner.path, origin.file, winner.line)
