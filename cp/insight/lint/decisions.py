"""Decisions: where policies of one kind decide over something, with every item that takes part.

There are five classes. A merged conf decides at services, routes, inbounds and proxies (`ConfDecision`). What is built
decides where a destination lacks its listener or its cluster (`DestinationDecision`, record 0043), and where rules for
clients hold side by side (`AdmissionDecision`). Rows decide in route tables (`RouteTableDecision`), and the first of
several rules decides for clients (`ClientDecision`).

A policy has an effect where something would differ without it. For most policies that can be seen from the origins of
the merged conf: the policy sets a field, and no other policy sets the same value. For the others the items that are
left are merged once more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Protocol, TypeAlias

from cp.insight.parts import DestinationParts
from cp.model.checkpoint import Checkpoint, checked, never_stopped
from cp.model.names import Destination
from cp.resources.kinds import Kind
from cp.resources.world import World
from cp.rules import CombinedConf, PolicyItem, PolicyRules, RouteRule
from cp.rules.items import recipe, shape_of
from cp.rules.merging import MergedConf, MergedField, Origin, merge_groups, overlay
from cp.rules.routes import routes_of
from cp.translate.effective import BUILT_IN
from cp.translate.fragments import FragmentCache
from cp.translate.inbound import InboundResult, IsRemoved, confs_side_by_side
from generators import proxy

Unit: TypeAlias = Hashable
"""What is judged: a policy as a whole, or one item of it."""

UnitOf: TypeAlias = Callable[[Origin], Unit]
"""The unit to which an origin belongs: `policy_of` or `item_of`."""


class Decision(Protocol):
    """What the five classes of decisions have in common."""

    @property
    def kind(self) -> Kind:
        """The kind of policy that decides."""

    @property
    def key(self) -> Hashable:
        """Decisions with equal keys have equal answers, so one of them is enough.

        Keys contain the `id()` of objects that the decision holds: they are compared only while the decisions exist.
        """

    @property
    def items(self) -> Iterator[PolicyItem]:
        """The items that take part."""

    def surely_effective(self, unit_of: UnitOf) -> set[Unit]:
        """The units of which the origins alone say that something would differ without them."""

    def differs_without(self, is_removed: IsRemoved) -> bool:
        """Whether something would differ without some of the items. It costs a merge, and at a destination a build."""


def policy_of(origin: Origin) -> Unit:
    return origin.policy


def item_of(origin: Origin) -> Unit:
    return origin.policy, origin.part, origin.index


@dataclass(frozen=True, slots=True, eq=False)
class ConfDecision:
    """A merged conf decides: for a destination, a route to it, an inbound or a whole proxy."""

    kind: Kind
    levels: tuple[CombinedConf, ...]
    """The confs that are laid over each other, from the most general to the most specific level."""

    merged: MergedConf
    """The conf that holds."""

    default: MergedConf | None = None
    """The policy's built-in conf, below all levels."""

    protocol: proxy.Protocol | None = None
    """The protocol that is spoken there; None for a whole proxy."""

    destination: Destination | None = None
    """None for an inbound and for a whole proxy."""

    @property
    def key(self) -> Hashable:
        return self.kind.name, tuple(map(id, self.levels)), id(self.merged), self.protocol

    @property
    def items(self) -> Iterator[PolicyItem]:
        return chain.from_iterable(level.items for level in self.levels)

    def surely_effective(self, unit_of: UnitOf) -> set[Unit]:
        fields = self.merged.fields.values()
        return {unit_of(field.winner.origin) for field in fields if _only_winner_sets_value(field, unit_of)}

    def surely_idle(self, unit_of: UnitOf) -> set[Unit]:
        """The units that set no value which holds. No merge is needed where there are plain values alone.

        Without it, lint merges the policies of a target once for each of them.
        """
        shape, fields = self.kind.policy, self.merged.fields.values()
        is_plain = not self.merged.nulls and not any(isinstance(field.value, Mapping) for field in fields)
        if not is_plain or shape is None or shape.merge_by_key or shape.group_by is not None:
            return set()
        winners = {unit_of(field.winner.origin) for field in fields}
        return {unit_of(item.origin) for item in self.items} - winners

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
class DestinationDecision:
    """What is built of a destination decides: its listener with its routes, and its cluster.

    This is how destinations are judged of which only one part is served. Fields about the unserved part differ in the
    conf and make no difference.
    """

    parts: DestinationParts
    """What is served of the destination."""

    of_service: ConfDecision
    """What the policies of the kind decide for the destination as a whole."""

    of_routes: Mapping[str, ConfDecision]
    """What they decide for its routes, by the names that the outbound has for them."""

    @property
    def kind(self) -> Kind:
        return self.of_service.kind

    @property
    def decisions(self) -> tuple[ConfDecision, ...]:
        """The decisions if both parts were served."""
        return (self.of_service, *self.of_routes.values())

    @property
    def key(self) -> Hashable:
        upstream = self.parts.backend
        fragments = (
            *(entry.fragment for entry in self.parts.outbounds),
            *(upstream.fragments if upstream is not None else ()),
        )
        return "destination", tuple(decision.key for decision in self.decisions), tuple(map(id, fragments))

    @property
    def items(self) -> Iterator[PolicyItem]:
        return chain.from_iterable(decision.items for decision in self.decisions)

    def surely_effective(self, unit_of: UnitOf) -> set[Unit]:
        """Always empty: origins do not tell which part a field is about."""
        del unit_of
        return set()

    def differs_without(self, is_removed: IsRemoved) -> bool:
        kind_name, of_service = self.kind.name, self.of_service.merged_without(is_removed)
        if self.parts.cluster_differs(kind_name, of_service):
            return True
        of_routes = {name: decision.merged_without(is_removed) for name, decision in self.of_routes.items()}
        return self.parts.listener_differs(kind_name, of_service, of_routes)

    def is_about_unserved_part(self, is_removed: IsRemoved) -> bool:
        """Whether a conf would differ if both parts were served."""
        return any(decision.differs_without(is_removed) for decision in self.decisions)


