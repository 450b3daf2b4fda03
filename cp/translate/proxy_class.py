"""`ProxyClass`: what proxies have in common that call the same destinations alike, worked out once for all of them.

Proxies form a class if they have the same mesh, the same outbound addresses, the same policies that decide over
outbounds, and equal `Caller`s: what policies look at of the proxy itself, such as its zone (record 0004). Policies for
inbounds part no classes.

From World to World a class keeps every result that the change does not concern (`cp.translate.change_scope`, record
0054). A result that cannot be made, by a fault of ours, is replaced by the last good one (record 0044).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from cp.model.dependency import EVERYTHING, ChangeScope
from cp.model.failure import Failure, OverLimit, joined
from cp.model.names import Destination, Key
from cp.resources.caller import Caller
from cp.resources.limits import (
    BYTES_OF_BACKENDS,
    BYTES_OF_OUTBOUNDS,
    DEFAULT_BUDGET,
    DESTINATION_BYTES,
    Budget,
    DestinationRoom,
    Room,
)
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.legacy.rules import scope_of_legacy
from cp.rules.targets import TargetTables
from cp.translate.backend import BackendResult
from cp.translate.change_scope import ResourceChanges, scope_of_matches, scope_of_routes_at_top
from cp.translate.deciding_policies import OutboundPolicies
from cp.translate.effective import Rules
from cp.translate.fragments import NO_FRAGMENT, Fragment, Task, failures_of, resources_of
from cp.translate.gateway import ClusterRules, Earlier, GatewayResult
from cp.translate.outbound import FIXED_BYTES, OutboundResult
from cp.translate.packing import PackedResource
from cp.translate.snapshot import NO_PART, SnapshotPart
from cp.translate.translator import Translator
from cp.translate.view.backends import BackendKey, mark_of
from cp.translate.view.hostnames import hosts
from cp.translate.view.outbound_address import OutboundAddress
from generators.proxy import Backend, GatewayLimits, Hosts


@dataclass(frozen=True, slots=True, eq=False)
class ClassHosts:
    """The host names of the destinations of a class, and the listener that answers for them."""

    hosts: Hosts | None
    """None if no destination has a host name; the part is empty then."""

    part: SnapshotPart
    fragment: Fragment


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
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

    backends: Mapping[BackendKey, BackendResult]
    """Cluster and endpoints of each destination to which some route leads."""

    part: SnapshotPart
    """The resources of all outbounds and backends."""

    hosts: ClassHosts
    failures: tuple[Failure, ...] = ()
    """The outbounds, backends and hosts that could not be made, by faults of ours or over a limit."""

    left_out: Failure | None = None
    """The destinations that its proxies do not call, because they would be too many; None if there are none."""

    kept_bytes: int = 0
    """The bytes that it takes of the budget of its mesh."""

    gateway: GatewayResult | None = None
    """What a builtin gateway is served at its ports; None for other proxies. Each gateway is a class of its own."""

    @property
    def is_over_limit(self) -> bool:
        """True if outbounds or backends are left out because documents exceed a limit."""
        return any(failure.is_limit for failure in self.failures)


class ClassRooms:
    """The room for outbounds and backends that is not taken.

    The results of an earlier class count as well, so there can be less room than there is, and never more.
    """

    def __init__(
        self, budget: Budget = DEFAULT_BUDGET, taken: int = 0, new: int = 0, before: ProxyClass | None = None
    ) -> None:
        """`taken`: the bytes of other classes of the mesh. `new`: the number of outbounds that `before` has not."""
        outbounds = () if before is None else before.outbounds.values()
        backends = () if before is None else before.backends.values()
        kept = new * FIXED_BYTES + (0 if before is None else before.kept_bytes)
        rooms = Room(budget.of_proxy, kept), Room(budget.of_mesh, taken + kept)
        of_outbounds = Room(BYTES_OF_OUTBOUNDS, sum(outbound.size for outbound in outbounds))
        of_backends = Room(BYTES_OF_BACKENDS, sum(backend.size for backend in backends))
        self.outbounds = DestinationRoom(of_outbounds, rooms)
        self.backends = DestinationRoom(of_backends, rooms)


@dataclass(frozen=True, slots=True)
class ClassBuilder:
    """Works out one class in one World."""

    translator: Translator
    world: World
    changes: ResourceChanges
    mesh: str
    rules: Rules
    outbound_policies: OutboundPolicies
    caller: Caller
    clusters: Mapping[str, ClusterRules] = field(default_factory=dict)
    """What holds for the clusters of a builtin gateway, by what their names end with."""

    rooms: ClassRooms = field(default_factory=ClassRooms)
    """The room that outbounds and backends take in their order."""

    taken: int = 0
    """The bytes that other classes of the mesh take."""

    wanted: int = 0
    """The number of destinations that its proxies would call without the limits."""

    has_successor: bool = False
    """True if another class has taken the place of the class before, and the bytes that it took."""

    left_out: Failure | None = None

    @property
    def budget(self) -> Budget:
        return self.world.kinds.budget

    def build(self, addresses: tuple[OutboundAddress, ...], before: ProxyClass | None) -> ProxyClass:
        """The class, with everything of `before`, the class that the proxy had, that no change concerns."""
        fitting = self._fitting(addresses, before)
        wanted = max(self.wanted, len(addresses))
        left_out = _left_out(self.mesh, wanted, len(fitting), self._exceeded(wanted, is_cut=fitting != addresses))
        rooms = ClassRooms(self.budget, self.taken, len(fitting))
        return replace(self, left_out=left_out, rooms=rooms)._build(fitting, before)  # noqa: SLF001  # it is of this class

    def _exceeded(self, wanted: int, *, is_cut: bool) -> OverLimit:
        """The limit that is exceeded: that of the mesh if addresses of the proxy are cut, or else that of the proxy."""
        size = wanted * DESTINATION_BYTES
        return self.budget.of_mesh.exceeded(self.taken + size) if is_cut else self.budget.of_proxy.exceeded(size)

    def _fitting(
        self, addresses: tuple[OutboundAddress, ...], before: ProxyClass | None
    ) -> tuple[OutboundAddress, ...]:
        """The addresses for which the mesh has room. The class before keeps as many as it has."""
        served = 0 if before is None or self.has_successor else len(before.addresses)
        most = max(served, (self.budget.of_mesh.most - self.taken) // DESTINATION_BYTES, 0)
        if len(addresses) <= most:
            return addresses
        fitting = addresses[:most]
        return before.addresses if before is not None and before.addresses == fitting else fitting

    def _build(self, addresses: tuple[OutboundAddress, ...], before: ProxyClass | None) -> ProxyClass:
        if before is not None and before.caller == self.caller and before.gateway is None:
            scope = self._scope(before)
            if not scope.everything and not before.is_over_limit:
                new = max(0, len(addresses) - len(before.addresses))
                after = replace(self, rooms=ClassRooms(self.budget, self.taken, new, before))
                renewed = after._renewed(before, addresses, scope)  # noqa: SLF001  # it is of this class
                if not renewed.is_over_limit:
                    return renewed
        # Which parts exceed a limit depends on all outbounds in their order.
        return self._anew(addresses, before)

    def build_gateway(self, dataplane: Resource, before: ProxyClass | None) -> ProxyClass:
        """The class of one builtin gateway. It has listeners in place of outbounds, and backends as others have."""
        known = before if before is not None and before.caller == self.caller else None
        referred = EVERYTHING if known is None else self._scope_of_references(known)
        earlier = None
        if before is not None and before.gateway is not None:
            earlier = Earlier(before.gateway, referred, self._targets_since(before))
        result = self.translator.gateways.result(self.world, dataplane, self.rules, self.caller, earlier)
        gateway = result if earlier is None else _with_kept_clusters(result, earlier.result)
        rooms = ClassRooms(self.budget, self.taken)
        return replace(self, clusters=gateway.clusters, rooms=rooms).of_gateway(gateway, before, referred)

    def of_gateway(self, gateway: GatewayResult, before: ProxyClass | None, referred: ChangeScope) -> ProxyClass:
        """The class of a gateway that is served this. `referred`: what has changed of all that it refers to."""
        if before is None or before.caller != self.caller or before.gateway is None:
            return self._gateway_class(gateway, self._every_backend(gateway.uses, before), None)
        scope = referred | self._scope_of_confs(before)
        after = replace(self, rooms=ClassRooms(self.budget, self.taken, 0, before))
        backends = after._backends(before, gateway.uses, scope)  # noqa: SLF001  # it is of this class
        if any(backend.is_over_limit for backend in (*before.backends.values(), *backends.values())):
            backends = self._every_backend(gateway.uses, before)
        changed = (*_changed_of_gateway(before.gateway, gateway), *_changed_backends(before, backends))
        return self._gateway_class(gateway, backends, _updated(before.part, changed))

    def _scope_of_references(self, before: ProxyClass) -> ChangeScope:
        """The scope of what routes and policies refer to."""
        routes = self.changes.routes_since(before.world, self.mesh)
        of_routes = scope_of_routes_at_top(routes, self.outbound_policies.policies)
        return self.changes.scope_since(before.world, self.mesh) | of_routes

    def _scope_of_confs(self, before: ProxyClass) -> ChangeScope:
        """The scope of the policies that say something of backends, as routes do not."""
        policies_before, policies = (
            {kind: of_kind for kind, of_kind in policies.items() if kind not in self.translator.gateways.routing}
            for policies in (before.outbound_policies.policies, self.outbound_policies.policies)
        )
        legacy = scope_of_legacy(before.rules.legacy, self.rules.legacy)
        return legacy | scope_of_matches(policies_before, policies, self._targets_since(before))

    def _targets_since(self, before: ProxyClass) -> tuple[TargetTables, ...]:
        """To what policies could refer when a class was worked out, and to what they can now."""
        return TargetTables.of(before.world, self.mesh), TargetTables.of(self.world, self.mesh)

    def _gateway_class(
        self, gateway: GatewayResult, backends: Mapping[BackendKey, BackendResult], part: SnapshotPart | None
    ) -> ProxyClass:
        fragments = (*gateway.fragments, *_fragments_of(backends))
        return ProxyClass(
            world=self.world,
            rules=self.rules,
            outbound_policies=self.outbound_policies,
            caller=self.caller,
            addresses=(),
            outbounds={},
            backends=backends,
            part=SnapshotPart(resources_of(fragments)) if part is None else part,
            hosts=ClassHosts(None, NO_PART, NO_FRAGMENT),
            failures=(*gateway.failures_of_routes, *joined(failures_of((*gateway.parts, *fragments)))),
            gateway=gateway,
            kept_bytes=sum(backend.kept_bytes for backend in backends.values()),
        )

    def _scope(self, before: ProxyClass) -> ChangeScope:
        policies_before, policies = before.outbound_policies.policies, self.outbound_policies.policies
        scope = scope_of_legacy(before.rules.legacy, self.rules.legacy) | self._scope_of_references(before)
        return scope | scope_of_matches(policies_before, policies, self._targets_since(before))

    def _anew(self, addresses: tuple[OutboundAddress, ...], before: ProxyClass | None) -> ProxyClass:
        """Everything is worked out again."""
        outbounds = {address: self._outbound(address, before) for address in addresses}
        return self._class(before, addresses, outbounds, self._every_backend(_used(outbounds.values()), before))

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
            backends = self._backends(before, _used(outbounds.values()), scope)  # a route leads elsewhere now
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
        return self._class(before, addresses, outbounds, self._backends(before, _used(outbounds.values()), scope))

    def _class(
        self,
        before: ProxyClass | None,
        addresses: tuple[OutboundAddress, ...],
        outbounds: Mapping[OutboundAddress, OutboundResult],
        backends: Mapping[BackendKey, BackendResult],
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
            failures=joined(failures_of((*of_outbounds, *_fragments_of(backends), class_hosts.fragment))),
            left_out=self.left_out,
            kept_bytes=FIXED_BYTES * len(outbounds)
            + sum(outbound.kept_bytes for outbound in outbounds.values())
            + sum(backend.kept_bytes for backend in backends.values()),
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
        outbound = self.translator.outbounds.result(
            self.world, self.mesh, self.rules, address, self.caller, room=self.rooms.outbounds
        )
        last = None if before is None else before.outbounds.get(address)
        is_settled = outbound.fragment.is_made or outbound.fragment.is_over_limit
        if is_settled or last is None or not last.fragment.is_servable:
            return outbound
        uses = tuple(dict.fromkeys((*last.uses, *outbound.uses)))
        return replace(outbound, fragment=last.fragment.in_place_of(outbound.fragment), uses=uses)

    def _every_backend(
        self, keys: Iterable[BackendKey], before: ProxyClass | None
    ) -> Mapping[BackendKey, BackendResult]:
        return {key: self._backend(key, before) for key in keys}

    def _backend(self, key: BackendKey, before: ProxyClass | None) -> BackendResult:
        """A backend. One that cannot be made stays as it was."""
        rules = self.clusters[mark_of(key)].rules if self.clusters else self.rules
        room = self.rooms.backends
        backend = self.translator.backends.result(self.world, self.mesh, rules, key, self.caller, room=room)
        last = None if before is None else before.backends.get(key)
        is_settled = backend.is_over_limit or not failures_of(backend.fragments)
        if last is None or is_settled or self._would_drop_tls(last):
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
        self, before: ProxyClass, keys: Iterable[BackendKey], scope: ChangeScope
    ) -> Mapping[BackendKey, BackendResult]:
        """The backends of these destinations. Those of before that the change does not concern are kept."""
        kept = {key: self._kept(before, key) or self._backend(key, before) for key in keys}
        return {**kept, **self._renewed_backends(before, kept, scope)}

    def _kept(self, before: ProxyClass, key: BackendKey) -> BackendResult | None:
        """A backend of before, unless other policies hold for it because listeners of a gateway have other tags."""
        clusters = {} if before.gateway is None else before.gateway.clusters
        return before.backends.get(key) if clusters.get(mark_of(key)) == self.clusters.get(mark_of(key)) else None

    def _renewed_backends(
        self, before: ProxyClass, backends: Mapping[BackendKey, BackendResult], scope: ChangeScope
    ) -> Mapping[BackendKey, BackendResult]:
        """The backends that the change concerns or that could not be made, worked out again."""
        return {
            key: self._backend(key, before)
            for key, backend in backends.items()
            if scope.concerns(backend.depends_on) or not all(fragment.is_made for fragment in backend.fragments)
        }


def _with_kept_clusters(gateway: GatewayResult, before: GatewayResult) -> GatewayResult:
    """With the rules of clusters that only parts of the earlier version use, which are served until they can be made.

    Such clusters have the marks of listeners that the gateway may no longer have.
    """
    marks = {mark_of(key) for key in gateway.uses}
    kept = {mark: rules for mark, rules in before.clusters.items() if mark in marks}
    return replace(gateway, clusters={**kept, **gateway.clusters})


def _left_out(mesh: str, wanted: int, served: int, over: OverLimit) -> Failure | None:
    """The destinations over a limit; None if there are none. It is about the Mesh, as no policy is the reason."""
    if wanted <= served:
        return None
    part = f"{wanted - served:,} of {wanted:,} destinations"
    return Failure(part, over.message, policies=(Key("Mesh", "", mesh),), limit_hint=over.hint)


def _used(outbounds: Iterable[OutboundResult]) -> Iterable[Destination]:
    return dict.fromkeys(destination for outbound in outbounds for destination in outbound.uses)


def _fragments_of(backends: Mapping[BackendKey, BackendResult]) -> Iterator[Fragment]:
    return (fragment for backend in backends.values() for fragment in backend.fragments)


def _changed_backends(
    before: ProxyClass, backends: Mapping[BackendKey, BackendResult]
) -> Iterator[tuple[Fragment, Fragment]]:
    """The old and the new fragments of backends that changed, came or went."""
    for key, backend in backends.items():
        old = before.backends.get(key)
        if old is not backend:
            yield from zip_longest(old.fragments if old else (), backend.fragments, fillvalue=NO_FRAGMENT)
    if before.backends.keys() != backends.keys():
        gone = (old for key, old in before.backends.items() if key not in backends)
        yield from ((fragment, NO_FRAGMENT) for old in gone for fragment in old.fragments)


def _changed_of_gateway(before: GatewayResult, gateway: GatewayResult) -> Iterator[tuple[Fragment, Fragment]]:
    """The old and the new fragments of listeners, tables and secrets that changed, came or went."""
    olds, news = _fragments_by_name(before), _fragments_by_name(gateway)
    for name in dict.fromkeys((*olds, *news)):
        old, new = olds.get(name, NO_FRAGMENT), news.get(name, NO_FRAGMENT)
        if old is not new:
            yield old, new


def _fragments_by_name(gateway: GatewayResult) -> Mapping[object, Fragment]:
    by_name: dict[object, Fragment] = {port: joined.fragment for port, joined in gateway.listeners.items()}
    by_name |= {name: joined.fragment for name, joined in gateway.tables.items()}
    by_name |= {tuple(packed.name for packed in secret): secret for secret in gateway.secrets}
    return by_name | {GatewayLimits: gateway.limits}


def _updated(part: SnapshotPart, changed: Iterable[tuple[Fragment, Fragment]]) -> SnapshotPart | None:
    """The part with new contents for the same names; None where a name came or went."""
    differing = [(old, new) for old, new in changed if old is not new]
    contents = {(packed.type_url, packed.name): packed for packed in resources_of(new for _, new in differing)}
    names_before = {(packed.type_url, packed.name) for packed in resources_of(old for old, _ in differing)}
    return part.updated(contents.values()) if contents.keys() == names_before else None


def _all_resources(
    outbounds: Mapping[OutboundAddress, OutboundResult], backends: Mapping[BackendKey, BackendResult]
) -> Iterator[PackedResource]:
    yield from resources_of(outbound.fragment for outbound in outbounds.values())
    yield from resources_of(_fragments_of(backends))
