"""The rules of one kind of policy for one proxy, worked out when they are asked for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakValueDictionary

from cp.model.dependency import ChangeScope, DependentValues
from cp.model.memo import ByIdentity, Memo
from cp.model.remembered import remembered
from cp.resources.kinds import Kind, PolicyShape
from cp.resources.resource import Resource
from cp.resources.world import Table, World
from cp.rules.calls import CallConfs
from cp.rules.changes import knows_tags_beside_services, scope_of_policies, scope_of_targets
from cp.rules.combined import CombinedConf, MergeCache
from cp.rules.inbound import InboundRules
from cp.rules.item_index import ItemIndex, is_outdated, naming
from cp.rules.items import PolicyItem, items
from cp.rules.matching import MatchedPolicy, PolicyMatcher
from cp.rules.merging import MergedConf
from cp.rules.outbound import ToRules
from cp.rules.subsets import SubsetRules
from cp.rules.tagged import by_tags, to_by_tags
from cp.rules.targets import TargetTables

_Policies: TypeAlias = tuple[Resource, ...]


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
        self.calls: CallConfs = DependentValues()
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
        """Confs over each other, from the most general to the most specific (decision 2)."""
        if levels not in self._laid:
            self._laid[levels] = self._known.shelf.lay(levels)
        return self._laid[levels]

    def take_over(self, before: PolicyRules, targets_changed: ChangeScope) -> None:
        """Keep what was found out in an earlier World, for whoever no change concerns."""
        policies, policies_before = set(self._policies()), set(before._policies())
        if any(policy.derived(knows_tags_beside_services) for policy in policies | policies_before):
            return  # where tags are told apart in more ways than one, each rule depends on all items
        targets = (before.scene.targets, self.scene.targets)
        scope = scope_of_policies(policies ^ policies_before, targets) | targets_changed
        self.calls = before.calls.after(scope)
        if not scope.everything:
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


_RulesKey: TypeAlias = tuple[str, ByIdentity[tuple[MatchedPolicy, ...]]]
"""A kind, and matched policies by identity: equal ones are nearly always the same object, and slow to compare."""


class _WorldRules(Memo[World, _RulesKey, PolicyRules]):
    """The rules of one World. What no change concerns is the same object as in the World before."""

    def __init__(self, generation: World, earlier: _WorldRules | None = None) -> None:
        super().__init__(generation, earlier)
        self.cache: RuleCache = RuleCache() if earlier is None else earlier.cache
        self._scopes: dict[tuple[TargetTables, TargetTables], ChangeScope] = {}

    def basis(self, source: World, key: _RulesKey) -> TargetTables:
        kind, matched = key
        return _scope(source, source.kinds[kind], matched.value).targets

    def work_out(self, source: World, key: _RulesKey) -> PolicyRules:
        kind, matched = source.kinds[key[0]], key[1].value
        rules = self.cache.rules(matched, kind, _scope(source, kind, matched))
        before = self.earlier((kind.name, ByIdentity(source.derived(PolicyMatcher).before(matched))))
        if before is not None and before is not rules and rules.shape.to:
            rules.take_over(before, self._scope_of_targets(before.scene.targets, rules.scene.targets))
        return rules

    def _scope_of_targets(self, before: TargetTables, now: TargetTables) -> ChangeScope:
        if (before, now) not in self._scopes:
            self._scopes[before, now] = scope_of_targets(before, now)
        return self._scopes[before, now]


def _scope(world: World, kind: Kind, matched: tuple[MatchedPolicy, ...]) -> RuleScope:
    return RuleScope.of(world, kind, matched[0].policy.mesh if matched else "")


def build(world: World, matched: tuple[MatchedPolicy, ...], kind: Kind) -> PolicyRules:
    """What the policies of one kind that select a proxy come to."""
    return world.recall(_WorldRules, (kind.name, ByIdentity(matched)))
