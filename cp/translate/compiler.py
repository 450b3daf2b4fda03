"""`Compiler`: from a World to the snapshot of each proxy, working out again only what a change concerns.

A proxy's snapshot is what its class has in common (`cp.translate.proxy_class`) and what only the proxy has: its
inbounds, what policies say of the proxy itself, and what takes the traffic that its machine redirects to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from cp.model.failure import WHOLE, Failure, joined, made_or_failure
from cp.model.memo import IdentityDict
from cp.model.names import Key
from cp.policies import Policies, Policy
from cp.resources.caller import Caller
from cp.resources.limits import BYTES_OF_INBOUNDS, Room
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.legacy import LegacyDecisions, LegacyOfCalls, failures_of_decisions
from cp.rules.matching import match
from cp.translate.capture import CaptureResult
from cp.translate.change_scope import ResourceChanges
from cp.translate.deciding_policies import InboundPolicies, OutboundPolicies, PolicySplitter
from cp.translate.effective import rules_of
from cp.translate.fragments import FragmentCache, failures_of, resources_of
from cp.translate.inbound import InboundResult
from cp.translate.proxy_class import ClassBuilder, ProxyClass
from cp.translate.sidecar import SidecarResult
from cp.translate.snapshot import Snapshot, SnapshotPart
from cp.translate.translator import Translator
from cp.translate.trust import TrustResult
from cp.translate.view import backend_refs
from cp.translate.view.mtls import InboundTls, inbound_tls, secured
from cp.translate.view.outbound_address import OutboundAddress
from cp.translate.view.proxies import inbounds, outbounds, wanted_outbounds
from cp.translate.view.redirected import capture_of
from generators.proxy import Capture


@dataclass(frozen=True, slots=True, eq=False)
class CompiledProxy:
    """Everything about one proxy, as it was last compiled. Equal only to itself."""

    dataplane: Resource
    proxy_class: ProxyClass
    """What it has in common with other proxies: outbounds, backends, host names."""

    tls: InboundTls | None
    """How callers speak TLS with it, unless a MeshTLS says otherwise; None: not at all."""

    inbounds: tuple[InboundResult, ...]
    """In the order of the inbounds in the Dataplane."""

    sidecar: SidecarResult
    """What it has because some policy is about the proxy itself."""

    capture_result: CaptureResult | None
    """What takes the traffic that its machine redirects to it; None where it redirects none."""

    part: SnapshotPart
    """The resources of its inbounds, sidecar and capture."""

    inbound_policies: InboundPolicies
    legacy_policies: LegacyDecisions = ()
    """The legacy policies that decide over its inbounds, or over the proxy as a whole."""

    trust: TrustResult | None = None
    """The roots that it trusts; None without mTLS."""

    own_failures: tuple[Failure, ...] = ()
    """The inbounds, sidecar and capture that could not be made, by faults of ours."""

    @property
    def capture(self) -> Capture | None:
        """What its machine redirects to it."""
        return None if self.capture_result is None else self.capture_result.capture

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The parts of it that could not be made, by faults of ours."""
        of_trust = () if self.trust is None else failures_of((self.trust.fragment,))
        decisions = (*self.proxy_class.rules.legacy.decisions_on_calls, *self.legacy_policies)
        of_legacy = dict.fromkeys(failures_of_decisions(decisions))
        left_out = self.proxy_class.left_out
        of_class = (*self.proxy_class.failures, *((left_out,) if left_out else ()))
        return (*of_legacy, *of_class, *self.own_failures, *of_trust)

    @property
    def snapshot(self) -> Snapshot:
        hosts = self.proxy_class.hosts
        shared = (hosts.part,) if hosts.hosts is not None else ()
        trusted = (self.trust.part,) if self.trust is not None else ()
        return Snapshot(self.proxy_class.part, *shared, *trusted, self.part)


_OwnResults: TypeAlias = tuple[tuple[InboundResult, ...], SidecarResult, CaptureResult | None]
"""The inbounds of a proxy, its sidecar and its capture."""

_ClassKey: TypeAlias = tuple[str, OutboundPolicies, LegacyOfCalls, Caller, Resource | None]
"""What tells classes with the same outbounds apart. The mesh is in it, as outbounds are alike in two meshes.

A builtin gateway has listeners at an address of its own, so it is a class by itself.
"""


