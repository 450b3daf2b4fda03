"""Sites: where policies of one kind decide over something, with every item that takes part in the decision.

A policy has an effect where something would differ without it. For most policies that can be seen from the origins of
the merged conf: the policy sets a field, and no other policy sets the same value. For the others the items that are
left are merged once more at that site.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol, TypeAlias

from cp.insight.parts import DestinationParts
from cp.model.checkpoint import Checkpoint, checked, never_stopped
from cp.model.names import Destination
from cp.resources.kinds import Kind
from cp.rules import CombinedConf, PolicyItem, RouteRule
from cp.rules.items import recipe, shape_of
from cp.rules.merging import MergedConf, MergedField, Origin, merge_groups, overlay
from cp.rules.routes import routes_of
from cp.translate.effective import BUILT_IN
from generators import proxy

Unit: TypeAlias = Hashable
"""What is judged: a policy as a whole, or one item of it."""

UnitOf: TypeAlias = Callable[[Origin], Unit]

IsRemoved: TypeAlias = Callable[[PolicyItem], bool]
"""Whether an item is left out, to find out what would be different without it."""


class Site(Protocol):
    """What the four classes of sites share."""

    @property
    def kind(self) -> Kind:
        """The kind of policy that decides."""

    @property
    def key(self) -> Hashable:
        """Sites with equal keys have equal answers, so one of them is enough.

        Keys contain the `id()` of objects that the site holds: they are compared only while the sites exist.
        """

    @property
    def items(self) -> Iterator[PolicyItem]:
        """The items that take part."""

    def surely_effective(self, unit_of: UnitOf) -> set[Unit]:
        """The units of which the origins alone say that something would differ without them."""

    def differs_without(self, is_removed: IsRemoved) -> bool:
        """Whether something would differ without some of the items. It costs a merge."""


def policy_of(origin: Origin) -> Unit:
    return origin.policy


def item_of(origin: Origin) -> Unit:
    return origin.policy, origin.part, origin.index


@dataclass(frozen=True, slots=True, eq=False)
class PolicySite:
    """A destination, a route to it, an inbound or a whole proxy, where a merged conf decides."""

    kind: Kind
    levels: tuple[CombinedConf, ...]
    """The confs that are laid over each other, from the most general to the most specific level."""

    merged: MergedConf
    """The conf that holds."""

    default: MergedConf | None = None
    """The policy's built-in conf, below all levels."""

    protocol: proxy.Protocol | None = None
    destination: Destination | None = None

    @property
    def key(self) -> Hashable:
        return self.kind.name, tuple(map(id, self.levels)), id(self.merged), self.protocol

    @property
    def items(self) -> Iterator[PolicyItem]:
        return chain.from_iterable(level.items for level in self.levels)

    def surely_effective(self, unit_of: UnitOf) -> set[Unit]:
        fields = self.merged.fields.values()
        return {unit_of(field.winner.origin) for field in fields if _only_winner_sets_value(field, unit_of)}

    def merged_without(self, is_removed: IsRemoved) -> MergedConf | None:
        """The conf that would hold without some items; None if there would be none."""
        remaining = (_merged_without(level, is_removed) for level in self.levels)
        levels = [conf for conf in remaining if conf is not None]
        conf = overlay(levels) if levels else None
        if self.default is None:
            return None if conf is None else overlay([conf])
        return overlay([self.default] if conf is None else [self.default, conf])

    def differs_without(self, is_removed: IsRemoved) -> bool:
        conf = self.merged_without(is_removed)
        return conf is None or conf.value != self.merged.value


@dataclass(frozen=True, slots=True, eq=False)
class PartSite:
    """A destination of which only one part is served: its listener with its routes, or its cluster.

    What is built decides here, and not the conf: fields about the missing part make no difference.
    """

    parts: DestinationParts
    of_service: PolicySite
    of_routes: Mapping[str, PolicySite]

    @property
    def kind(self) -> Kind:
        return self.of_service.kind

    @property
    def sites(self) -> tuple[PolicySite, ...]:
        """The sites that there would be if both parts were served."""
        return (self.of_service, *self.of_routes.values())

    @property
    def key(self) -> Hashable:
        upstream = self.parts.upstream
        fragments = (
            *(entry.fragment for entry in self.parts.entries),
            *(upstream.fragments if upstream is not None else ()),
        )
        return "part", tuple(site.key for site in self.sites), tuple(map(id, fragments))

    @property
    def items(self) -> Iterator[PolicyItem]:
        return chain.from_iterable(site.items for site in self.sites)

    def surely_effective(self, unit_of: UnitOf) -> set[Unit]:
        """None: origins do not tell which part a field is about."""
        del unit_of
        return set()

    def differs_without(self, is_removed: IsRemoved) -> bool:
        kind, of_service = self.kind.name, self.of_service.merged_without(is_removed)
        if not self.parts.entries:
            return self.parts.cluster_differs(kind, of_service)
        return self.parts.listener_differs(kind, of_service, self._of_routes_without(is_removed))

    def is_served_differently_without(self, is_removed: IsRemoved) -> bool:
        """The same for a destination of which both parts may be served."""
        kind, of_service = self.kind.name, self.of_service.merged_without(is_removed)
        of_routes = self._of_routes_without(is_removed)
        return self.parts.cluster_differs(kind, of_service) or self.parts.listener_differs(kind, of_service, of_routes)

    def is_about_missing_part(self, is_removed: IsRemoved) -> bool:
        """Whether a conf would differ if both parts were served."""
        return any(site.differs_without(is_removed) for site in self.sites)

    def _of_routes_without(self, is_removed: IsRemoved) -> Mapping[str, MergedConf | None]:
        return {name: site.merged_without(is_removed) for name, site in self.of_routes.items()}


