"""`Compiler`: from a World to the snapshot of each proxy, working out again only what a change concerns.

Proxies that match the same policies and have the same outbounds form a class (record 0004). What a class has in common
is one `ProxyClass`, worked out once. From World to World it keeps every result that the change does not concern
(`cp.translate.change_scope`, record 0054).

A result that cannot be made, by a fault of ours, is replaced by the last good one (record 0044).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Final, TypeAlias

from cp.model.dependency import ChangeScope
from cp.model.failure import Failure
from cp.model.memo import IdentityDict
from cp.model.names import Destination, Key
from cp.policies import Policies, Policy
from cp.resources.caller import Caller
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.matching import MatchedPolicy, match
from cp.rules.matching.matcher import ByKind
from cp.rules.targets import TargetTables
from cp.translate.backend import BackendResult
from cp.translate.capture import CaptureResult
from cp.translate.change_scope import by_named_routes, by_policies, by_world
from cp.translate.effective import Rules, rules_of
from cp.translate.fragments import Fragment, FragmentCache, Task
from cp.translate.inbound import InboundResult
from cp.translate.outbound import OutboundResult
from cp.translate.packing import PackedResource
from cp.translate.sidecar import SidecarResult
from cp.translate.snapshot import NO_PART, Snapshot, SnapshotPart
from cp.translate.translator import Translator
from cp.translate.view import backend_refs
from cp.translate.view.hostnames import hosts
from cp.translate.view.outbound_address import OutboundAddress
from cp.translate.view.proxies import inbounds, outbounds
from cp.translate.view.redirected import capture_of
from generators.proxy import Capture, Hosts

_PoliciesByKind: TypeAlias = tuple[tuple[str, tuple[Any, ...]], ...]


class DecidingPolicies:
    """The policies that decide over the outbounds, or the inbounds, of some proxies.

    Equal only to itself. Proxies for which the same policies decide share the object, so comparing costs nothing.
    """

    __slots__ = ("by_kind",)

    def __init__(self, by_kind: _PoliciesByKind) -> None:
        self.by_kind = by_kind

    @property
    def policies(self) -> Mapping[str, tuple[Resource, ...]]:
        return dict(self.by_kind)


@dataclass(frozen=True, slots=True)
class _Sides:
    """The matched policies of some proxies, parted by what they decide over."""

    outbounds: DecidingPolicies
    inbounds: DecidingPolicies


@dataclass(frozen=True, slots=True, eq=False)
class ClassHosts:
    """The host names of the destinations of a class, and the listener that answers for them."""

    hosts: Hosts | None
    part: SnapshotPart
    fragment: Fragment


@dataclass(frozen=True, slots=True, eq=False)
class ProxyClass:
    """What all proxies of a class have in common, in one World."""

    world: World
    rules: Rules
    deciding: DecidingPolicies
    caller: Caller
    addresses: tuple[OutboundAddress, ...]
    outbounds: Mapping[OutboundAddress, OutboundResult]
    backends: Mapping[Destination, BackendResult]
    part: SnapshotPart
    hosts: ClassHosts
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class CompiledProxy:
    """Everything about one proxy."""

    dataplane: Resource
    proxy_class: ProxyClass
    inbounds: tuple[InboundResult, ...]
    sidecar: SidecarResult
    capture_result: CaptureResult | None
    """What takes the traffic that its machine redirects to it; None where it redirects none."""

    part: SnapshotPart
    deciding: DecidingPolicies
    """The policies that decide over its inbounds."""

    own_failures: tuple[Failure, ...] = ()

    @property
    def capture(self) -> Capture | None:
        """What its machine redirects to it."""
        return None if self.capture_result is None else self.capture_result.capture

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The parts of it that could not be made, by faults of ours."""
        return (*self.proxy_class.failures, *self.own_failures)

    @property
    def snapshot(self) -> Snapshot:
        hosts = (self.proxy_class.hosts.part,) if self.proxy_class.hosts.hosts is not None else ()
        return Snapshot(self.proxy_class.part, *hosts, self.part)


_ClassKey: TypeAlias = tuple[str, DecidingPolicies, Caller]
"""What tells classes with the same outbounds apart. The mesh is in it, as outbounds are alike in two meshes."""