class Compiler:
    """Compiles the proxies of one World after another, and keeps the results of the World before.

    There is no call for a new World: the first proxy that is asked for in it makes the compiler move on (`_enter`).
    `_classes` has the classes of that World alone. `_proxies` has each proxy as it was last compiled, which may be
    several Worlds ago. A class is made anew in each World, from the results of the class that a proxy had before; so a
    proxy whose class is the same object has nothing to be looked at.
    """

    def __init__(self, policies: Policies) -> None:
        self.policies: Mapping[str, Policy[Any]] = {policy.kind.name: policy for policy in policies}
        self._translator = Translator(policies)
        self._splitter = PolicySplitter()
        self._world: World | None = None
        self._changes: ResourceChanges
        """What has changed up to that World; there from the first World on."""

        self._classes: IdentityDict[tuple[OutboundAddress, ...], dict[_ClassKey, ProxyClass]] = IdentityDict()
        """By the outbounds of the class."""

        self._proxies: dict[Key, CompiledProxy] = {}
        self._taken: Counter[str] = Counter()
        """The bytes that the classes of each mesh take of its budget, those of the last World among them."""

        self._replaceable: WeakKeyDictionary[ProxyClass, int] = WeakKeyDictionary()
        """The bytes of the classes of the last World in whose place no other class has come."""

        self._trusted: dict[tuple[str, bool], TrustResult | None] = {}
        """The roots of each mesh in that World: those of its Envoys, and those of its gRPC clients."""

        self.certified_clients: AbstractSet[Key] = frozenset()
        """The gRPC clients without a proxy that say that they have certificates. No document does, so whoever knows who
        is connected sets it before a proxy is asked for (record 0063)."""

    @property
    def fragments(self) -> FragmentCache:
        return self._translator.fragments

    @property
    def translator(self) -> Translator:
        return self._translator

    @property
    def taken(self) -> Mapping[str, int]:
        """The bytes that the destinations of proxies take of the budgets of their meshes."""
        return self._taken

    @property
    def class_count(self) -> int:
        """How many classes the proxies form that were compiled in the present World."""
        return sum(map(len, self._classes.values()))

    def snapshot(self, world: World, dataplane: Resource) -> Snapshot:
        return self.proxy(world, dataplane).snapshot

    def proxy_class(self, world: World, dataplane: Resource, before: ProxyClass | None) -> ProxyClass:
        """What a proxy has in common with others, for whoever asks for nothing that it has alone.

        `before` is its class in an earlier World, of which all is kept that no change concerns.
        """
        self._enter(world)
        return self._class_of(world, dataplane, self._splitter.split(match(world, dataplane)).outbounds, before)

    def proxy(self, world: World, dataplane: Resource) -> CompiledProxy:
        self._enter(world)
        before = self._proxies.get(dataplane.key)
        policies = self._splitter.split(match(world, dataplane))
        proxy_class = self._class_of(
            world, dataplane, policies.outbounds, None if before is None else before.proxy_class
        )
        if before is None or before.proxy_class is not proxy_class or before.dataplane is not dataplane:
            self._proxies[dataplane.key] = self._proxy(world, dataplane, policies.inbounds, proxy_class, before)
        return self._proxies[dataplane.key]

    def proxy_or_failure(self, world: World, dataplane: Resource) -> CompiledProxy | Failure:
        """A proxy or, where a fault of ours is in no single part of it, that: for whoever asks for several."""
        return made_or_failure(partial(self.proxy, world, dataplane), WHOLE)

    def class_or_failure(self, world: World, dataplane: Resource, before: ProxyClass | None) -> ProxyClass | Failure:
        """What a proxy has in common with others (`proxy_class`), or the fault of ours for which nobody can tell."""
        return made_or_failure(partial(self.proxy_class, world, dataplane, before), WHOLE)

    def keep_only(self, dataplanes: Iterable[Key]) -> None:
        """Forget all proxies but these. What they had in common is kept until the next World."""
        self._proxies = {key: self._proxies[key] for key in dataplanes if key in self._proxies}

    def fork(self) -> Compiler:
        """Another compiler that goes on from here, into a World that may never be in force. This one stays behind.

        They share the fragments, and are not to be used at the same time.
        """
        fork = copy(self)
        fork._proxies, fork._splitter = dict(self._proxies), copy(self._splitter)  # noqa: SLF001  # it is ours
        fork._taken, fork._replaceable = Counter(self._taken), copy(self._replaceable)  # noqa: SLF001  # the same
        return fork

    def _enter(self, world: World) -> None:
        if world is not self._world:
            self._world, self._classes, self._trusted = world, IdentityDict(), {}
            self._changes = ResourceChanges(world)
            self._splitter.enter_next_world()
            classes: IdentityDict[ProxyClass, tuple[str, ProxyClass]] = IdentityDict()
            for dataplane, proxy in self._proxies.items():
                classes.put(proxy.proxy_class, (dataplane.mesh, proxy.proxy_class))
            self._taken, self._replaceable = Counter(), WeakKeyDictionary()
            for mesh, proxy_class in classes.values():
                self._taken[mesh] += proxy_class.kept_bytes
                self._replaceable[proxy_class] = proxy_class.kept_bytes

    def _class_of(
        self, world: World, dataplane: Resource, policies: OutboundPolicies, before: ProxyClass | None
    ) -> ProxyClass:
        """The class of a proxy, worked out for the first of its proxies that is asked for."""
        is_certified_client = dataplane.key in self.certified_clients
        caller = self._translator.callers.caller(world, dataplane, is_certified_client=is_certified_client)
        addresses = outbounds(world, dataplane)
        classes = self._classes.get(addresses)
        if classes is None:
            self._classes.put(addresses, classes := {})
        gateway = dataplane if dataplane.spec.is_builtin_gateway else None
        of_proxy = rules_of(world, dataplane)
        key = (dataplane.mesh, policies, of_proxy.legacy.policies_of_calls, caller, gateway)
        proxy_class = classes.get(key)
        if proxy_class is None:
            rules = self._translator.rules_of_outbounds(of_proxy, caller)
            given_up = None if before is None else self._replaceable.pop(before, None)
            self._taken[dataplane.mesh] -= given_up or 0
            builder = ClassBuilder(
                self._translator,
                world,
                self._changes,
                dataplane.mesh,
                rules,
                policies,
                caller,
                taken=self._taken[dataplane.mesh],
                wanted=wanted_outbounds(world, dataplane),
                has_successor=given_up is None,
            )
            built = builder.build(addresses, before) if gateway is None else builder.build_gateway(gateway, before)
            proxy_class = classes[key] = built
            self._taken[dataplane.mesh] += built.kept_bytes
        return proxy_class

    def _proxy(
        self,
        world: World,
        dataplane: Resource,
        policies: InboundPolicies,
        proxy_class: ProxyClass,
        before: CompiledProxy | None,
    ) -> CompiledProxy:
        """A proxy with its own inbounds, which are kept if nothing changed on which they depend.

        They depend on the dataplane, mTLS in its mesh, the policies that decide over its inbounds, its capture, and
        every resource to which a conf may refer: to find out whether a conf refers to one of those that changed would
        cost more than to work the inbounds out again. Inbounds of which some could not be made are tried again.
        """
        mesh, capture, tls = dataplane.mesh, capture_of(world, dataplane), inbound_tls(world, dataplane)
        trust = self._trust(world, mesh, is_grpc=proxy_class.caller.is_grpc)
        legacy = rules_of(world, dataplane).legacy.decisions_on_inbounds
        if (
            before is not None
            and before.dataplane is dataplane
            and before.tls == tls
            and before.inbound_policies is policies
            and before.legacy_policies == legacy
            and before.capture == capture
            and all(failure.is_limit for failure in before.own_failures)
            and backend_refs.same(before.proxy_class.world, world, mesh)
        ):
            # `replace` takes several times as long, and this is done for every proxy.
            own = before.inbounds, before.sidecar, before.capture_result, before.part
            return CompiledProxy(dataplane, proxy_class, tls, *own, policies, legacy, trust)
        results, sidecar, captured = self._own_results(world, dataplane, tls, capture)
        if before is not None:
            results, sidecar, captured = _with_last_good(before, results, sidecar, captured)
        fragments = [result.fragment for result in (*results, sidecar, captured) if result is not None]
        own = results, sidecar, captured, SnapshotPart(resources_of(fragments))
        return CompiledProxy(dataplane, proxy_class, tls, *own, policies, legacy, trust, joined(failures_of(fragments)))

    def _own_results(
        self, world: World, dataplane: Resource, tls: InboundTls | None, capture: Capture | None
    ) -> _OwnResults:
        """What only this proxy has, worked out anew."""
        mesh, rules, room = dataplane.mesh, rules_of(world, dataplane), Room(BYTES_OF_INBOUNDS)
        results = tuple(
            self._translator.inbounds.result(world, mesh, rules, index, secured(inbound, tls), room=room)
            for index, inbound in inbounds(dataplane)
        )
        sidecar = self._translator.sidecars.result(world, rules, dataplane)
        captured = None if capture is None else self._translator.captures.result(world, mesh, rules, capture)
        return results, sidecar, captured

    def _trust(self, world: World, mesh: str, *, is_grpc: bool) -> TrustResult | None:
        key = mesh, is_grpc
        if key not in self._trusted:
            self._trusted[key] = self._translator.trusts.result(world, mesh, is_grpc=is_grpc)
        return self._trusted[key]


def _with_last_good(
    before: CompiledProxy, results: tuple[InboundResult, ...], sidecar: SidecarResult, captured: CaptureResult | None
) -> _OwnResults:
    """The same results, with the last good fragment in place of each that could not be made."""
    last = {_port(result): result for result in before.inbounds}
    kept = tuple(_inbound_with_last_good(last.get(_port(result)), result) for result in results)
    if not sidecar.fragment.is_made:
        sidecar = replace(sidecar, fragment=before.sidecar.fragment.in_place_of(sidecar.fragment))
    if captured is not None and before.capture_result is not None and not captured.fragment.is_made:
        captured = replace(captured, fragment=before.capture_result.fragment.in_place_of(captured.fragment))
    return kept, sidecar, captured


def _inbound_with_last_good(last: InboundResult | None, result: InboundResult) -> InboundResult:
    """An inbound that lets in others than it should now is not kept: nobody is let in then (record 0044)."""
    if result.fragment.is_made or last is None or result.guard is None or result.guard != last.guard:
        return result
    return replace(result, fragment=last.fragment.in_place_of(result.fragment))


def _port(result: InboundResult) -> tuple[str, int]:
    return result.inbound.address, result.inbound.port
