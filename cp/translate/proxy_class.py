"""`ProxyClass`: what proxies have in common that call the same destinations alike, worked out once for all of them.

Proxies form a class if they have the same mesh, the same outbound addresses, the same policies that decide over
outbounds, and equal `Caller`s: what policies look at of the proxy itself, such as its zone (record 0004). Policies for
inbounds part no classes.

From World to World a class keeps every result that the change does not concern (`cp.translate.change_scope`, record
0054). A result that cannot be made, by a fault of ours, is replaced by the last good one (record 0044).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest

from cp.model.dependency import ChangeScope
from cp.model.failure import Failure
from cp.model.names import Destination
from cp.resources.caller import Caller
from cp.resources.world import World
from cp.rules.targets import TargetTables
from cp.translate.backend import BackendResult
from cp.translate.change_scope import scope_of_matches, scope_of_resources, scope_of_routes_at_top
from cp.translate.deciding_policies import OutboundPolicies
from cp.translate.effective import Rules
from cp.translate.fragments import NO_FRAGMENT, Fragment, Task, failures_of, resources_of
from cp.translate.outbound import OutboundResult
from cp.translate.packing import PackedResource
from cp.translate.snapshot import NO_PART, SnapshotPart
from cp.translate.translator import Translator
from cp.translate.view.hostnames import hosts
from cp.translate.view.outbound_address import OutboundAddress
from generators.proxy import Backend, Hosts


@dataclass(frozen=True, slots=True, eq=False)
class ClassHosts:
    """The host names of the destinations of a class, and the listener that answers for them."""

    hosts: Hosts | None
    """None if no destination has a host name; the part is empty then."""

    part: SnapshotPart
    fragment: Fragment


@dataclass(frozen=True, slots=True, eq=False)
class ProxyClass:
    """What all proxies of a class have in common, in one World. Equal only to itself."""

    world: World
    """The World for which it was worked out. A class that no change concerns is made anew all the same."""

    rules: Rules
    """What the policies of its proxies come to, without those that a gRPC client could do nothing of."""

    outbound_policies: OutboundPolicies
    caller: Caller
    addresses: tuple[OutboundAddress, ...]
    """The addresses that its proxies call; the same tuple for as long as they are the same."""

    outbounds: Mapping[OutboundAddress, OutboundResult]
    """Listener and routes of each address."""

    backends: Mapping[Destination, BackendResult]
    """Cluster and endpoints of each destination to which some route leads."""

    part: SnapshotPart
    """The resources of all outbounds and backends."""

    hosts: ClassHosts
    failures: tuple[Failure, ...] = ()
    """The outbounds, backends and hosts that could not be made, by faults of ours."""


@dataclass(frozen=True, slots=True)
class ClassBuilder:
    """Works out one class in one World."""

    translator: Translator
    world: World
    mesh: str
    rules: Rules
    outbound_policies: OutboundPolicies
    caller: Caller

    def build(self, addresses: tuple[OutboundAddress, ...], before: ProxyClass | None) -> ProxyClass:
        """The class, with everything of `before`, the class that the proxy had, that no change concerns."""
        if before is not None and before.caller == self.caller:
            scope = self._scope(before)
            if not scope.everything:
                return self._renewed(before, addresses, scope)
        return self._anew(addresses, before)

    def _scope(self, before: ProxyClass) -> ChangeScope:
        policies_before, policies = before.outbound_policies.policies, self.outbound_policies.policies
        targets = [TargetTables.of(world, self.mesh) for world in (before.world, self.world)]
        scope = scope_of_resources(before.world, self.world, self.mesh)
        scope |= scope_of_matches(policies_before, policies, targets)
        return scope | scope_of_routes_at_top(before.world, self.world, self.mesh, policies)

    def _anew(self, addresses: tuple[OutboundAddress, ...], before: ProxyClass | None) -> ProxyClass:
        """Everything is worked out again."""
        outbounds = {address: self._outbound(address, before) for address in addresses}
        backends = {destination: self._backend(destination, before) for destination in _used(outbounds.values())}
        return self._class(before, addresses, outbounds, backends)

    def _renewed(self, before: ProxyClass, addresses: tuple[OutboundAddress, ...], scope: ChangeScope) -> ProxyClass:
        """Most outbounds are those of before: the tasks of these are not even made, nor hashed to look them up."""
        # A result that could not be made is tried again: on what a fault depends is not known.
        renewed = {
            address: self._outbound(address, before)
            for address, outbound in before.outbounds.items()
            if scope.concerns(outbound.depends_on) or not outbound.fragment.is_made
        }
        outbounds = {**before.outbounds, **renewed}
        if addresses is not before.addresses:
            return self._with_other_addresses(before, addresses, outbounds, scope)
        if any(outbound.uses != before.outbounds[address].uses for address, outbound in renewed.items()):
            backends = self._backends(before, outbounds.values(), scope)  # a route leads elsewhere now
        else:
            backends = {**before.backends, **self._renewed_backends(before, before.backends, scope)}
        # The part is that of before with the changed resources in it, unless a resource came or went.
        changed = [(before.outbounds[address].fragment, outbound.fragment) for address, outbound in renewed.items()]
        part = _updated(before.part, (*changed, *_changed_backends(before, backends)))
        return self._class(before, addresses, outbounds, backends, part)

    def _with_other_addresses(
        self,
        before: ProxyClass,
        addresses: tuple[OutboundAddress, ...],
        known_outbounds: Mapping[OutboundAddress, OutboundResult],
        scope: ChangeScope,
    ) -> ProxyClass:
        """Where outbounds come or go, those that stay are kept all the same."""
        outbounds = {address: known_outbounds.get(address) or self._outbound(address, before) for address in addresses}
        return self._class(before, addresses, outbounds, self._backends(before, outbounds.values(), scope))

    def _class(
        self,
        before: ProxyClass | None,
        addresses: tuple[OutboundAddress, ...],
        outbounds: Mapping[OutboundAddress, OutboundResult],
        backends: Mapping[Destination, BackendResult],
        part: SnapshotPart | None = None,
    ) -> ProxyClass:
        class_hosts = self._hosts(addresses, None if before is None else before.hosts)
        of_outbounds = (outbound.fragment for outbound in outbounds.values())
        return ProxyClass(
            world=self.world,
            rules=self.rules,
            outbound_policies=self.outbound_policies,
            caller=self.caller,
            addresses=addresses,
            outbounds=outbounds,
            backends=backends,
            part=SnapshotPart(_all_resources(outbounds, backends)) if part is None else part,
            hosts=class_hosts,
            failures=failures_of((*of_outbounds, *_fragments_of(backends), class_hosts.fragment)),
        )

    def _hosts(self, addresses: tuple[OutboundAddress, ...], before: ClassHosts | None) -> ClassHosts:
        names = hosts(self.world, self.mesh, addresses)
        if before is not None and before.hosts is names and before.fragment.is_made:
            return before
        if names is None:
            return ClassHosts(None, NO_PART, NO_FRAGMENT)
        fragment = self.translator.fragments.get(Task(names))
        if fragment.failure is not None:
            fragment = Fragment((), failure=replace(fragment.failure, part="the listener for names"))
            fragment = fragment if before is None else before.fragment.in_place_of(fragment)
        return ClassHosts(names, SnapshotPart(fragment), fragment)

    def _outbound(self, address: OutboundAddress, before: ProxyClass | None) -> OutboundResult:
        """An outbound. One that cannot be made stays as it was, and keeps what it leads to."""
        outbound = self.translator.outbounds.result(self.world, self.mesh, self.rules, address, self.caller)
        last = None if before is None else before.outbounds.get(address)
        if outbound.fragment.is_made or last is None or not last.fragment.is_servable:
            return outbound
        uses = tuple(dict.fromkeys((*last.uses, *outbound.uses)))
        return replace(outbound, fragment=last.fragment.in_place_of(outbound.fragment), uses=uses)

    def _backend(self, destination: Destination, before: ProxyClass | None) -> BackendResult:
        """A backend. One that cannot be made stays as it was."""
        backend = self.translator.backends.result(self.world, self.mesh, self.rules, destination, self.caller)
        last = None if before is None else before.backends.get(destination)
        if last is None or not failures_of(backend.fragments) or self._would_drop_tls(last):
            return backend
        # Its tasks could not be made, or Envoy finds its endpoints by itself now: there is a cluster alone.
        if len(backend.fragments) == 1 < len(last.fragments):
            (failed,) = backend.fragments
            return replace(last, fragments=tuple(old.in_place_of(failed) for old in last.fragments))
        if len(backend.fragments) != len(last.fragments):  # there is nothing to stand for its endpoints
            return backend
        kept = tuple(old.in_place_of(new) for new, old in zip(backend.fragments, last.fragments, strict=True))
        return replace(backend, fragments=kept)

    def _would_drop_tls(self, last: BackendResult) -> bool:
        """Whether an earlier cluster sends in plain text what may have to go over TLS now (record 0044)."""
        site = last.tasks[0].site
        return self.caller.tls is not None and isinstance(site, Backend) and not (site.mesh_tls or site.external)

    def _backends(
        self, before: ProxyClass, outbounds: Iterable[OutboundResult], scope: ChangeScope
    ) -> Mapping[Destination, BackendResult]:
        """The backends to which these outbounds lead. Those of before that the change does not concern are kept."""
        kept = {
            destination: before.backends.get(destination) or self._backend(destination, before)
            for destination in _used(outbounds)
        }
        return {**kept, **self._renewed_backends(before, kept, scope)}

    def _renewed_backends(
        self, before: ProxyClass, backends: Mapping[Destination, BackendResult], scope: ChangeScope
    ) -> Mapping[Destination, BackendResult]:
        """The backends that the change concerns or that could not be made, worked out again."""
        return {
            destination: self._backend(destination, before)
            for destination, backend in backends.items()
            if scope.concerns(backend.depends_on) or not all(fragment.is_made for fragment in backend.fragments)
        }


def _used(outbounds: Iterable[OutboundResult]) -> Iterable[Destination]:
    return dict.fromkeys(destination for outbound in outbounds for destination in outbound.uses)


def _fragments_of(backends: Mapping[Destination, BackendResult]) -> Iterator[Fragment]:
    return (fragment for backend in backends.values() for fragment in backend.fragments)


def _changed_backends(
    before: ProxyClass, backends: Mapping[Destination, BackendResult]
) -> Iterator[tuple[Fragment, Fragment]]:
    """The old and the new fragments of backends that changed, came or went."""
    for destination, backend in backends.items():
        old = before.backends.get(destination)
        if old is not backend:
            yield from zip_longest(old.fragments if old else (), backend.fragments, fillvalue=NO_FRAGMENT)
    if before.backends.keys() != backends.keys():
        gone = (old for destination, old in before.backends.items() if destination not in backends)
        yield from ((fragment, NO_FRAGMENT) for old in gone for fragment in old.fragments)


def _updated(part: SnapshotPart, changed: Iterable[tuple[Fragment, Fragment]]) -> SnapshotPart | None:
    """The part with new contents for the same names; None where a name came or went."""
    differing = [(old, new) for old, new in changed if old is not new]
    contents = {(packed.type_url, packed.name): packed for packed in resources_of(new for _, new in differing)}
    names_before = {(packed.type_url, packed.name) for packed in resources_of(old for old, _ in differing)}
    return part.updated(contents.values()) if contents.keys() == names_before else None


def _all_resources(
    outbounds: Mapping[OutboundAddress, OutboundResult], backends: Mapping[Destination, BackendResult]
) -> Iterator[PackedResource]:
    yield from resources_of(outbound.fragment for outbound in outbounds.values())
    yield from resources_of(_fragments_of(backends))
