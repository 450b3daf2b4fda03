"""The rules of one kind of policy for one proxy, worked out when they are asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakValueDictionary

from cp.model.dependency import ChangeScope, DependentValues
from cp.model.memo import ByIdentity, Memo
from cp.model.remembered import remembered
from cp.resources.kinds import Kind, PolicyShape
from cp.resources.resource import Resource
from cp.resources.targets import HTTP_ROUTE
from cp.resources.world import Table, World
from cp.rules.calls import CallConfs
from cp.rules.changes import knows_tags_beside_services, scope_of_policies, scope_of_targets
from cp.rules.combined import CombinedConf, MergeCache
from cp.rules.inbound import InboundRules
from cp.rules.item_index import ItemIndex, names_route_at_top
from cp.rules.items import PolicyItem, items
from cp.rules.matching import MatchedPolicy, PolicyMatcher
from cp.rules.merging import MergedConf
from cp.rules.outbound import ToRules
from cp.rules.subsets import SubsetRules
from cp.rules.tagged import by_tags, to_by_tags
from cp.rules.targets import TargetTables

_Policies: TypeAlias = tuple[Resource, ...]


class PolicyRules:
    """What the matched policies of one kind come to. Proxies with the same matched policies share the object."""

    def __init__(self, cache: RuleCache, matched: tuple[MatchedPolicy, ...], kind: Kind, scope: RuleScope) -> None:
        self.kind = kind
        self.matched = matched
        self.scope = scope
        self._cache = cache
        self._from: dict[int | None, SubsetRules] = {}
        self._inbound: dict[int | None, InboundRules] = {}
        self._laid: dict[tuple[MergedConf, ...], MergedConf] = {}
        self.calls: CallConfs = DependentValues()
        """The confs that hold for destinations and for routes to them, as far as somebody asked."""

    @property
    def shape(self) -> PolicyShape:
        return self.kind.policy or PolicyShape()

    @remembered
    def to(self) -> ToRules:
        """For real destinations and routes."""
        return ToRules(self.scope.targets, self.scope.items, self._policies(), self._cache.merges)

    @remembered
    def to_at_gateway(self) -> ToRules:
        """For real destinations and routes, at a listener of a gateway, for which targets with more tags win."""
        return ToRules(self.scope.targets, self.scope.items, self._policies(), self._cache.merges, at_gateway=True)

    @remembered
    def to_subsets(self) -> SubsetRules:
        """For destinations that are known by `kuma.io/service`."""
        return self._cache.to_subsets(self._policies(), self.scope.targets.table(HTTP_ROUTE))

    def from_(self, inbound: int | None = None) -> SubsetRules:
        """By the tags of clients, for one inbound. Without an inbound all matched policies count."""
        if inbound not in self._from:
            self._from[inbound] = self._cache.from_(self._policies(inbound))
        return self._from[inbound]

    def inbound(self, inbound: int | None = None) -> InboundRules:
        """For one inbound, whoever calls. Without an inbound all matched policies count."""
        if inbound not in self._inbound:
            self._inbound[inbound] = InboundRules(self._policies(inbound), self._cache.merges)
        return self._inbound[inbound]

    @remembered
    def proxy(self) -> CombinedConf | None:
        """For the proxy as a whole, where the kind of policy has one conf and no items."""
        confs = tuple(item for policy in self._policies() for item in items(policy).default)
        return self.combine(confs) if confs else None

    def at_listeners(self, listeners: Collection[int]) -> PolicyRules:
        """The rules by those policies alone that selected one of these listeners of a builtin gateway."""
        chosen = self._selecting(listeners)
        return self if len(chosen) == len(self.matched) else self._cache.rules(chosen, self.kind, self.scope)

    def _selecting(self, listeners: Collection[int]) -> tuple[MatchedPolicy, ...]:
        """The policies that selected one of some listeners, in their order."""
        sets = {number for index in listeners for number in self._sets_with.get(index, ())}
        if len(sets) == len(self.listener_sets):
            return self.matched
        places = (place for number in sets for place in self._places[self.listener_sets[number]])
        return tuple(self.matched[place] for place in sorted(places))

    @remembered
    def listener_sets(self) -> tuple[tuple[int, ...], ...]:
        """The different sets of listeners that its policies select."""
        return tuple(self._places)

    @remembered
    def _places(self) -> Mapping[tuple[int, ...], list[int]]:
        """Where the policies stand that select each set of listeners. Most sets are the same object, hashed once."""
        by_object: dict[ByIdentity[tuple[int, ...]], list[int]] = {}
        for place, match in enumerate(self.matched):
            by_object.setdefault(ByIdentity(match.listeners), []).append(place)
        places: dict[tuple[int, ...], list[int]] = {}
        for of_object in by_object.values():
            places.setdefault(self.matched[of_object[0]].listeners, []).extend(of_object)
        return places

    @remembered
    def _sets_with(self) -> Mapping[int, list[int]]:
        """The numbers of the sets in which each listener is."""
        sets: dict[int, list[int]] = {}
        for number, listeners in enumerate(self.listener_sets):
            for index in listeners:
                sets.setdefault(index, []).append(number)
        return sets

    def in_order(self, policy_items: Iterable[PolicyItem]) -> tuple[PolicyItem, ...]:
        """Items of its policies from the weakest to the strongest, in the order of whole policies."""
        return tuple(sorted(policy_items, key=lambda item: (self._strength[item.policy], item.index)))

    @remembered
    def _strength(self) -> Mapping[Resource, int]:
        return {match.policy: place for place, match in enumerate(self.matched)}

    def combine_group(self, text: str, policy_items: tuple[PolicyItem, ...]) -> CombinedConf:
        """What the items of one group come to together."""
        return self._cache.merges.combine_group(text, policy_items)

    def combine(self, policy_items: tuple[PolicyItem, ...]) -> CombinedConf:
        """What some items come to together."""
        return self._cache.merges.combine(policy_items)

    def lay(self, levels: tuple[MergedConf, ...]) -> MergedConf:
        """Confs over each other, field by field, from the most general to the most specific (record 0007)."""
        if levels not in self._laid:
            self._laid[levels] = self._cache.merges.lay(levels)
        return self._laid[levels]

    def take_over(self, before: PolicyRules, targets_changed: ChangeScope) -> None:
        """Keep the results of an earlier World that no change concerns."""
        policies, policies_before = set(self._policies()), set(before._policies())
        if any(policy.derived(knows_tags_beside_services) for policy in policies | policies_before):
            return  # rules by other tags than that of the service depend on all items together
        targets = (before.scope.targets, self.scope.targets)
        scope = scope_of_policies(policies ^ policies_before, targets) | targets_changed
        self.calls = before.calls.after(scope)
        if not scope.everything:
            self.to.take_over(before.to)

    def _policies(self, inbound: int | None = None) -> _Policies:
        return tuple(match.policy for match in self.matched if inbound is None or inbound in match.inbounds)


@dataclass(frozen=True, slots=True)
class RuleScope:
    """What rules depend on beside the matched policies: the items of all policies of the kind, and their targets."""

    items: ItemIndex
    targets: TargetTables

    @classmethod
    def of(cls, world: World, kind: Kind, mesh: str) -> RuleScope:
        refers = kind.policy is not None and kind.policy.to
        return cls(
            world.table(kind.name, mesh).derived(ItemIndex), TargetTables.of(world, mesh) if refers else TargetTables()
        )


class RuleCache:
    """Rules that are in use in some World, by their arguments.

    They depend on their keys alone, so it does not matter for which World they were made (record 0003). What nobody
    holds any more is forgotten.
    """

    def __init__(self) -> None:
        self.merges = MergeCache()
        self._rules: WeakValueDictionary[tuple[str, tuple[MatchedPolicy, ...], TargetTables], PolicyRules] = (
            WeakValueDictionary()
        )
        self._to_subsets: WeakValueDictionary[tuple[_Policies, Table | None], SubsetRules] = WeakValueDictionary()
        self._from: WeakValueDictionary[_Policies, SubsetRules] = WeakValueDictionary()

    def rules(self, matched: tuple[MatchedPolicy, ...], kind: Kind, scope: RuleScope) -> PolicyRules:
        key = (kind.name, matched, scope.targets)
        rules = self._rules.get(key)
        if rules is None:
            rules = self._rules[key] = PolicyRules(self, matched, kind, scope)
        return rules

    def to_subsets(self, policies: _Policies, routes: Table) -> SubsetRules:
        key = (policies, routes if any(names_route_at_top(policy) for policy in policies) else None)
        rules = self._to_subsets.get(key)
        if rules is None:
            tagged = [item for policy in policies for item in to_by_tags(routes, policy)]
            rules = self._to_subsets[key] = SubsetRules(tagged, self.merges, negations=False)
        return rules

    def from_(self, policies: _Policies) -> SubsetRules:
        rules = self._from.get(policies)
        if rules is None:
            tagged = list(by_tags(item for policy in policies for item in items(policy).from_))
            rules = self._from[policies] = SubsetRules(tagged, self.merges, negations=True)
        return rules


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
            rules.take_over(before, self._scope_of_targets(before.scope.targets, rules.scope.targets))
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
