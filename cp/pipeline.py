"""`Compiler`: from a World to what each proxy gets, working out again only what a change reaches.

Proxies that match the same policies and have the same outbounds form a class. What a class has in common is one
`Bundle`, worked out once; from World to World it keeps every entry that the change does not reach (`cp.touched`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from cp.fragments import Fragment, Fragments
from cp.matching import Matched, match
from cp.model.names import Destination, Key
from cp.policies import Policies
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.snapshot import Packed, Part, Snapshot
from cp.stages import Effective as Effective
from cp.stages import Entry, Reached, Rules, Stages, Upstream, rules_of
from cp.touched import EVERYTHING, Touched, by_policies, by_world
from cp.view.proxies import Listening, inbounds, outbounds

_Matched: TypeAlias = Mapping[str, tuple[Matched, ...]]
_ClassKey: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """What all proxies of a class have in common, in one World."""

    world: World
    matched: _Matched
    listenings: tuple[Listening, ...]
    entries: Mapping[Listening, Entry]
    upstreams: Mapping[Destination, Upstream]
    part: Part

    @property
    def fragments(self) -> Iterator[Fragment]:
        for entry in self.entries.values():
            yield entry.fragment
        for upstream in self.upstreams.values():
            yield from upstream.fragments


@dataclass(frozen=True, slots=True, eq=False)
class Proxy:
    """Everything about one proxy."""

    dataplane: Resource
    bundle: Bundle
    inbounds: tuple[Reached, ...]
    part: Part

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(self.bundle.part, self.part)


class Compiler:
    """Keeps what it worked out for one World, for the next one."""

    def __init__(self, policies: Policies) -> None:
        self._stages = Stages(policies)
        self._world: World | None = None
        self._bundles: dict[_ClassKey, Bundle] = {}
        self._touched: dict[tuple[int, str], Touched] = {}
        self._proxies: dict[Key, Proxy] = {}

    @property
    def fragments(self) -> Fragments:
        return self._stages.fragments

    @property
    def classes(self) -> int:
        return len(self._bundles)

    def snapshot(self, world: World, dataplane: Resource) -> Snapshot:
        return self.proxy(world, dataplane).snapshot

    def proxy(self, world: World, dataplane: Resource) -> Proxy:
        if world is not self._world:
            self._world, self._bundles, self._touched = world, {}, {}
        before = self._proxies.get(dataplane.key)
        matched, listenings = match(world, dataplane), outbounds(world, dataplane)
        bundle = self._bundles.get((id(matched), id(listenings)))
        if bundle is None:
            bundle = self._bundle(world, dataplane, matched, listenings, before.bundle if before else None)
            self._bundles[id(matched), id(listenings)] = bundle
        if before is None or before.bundle is not bundle or before.dataplane is not dataplane:
            self._proxies[dataplane.key] = self._proxy(world, dataplane, bundle, before)
        return self._proxies[dataplane.key]

    def keep_only(self, dataplanes: Iterable[Key]) -> None:
        """Forget all proxies but these, and with them what only they needed."""
        self._proxies = {key: self._proxies[key] for key in dataplanes if key in self._proxies}

    def _proxy(self, world: World, dataplane: Resource, bundle: Bundle, before: Proxy | None) -> Proxy:
        """A proxy's own inbounds are worked out again only if the proxy itself or its policies are others."""
        if before and before.dataplane is dataplane and before.bundle.matched is bundle.matched:
            return Proxy(dataplane, bundle, before.inbounds, before.part)
        rules = rules_of(world, dataplane)
        reached = tuple(self._stages.reached(rules, index, inbound) for index, inbound in inbounds(dataplane))
        return Proxy(dataplane, bundle, reached, Part(_resources(one.fragment for one in reached)))

    def _bundle(
        self,
        world: World,
        dataplane: Resource,
        matched: _Matched,
        listenings: tuple[Listening, ...],
        before: Bundle | None,
    ) -> Bundle:
        """The bundle of a class: what the change does not reach is taken from the one that the proxy had before."""
        work = _Work(self._stages, world, dataplane.mesh, rules_of(world, dataplane))
        if before is not None and before.listenings is listenings:
            touched = self._since(before.world, world, dataplane.mesh) | by_policies(before.matched, matched)
            if not touched.everything:
                return work.some(matched, before, touched)
        return work.all(matched, listenings)

    def _since(self, old: World, new: World, mesh: str) -> Touched:
        """What changed from one World to the other, policies aside."""
        key = (id(old), mesh)
        if key not in self._touched:
            self._touched[key] = by_world(old, new, mesh)
        return self._touched[key]


@dataclass(frozen=True, slots=True)
class _Work:
    """Working out the bundle of one class in one World."""

    stages: Stages
    world: World
    mesh: str
    rules: Rules

    def all(self, matched: _Matched, listenings: tuple[Listening, ...]) -> Bundle:
        entries = {one: self.stages.entry(self.world, self.mesh, self.rules, one) for one in listenings}
        upstreams = self._upstreams(entries, {}, EVERYTHING)
        bundle = Bundle(self.world, matched, listenings, entries, upstreams, Part())
        return replace(bundle, part=Part(_resources(bundle.fragments)))

    def some(self, matched: _Matched, before: Bundle, touched: Touched) -> Bundle:
        entries = {
            listening: self.stages.entry(self.world, self.mesh, self.rules, listening)
            if touched.concerns(entry.names)
            else entry
            for listening, entry in before.entries.items()
        }
        upstreams = self._upstreams(entries, before.upstreams, touched)
        bundle = Bundle(self.world, matched, before.listenings, entries, upstreams, before.part)
        return replace(bundle, part=_part(before, bundle))

    def _upstreams(
        self, entries: Mapping[Listening, Entry], before: Mapping[Destination, Upstream], touched: Touched
    ) -> Mapping[Destination, Upstream]:
        needed = dict.fromkeys(used for entry in entries.values() for used in entry.uses)
        found = {}
        for destination in needed:
            upstream = before.get(destination)
            if upstream is None or touched.concerns(upstream.names):
                upstream = self.stages.upstream(self.world, self.mesh, self.rules, destination)
            found[destination] = upstream
        return found


def _part(before: Bundle, after: Bundle) -> Part:
    """The part of a bundle; one whose resources are all the same is the same object, and shares what did not change."""
    old, new = dict.fromkeys(before.fragments), dict.fromkeys(after.fragments)
    came = {(one.type_url, one.name): one for one in _resources(f for f in new if f not in old)}
    gone = {(one.type_url, one.name) for one in _resources(f for f in old if f not in new)}
    if came.keys() == gone:
        return before.part.updated(came.values())
    return Part(_resources(new))


def _resources(fragments: Iterable[Fragment]) -> Iterator[Packed]:
    return (packed for fragment in fragments for packed in fragment)