class Compiler:
    """Compiles the proxies of one World after another, and keeps the results of the World before.

    A new World is entered with the first proxy that is asked for. `_classes` and `_sides` hold results of the World
    that was entered last, `_sides_before` those of the World before it. `_proxies` has each proxy as it was last
    compiled, which may be several Worlds ago.
    """

    def __init__(self, policies: Policies) -> None:
        self.policies: Mapping[str, Policy[Any]] = {policy.kind.name: policy for policy in policies}
        self._translator = Translator(policies)
        self._world: World | None = None
        self._classes: IdentityDict[tuple[OutboundAddress, ...], dict[_ClassKey, ProxyClass]] = IdentityDict()
        """By the outbounds of the class."""

        self._sides: IdentityDict[ByKind, _Sides] = IdentityDict()
        self._sides_before: IdentityDict[ByKind, _Sides] = IdentityDict()
        self._deciding: dict[_PoliciesByKind, DecidingPolicies] = {}
        """By their policies: what the World before had, so that equal policies keep their object."""

        self._proxies: dict[Key, CompiledProxy] = {}

    @property
    def fragments(self) -> FragmentCache:
        return self._translator.fragments

    @property
    def translator(self) -> Translator:
        return self._translator

    @property
    def classes(self) -> int:
        return sum(map(len, self._classes.values()))

    def snapshot(self, world: World, dataplane: Resource) -> Snapshot:
        return self.proxy(world, dataplane).snapshot

    def proxy(self, world: World, dataplane: Resource) -> CompiledProxy:
        self._enter(world)
        before = self._proxies.get(dataplane.key)
        matched, addresses = match(world, dataplane), outbounds(world, dataplane)
        sides, caller = self._by_side(matched), self._translator.callers.caller(world, dataplane)
        classes = self._classes.get(addresses)
        if classes is None:
            self._classes.put(addresses, classes := {})
        key = (dataplane.mesh, sides.outbounds, caller)
        proxy_class = classes.get(key)
        if proxy_class is None:
            rules = self._translator.rules_of_outbounds(rules_of(world, dataplane), caller)
            work = _Work(self._translator, world, dataplane.mesh, rules, sides.outbounds, caller)
            proxy_class = classes[key] = _class_of(work, addresses, before.proxy_class if before else None)
        if before is None or before.proxy_class is not proxy_class or before.dataplane is not dataplane:
            self._proxies[dataplane.key] = self._proxy(world, dataplane, sides.inbounds, proxy_class, before)
        return self._proxies[dataplane.key]

    def keep_only(self, dataplanes: Iterable[Key]) -> None:
        """Forget all proxies but these, and with them what only they needed."""
        self._proxies = {key: self._proxies[key] for key in dataplanes if key in self._proxies}

    def _enter(self, world: World) -> None:
        if world is not self._world:
            self._world, self._classes = world, IdentityDict()
            # Only those of the World before are kept; earlier ones would pile up.
            live = (deciding for sides in self._sides.values() for deciding in (sides.outbounds, sides.inbounds))
            self._deciding = {deciding.by_kind: deciding for deciding in live}
            self._sides, self._sides_before = IdentityDict(), self._sides

    def _by_side(self, matched: ByKind) -> _Sides:
        """The matched policies by what they decide over, as objects that proxies and Worlds share."""
        sides = self._sides.get(matched)
        if sides is None:
            sides = self._sides_before.get(matched) or self._decided(matched)
            self._sides.put(matched, sides)
        return sides

    def _decided(self, matched: ByKind) -> _Sides:
        of_outbounds: dict[str, tuple[Resource, ...]] = {}
        of_inbounds: dict[str, tuple[MatchedPolicy, ...]] = {}
        for kind, matches in matched.items():
            single = matches[0].policy.kind.policy is not None and matches[0].policy.kind.policy.single
            policies = [(match, match.policy, match.policy.data) for match in matches]
            of_outbounds[kind] = tuple([policy for _, policy, data in policies if single or data.get("to")])
            of_inbounds[kind] = tuple(
                [match for match, _, data in policies if single or data.get("from") or data.get("rules")]
            )
        return _Sides(self._shared(_present(of_outbounds)), self._shared(_present(of_inbounds)))

    def _shared(self, policies: _PoliciesByKind) -> DecidingPolicies:
        return self._deciding.setdefault(policies, DecidingPolicies(policies))

    def _proxy(
        self,
        world: World,
        dataplane: Resource,
        deciding: DecidingPolicies,
        proxy_class: ProxyClass,
        before: CompiledProxy | None,
    ) -> CompiledProxy:
        """A proxy with its own inbounds, which are kept if nothing changed on which they depend.

        That is the dataplane, the policies that decide over its inbounds, its capture, and every resource to which a
        conf may refer: to find out whether one does would cost more than to work the inbounds out again.
        """
        mesh, capture = dataplane.mesh, capture_of(world, dataplane)
        if (
            before is not None
            and before.dataplane is dataplane
            and before.deciding is deciding
            and before.capture == capture
            and not before.own_failures
            and backend_refs.same(before.proxy_class.world, world, mesh)
        ):
            return CompiledProxy(
                dataplane, proxy_class, before.inbounds, before.sidecar, before.capture_result, before.part, deciding
            )
        rules = rules_of(world, dataplane)
        reached = tuple(
            self._translator.inbounds.result(world, mesh, rules, *inbound) for inbound in inbounds(dataplane)
        )
        sidecar = self._translator.sidecars.result(world, rules, dataplane)
        captured = None if capture is None else self._translator.captures.result(world, mesh, rules, capture)
        if before is not None:
            reached, sidecar, captured = _kept_of_proxy(before, reached, sidecar, captured)
        fragments = [result.fragment for result in (*reached, sidecar, captured) if result is not None]
        part = SnapshotPart(_resources(fragments))
        return CompiledProxy(dataplane, proxy_class, reached, sidecar, captured, part, deciding, _failures(fragments))


