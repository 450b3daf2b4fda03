"""`PolicyEffects`: the policies, and the items, without which something would differ for some proxy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from cp.insight.enforcement import decides_reach
from cp.insight.lint.any_decision import AnyDecision
from cp.insight.lint.decisions import Unit, item_of, policy_of, with_effect
from cp.insight.lint.recompilation import Recompilation
from cp.model.checkpoint import Checkpoint
from cp.model.remembered import remembered
from cp.policies import Policy
from cp.resources.resource import Resource
from cp.resources.targets import HTTP_ROUTE
from cp.resources.world import World
from cp.rules import PolicyItem
from cp.rules.item_index import names_route_at_top
from cp.rules.matching import routes_at_top
from cp.translate.effective import has_hook


@dataclass(frozen=True, eq=False)
class PolicyEffects:
    """What has an effect, of the policies of which that can be told."""

    world: World
    policies: Mapping[str, Policy[Any]]
    judged: Sequence[Resource]
    decisions: Sequence[AnyDecision]
    of_some_listeners: AbstractSet[Resource]
    """The policies that select some listeners of a gateway and not all of them."""

    recompilation: Recompilation
    checkpoint: Checkpoint

    @remembered
    def effective(self) -> frozenset[Unit]:
        """The policies without which something would differ for some proxy."""
        return self._by_confs | self.needed | self.asking

    @remembered
    def effective_items(self) -> frozenset[Unit]:
        """The items without which something would differ for some proxy."""
        return frozenset(with_effect(self.decisions, item_of, self.checkpoint))

    @remembered
    def needed(self) -> frozenset[Unit]:
        """The routes that decide what a policy does that names them at its top level.

        A route may also keep such a policy from doing anything: without it, another route of that name is meant.
        """
        policies = [policy for policy in self.judged if names_route_at_top(policy)]
        tables = (self.world.table(HTTP_ROUTE, policy.mesh) for policy in policies)
        named = map(routes_at_top, tables, policies)
        routes = dict.fromkeys(route for of_policy in named for route in of_policy)
        return frozenset(route.key for route in routes if self._is_needed(route))

    @remembered
    def asking(self) -> frozenset[Unit]:
        """The policies that change no conf, and change what proxies send about themselves, such as their tags.

        On a gateway they may change how routes are called, where they are for some of its listeners.
        Proxies send it as soon as any policy of the mesh asks for it, whomever that policy selects. And a proxy removes
        it from requests to its workload only where it tells clients apart by it.
        """
        changing_no_conf = (policy for policy in self.judged if policy.key not in self._by_confs)
        may_ask = (policy for policy in changing_no_conf if self.may_ask(policy) or policy in self.of_some_listeners)
        return frozenset(policy.key for policy in may_ask if not self.recompilation.is_served_the_same_without(policy))

    def may_ask(self, policy: Resource) -> bool:
        """Whether callers may do something because of a policy, whomever it selects.

        They may tell about themselves because of the clients that it names, or speak as it asks of those that they
        call, or be told of whom they may call.
        """
        kind = self.policies[policy.type]
        if decides_reach(self.world, policy.type):
            return True
        return has_hook(kind, "secure") or (has_hook(kind, "sidecar_fields") and bool(policy.data.get("from")))

    @remembered
    def decisions_of(self) -> Mapping[PolicyItem, list[AnyDecision]]:
        """The decisions in which each item without an effect takes part: they tell why it has none."""
        decisions_of: dict[PolicyItem, list[AnyDecision]] = {}
        for decision in self.decisions:
            for item in decision.items:
                if item.policy.key not in self.effective or item_of(item.origin) not in self.effective_items:
                    decisions_of.setdefault(item, []).append(decision)
        return decisions_of

    @remembered
    def _by_confs(self) -> frozenset[Unit]:
        """The policies that some decision shows to have an effect."""
        return frozenset(with_effect(self.decisions, policy_of, self.checkpoint))

    def _is_needed(self, route: Resource) -> bool:
        return route.key in self._by_confs or not self.recompilation.is_the_same_without(route)
