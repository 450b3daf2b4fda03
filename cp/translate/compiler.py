"""`Compiler`: from a World to what each proxy gets, working out again only what a change reaches.

Proxies that match the same policies and have the same outbounds form a class. What a class has in common is one
`ProxyClass`, worked out once; from World to World it keeps every result that the change does not reach
(`cp.translate.change_scope`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Final, TypeAlias

from cp.model.dependency import ChangeScope
from cp.model.failure import Failure
from cp.model.memo import ByIdentity
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
from cp.translate.change_scope import by_policies, by_world
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

_OfKinds: TypeAlias = tuple[tuple[str, tuple[Any, ...]], ...]


class DecidingPolicies:
    """The policies that decide over one side of some proxies. Equal only to itself: proxies that share it are alike."""

    __slots__ = ("of_kinds",)

    def __init__(self, of_kinds: _OfKinds) -> None:
        self.of_kinds = of_kinds

    @property
    def policies(self) -> Mapping[str, tuple[Resource, ...]]:
        return dict(self.of_kinds)


@dataclass(frozen=True, slots=True)
class _Sides:
    """The matched policies of some proxies, by the side of the proxy over which they decide."""

    outbounds: DecidingPolicies
    inbounds: DecidingPolicies


@dataclass(frozen=True, slots=True, eq=False)
class ClassHosts:
    """The names by which the workloads of a class know its destinations, and what answers for them."""

    hosts: Hosts | None
    part: SnapshotPart
    fragment: Fragment


@dataclass(frozen=True, slots=True, eq=False)
class ProxyClass:
    """What all proxies of a class have in common, in one World."""

    world: World
    rules: Rules
    reach: DecidingPolicies
    caller: Caller
    listenings: tuple[OutboundAddress, ...]
    entries: Mapping[OutboundAddress, OutboundResult]
    upstreams: Mapping[Destination, BackendResult]
    part: SnapshotPart
    named: ClassHosts
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class CompiledProxy:
    """Everything about one proxy."""

    dataplane: Resource
    bundle: ProxyClass
    inbounds: tuple[InboundResult, ...]
    beside: SidecarResult
    captured: CaptureResult | None
    """What takes the traffic that its machine redirects to it; None where it redirects none."""

    part: SnapshotPart
    reach: DecidingPolicies
    """The policies that decide over its inbounds."""

    @property
    def capture(self) -> Capture | None:
        """What its machine redirects to it."""
        return None if self.captured is None else self.captured.capture

    own_failures: tuple[Failure, ...] = ()

    @property
    def failures(self) -> tuple[Failure, ...]:
        """What of it could not be made, by faults of ours."""
        return (*self.bundle.failures, *self.own_failures)

    @property
    def snapshot(self) -> Snapshot:
        names = (self.bundle.named.part,) if self.bundle.named.hosts is not None else ()
        return Snapshot(self.bundle.part, *names, self.part)


_ClassKey: TypeAlias = tuple[str, DecidingPolicies, ByIdentity[tuple[OutboundAddress, ...]], Caller]


class Compiler:
    """Keeps what it worked out for one World, for the next one."""

    def __init__(self, policies: Policies) -> None:
        self.policies: Mapping[str, Policy[Any]] = {policy.kind.name: policy for policy in policies}
        self._translator = Translator(policies)
        self._world: World | None = None
        self._bundles: dict[_ClassKey, ProxyClass] = {}
        self._sides: dict[ByIdentity[ByKind], _Sides] = {}
        self._same: dict[_OfKinds, DecidingPolicies] = {}
        self._proxies: dict[Key, CompiledProxy] = {}

    @property
    def fragments(self) -> FragmentCache:
        return self._translator.fragments

    @property
    def translator(self) -> Translator:
        return self._translator

    @property
    def classes(self) -> int:
        return len(self._bundles)

    def snapshot(self, world: World, dataplane: Resource) -> Snapshot:
        return self.proxy(world, dataplane).snapshot

    def proxy(self, world: World, dataplane: Resource) -> CompiledProxy:
        self._enter(world)
        before = self._proxies.get(dataplane.key)
        matched, listenings = match(world, dataplane), outbounds(world, dataplane)
        sides, caller = self._by_side(matched), self._translator.callers.caller(world, dataplane)
        key = (dataplane.mesh, sides.outbounds, ByIdentity(listenings), caller)
        bundle = self._bundles.get(key)
        if bundle is None:
            rules = self._translator.rules_of_outbounds(rules_of(world, dataplane), caller)
            work = _Work(self._translator, world, dataplane.mesh, rules, sides.outbounds, caller)
            bundle = self._bundles[key] = _bundle(work, listenings, before.bundle if before else None)
        if before is None or before.bundle is not bundle or before.dataplane is not dataplane:
            self._proxies[dataplane.key] = self._proxy(world, dataplane, sides.inbounds, bundle, before)
        return self._proxies[dataplane.key]

    def keep_only(self, dataplanes: Iterable[Key]) -> None:
        """Forget all proxies but these, and with them what only they needed."""
        self._proxies = {key: self._proxies[key] for key in dataplanes if key in self._proxies}

    def _enter(self, world: World) -> None:
        if world is not self._world:
            self._world, self._bundles = world, {}
            live = (reach for sides in self._sides.values() for reach in (sides.outbounds, sides.inbounds))
            self._same = {reach.of_kinds: reach for reach in live}
            self._sides = {}

    def _by_side(self, matched: ByKind) -> _Sides:
        """Proxies, and Worlds, in which the same policies decide over a side share one object for it."""
        known = self._sides.get(key := ByIdentity(matched))
        if known is None:
            of_outbounds = _decide(matched, _is_of_outbounds, lambda one: one.policy)
            of_inbounds = _decide(matched, _is_of_inbounds, lambda one: one)
            ours, theirs = (self._same.setdefault(it, DecidingPolicies(it)) for it in (of_outbounds, of_inbounds))
            known = self._sides[key] = _Sides(ours, theirs)
        return known

    def _proxy(
        self,
        world: World,
        dataplane: Resource,
        reach: DecidingPolicies,
        bundle: ProxyClass,
        before: CompiledProxy | None,
    ) -> CompiledProxy:
        """A proxy's own inbounds are worked out again only if it itself, or who decides over them, is another.

        Or what they may refer to: to find out whether they do would cost more than to work them out.
        """
        mesh, capture = dataplane.mesh, capture_of(world, dataplane)
        is_same = before and before.dataplane is dataplane and before.reach is reach and before.capture == capture
        is_same = is_same and before is not None and not before.own_failures
        if before and is_same and backend_refs.same(before.bundle.world, world, mesh):
            return CompiledProxy(dataplane, bundle, before.inbounds, before.beside, before.captured, before.part, reach)
        rules = rules_of(world, dataplane)
        reached = tuple(
            self._translator.inbounds.result(world, mesh, rules, *inbound) for inbound in inbounds(dataplane)
        )
        beside = self._translator.sidecars.result(world, rules, dataplane)
        captured = None if capture is None else self._translator.captures.result(world, mesh, rules, capture)
        if before is not None:
            reached, beside, captured = _kept_of_proxy(before, reached, beside, captured)
        fragments = [one.fragment for one in (*reached, beside, captured) if one is not None]
        part = SnapshotPart(_resources(fragments))
        return CompiledProxy(dataplane, bundle, reached, beside, captured, part, reach, _failures(fragments))


def _decide(matched: ByKind, decides: Callable[[Resource], bool], what: Callable[[MatchedPolicy], Any]) -> _OfKinds:
    """The policies that decide over a side, by their kinds; kinds of which none does are left out."""
    of_kinds = ((kind, tuple(what(one) for one in found if decides(one.policy))) for kind, found in matched.items())
    return tuple((kind, deciding) for kind, deciding in of_kinds if deciding)


def _is_of_outbounds(policy: Resource) -> bool:
    shape = policy.kind.policy
    return shape is not None and (shape.single or bool(policy.data.get("to")))


def _is_of_inbounds(policy: Resource) -> bool:
    shape = policy.kind.policy
    return shape is not None and (shape.single or bool(policy.data.get("from") or policy.data.get("rules")))


def _bundle(work: _Work, listenings: tuple[OutboundAddress, ...], before: ProxyClass | None) -> ProxyClass:
    """The bundle of a class: what a change does not reach is taken from the one that the proxy had before."""
    if before is not None and before.caller == work.caller:
        targets = [TargetTables.of(world, work.mesh) for world in (before.world, work.world)]
        touched = by_world(before.world, work.world, work.mesh)
        touched |= by_policies(before.reach.policies, work.reach.policies, targets)
        if not touched.everything:
            return work.some(before, listenings, touched)
    return work.all(listenings, before)


@dataclass(frozen=True, slots=True)
class _Work:
    """Working out the bundle of one class in one World."""

    translator: Translator
    world: World
    mesh: str
    rules: Rules
    reach: DecidingPolicies
    caller: Caller

    def all(self, listenings: tuple[OutboundAddress, ...], before: ProxyClass | None) -> ProxyClass:
        entries = {one: self._entry(one, before) for one in listenings}
        needed = dict.fromkeys(used for entry in entries.values() for used in entry.uses)
        upstreams = {one: self._upstream(one, before) for one in needed}
        return self._made(before, listenings, entries, upstreams, SnapshotPart(_all_resources(entries, upstreams)))

    def some(self, before: ProxyClass, listenings: tuple[OutboundAddress, ...], touched: ChangeScope) -> ProxyClass:
        """Most entries are those of before; of these not even the hashes are worked out again.

        What could not be made is tried again: on what a fault depends is not known.
        """
        again = {
            one: self._entry(one, before)
            for one, entry in before.entries.items()
            if touched.concerns(entry.names) or not _is_made(entry.fragment)
        }
        if listenings is not before.listenings:
            return self._elsewhere(before, listenings, {**before.entries, **again}, touched)
        entries = {**before.entries, **again}
        if any(entry.uses != before.entries[one].uses for one, entry in again.items()):  # a route leads elsewhere now
            upstreams = self._upstreams(before, entries.values(), touched)
        else:
            upstreams = {**before.upstreams, **self._stale(before, before.upstreams, touched)}
        changed = [(before.entries[one].fragment, entry.fragment) for one, entry in again.items()]
        for one, upstream in upstreams.items():
            if (old := before.upstreams.get(one)) is not upstream:
                changed += zip_longest(old.fragments if old else (), upstream.fragments, fillvalue=_NO_FRAGMENT)
        changed += [(one, _NO_FRAGMENT) for gone in _gone(before, upstreams) for one in gone.fragments]
        part = _updated(before.part, changed) or SnapshotPart(_all_resources(entries, upstreams))
        return self._made(before, listenings, entries, upstreams, part)

    def _elsewhere(
        self,
        before: ProxyClass,
        listenings: tuple[OutboundAddress, ...],
        known: Mapping[OutboundAddress, OutboundResult],
        touched: ChangeScope,
    ) -> ProxyClass:
        """Where outbounds come or go, what stays is kept all the same."""
        entries = {one: known.get(one) or self._entry(one, before) for one in listenings}
        upstreams = self._upstreams(before, entries.values(), touched)
        return self._made(before, listenings, entries, upstreams, SnapshotPart(_all_resources(entries, upstreams)))

    def _made(
        self,
        before: ProxyClass | None,
        listenings: tuple[OutboundAddress, ...],
        entries: Mapping[OutboundAddress, OutboundResult],
        upstreams: Mapping[Destination, BackendResult],
        part: SnapshotPart,
    ) -> ProxyClass:
        named = self._named(listenings, None if before is None else before.named)
        fragments = (*(one.fragment for one in entries.values()), *_fragments_of(upstreams), named.fragment)
        failures = _failures(fragments)
        return ProxyClass(
            self.world, self.rules, self.reach, self.caller, listenings, entries, upstreams, part, named, failures
        )

    def _named(self, listenings: tuple[OutboundAddress, ...], before: ClassHosts | None) -> ClassHosts:
        found = hosts(self.world, self.mesh, listenings)
        if before is not None and before.hosts is found and before.fragment.failure is None:
            return before
        if found is None:
            return ClassHosts(None, NO_PART, _NO_FRAGMENT)
        fragment = self.translator.fragments.get(Task(found))
        if fragment.failure is not None:
            fragment = Fragment((), failure=replace(fragment.failure, part="the listener for names"))
            fragment = fragment if before is None else before.fragment.in_place_of(fragment)
        return ClassHosts(found, SnapshotPart(fragment), fragment)

    def _entry(self, listening: OutboundAddress, before: ProxyClass | None) -> OutboundResult:
        """An outbound. One that cannot be made stays as it was, and keeps what it leads to."""
        entry = self.translator.outbounds.result(self.world, self.mesh, self.rules, listening, self.caller)
        last = None if before is None else before.entries.get(listening)
        if entry.fragment.failure is None or last is None or not _is_good(last.fragment):
            return entry
        uses = tuple(dict.fromkeys((*last.uses, *entry.uses)))
        return replace(entry, fragment=last.fragment.in_place_of(entry.fragment), uses=uses)

    def _upstream(self, destination: Destination, before: ProxyClass | None) -> BackendResult:
        upstream = self.translator.backends.result(self.world, self.mesh, self.rules, destination, self.caller)
        last = None if before is None else before.upstreams.get(destination)
        if last is None or not _failures(upstream.fragments):
            return upstream
        if len(upstream.fragments) == 1 < len(last.fragments):  # not even its tasks, or it has no endpoints any more
            (failed,) = upstream.fragments
            return replace(last, fragments=tuple(old.in_place_of(failed) for old in last.fragments))
        if len(upstream.fragments) != len(last.fragments):  # there is nothing to stand for its endpoints
            return upstream
        kept = tuple(old.in_place_of(new) for new, old in zip(upstream.fragments, last.fragments, strict=True))
        return replace(upstream, fragments=kept)

    def _upstreams(
        self, before: ProxyClass, entries: Iterable[OutboundResult], touched: ChangeScope
    ) -> Mapping[Destination, BackendResult]:
        """Those to which these entries lead; what was there before and is not touched is kept."""
        needed = dict.fromkeys(used for entry in entries for used in entry.uses)
        kept = {one: before.upstreams.get(one) or self._upstream(one, before) for one in needed}
        return {**kept, **self._stale(before, kept, touched)}

    def _stale(
        self, before: ProxyClass, upstreams: Mapping[Destination, BackendResult], touched: ChangeScope
    ) -> Mapping[Destination, BackendResult]:
        return {
            one: self._upstream(one, before)
            for one, found in upstreams.items()
            if touched.concerns(found.names) or not all(map(_is_made, found.fragments))
        }


def _kept_of_proxy(
    before: CompiledProxy, reached: tuple[InboundResult, ...], beside: SidecarResult, captured: CaptureResult | None
) -> tuple[tuple[InboundResult, ...], SidecarResult, CaptureResult | None]:
    """What could not be made stays as it was."""
    last = {(one.inbound.address, one.inbound.port): one.fragment for one in before.inbounds}
    places = ((one, last.get((one.inbound.address, one.inbound.port), _NO_FRAGMENT)) for one in reached)
    kept = tuple(
        one if _is_made(one.fragment) else replace(one, fragment=old.in_place_of(one.fragment)) for one, old in places
    )
    if not _is_made(beside.fragment):
        beside = replace(beside, fragment=before.beside.fragment.in_place_of(beside.fragment))
    if captured is not None and before.captured is not None and not _is_made(captured.fragment):
        captured = replace(captured, fragment=before.captured.fragment.in_place_of(captured.fragment))
    return kept, beside, captured


def _is_made(fragment: Fragment) -> bool:
    return fragment.failure is None


def _is_good(fragment: Fragment) -> bool:
    """Whether it is what was made for it, now or earlier, and no mere answer that nothing was."""
    return fragment.failure is None or fragment.failure.is_kept


def _failures(fragments: Iterable[Fragment]) -> tuple[Failure, ...]:
    return tuple(fragment.failure for fragment in fragments if fragment.failure is not None)


def _fragments_of(upstreams: Mapping[Destination, BackendResult]) -> Iterator[Fragment]:
    return (fragment for upstream in upstreams.values() for fragment in upstream.fragments)


def _gone(before: ProxyClass, upstreams: Mapping[Destination, BackendResult]) -> Iterator[BackendResult]:
    if before.upstreams.keys() != upstreams.keys():
        yield from (old for one, old in before.upstreams.items() if one not in upstreams)


def _updated(part: SnapshotPart, changed: Iterable[tuple[Fragment, Fragment]]) -> SnapshotPart | None:
    """The part with new contents for the same names; None where a name came or went."""
    differing = [(old, new) for old, new in changed if old is not new]
    came = {(one.type_url, one.name): one for one in _resources(new for _, new in differing)}
    gone = {(one.type_url, one.name) for one in _resources(old for old, _ in differing)}
    return part.updated(came.values()) if came.keys() == gone else None


def _all_resources(
    entries: Mapping[OutboundAddress, OutboundResult], upstreams: Mapping[Destination, BackendResult]
) -> Iterator[PackedResource]:
    yield from _resources(entry.fragment for entry in entries.values())
    yield from _resources(one for upstream in upstreams.values() for one in upstream.fragments)


def _resources(fragments: Iterable[Fragment]) -> Iterator[PackedResource]:
    return (packed for fragment in fragments for packed in fragment)


_NO_FRAGMENT: Final = Fragment(())