def _present(by_kind: Mapping[str, tuple[Any, ...]]) -> _PoliciesByKind:
    return tuple((kind, policies) for kind, policies in by_kind.items() if policies)


def _class_of(work: _Work, addresses: tuple[OutboundAddress, ...], before: ProxyClass | None) -> ProxyClass:
    """The class of a proxy. What a change does not concern is taken from the class that the proxy had before."""
    if before is not None and before.caller == work.caller:
        targets = [TargetTables.of(world, work.mesh) for world in (before.world, work.world)]
        scope = by_world(before.world, work.world, work.mesh)
        scope |= by_policies(before.deciding.policies, work.deciding.policies, targets)
        scope |= by_named_routes(before.world, work.world, work.mesh, work.deciding.policies)
        if not scope.everything:
            return work.renew(before, addresses, scope)
    return work.build(addresses, before)


@dataclass(frozen=True, slots=True)
class _Work:
    """Working out the proxy_class of one class in one World."""

    translator: Translator
    world: World
    mesh: str
    rules: Rules
    deciding: DecidingPolicies
    caller: Caller

    def build(self, addresses: tuple[OutboundAddress, ...], before: ProxyClass | None) -> ProxyClass:
        """Everything is worked out again."""
        outbounds = {address: self._outbound(address, before) for address in addresses}
        used = dict.fromkeys(destination for outbound in outbounds.values() for destination in outbound.uses)
        backends = {destination: self._backend(destination, before) for destination in used}
        part = SnapshotPart(_all_resources(outbounds, backends))
        return self._class_from(before, addresses, outbounds, backends, part)

    def renew(self, before: ProxyClass, addresses: tuple[OutboundAddress, ...], scope: ChangeScope) -> ProxyClass:
        """Most outbounds are those of before; of these not even the hashes are worked out again."""
        # A result that could not be made is tried again: on what a fault depends is not known.
        renewed = {
            address: self._outbound(address, before)
            for address, outbound in before.outbounds.items()
            if scope.concerns(outbound.depends_on) or not _is_made(outbound.fragment)
        }
        outbounds = {**before.outbounds, **renewed}
        if addresses is not before.addresses:
            return self._with_other_addresses(before, addresses, outbounds, scope)
        if any(outbound.uses != before.outbounds[address].uses for address, outbound in renewed.items()):
            backends = self._backends(before, outbounds.values(), scope)  # a route leads elsewhere now
        else:
            backends = {**before.backends, **self._renewed(before, before.backends, scope)}
        # The part is that of before with the changed resources in it, unless a resource came or went.
        changed = [(before.outbounds[address].fragment, outbound.fragment) for address, outbound in renewed.items()]
        part = _updated(before.part, (*changed, *_changed_backends(before, backends)))
        return self._class_from(
            before, addresses, outbounds, backends, part or SnapshotPart(_all_resources(outbounds, backends))
        )

    def _with_other_addresses(
        self,
        before: ProxyClass,
        addresses: tuple[OutboundAddress, ...],
        known: Mapping[OutboundAddress, OutboundResult],
        scope: ChangeScope,
    ) -> ProxyClass:
        """Where outbounds come or go, the outbounds that stay are kept all the same."""
        outbounds = {address: known.get(address) or self._outbound(address, before) for address in addresses}
        backends = self._backends(before, outbounds.values(), scope)
        part = SnapshotPart(_all_resources(outbounds, backends))
        return self._class_from(before, addresses, outbounds, backends, part)

    def _class_from(
        self,
        before: ProxyClass | None,
        addresses: tuple[OutboundAddress, ...],
        outbounds: Mapping[OutboundAddress, OutboundResult],
        backends: Mapping[Destination, BackendResult],
        part: SnapshotPart,
    ) -> ProxyClass:
        class_hosts = self._hosts(addresses, None if before is None else before.hosts)
        of_outbounds = (outbound.fragment for outbound in outbounds.values())
        failures = _failures((*of_outbounds, *_fragments_of(backends), class_hosts.fragment))
        return ProxyClass(
            world=self.world,
            rules=self.rules,
            deciding=self.deciding,
            caller=self.caller,
            addresses=addresses,
            outbounds=outbounds,
            backends=backends,
            part=part,
            hosts=class_hosts,
            failures=failures,
        )

    def _hosts(self, addresses: tuple[OutboundAddress, ...], before: ClassHosts | None) -> ClassHosts:
        names = hosts(self.world, self.mesh, addresses)
        if before is not None and before.hosts is names and before.fragment.failure is None:
            return before
        if names is None:
            return ClassHosts(None, NO_PART, _NO_FRAGMENT)
        fragment = self.translator.fragments.get(Task(names))
        if fragment.failure is not None:
            fragment = Fragment((), failure=replace(fragment.failure, part="the listener for names"))
            fragment = fragment if before is None else before.fragment.in_place_of(fragment)
        return ClassHosts(names, SnapshotPart(fragment), fragment)

    def _outbound(self, address: OutboundAddress, before: ProxyClass | None) -> OutboundResult:
        """An outbound. One that cannot be made stays as it was, and keeps what it leads to."""
        outbound = self.translator.outbounds.result(self.world, self.mesh, self.rules, address, self.caller)
        last = None if before is None else before.outbounds.get(address)
        if outbound.fragment.failure is None or last is None or not _is_good(last.fragment):
            return outbound
        uses = tuple(dict.fromkeys((*last.uses, *outbound.uses)))
        return replace(outbound, fragment=last.fragment.in_place_of(outbound.fragment), uses=uses)

    def _backend(self, destination: Destination, before: ProxyClass | None) -> BackendResult:
        backend = self.translator.backends.result(self.world, self.mesh, self.rules, destination, self.caller)
        last = None if before is None else before.backends.get(destination)
        if last is None or not _failures(backend.fragments):
            return backend
        if len(backend.fragments) == 1 < len(last.fragments):  # not even its tasks, or it has no endpoints any more
            (failed,) = backend.fragments
            return replace(last, fragments=tuple(old.in_place_of(failed) for old in last.fragments))
        if len(backend.fragments) != len(last.fragments):  # there is nothing to stand for its endpoints
            return backend
        kept = tuple(old.in_place_of(new) for new, old in zip(backend.fragments, last.fragments, strict=True))
        return replace(backend, fragments=kept)

    def _backends(
        self, before: ProxyClass, outbounds: Iterable[OutboundResult], scope: ChangeScope
    ) -> Mapping[Destination, BackendResult]:
        """The backends to which these outbounds lead. Those of before that the change does not concern are kept."""
        used = dict.fromkeys(destination for outbound in outbounds for destination in outbound.uses)
        kept = {
            destination: before.backends.get(destination) or self._backend(destination, before) for destination in used
        }
        return {**kept, **self._renewed(before, kept, scope)}

    def _renewed(
        self, before: ProxyClass, backends: Mapping[Destination, BackendResult], scope: ChangeScope
    ) -> Mapping[Destination, BackendResult]:
        """The backends that the change concerns or that could not be made, worked out again."""
        return {
            destination: self._backend(destination, before)
            for destination, backend in backends.items()
            if scope.concerns(backend.depends_on) or not all(map(_is_made, backend.fragments))
        }