@dataclass(frozen=True, slots=True, eq=False)
class RouteTableDecision:
    """One kind of routes decides over the route table of a destination."""

    kind: Kind
    route_conf: CombinedConf
    """The conf of all routes of the kind together."""

    rules: Sequence[RouteRule]
    """The rules in it: none if all of these routes are without rules."""

    destination: Destination
    hides_others: bool = False
    """Whether routes of the other kind would decide if there were none of this kind."""

    @property
    def key(self) -> Hashable:
        return self.kind.name, id(self.route_conf), self.hides_others

    @property
    def items(self) -> Iterator[PolicyItem]:
        return iter(self.route_conf.items)

    def surely_effective(self, unit_of: UnitOf) -> set[Unit]:
        """The owners of rows: without its owner a row would be missing, or have another owner."""
        return {unit_of(rule.origin) for rule in self.rules}

    def differs_without(self, is_removed: IsRemoved) -> bool:
        conf = _merged_without(self.route_conf, is_removed)
        if conf is None and self.hides_others:
            return True
        rules = () if conf is None else routes_of(conf)
        return list(map(row_of, rules)) != list(map(row_of, self.rules))


@dataclass(frozen=True, slots=True, eq=False)
class ClientDecision:
    """The first rule for a match decides for the clients of an inbound that fit it: such rules are not merged."""

    kind: Kind
    confs_in_order: tuple[CombinedConf, ...]
    """The confs of the rules with this match. There is at least one, and the first one holds."""

    protocol: proxy.Protocol
    destination: None = None
    """Always None, as for every decision about an inbound."""

    @property
    def merged(self) -> MergedConf:
        return self.confs_in_order[0].conf

    @property
    def key(self) -> Hashable:
        return self.kind.name, tuple(map(id, self.confs_in_order)), self.protocol

    @property
    def items(self) -> Iterator[PolicyItem]:
        return chain.from_iterable(combined.items for combined in self.confs_in_order)

    def surely_effective(self, unit_of: UnitOf) -> set[Unit]:
        """The units of the first rule's items, if there is no second rule."""
        return set() if len(self.confs_in_order) > 1 else {unit_of(item.origin) for item in self.items}

    def differs_without(self, is_removed: IsRemoved) -> bool:
        remaining = (combined.conf for combined in self.confs_in_order if not any(map(is_removed, combined.items)))
        first = next(remaining, None)
        return first is None or first.value != self.merged.value


