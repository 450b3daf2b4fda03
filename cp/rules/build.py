"""The rules of one kind of policy for one proxy, worked out when they are asked for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakValueDictionary

from cp.model.names import Identity
from cp.model.remembered import remembered
from cp.resources.kinds import Kind, PolicyShape
from cp.resources.resource import Resource
from cp.resources.world import Table, World
from cp.rules.calls import CallConfs
from cp.rules.changes import changed_targets, changes, services_named
from cp.rules.combined import CombinedConf, MergeCache
from cp.rules.inbound import InboundRules
from cp.rules.item_index import ItemIndex, is_outdated, naming
from cp.rules.items import PolicyItem, items
from cp.rules.matching import MatchedPolicy, matcher
from cp.rules.merging import MergedConf
from cp.rules.outbound import ToRules
from cp.rules.subsets import SubsetRules
from cp.rules.tagged import by_tags, to_by_tags
from cp.rules.targets import TargetTables

_Policies: TypeAlias = tuple[Resource, ...]
_Quick: TypeAlias = tuple[str, int]


_Made: TypeAlias = "tuple[tuple[MatchedPolicy, ...], PolicyRules]"


class PolicyRules:
    """What the matched policies of one kind come to. Proxies with the same matched policies share one."""

    def __init__(self, known: RuleCache, matched: tuple[MatchedPolicy, ...], kind: Kind, scene: RuleScope) -> None:
        self.kind = kind
        self.matched = matched
        self.scene = scene
        self._known = known
        self._from: dict[int | None, SubsetRules] = {}
        self._inbound: dict[int | None, InboundRules] = {}
        self._laid: dict[tuple[MergedConf, ...], MergedConf] = {}
        self.calls = CallConfs()
        """What was found out to hold for destinations and routes to them."""

    @property
    def shape(self) -> PolicyShape:
        return self.kind.policy or PolicyShape()

    @remembered
    def to(self) -> ToRules:
        """For real destinations and routes."""
        return ToRules(self.scene.targets, self.scene.naming, self._policies(), self._known.shelf)

    @remembered
    def to_subsets(self) -> SubsetRules:
        """For destinations that are known by `kuma.io/service`."""
        return self._known.to_subsets(self._policies(), self.scene.targets.table("MeshHTTPRoute"))

    def from_(self, inbound: int | None = None) -> SubsetRules:
        """By the tags of clients, for one inbound; for None by all policies."""
        if inbound not in self._from:
            self._from[inbound] = self._known.from_(self._policies(inbound))
        return self._from[inbound]

    def inbound(self, inbound: int | None = None) -> InboundRules:
        """For one inbound, whoever calls; for None by all policies."""
        if inbound not in self._inbound:
            self._inbound[inbound] = InboundRules(self._policies(inbound), self._known.shelf)
        return self._inbound[inbound]

    @remembered
    def proxy(self) -> CombinedConf | None:
        """For the whole proxy, of a policy with one conf."""
        found = tuple(item for policy in self._policies() for item in items(policy).default)
        return self.combine(found) if found else None

    def at_listeners(self, listeners: Collection[int]) -> PolicyRules:
        """The rules by those policies alone that selected one of these listeners of a builtin gateway."""
        chosen = tuple(one for one in self.matched if not set(listeners).isdisjoint(one.listeners))
        return self._known.rules(chosen, self.kind, self.scene)

    def combine(self, found: tuple[PolicyItem, ...]) -> CombinedConf:
        """What some items come to together."""
        return self._known.shelf.combine(found)

    def lay(self, levels: tuple[MergedConf, ...]) -> MergedConf:
        """Confs over each other, from the most general to the most specific (record 0007)."""
        if levels not in self._laid:
            self._laid[levels] = self._known.shelf.lay(levels)
        return self._laid[levels]

    def take_over(self, before: PolicyRules, changed: frozenset[Identity]) -> None:
        """Keep what was found out in an earlier World, for whoever no change concerns."""
        here, there = set(self._policies()), set(before._policies())
        if any(policy.derived(services_named) is None for policy in here | there):
            return  # where tags are told apart in more ways than one, each rule depends on all items
        found = changes(here ^ there, (before.scene.targets, self.scene.targets), changed)
        self.calls = before.calls.after(found)
        if not found.everybody:
            self.to.take_over(before.to)

    def _policies(self, inbound: int | None = None) -> _Policies:
        return tuple(one.policy for one in self.matched if inbound is None or inbound in one.inbounds)


@dataclass(frozen=True, slots=True)
class RuleScope:
    """What there is around the matched policies: the items of all policies of the kind, and their targets."""

    naming: ItemIndex
    targets: TargetTables

    @classmethod
    def of(cls, world: World, kind: Kind, mesh: str) -> RuleScope:
        refers = kind.policy is not None and kind.policy.to
        return cls(
            world.table(kind.name, mesh).derived(naming), TargetTables.of(world, mesh) if refers else TargetTables()
        )


class RuleCache:
    """What was made for some World and is still in use. All of it depends on its key alone."""

    def __init__(self) -> None:
        self.shelf = MergeCache()
        self._rules: WeakValueDictionary[tuple[str, tuple[MatchedPolicy, ...], TargetTables], PolicyRules] = (
            WeakValueDictionary()
        )
        self._to_subsets: WeakValueDictionary[tuple[_Policies, Table | None], SubsetRules] = WeakValueDictionary()
        self._from: WeakValueDictionary[_Policies, SubsetRules] = WeakValueDictionary()

    def rules(self, matched: tuple[MatchedPolicy, ...], kind: Kind, scene: RuleScope) -> PolicyRules:
        key = (kind.name, matched, scene.targets)
        found = self._rules.get(key)
        if found is None:
            found = self._rules[key] = PolicyRules(self, matched, kind, scene)
        return found

    def to_subsets(self, policies: _Policies, routes: Table) -> SubsetRules:
        key = (policies, routes if any(is_outdated(policy) for policy in policies) else None)
        found = self._to_subsets.get(key)
        if found is None:
            tagged = [one for policy in policies for one in to_by_tags(routes, policy)]
            found = self._to_subsets[key] = SubsetRules(tagged, self.shelf, negations=False)
        return found

    def from_(self, policies: _Policies) -> SubsetRules:
        found = self._from.get(policies)
        if found is None:
            tagged = list(by_tags(item for policy in policies for item in items(policy).from_))
            found = self._from[policies] = SubsetRules(tagged, self.shelf, negations=True)
        return found


class WorldRules:
    """The rules of one World. What nothing touched since the World before is the same object as there."""

    def __init__(self, world: World, before: WorldRules | None) -> None:
        self._world = world
        self._before: dict[_Quick, _Made] = {} if before is None else before.made
        self.known: RuleCache = RuleCache() if before is None else before.known
        self.made: dict[_Quick, _Made] = {}
        """By the identity of the matched policies: equal ones are nearly always the same, and dear to compare."""

        self._changed: dict[tuple[TargetTables, TargetTables], frozenset[Identity]] = {}

    def build(self, matched: tuple[MatchedPolicy, ...], kind: Kind) -> PolicyRules:
        quick = (kind.name, id(matched))
        found = self.made.get(quick)
        if found is None:
            found = self.made[quick] = (matched, self._build(matched, kind))
        return found[1]

    def _build(self, matched: tuple[MatchedPolicy, ...], kind: Kind) -> PolicyRules:
        scene = RuleScope.of(self._world, kind, matched[0].policy.mesh if matched else "")
        before = self._made_before(matched, kind)
        if before is not None and before.matched is matched and before.scene.targets == scene.targets:
            return before
        found = self.known.rules(matched, kind, scene)
        if before is not None and before is not found and found.shape.to:
            found.take_over(before, self._changes(before.scene.targets, scene.targets))
        return found

    def _made_before(self, matched: tuple[MatchedPolicy, ...], kind: Kind) -> PolicyRules | None:
        """The rules that the same proxies had in the World before."""
        earlier = self._world.derived(matcher).before(matched)
        found, rules = self._before.get((kind.name, id(earlier)), (None, None))
        return rules if found is earlier else None

    def _changes(self, before: TargetTables, now: TargetTables) -> frozenset[Identity]:
        if (before, now) not in self._changed:
            self._changed[before, now] = changed_targets(before, now)
        return self._changed[before, now]


def bench(world: World, previous: WorldRules | None) -> WorldRules:
    """The bench of a World; use it as `world.derived(bench)`."""
    return WorldRules(world, previous)


def build(world: World, matched: tuple[MatchedPolicy, ...], kind: Kind) -> PolicyRules:
    """What the policies of one kind that select a proxy come to."""
    return world.derived(bench).build(matched, kind)