def _kept_of_proxy(
    before: CompiledProxy, reached: tuple[InboundResult, ...], sidecar: SidecarResult, captured: CaptureResult | None
) -> tuple[tuple[InboundResult, ...], SidecarResult, CaptureResult | None]:
    """The same results, with the last good fragment in place of each that could not be made."""
    last = {_port(result): result.fragment for result in before.inbounds}
    kept = tuple(
        result
        if _is_made(result.fragment)
        else replace(result, fragment=last.get(_port(result), _NO_FRAGMENT).in_place_of(result.fragment))
        for result in reached
    )
    if not _is_made(sidecar.fragment):
        sidecar = replace(sidecar, fragment=before.sidecar.fragment.in_place_of(sidecar.fragment))
    if captured is not None and before.capture_result is not None and not _is_made(captured.fragment):
        captured = replace(captured, fragment=before.capture_result.fragment.in_place_of(captured.fragment))
    return kept, sidecar, captured


def _port(result: InboundResult) -> tuple[str, int]:
    return result.inbound.address, result.inbound.port


def _is_made(fragment: Fragment) -> bool:
    return fragment.failure is None


def _is_good(fragment: Fragment) -> bool:
    """Whether a fragment is servable: made for its task, now or earlier, and not only the placeholder of a failure."""
    return fragment.failure is None or fragment.failure.is_kept