@dataclass(frozen=True, slots=True, eq=False)
class AdmissionDecision:
    """Rules that hold side by side decide who may call an inbound. What is built of them decides about their effect."""

    world: World
    mesh: str
    rules: PolicyRules
    index: int
    """The place of the inbound in its Dataplane."""

    reached: InboundResult
    fragments: FragmentCache

    @property
    def kind(self) -> Kind:
        return self.rules.kind

    @property
    def key(self) -> Hashable:
        return "security", id(self.rules), self.index, self.reached.inbound.protocol

    @property
    def subsets(self) -> Iterator[ConfDecision]:
        """What is decided for the clients of each set of tags: there the items of `from` override each other."""
        for subset in self.rules.from_(self.index).rules:
            yield ConfDecision(self.kind, (subset.combined,), subset.combined.conf, None, self.reached.inbound.protocol)

    @property
    def items(self) -> Iterator[PolicyItem]:
        yield from (tagged.item for tagged in self.rules.from_(self.index).tagged)
        yield from (rule.item for rule in self.rules.inbound(self.index).rules)

    def surely_effective(self, unit_of: UnitOf) -> set[Unit]:
        """The units of the items of `rules`: all that they say is served under the names of their policies."""
        return {unit_of(rule.origin) for rule in self.rules.inbound(self.index).rules}

    def differs_without(self, is_removed: IsRemoved) -> bool:
        kind, task = self.kind.name, self.reached.task
        confs = confs_side_by_side(self.world, self.mesh, self.rules, self.index, is_removed)
        clients = tuple((name, confs if name == kind else of_kind) for name, of_kind in task.clients)
        fragment = self.fragments.get(replace(task, clients=clients))
        return [packed.body for packed in fragment] != [packed.body for packed in self.reached.fragment]


def with_effect(decisions: Iterable[Decision], unit_of: UnitOf, checkpoint: Checkpoint = never_stopped) -> set[Unit]:
    """Every policy, or item, without which something would differ for one of these decisions."""
    decisions = list(decisions)
    effective: set[Unit] = set().union(*(decision.surely_effective(unit_of) for decision in decisions))
    for decision in checked(decisions, checkpoint):
        units = {unit_of(item.origin) for item in decision.items} - effective
        idle = decision.surely_idle(unit_of) if isinstance(decision, ConfDecision) else set()
        for unit in checked(units, checkpoint):
            if unit not in idle and decision.differs_without(lambda item, unit=unit: unit_of(item.origin) == unit):  # type: ignore[misc]
                effective.add(unit)
    return effective


def _only_winner_sets_value(field: MergedField, unit_of: UnitOf) -> bool:
    """Whether a field surely has another value without its winner, as nobody else sets the same.

    Two sorts of fields are left to a second merge. The first are objects: of an empty object (`tcp: {}`) not every
    policy that sets it is listed as a loser. The second are fields with nulls. For example, policy P sets `x: 1` for
    the mesh and `x: null` for a service, and policy Q sets `x: 1` for the same service. Without P both its value and
    its null are gone, and the equal value of Q holds.
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


def row_of(rule: RouteRule) -> tuple[Any, ...]:
    """What a rule is, apart from the places where it is written: what it does, and whose policies hold for it."""
    return rule.matches, rule.default, rule.contributors, rule.backends.identity
