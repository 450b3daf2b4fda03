"""The spots at which policies have a say, each with everybody who speaks there, and whose word counts.

A policy has an effect where something differs without it. Who is surely such a policy can be seen from the origins of
what was merged: it sets a field, and nobody else says the same. Who is not is looked at more closely, by merging once
more what the others say at that one spot.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

from cp.insight.parts import DestinationParts
from cp.model.checkpoint import Checkpoint, checked, never_stopped
from cp.model.names import Destination
from cp.resources.kinds import Kind
from cp.rules import CombinedConf, PolicyItem, RouteRule
from cp.rules.items import recipe, shape_of
from cp.rules.merging import MergedConf, MergedField, Origin, merge_groups, overlay
from cp.rules.routes import routes_of
from cp.translate.effective import BUILT_IN
from generators.proxy import Protocol

Unit: TypeAlias = Hashable
"""What is judged: a policy as a whole, or one item of it."""

UnitOf: TypeAlias = Callable[[Origin], Unit]
Gone: TypeAlias = Callable[[PolicyItem], bool]


def policy_of(origin: Origin) -> Unit:
    return origin.policy


def item_of(origin: Origin) -> Unit:
    return origin.policy, origin.part, origin.index


@dataclass(frozen=True, slots=True, eq=False)
class PolicySite:
    """A destination, a route to it, a cluster, an inbound or a whole proxy, and one kind of policy."""

    kind: Kind
    levels: tuple[CombinedConf, ...]
    """What is said there, from the most general to the most specific level."""

    merged: MergedConf
    """What holds there."""

    default: MergedConf | None = None
    protocol: Protocol | None = None
    destination: Destination | None = None

    @property
    def key(self) -> Hashable:
        """Spots with equal keys are the same for every question that is asked here."""
        return self.kind.name, tuple(map(id, self.levels)), id(self.merged), self.protocol

    @property
    def items(self) -> Iterator[PolicyItem]:
        return chain.from_iterable(level.items for level in self.levels)

    def sure(self, unit_of: UnitOf) -> set[Unit]:
        """Those of whom the origins alone say that something differs without them."""
        return {unit_of(field.winner.origin) for field in self.merged.fields.values() if _is_alone(field, unit_of)}

    def left(self, gone: Gone) -> MergedConf | None:
        """What would hold there without some of its items; None: nothing."""
        left = [one for level in self.levels if (one := _left(level, gone)) is not None]
        said = [overlay(left)] if left else []
        return overlay([self.default, *said]) if self.default is not None else overlay(said) if said else None

    def differs_without(self, gone: Gone) -> bool:
        without = self.left(gone)
        return without is None or without.value != self.merged.value


@dataclass(frozen=True, slots=True, eq=False)
class PartSite:
    """A destination of which only one part is served, and one kind of policy: what is built of it decides.

    A conf may differ there and nothing that is served, because it is about the other part.
    """

    parts: DestinationParts
    of_service: PolicySite
    of_routes: Mapping[str, PolicySite]

    @property
    def kind(self) -> Kind:
        return self.of_service.kind

    @property
    def spots(self) -> tuple[PolicySite, ...]:
        """The same as if all of the destination was served."""
        return (self.of_service, *self.of_routes.values())

    @property
    def key(self) -> Hashable:
        upstream = self.parts.upstream
        fragments = (
            *(entry.fragment for entry in self.parts.entries),
            *(upstream.fragments if upstream is not None else ()),
        )
        return "part", tuple(spot.key for spot in self.spots), tuple(map(id, fragments))

    @property
    def items(self) -> Iterator[PolicyItem]:
        return chain.from_iterable(spot.items for spot in self.spots)

    def sure(self, _unit_of: UnitOf) -> set[Unit]:
        """From origins alone nothing can be told."""
        return set()

    def differs_without(self, gone: Gone) -> bool:
        kind, of_service = self.kind.name, self.of_service.left(gone)
        if not self.parts.entries:
            return self.parts.cluster_differs(kind, of_service)
        of_routes = {name: spot.left(gone) for name, spot in self.of_routes.items()}
        return self.parts.listener_differs(kind, of_service, of_routes)

    def is_about_the_other_part(self, gone: Gone) -> bool:
        """Whether something would differ if all of the destination was served."""
        return any(spot.differs_without(gone) for spot in self.spots)


@dataclass(frozen=True, slots=True, eq=False)
class RouteTableSite:
    """The table of routes of a destination, where a kind of routes decides what it is."""

    kind: Kind
    candidates: tuple[CombinedConf, ...]
    """What the routes come to: one, or none."""

    rules: Sequence[RouteRule]
    destination: Destination
    hides_others: bool = False
    """Whether routes of another kind would decide if there were none of this kind."""

    @property
    def key(self) -> Hashable:
        return self.kind.name, tuple(map(id, self.candidates))

    @property
    def items(self) -> Iterator[PolicyItem]:
        return chain.from_iterable(one.items for one in self.candidates)

    def sure(self, unit_of: UnitOf) -> set[Unit]:
        """Whoever owns a row: without it there is no such row, or it is somebody else's."""
        return {unit_of(rule.origin) for rule in self.rules}

    def differs_without(self, gone: Gone) -> bool:
        left = (_left(one, gone) for one in self.candidates)
        merged = next((one for one in left if one is not None), None)
        if merged is None and self.hides_others:
            return True
        left_rules = () if merged is None else routes_of(merged)
        return list(map(_row, left_rules)) != list(map(_row, self.rules))