def _failures(fragments: Iterable[Fragment]) -> tuple[Failure, ...]:
    return tuple(fragment.failure for fragment in fragments if fragment.failure is not None)


def _fragments_of(backends: Mapping[Destination, BackendResult]) -> Iterator[Fragment]:
    return (fragment for backend in backends.values() for fragment in backend.fragments)


def _changed_backends(
    before: ProxyClass, backends: Mapping[Destination, BackendResult]
) -> Iterator[tuple[Fragment, Fragment]]:
    """The old and the new fragments of backends that changed, came or went."""
    for destination, backend in backends.items():
        old = before.backends.get(destination)
        if old is not backend:
            yield from zip_longest(old.fragments if old else (), backend.fragments, fillvalue=_NO_FRAGMENT)
    if before.backends.keys() != backends.keys():
        gone = (old for destination, old in before.backends.items() if destination not in backends)
        yield from ((fragment, _NO_FRAGMENT) for old in gone for fragment in old.fragments)


def _updated(part: SnapshotPart, changed: Iterable[tuple[Fragment, Fragment]]) -> SnapshotPart | None:
    """The part with new contents for the same names; None where a name came or went."""
    differing = [(old, new) for old, new in changed if old is not new]
    came = {(packed.type_url, packed.name): packed for packed in _resources(new for _, new in differing)}
    gone = {(packed.type_url, packed.name) for packed in _resources(old for old, _ in differing)}
    return part.updated(came.values()) if came.keys() == gone else None


def _all_resources(
    outbounds: Mapping[OutboundAddress, OutboundResult], backends: Mapping[Destination, BackendResult]
) -> Iterator[PackedResource]:
    yield from _resources(outbound.fragment for outbound in outbounds.values())
    yield from _resources(_fragments_of(backends))


def _resources(fragments: Iterable[Fragment]) -> Iterator[PackedResource]:
    return (packed for fragment in fragments for packed in fragment)


_NO_FRAGMENT: Final = Fragment(())
