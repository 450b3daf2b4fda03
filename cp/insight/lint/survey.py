"""`MeshSurvey`: a World as the rules of lint see it. Each answer is worked out once, for all rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

from cp.insight.enforcement import decides_reach
from cp.insight.gateways import gateway_parts
from cp.insight.lint.any_decision import AnyDecision
from cp.insight.lint.decisions import DestinationDecision, Unit, item_of, policy_of, with_effect
from cp.insight.lint.gateway_walk import GatewayWalk
from cp.insight.lint.walk import PASSTHROUGH, ROUTES, BlockedItem, ClassOutbounds, ProxyInbound, of_proxy
from cp.insight.parts import destination_parts
from cp.model.checkpoint import Checkpoint, checked, never_stopped
from cp.model.document import Document
from cp.model.failure import Failure
from cp.model.names import Key
from cp.model.remembered import remembered
from cp.policies import Policies, Policy
from cp.resources.client import is_grpc_client
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules import PolicyItem, PolicyRules
from cp.rules.item_index import names_route_at_top
from cp.rules.items import PolicyItems, items
from cp.rules.matching import ByKind, match, routes_at_top
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.effective import (
    Effective,
    built_in,
    entrance_defaults,
    gateway_defaults,
    has_hook,
    rules_of,
)
from cp.translate.gateway import GatewayResult
from cp.translate.packing import TYPES
from cp.translate.view.proxies import inbounds
from cp.translate.view.proxies import outbounds as outbounds_of

_DATAPLANE = "Dataplane"
_NOT_CONFS = frozenset({*ROUTES, PASSTHROUGH})
"""Kinds of which it counts what they shape: a route table, or what passes through a proxy."""

GrpcClients: TypeAlias = Mapping[Key, bool]
"""Of gRPC clients without a proxy, as far as that is known, whether they find certificates."""

NO_CLIENTS: Final[GrpcClients] = MappingProxyType({})

T = TypeVar("T")


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
        self._compiler = self._new_compiler(policies)
        dataplanes = checked(world.of_type(_DATAPLANE), checkpoint)
        compiled = {dataplane.key: self._compiler.proxy_or_failure(world, dataplane) for dataplane in dataplanes}
        self.proxies: tuple[CompiledProxy, ...] = tuple(
            proxy for proxy in compiled.values() if isinstance(proxy, CompiledProxy)
        )
        failures = {
            key: proxy.failures if isinstance(proxy, CompiledProxy) else (proxy,) for key, proxy in compiled.items()
        }
        self.failures: Mapping[Key, tuple[Failure, ...]] = {
            key: of_proxy for key, of_proxy in failures.items() if of_proxy
        }
        """The parts that could not be made, by the Dataplane of the proxy."""

        self._outbound = {p.kind.name: built_in(p, p.outbound_default) for p in policies if p.outbound_default}
        self._inbound = {p.kind.name: built_in(p, p.inbound_default) for p in policies if p.inbound_default}
        self._gateway = gateway_defaults(policies)
        self._entrance = entrance_defaults(policies)

    @remembered
    def meshes(self) -> frozenset[str]:
        """The meshes with proxies. Without proxies it cannot be judged what policies do."""
        return frozenset(proxy.dataplane.mesh for proxy in self.proxies)

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

    def listeners_of(self, policy: Resource, gateway: Resource) -> frozenset[int]:
        """The listeners of a MeshGateway that a policy selects, by their indexes."""
        return frozenset(
            index
            for proxy in self.proxies
            if proxy.proxy_class.gateway is not None and proxy.proxy_class.gateway.gateway is gateway
            for matched in match(self.world, proxy.dataplane).get(policy.type, ())
            if matched.policy is policy
            for index in matched.listeners
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
    def effective(self) -> frozenset[Unit]:
        """The policies without which something would differ for some proxy."""
        return self._by_itself | self.needed | self.asking

    @remembered
    def needed(self) -> frozenset[Unit]:
        """The routes that decide what a policy does that names them at its top level.

        A route may also keep such a policy from doing anything: without it, another route of that name is meant.
        """
        policies = [policy for policy in self.judged if names_route_at_top(policy)]
        tables = (self.world.table("MeshHTTPRoute", policy.mesh) for policy in policies)
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
        changing_no_conf = (policy for policy in self.judged if policy.key not in self._by_itself)
        may_ask = (policy for policy in changing_no_conf if self.may_ask(policy) or policy in self._of_some_listeners)
        return frozenset(policy.key for policy in may_ask if not self.is_served_the_same_without(policy))

    @remembered
    def _of_some_listeners(self) -> frozenset[Resource]:
        """The policies that select some listeners of a gateway and not all of them."""
        matches = (
            (matched, len(walk.gateway.gateway.spec.listeners))
            for walk in self.walks
            for of_kind in match(self.world, walk.proxy.dataplane).values()
            for matched in of_kind
            if walk.gateway.gateway is not None
        )
        return frozenset(matched.policy for matched, count in matches if 0 < len(matched.listeners) < count)

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
    def _by_itself(self) -> frozenset[Unit]:
        return frozenset(with_effect(self.decisions, policy_of, self.checkpoint))

    @remembered
    def effective_items(self) -> frozenset[Unit]:
        """The items without which something would differ for some proxy."""
        return frozenset(with_effect(self.decisions, item_of, self.checkpoint))

    @remembered
    def decisions_of(self) -> Mapping[PolicyItem, list[AnyDecision]]:
        """The decisions in which each item without an effect takes part: they tell why it has none."""
        decisions_of: dict[PolicyItem, list[AnyDecision]] = {}
        for decision in self.decisions:
            for item in decision.items:
                if item.policy.key not in self.effective or item_of(item.origin) not in self.effective_items:
                    decisions_of.setdefault(item, []).append(decision)
        return decisions_of

    def is_served_the_same_without(self, policy: Resource, item: PolicyItem | None = None) -> bool:
        """Whether every proxy would be served the same without a policy, or one of its items.

        They are all compiled once more. Where a part could not be made, what is served tells nothing of it.
        """
        changed = None if item is None else _without(policy.document, item)
        if decides_reach(self.world, policy.type) and self._is_told_the_same({policy.key: changed}, policy):
            return True
        return self._is_unchanged({policy.key: changed}, policy, self._compiler, _is_served_the_same)

    def _is_told_the_same(self, changes: Mapping[Key, Document | None], policy: Resource) -> bool:
        """Whether every proxy would be told of the same destinations: to find that out costs less than to compile it.

        It is asked of permissions that hold at no inbound, which do nothing else.
        """
        world = self.world.next(changes, self.world.revision)
        of_mesh = (proxy.dataplane for proxy in checked(self.proxies, self.checkpoint))
        return all(
            outbounds_of(world, dataplane) == outbounds_of(self.world, dataplane)
            for dataplane in of_mesh
            if dataplane.mesh == policy.mesh
        )

    def _is_needed(self, route: Resource) -> bool:
        """Whether something else would be served, or hold, without a route.

        A compiler of its own works out everything: to the one that has the mesh already, a route concerns the services
        in its items, and not the other routes of its name, which a policy at their top level would mean instead.
        """
        if route.key in self._by_itself:
            return True
        compiler = self._new_compiler(tuple(self.policies.values()))
        return not self._is_unchanged({route.key: None}, route, compiler, _is_the_same)

    def _is_unchanged(
        self,
        changes: Mapping[Key, Document | None],
        policy: Resource,
        compiler: Compiler,
        is_same: Callable[[CompiledProxy, CompiledProxy], bool],
    ) -> bool:
        world = self.world.next(changes, self.world.revision)
        proxies = [proxy for proxy in self.proxies if proxy.dataplane.mesh == policy.mesh]
        # Those that it selects come first: one difference is enough.
        proxies.sort(key=lambda proxy: not _is_selected(self.world, proxy.dataplane, policy))
        pairs = (
            (proxy, compiler.proxy_or_failure(world, proxy.dataplane)) for proxy in checked(proxies, self.checkpoint)
        )
        return all(isinstance(new, CompiledProxy) and is_same(proxy, new) for proxy, new in pairs)

    def _new_compiler(self, policies: Policies) -> Compiler:
        compiler = Compiler(policies)
        compiler.certified_clients = {client for client, is_certified in self.clients.items() if is_certified}
        return compiler

    def _outbounds(self, proxy: CompiledProxy) -> ClassOutbounds:
        mesh, proxy_class = proxy.dataplane.mesh, proxy.proxy_class
        is_gateway = proxy_class.gateway is not None  # its clusters are looked at with its listeners
        parts = () if is_gateway else tuple(destination_parts(self._compiler.translator, proxy_class, mesh))
        return ClassOutbounds(self.world, mesh, proxy_class.rules, proxy_class, self._outbound, parts)

    @remembered
    def walks(self) -> tuple[GatewayWalk, ...]:
        """Each proxy that is a builtin gateway."""
        return tuple(
            GatewayWalk(self.world, self.policies, proxy, gateway, self._gateway, self._entrance, self._outbound)
            for proxy in self.proxies
            if (gateway := proxy.proxy_class.gateway) is not None and gateway.gateway is not None
        )

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
                    yield from inbound.decisions(self._inbound)
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


def _is_served_the_same(proxy: CompiledProxy, recompiled: CompiledProxy) -> bool:
    if proxy.failures or recompiled.failures:
        return False
    return all(proxy.snapshot.digest(type_url) == recompiled.snapshot.digest(type_url) for type_url in TYPES)


def _is_the_same(proxy: CompiledProxy, recompiled: CompiledProxy) -> bool:
    """Whether the same confs hold as well, be they visible in what is served or not."""
    return _is_served_the_same(proxy, recompiled) and _confs(proxy) == _confs(recompiled)


def _confs(proxy: CompiledProxy) -> Sequence[Mapping[str, Any]]:
    """Every conf that holds for a proxy. Of destinations without one of their parts, what is served decides."""
    proxy_class = proxy.proxy_class
    callable_ = (
        result for result in proxy_class.outbounds.values() if result.outbound.names or not proxy_class.caller.is_grpc
    )
    whole = [result for result in callable_ if result.address.destination in proxy_class.backends]
    effectives: list[Effective] = [result.effective for result in whole]
    effectives += [of_route for result in whole for of_route in result.of_routes.values()]
    effectives += [inbound.effective for inbound in proxy.inbounds]
    effectives.append(proxy.sidecar.effective)
    gateway = proxy_class.gateway
    parts = () if gateway is None else gateway_parts(gateway)
    effectives += [part.effective for part in parts]
    return [
        {kind: merged.value for kind, merged in effective.items() if kind not in _NOT_CONFS} for effective in effectives
    ]


def _without(document: Document, item: PolicyItem) -> Document:
    root, part = item.policy.kind.root, item.origin.part
    spec = dict(document.data[root])
    spec[part] = [data for index, data in enumerate(spec[part]) if index != item.index]
    return Document(document.key, {**document.data, root: {name: value for name, value in spec.items() if value}})


def _is_selected(world: World, dataplane: Resource, policy: Resource) -> bool:
    return any(matched.policy is policy for matched in match(world, dataplane).get(policy.type, ()))


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
