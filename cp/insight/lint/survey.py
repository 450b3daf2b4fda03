"""The mesh as rules look at it: what holds for each class of proxies, worked out once for all rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from cp.insight.lint.sites import AnySpot, Unit, item_of, policy_of, with_effect
from cp.insight.lint.walk import BlockedItem, ClassOutbounds, of_inbound, of_proxy
from cp.insight.parts import destination_parts
from cp.model.checkpoint import Checkpoint, checked, never_stopped
from cp.model.failure import Failure, failure
from cp.model.names import Key
from cp.model.remembered import remembered
from cp.policies import Policies, Policy
from cp.resources.client import is_grpc_client
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules import PolicyItem, PolicyRules
from cp.rules.item_index import is_outdated
from cp.rules.items import PolicyItems, items
from cp.rules.matching import ByKind, match, routes_at_top
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.effective import Rules, built_in, rules_of
from cp.translate.view.proxies import inbounds

_DATAPLANE = "Dataplane"


class MeshSurvey:
    """A World with all of its proxies."""

    def __init__(self, policies: Policies, world: World, checkpoint: Checkpoint = never_stopped) -> None:
        self.checkpoint = checkpoint
        self.world = world
        self.policies: Mapping[str, Policy[Any]] = {policy.kind.name: policy for policy in policies}
        self._compiler = Compiler(policies)
        found = {one.key: _proxy(self._compiler, world, one) for one in self._proxies_of(world)}
        self.proxies: tuple[CompiledProxy, ...] = tuple(
            proxy for proxy in found.values() if isinstance(proxy, CompiledProxy)
        )
        failures = {
            key: proxy.failures if isinstance(proxy, CompiledProxy) else (proxy,) for key, proxy in found.items()
        }
        self.failures: Mapping[Key, tuple[Failure, ...]] = {key: some for key, some in failures.items() if some}
        """What could not be made, by the Dataplanes of the proxies."""

        self._outbound = {p.kind.name: built_in(p, p.outbound_default) for p in policies if p.outbound_default}
        self._inbound = {p.kind.name: built_in(p, p.inbound_default) for p in policies if p.inbound_default}

    def _proxies_of(self, world: World) -> Iterator[Resource]:
        return checked(_of_type(world, _DATAPLANE), self.checkpoint)

    @remembered
    def meshes(self) -> frozenset[str]:
        """The meshes that have proxies: only there anything can be said of what policies do."""
        return frozenset(proxy.dataplane.mesh for proxy in self.proxies)

    @remembered
    def judged(self) -> tuple[Resource, ...]:
        """The policies of which it can be told whether they have an effect."""
        there = (one for one in self.world if one.kind.policy is not None and one.mesh in self.meshes)
        return tuple(one for one in there if one not in self._beyond)

    @remembered
    def judged_set(self) -> frozenset[Resource]:
        return frozenset(self.judged)

    @remembered
    def classes(self) -> tuple[tuple[ByKind, int], ...]:
        """What proxies matched, each once, with how many of them there are."""
        every = [match(self.world, proxy.dataplane) for proxy in self.proxies]
        counts = Counter(map(id, every))
        return tuple((matched, counts[name]) for name, matched in {id(one): one for one in every}.items())

    @remembered
    def selected(self) -> Mapping[Resource, int]:
        """How many proxies each policy selects."""
        found: Counter[Resource] = Counter()
        for matched, count in self.classes:
            for some in matched.values():
                found.update({one.policy: count for one in some})
        return found

    @remembered
    def of_envoys(self) -> frozenset[Resource]:
        """The policies that select a proxy, and not only gRPC clients without one."""
        every = (match(self.world, one.dataplane) for one in self.proxies if not is_grpc_client(one.dataplane))
        found = {id(one): one for one in every}
        return frozenset(one.policy for matched in found.values() for some in matched.values() for one in some)

    @remembered
    def outbounds(self) -> tuple[ClassOutbounds, ...]:
        """What each class of proxies calls."""
        found = {id(proxy.bundle): proxy for proxy in self.proxies}
        return tuple(self._outbounds(proxy) for proxy in found.values())

    @remembered
    def spots(self) -> tuple[AnySpot, ...]:
        """Every spot, each once."""
        return tuple({spot.key: spot for spot in checked(self._spots(), self.checkpoint)}.values())

    @remembered
    def blocked(self) -> tuple[BlockedItem, ...]:
        """Items of routes that decide nothing for some destination, each once."""
        found = (one for some in self.outbounds for one in some.blocked())
        return tuple({(one.item, one.destination): one for one in found}.values())

    @remembered
    def effective(self) -> frozenset[Unit]:
        """The policies without which something would be different for some proxy."""
        return self._by_itself | self.needed

    @remembered
    def needed(self) -> frozenset[Unit]:
        """The routes without which a policy would select nobody that names them at its top level."""
        outdated = (one for one in self.judged if is_outdated(one) and one.key in self._by_itself)
        named = (routes_at_top(self.world.table("MeshHTTPRoute", one.mesh), one) for one in outdated)
        return frozenset(route.key for routes in named for route in routes)

    @remembered
    def _by_itself(self) -> frozenset[Unit]:
        return frozenset(with_effect(self.spots, policy_of, self.checkpoint))

    @remembered
    def effective_items(self) -> frozenset[Unit]:
        """The same for items."""
        return frozenset(with_effect(self.spots, item_of, self.checkpoint))

    @remembered
    def spots_of(self) -> Mapping[PolicyItem, list[AnySpot]]:
        """Where items speak of which it is asked why they have no effect."""
        found: dict[PolicyItem, list[AnySpot]] = {}
        for spot in self.spots:
            for item in spot.items:
                if item.policy.key not in self.effective or item_of(item.origin) not in self.effective_items:
                    found.setdefault(item, []).append(spot)
        return found

    def _outbounds(self, proxy: CompiledProxy) -> ClassOutbounds:
        mesh, bundle = proxy.dataplane.mesh, proxy.bundle
        parts = tuple(destination_parts(self._compiler.translator, bundle, mesh))
        return ClassOutbounds(self.world, mesh, bundle.rules, bundle, self._outbound, parts)

    def _spots(self) -> Iterator[AnySpot]:
        for some in checked(self.outbounds, self.checkpoint):
            yield from some.spots()
        seen: set[object] = set()
        for proxy in checked(self.proxies, self.checkpoint):
            rules = rules_of(self.world, proxy.dataplane)
            for (index, inbound), reached in zip(inbounds(proxy.dataplane), proxy.inbounds, strict=True):
                key = (id(rules), index, inbound.protocol)
                if key not in seen:
                    seen.add(key)
                    yield from of_inbound(rules, index, reached, self._inbound)
            of_calls = proxy.bundle.rules
            whole = (id(of_calls), proxy.capture_result is not None)
            if whole not in seen:
                seen.add(whole)
                yield from of_proxy(of_calls, is_redirected=proxy.capture_result is not None)

    @remembered
    def _beyond(self) -> frozenset[Resource]:
        """Policies of whose proxies not everything is looked at: of builtin gateways and of zone proxies.

        And those that tell more clients apart than can be told apart: without one of them the others may hold again.
        """
        every = (match(self.world, one.dataplane) for one in self.proxies if _has_listeners(one))
        seen = {id(one): one for one in every}
        found = {one.policy for matched in seen.values() for some in matched.values() for one in some}
        return frozenset(found).union(one.policy for rules in self.too_much for one in rules.matched)

    @remembered
    def too_much(self) -> tuple[PolicyRules, ...]:
        """The rules that are not worked out, because they would be too many."""
        every = {id(rules): rules for rules in self._all_rules()}.values()
        return tuple(of_kind for rules in every for of_kind in rules.values() if _is_too_much(of_kind))

    def _all_rules(self) -> Iterator[Rules]:
        return (rules_of(self.world, proxy.dataplane) for proxy in self.proxies)


def _proxy(compiler: Compiler, world: World, dataplane: Resource) -> CompiledProxy | Failure:
    try:
        return compiler.proxy(world, dataplane)
    except Exception as error:  # noqa: BLE001  # the others can be judged all the same
        return failure(error, "all that it gets")


def parts(policy: Resource) -> tuple[PolicyItem, ...]:
    """Every item of a policy, in the order in which they are written."""
    every: PolicyItems = items(policy)
    rules = every.rules if every.rules and every.rules[0].origin.part == "rules" else ()
    return (*every.to, *every.from_, *rules, *every.default)


def _of_type(world: World, type_: str) -> Iterator[Resource]:
    return (one for one in world if one.type == type_)


def _has_listeners(proxy: CompiledProxy) -> bool:
    spec = proxy.dataplane.spec
    return bool(spec.is_builtin_gateway or spec.net.listeners)


def _is_too_much(rules: PolicyRules) -> bool:
    shape = rules.shape
    return bool(
        (shape.to and rules.to_subsets.has_too_many_parts) or (shape.from_ and rules.from_().has_too_many_parts)
    )
