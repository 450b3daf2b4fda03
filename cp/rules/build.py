"""The rules of one kind of policy for one proxy, worked out when they are asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import TypeAlias
from weakref import WeakValueDictionary

from cp.matching import Matched
from cp.merging import Merged
from cp.resources.kinds import Kind, PolicyShape
from cp.resources.resource import Resource
from cp.resources.world import Table, World
from cp.rules.combined import Combined, Shelf
from cp.rules.inbound import InboundRules
from cp.rules.items import Item, items
from cp.rules.outbound import Index, ToRules
from cp.rules.subsets import SubsetRules
from cp.rules.tagged import by_tags, to_by_tags
from cp.rules.targets import Targets

_Policies: TypeAlias = tuple[Resource, ...]
_Quick: TypeAlias = tuple[str, int]


_Made: TypeAlias = "tuple[tuple[Matched, ...], PolicyRules]"


class PolicyRules:
    """What the matched policies of one kind come to. Proxies with the same matched policies share one."""

    def __init__(self, known: Known, matched: tuple[Matched, ...], kind: Kind, targets: Targets) -> None:
        self.kind = kind
        self.matched = matched
        self.targets = targets
        self._known = known
        self._from: dict[int | None, SubsetRules] = {}
        self._inbound: dict[int | None, InboundRules] = {}
        self._laid: dict[tuple[Merged, ...], Merged] = {}

    @property
    def shape(self) -> PolicyShape:
        return self.kind.policy or PolicyShape()

    @cached_property
    def to(self) -> ToRules:
        """For real destinations and routes."""
        return ToRules(self.targets, self._known.index(self._policies()))

    @cached_property
    def to_subsets(self) -> SubsetRules:
        """For destinations that are known by `kuma.io/service`."""
        return self._known.to_subsets(self._policies(), self.targets.table("MeshHTTPRoute"))

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

    @cached_property
    def proxy(self) -> Combined | None:
        """For the whole proxy, of a policy with one conf."""
        found = tuple(item for policy in self._policies() for item in items(policy).default)
        return self.combine(found) if found else None

    def at_listeners(self, listeners: Collection[int]) -> PolicyRules:
        """The rules by those policies alone that selected one of these listeners of a builtin gateway."""
        chosen = tuple(one for one in self.matched if not set(listeners).isdisjoint(one.listeners))
        return self._known.rules(chosen, self.kind, self.targets)

    def combine(self, found: tuple[Item, ...]) -> Combined:
        """What some items come to together."""
        return self._known.shelf.combine(found)

    def lay(self, levels: tuple[Merged, ...]) -> Merged:
        """Confs over each other, from the most general to the most specific (decision 2)."""
        if levels not in self._laid:
            self._laid[levels] = self._known.shelf.lay(levels)
        return self._laid[levels]

    def _policies(self, inbound: int | None = None) -> _Policies:
        return tuple(one.policy for one in self.matched if inbound is None or inbound in one.inbounds)


class Known:
    """What was made for some World and is still in use. All of it depends on its key alone."""

    def __init__(self) -> None:
        self.shelf = Shelf()
        self._rules: WeakValueDictionary[tuple[str, tuple[Matched, ...], Targets], PolicyRules] = WeakValueDictionary()
        self._indexes: WeakValueDictionary[_Policies, Index] = WeakValueDictionary()
        self._to_subsets: WeakValueDictionary[tuple[_Policies, Table | None], SubsetRules] = WeakValueDictionary()
        self._from: WeakValueDictionary[_Policies, SubsetRules] = WeakValueDictionary()

    def rules(self, matched: tuple[Matched, ...], kind: Kind, targets: Targets) -> PolicyRules:
        key = (kind.name, matched, targets)
        found = self._rules.get(key)
        if found is None:
            found = self._rules[key] = PolicyRules(self, matched, kind, targets)
        return found

    def index(self, policies: _Policies) -> Index:
        found = self._indexes.get(policies)
        if found is None:
            found = self._indexes[policies] = Index(policies, self.shelf)
        return found

    def to_subsets(self, policies: _Policies, routes: Table) -> SubsetRules:
        key = (policies, routes if self.index(policies).outdated else None)
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


class Bench:
    """The rules of one World. What nothing touched since the World before is the same object as there."""

    def __init__(self, world: World, known: Known, before: Mapping[_Quick, _Made]) -> None:
        self._world = world
        self._before = before
        self.known = known
        self.made: dict[_Quick, _Made] = {}
        """By the identity of the matched policies: equal ones are nearly always the same, and dear to compare."""

    def build(self, matched: tuple[Matched, ...], kind: Kind) -> PolicyRules:
        quick = (kind.name, id(matched))
        found = self.made.get(quick)
        if found is None:
            found = self.made[quick] = (matched, self._build(matched, kind))
        return found[1]

    def _build(self, matched: tuple[Matched, ...], kind: Kind) -> PolicyRules:
        refers = kind.policy is not None and kind.policy.to and bool(matched)
        targets = Targets.of(self._world, matched[0].policy.mesh) if refers else Targets()
        before, rules = self._before.get((kind.name, id(matched)), (None, None))
        if rules is not None and before is matched and rules.targets == targets:
            return rules
        return self.known.rules(matched, kind, targets)


def bench(world: World, previous: Bench | None) -> Bench:
    """The bench of a World; use it as `world.derived(bench)`."""
    return Bench(world, Known(), {}) if previous is None else Bench(world, previous.known, previous.made)


def build(world: World, matched: tuple[Matched, ...], kind: Kind) -> PolicyRules:
    """What the policies of one kind that select a proxy come to."""
    return world.derived(bench).build(matched, kind)