@dataclass(frozen=True, slots=True, eq=False)
class RouteTableSite:
    """The route table of a destination, which one kind of routes decides."""

    kind: Kind
    candidates: tuple[CombinedConf, ...]
    """The conf of the routes together; empty where there are none."""

    rules: Sequence[RouteRule]
    destination: Destination
    hides_others: bool = False
    """Whether routes of the other kind would decide if there were none of this kind."""

    @property
    def key(self) -> Hashable:
        return self.kind.name, tuple(map(id, self.candidates)), self.hides_others

    @property
    def items(self) -> Iterator[PolicyItem]:
        return chain.from_iterable(combined.items for combined in self.candidates)

    def surely_effective(self, unit_of: UnitOf) -> set[Unit]:
        """The owners of rows: without its owner a row would be missing, or have another owner."""
        return {unit_of(rule.origin) for rule in self.rules}

    def differs_without(self, is_removed: IsRemoved) -> bool:
        remaining = (_merged_without(combined, is_removed) for combined in self.candidates)
        merged = next((conf for conf in remaining if conf is not None), None)
        if merged is None and self.hides_others:
            return True
        rules = () if merged is None else routes_of(merged)
        return list(map(_row, rules)) != list(map(_row, self.rules))


@dataclass(frozen=True, slots=True, eq=False)
class ClientSite:
    """The clients of an inbound that fit one match. Rules for the same match are not merged: the first one counts."""

    kind: Kind
    candidates: tuple[CombinedConf, ...]
    """The confs of the rules with this match, the one that counts first. There is at least one."""

    protocol: proxy.Protocol
    destination: None = None

    @property
    def merged(self) -> MergedConf:
        return self.candidates[0].conf

    @property
    def key(self) -> Hashable:
        return self.kind.name, tuple(map(id, self.candidates)), self.protocol

    @property
    def items(self) -> Iterator[PolicyItem]:
        return chain.from_iterable(combined.items for combined in self.candidates)

    def surely_effective(self, unit_of: UnitOf) -> set[Unit]:
        """The owner of the first rule, if there is no second one."""
        return set() if len(self.candidates) > 1 else {unit_of(item.origin) for item in self.items}

    def differs_without(self, is_removed: IsRemoved) -> bool:
        remaining = (combined.conf for combined in self.candidates if not any(map(is_removed, combined.items)))
        first = next(remaining, None)
        return first is None or first.value != self.merged.value


AnySite: TypeAlias = PolicySite | PartSite | RouteTableSite | ClientSite
"""Each of them is a `Site`; which one it is matters to those who give reasons."""


def with_effect(sites: Iterable[Site], unit_of: UnitOf, checkpoint: Checkpoint = never_stopped) -> set[Unit]:
    """Every policy, or item, without which something would differ at one of these sites."""
    sites = list(sites)
    effective: set[Unit] = set().union(*(site.surely_effective(unit_of) for site in sites))
    for site in checked(sites, checkpoint):
        for unit in checked({unit_of(item.origin) for item in site.items} - effective, checkpoint):
            if site.differs_without(lambda item, unit=unit: unit_of(item.origin) == unit):  # type: ignore[misc]
                effective.add(unit)
    return effective


def _only_winner_sets_value(field: MergedField, unit_of: UnitOf) -> bool:
    """Whether a field surely has another value without its winner, as nobody else sets the same.

    Two sorts of fields are left to a second merge. Objects: not all who set an empty one (`tcp: {}`) are listed.
    And fields with nulls. Say that U sets `x: 1` for the mesh and `x: null` for a service, for which D sets `x: 1`.
    Without U both its value and its null are gone, and D's value holds.
    """
    winner = field.winner
    if winner.origin.part == BUILT_IN or isinstance(winner.value, Mapping) or field.removals:
        return False
    unit = unit_of(winner.origin)
    return all(loser.value != winner.value or unit_of(loser.origin) == unit for loser in field.losers)


def _merged_without(level: CombinedConf, is_removed: IsRemoved) -> MergedConf | None:
    """The conf of a level without some of its items; None if there are no others."""
    remaining = [item for item in level.items if not is_removed(item)]
    if len(remaining) == len(level.items):
        return level.conf
    if not remaining:
        return None
    return merge_groups([item.layer for item in remaining], recipe(shape_of(remaining[0].policy)))[0]


def _row(rule: RouteRule) -> tuple[Any, ...]:
    """What a rule is, apart from the places where it is written: what it does, and whose policies hold for it."""
    return rule.matches, rule.default, rule.contributors, rule.backends.identity
