"""`MeshSurvey`: a World as the rules of lint see it. Each answer is worked out once, for all rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

from cp.insight.lint.any_decision import AnyDecision
from cp.insight.lint.decisions import DestinationDecision
from cp.insight.lint.gateway_walk import GatewayWalk
from cp.insight.lint.policy_effects import PolicyEffects
from cp.insight.lint.recompilation import Recompilation
from cp.insight.lint.walk import BlockedItem, ClassOutbounds, ProxyInbound, of_proxy
from cp.insight.parts import destination_parts
from cp.model.checkpoint import Checkpoint, checked, never_stopped
from cp.model.failure import Failure
from cp.model.names import Key
from cp.model.remembered import remembered
from cp.policies import Policies, Policy
from cp.resources.client import is_grpc_client
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules import PolicyItem, PolicyRules
from cp.rules.items import PolicyItems, items
from cp.rules.matching import ByKind, MatchedPolicy, match
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.effective import defaults, entrance_defaults, gateway_defaults, rules_of
from cp.translate.gateway import GatewayResult
from cp.translate.view.proxies import inbounds

GrpcClients: TypeAlias = Mapping[Key, bool]
"""Of gRPC clients without a proxy, as far as that is known, whether they find certificates."""

NO_CLIENTS: Final[GrpcClients] = MappingProxyType({})

T = TypeVar("T")


def _compiler(policies: Policies, clients: GrpcClients) -> Compiler:
    compiler = Compiler(tuple(policies))
    compiler.certified_clients = {client for client, is_certified in clients.items() if is_certified}
    return compiler


class MeshSurvey:
    """A World with all of its proxies."""

    def __init__(
        self,
        policies: Policies,
        world: World,
        checkpoint: Checkpoint = never_stopped,
        now: float | None = None,
        clients: GrpcClients = NO_CLIENTS,
    ) -> None:
        """`now` is in seconds since 1970; without it nothing is said about what ends some day."""
        self.checkpoint = checkpoint
        self.clients = clients
        self.now = now
        self.world = world
        self.policies: Mapping[str, Policy[Any]] = {policy.kind.name: policy for policy in policies}
        self._compiler = _compiler(policies, clients)
        dataplanes = checked(world.of_type("Dataplane"), checkpoint)
        outcomes = {dataplane.key: self._compiler.proxy_or_failure(world, dataplane) for dataplane in dataplanes}
        self.proxies: tuple[CompiledProxy, ...] = tuple(
            outcome for outcome in outcomes.values() if isinstance(outcome, CompiledProxy)
        )
        failures = {
            key: outcome.failures if isinstance(outcome, CompiledProxy) else (outcome,)
            for key, outcome in outcomes.items()
        }
        self.failures: Mapping[Key, tuple[Failure, ...]] = {
            key: of_proxy for key, of_proxy in failures.items() if of_proxy
        }
        """The parts that could not be made, by the Dataplane of the proxy."""

        self._outbound_defaults = defaults(policies, "outbound_default")
        self._inbound_defaults = defaults(policies, "inbound_default")
        self._gateway_defaults = gateway_defaults(policies)
        self._entrance_defaults = entrance_defaults(policies)

    @remembered
    def proxy_counts(self) -> Mapping[str, int]:
        """How many proxies there are, by their mesh."""
        return Counter(proxy.dataplane.mesh for proxy in self.proxies)

    @remembered
    def meshes(self) -> frozenset[str]:
        """The meshes with proxies. Without proxies it cannot be judged what policies do."""
        return frozenset(self.proxy_counts)

    @remembered
    def judged(self) -> tuple[Resource, ...]:
        """The policies of which lint can tell whether they have an effect."""
        policies = _policies(self.world, self.meshes)
        return tuple(policy for policy in policies if policy not in self._not_judged)

    @remembered
    def judged_set(self) -> frozenset[Resource]:
        return frozenset(self.judged)

    @remembered
    def classes(self) -> tuple[tuple[ByKind, int], ...]:
        """Each set of matched policies once, with the number of proxies that match it."""
        of_proxies = [match(self.world, proxy.dataplane) for proxy in self.proxies]
        counts = Counter(map(id, of_proxies))  # proxies that match the same share one object
        return tuple((matched, counts[id(matched)]) for matched in _distinct(of_proxies))

    @remembered
    def selected(self) -> Mapping[Resource, int]:
        """How many proxies each policy selects."""
        counts: Counter[Resource] = Counter()
        for matched, count in self.classes:
            counts.update(dict.fromkeys(_matched_policies(matched), count))
        return counts

    @remembered
    def of_envoys(self) -> frozenset[Resource]:
        """The policies that select an Envoy, and not only gRPC clients without one."""
        dataplanes = (proxy.dataplane for proxy in self.proxies if not is_grpc_client(proxy.dataplane))
        return self._selecting_any(dataplanes)

    def _selecting_any(self, dataplanes: Iterable[Resource]) -> frozenset[Resource]:
        of_proxies = _distinct(match(self.world, dataplane) for dataplane in dataplanes)
        return frozenset(policy for matched in of_proxies for policy in _matched_policies(matched))

    @remembered
    def gateways(self) -> Mapping[Resource, GatewayResult]:
        """What one proxy of each MeshGateway is served: its others are served the same at other addresses."""
        results = (proxy.proxy_class.gateway for proxy in self.proxies)
        return {result.gateway: result for result in results if result is not None and result.gateway is not None}

    @remembered
    def walks(self) -> tuple[GatewayWalk, ...]:
        """Each proxy that is a builtin gateway."""
        of_layers = self._gateway_defaults, self._entrance_defaults, self._outbound_defaults
        return tuple(
            GatewayWalk(self.world, self.policies, proxy, gateway, *of_layers)
            for proxy in self.proxies
            if (gateway := proxy.proxy_class.gateway) is not None and gateway.gateway is not None
        )

    @remembered
    def selected_listeners(self) -> Mapping[Resource, Mapping[Resource, frozenset[int]]]:
        """The listeners that each policy selects: for each of their MeshGateways the indexes."""
        listeners: dict[Resource, dict[Resource, frozenset[int]]] = {}
        for gateway, matched in self._matches_at_gateways:
            of_policy = listeners.setdefault(matched.policy, {})
            of_policy[gateway] = of_policy.get(gateway, frozenset()).union(matched.listeners)
        return listeners

    @remembered
    def _of_some_listeners(self) -> frozenset[Resource]:
        """The policies that select some listeners of a gateway and not all of them."""
        matches = ((matched, len(gateway.spec.listeners)) for gateway, matched in self._matches_at_gateways)
        return frozenset(matched.policy for matched, count in matches if 0 < len(matched.listeners) < count)

    @remembered
    def _matches_at_gateways(self) -> tuple[tuple[Resource, MatchedPolicy], ...]:
        """The policies that select proxies of each MeshGateway. Of proxies that match the same one is looked at."""
        by_gateway: dict[Resource, list[ByKind]] = {gateway: [] for gateway in self.gateways}
        for proxy in self.proxies:
            result = proxy.proxy_class.gateway
            if result is not None and result.gateway is not None:
                by_gateway[result.gateway].append(match(self.world, proxy.dataplane))
        return tuple(
            (gateway, matched)
            for gateway, of_proxies in by_gateway.items()
            for by_kind in _distinct(of_proxies)
            for of_kind in by_kind.values()
            for matched in of_kind
        )

    @remembered
    def outbounds(self) -> tuple[ClassOutbounds, ...]:
        """What each class of proxies calls."""
        by_class = {id(proxy.proxy_class): proxy for proxy in self.proxies}
        return tuple(self._outbounds(proxy) for proxy in by_class.values())

    @remembered
    def decisions(self) -> tuple[AnyDecision, ...]:
        """Every decision, each once."""
        return tuple({decision.key: decision for decision in checked(self._decisions(), self.checkpoint)}.values())

    @remembered
    def destinations(self) -> tuple[DestinationDecision, ...]:
        """For each class of proxies, each destination and each kind of policy, the parts that are served; each once."""
        decisions = (decision for outbounds in self.outbounds for decision in outbounds.of_destinations())
        return tuple({decision.key: decision for decision in checked(decisions, self.checkpoint)}.values())

    @remembered
    def blocked(self) -> tuple[BlockedItem, ...]:
        """Items of routes that decide nothing for some destination, each once."""
        every_class = (blocked for outbounds in self.outbounds for blocked in outbounds.blocked())
        return tuple({(blocked.item, blocked.destination): blocked for blocked in every_class}.values())

    @remembered
    def effects(self) -> PolicyEffects:
        """Which policies, and which of their items, have an effect."""
        return PolicyEffects(
            self.world,
            self.policies,
            self.judged,
            self.decisions,
            self._of_some_listeners,
            self.recompilation,
            self.checkpoint,
        )

    @remembered
    def recompilation(self) -> Recompilation:
        """What would be served without a policy."""
        new_compiler = partial(_compiler, tuple(self.policies.values()), self.clients)  # no cycle by way of the survey
        return Recompilation(self.world, self.proxies, self._compiler, new_compiler, self.checkpoint)

    def _outbounds(self, proxy: CompiledProxy) -> ClassOutbounds:
        mesh, proxy_class = proxy.dataplane.mesh, proxy.proxy_class
        is_gateway = proxy_class.gateway is not None  # its clusters are looked at with its listeners
        parts = () if is_gateway else tuple(destination_parts(self._compiler.translator, proxy_class, mesh))
        return ClassOutbounds(self.world, mesh, proxy_class.rules, proxy_class, self._outbound_defaults, parts)

    def _decisions(self) -> Iterator[AnyDecision]:
        for outbounds in checked(self.outbounds, self.checkpoint):
            yield from outbounds.decisions()
        for walk in checked(self.walks, self.checkpoint):
            yield from walk.decisions()
        seen: set[object] = set()
        for proxy in checked(self.proxies, self.checkpoint):
            for inbound in self.inbounds_of(proxy):
                if inbound.key not in seen:
                    seen.add(inbound.key)
                    yield from inbound.decisions(self._inbound_defaults)
            of_calls = proxy.proxy_class.rules
            whole = (id(of_calls), proxy.capture_result is not None)
            if whole not in seen:
                seen.add(whole)
                yield from of_proxy(of_calls, is_redirected=proxy.capture_result is not None)

    def inbounds_of(self, proxy: CompiledProxy) -> Iterator[ProxyInbound]:
        rules, fragments = rules_of(self.world, proxy.dataplane), self._compiler.translator.fragments
        for (index, _), reached in zip(inbounds(proxy.dataplane), proxy.inbounds, strict=True):
            yield ProxyInbound(self.world, rules, proxy.dataplane, index, reached, fragments)

    @remembered
    def _not_judged(self) -> frozenset[Resource]:
        """The policies for zone proxies, of which not everything is compiled.

        And those that together divide clients into too many groups: without one of them the others may hold again.
        """
        with_listeners = (proxy.dataplane for proxy in self.proxies if _has_listeners(proxy))
        dividing = (matched.policy for rules in self.too_much for matched in rules.matched)
        return self._selecting_any(with_listeners).union(dividing)

    @remembered
    def too_much(self) -> tuple[PolicyRules, ...]:
        """The rules that are not worked out, because they would be too many."""
        distinct = _distinct(rules_of(self.world, proxy.dataplane) for proxy in self.proxies)
        return tuple(of_kind for rules in distinct for of_kind in rules.values() if _is_too_much(of_kind))


def _distinct(objects: Iterable[T]) -> tuple[T, ...]:
    """Each object once. Equal ones are the same object here, and identity is cheaper to compare."""
    return tuple({id(element): element for element in objects}.values())


def _policies(world: World, meshes: Container[str]) -> Iterator[Resource]:
    return (resource for resource in world if resource.kind.policy is not None and resource.mesh in meshes)


def _matched_policies(matched: ByKind) -> Iterator[Resource]:
    return (matched_policy.policy for of_kind in matched.values() for matched_policy in of_kind)


def items_of(policy: Resource) -> tuple[PolicyItem, ...]:
    """Every item of a policy, in the order in which they are written."""
    by_part: PolicyItems = items(policy)
    rules = by_part.rules if by_part.rules and by_part.rules[0].origin.part == "rules" else ()
    return (*by_part.to, *by_part.from_, *rules, *by_part.default)


def _has_listeners(proxy: CompiledProxy) -> bool:
    return bool(proxy.dataplane.spec.net.listeners)


def _is_too_much(rules: PolicyRules) -> bool:
    shape = rules.shape
    return bool(
        (shape.to and rules.to_subsets.has_too_many_parts)
        or (shape.from_ and not shape.side_by_side and rules.from_().has_too_many_parts)
    )