@dataclass(frozen=True, slots=True, eq=False)
class ClientSite:
    """Clients of an inbound with one and the same match: the first of their rules counts, whatever others say."""

    kind: Kind
    candidates: tuple[CombinedConf, ...]
    protocol: Protocol
    destination: None = None

    @property
    def merged(self) -> MergedConf:
        return self.candidates[0].conf

    @property
    def key(self) -> Hashable:
        return self.kind.name, tuple(map(id, self.candidates)), self.protocol

    @property
    def items(self) -> Iterator[PolicyItem]:
        return chain.from_iterable(one.items for one in self.candidates)

    def sure(self, unit_of: UnitOf) -> set[Unit]:
        """Whoever has the first rule, if there is no other."""
        return set() if len(self.candidates) > 1 else {unit_of(item.origin) for item in self.items}

    def differs_without(self, gone: Gone) -> bool:
        left = next((one.conf for one in self.candidates if not any(map(gone, one.items))), None)
        return left is None or left.value != self.merged.value


AnySpot: TypeAlias = PolicySite | PartSite | RouteTableSite | ClientSite


def with_effect(spots: Iterable[AnySpot], unit_of: UnitOf, checkpoint: Checkpoint = never_stopped) -> set[Unit]:
    """Every policy, or item, without which something would be different at one of these spots."""
    spots = list(spots)
    effective: set[Unit] = set().union(*(spot.sure(unit_of) for spot in spots))
    for spot in checked(spots, checkpoint):
        for unit in checked({unit_of(item.origin) for item in spot.items} - effective, checkpoint):
            if spot.differs_without(lambda item, unit=unit: unit_of(item.origin) == unit):  # type: ignore[misc]
                effective.add(unit)
    return effective


def _is_alone(field: MergedField, unit_of: UnitOf) -> bool:
    """Whether nobody else says the winner's value. Of an object that is there and empty, not all who said it are known.

    What a null of a stronger level took away on that level is not known either. But whoever said that null, and this
    value for the level below, is alone or not alone at the spot of that level too.
    """
    winner = field.winner
    if winner.origin.part == BUILT_IN or isinstance(winner.value, Mapping):
        return False
    unit = unit_of(winner.origin)
    return all(one.value != winner.value or unit_of(one.origin) == unit for one in field.losers)


def _left(level: CombinedConf, gone: Gone) -> MergedConf | None:
    """What a level comes to without some of its items; None if there are no others."""
    left = [item for item in level.items if not gone(item)]
    if len(left) == len(level.items):
        return level.conf
    return merge_groups([item.layer for item in left], recipe(shape_of(left[0].policy)))[0] if left else None


def _row(rule: RouteRule) -> tuple[Any, ...]:
    return rule.matches, rule.default, rule.owner, rule.backends.identity
