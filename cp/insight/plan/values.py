"""From which values of confs the changed fields of a resource follow.

Nobody keeps a list of which field of a policy ends in which field of Envoy. The generator is asked, as for effects
(record 0043):

    ResourceSides    the values that are others than before, of those from which the resource is made
    Rebuilding       for each of them: the resource as it is, built once more with this one value as it would be
    ValueFinder      what differs then follows from that value
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from cp.insight.comparison import MOST_FIELDS, ChangedResource, Decode, changed_fields, size_of, size_of_field
from cp.insight.fields import ChangedField, Steps
from cp.insight.plan.changed_values import ConfField, ResourceSides
from cp.insight.plan.model import PlannedField, PlannedValue, ToldFields, ValueChange
from cp.insight.plan.rebuilding import Rebuilding
from cp.model.checkpoint import Allowance, Checkpoint, checked
from cp.translate.fragments import FragmentCache
from cp.translate.packing import PackedResource

_MOST_BUILT: Final = 32
"""Values of one resource that are looked at one by one."""


_AROUND: Final = 100
"""Bytes of a value of a conf beside what is in it."""

_Values = Mapping[ConfField, tuple[ValueChange, ...]]


@dataclass(frozen=True, slots=True)
class _Ways:
    """The fields of a resource that a value reaches."""

    ends: frozenset[Steps]
    passed: frozenset[Steps]
    """The ways to them, and to all that is around them."""

    @classmethod
    def of(cls, fields: Iterable[ChangedField]) -> _Ways:
        ends = frozenset(field.steps for field in fields if field.steps)
        return cls(ends, frozenset(outer for steps in ends for outer in _outer(steps)))

    def lead_to(self, steps: Steps) -> bool:
        """Whether a field is one of them, around one of them, or within one of them."""
        return steps in self.passed or any(outer in self.ends for outer in _outer(steps))


@dataclass(frozen=True, slots=True)
class ValueFinder:
    """Finds the values behind changed fields."""

    fragments: FragmentCache
    decode: Decode
    checkpoint: Checkpoint
    allowance: Allowance

    def fields(self, change: ChangedResource, sides: ResourceSides) -> ToldFields:
        """The changed fields of a resource, each with the values from which it follows."""
        reached = self._reached(change, sides, sides.values)
        changed = changed_fields(change, self.decode)
        distinct: list[tuple[ValueChange, ...]] = []
        fields = []
        for field in checked(changed[:MOST_FIELDS], self.checkpoint):
            self.allowance.take(size_of_field(field))
            behind = (values for values, ways in reached if ways.lead_to(field.steps))
            places = tuple(dict.fromkeys(self._place(values, distinct) for values in behind))
            fields.append(PlannedField(field.path, field.before, field.after, places))
        return ToldFields(tuple(fields), tuple(distinct), len(changed) - len(fields))

    def _place(self, values: tuple[ValueChange, ...], distinct: list[tuple[ValueChange, ...]]) -> int:
        """The place of values among those that are told."""
        for place, known in enumerate(distinct):
            if known is values:
                return place
        self.allowance.take(sum(map(_size_of_value, checked(values, self.checkpoint))))
        distinct.append(values)
        return len(distinct) - 1

    def _reached(
        self, change: ChangedResource, sides: ResourceSides, values: _Values
    ) -> list[tuple[tuple[ValueChange, ...], _Ways]]:
        """The changed values, each with the fields of the resource that it reaches by itself."""
        if sides.before is None or sides.after is None or change.before is None or change.after is None:
            return []
        if change.is_large or len(values) > _MOST_BUILT:
            return []
        rebuilding = Rebuilding(self.fragments, change.type_url, sides.before, sides.after)
        known: list[tuple[ValueChange, ...]] = []
        return [
            (
                _told_once(values[conf_field], known),
                _Ways.of(self._changed_alone(change, rebuilding.with_value(conf_field))),
            )
            for conf_field in checked(values, self.checkpoint)
        ]

    def _changed_alone(self, change: ChangedResource, built: Iterable[PackedResource]) -> Iterable[ChangedField]:
        """In which fields the resource differs that was built with one other value."""
        name = change.type_url, change.name
        after = next((packed for packed in built if (packed.type_url, packed.name) == name), change.before)
        return changed_fields(ChangedResource(*name, change.before, after), self.decode)


def _told_once(values: tuple[ValueChange, ...], known: list[tuple[ValueChange, ...]]) -> tuple[ValueChange, ...]:
    """The same object for values that several routes have alike."""
    anywhere = tuple(replace(value, route="") for value in values)
    for known_values in known:
        if known_values == anywhere:
            return known_values
    known.append(anywhere)
    return anywhere


def _outer(steps: Steps) -> Iterator[Steps]:
    """The ways to all that is around a field, and to the field."""
    return accumulate(((step,) for step in steps), initial=())


def _size_of_value(change: ValueChange) -> int:
    return _AROUND + sum(map(_size_of_side, (change.before, change.after)))


def _size_of_side(side: PlannedValue | None) -> int:
    return 0 if side is None else _AROUND + len(side.path) + size_of(side.value)
