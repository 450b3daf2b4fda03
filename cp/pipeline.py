"""The stages in order: what one proxy gets in one World, and why.

Proxies that match the same policies and have the same outbounds form a class, and what a class has in common is
computed once. Each outbound of it is an `Entry`, which keeps the effective confs with their origins beside the task
that is built from them: inspection and serving look at the same computation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import msgspec

from cp.fragments import Confs, Fragments, RouteConfs, Task
from cp.matching import match
from cp.merging import NOTHING, Layer, Merged, Origin, merge
from cp.model.names import Destination, Identity, Key
from cp.policies import Policies, Policy
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules import Matcher, PolicyRules, build, effective, routes
from cp.snapshot import Packed, Part, Snapshot
from cp.view.backends import Resolver
from cp.view.proxies import Listening, inbounds, outbounds
from cp.view.services import backend_of, cluster_name, endpoints_of, protocol_of
from generators.proxy import Inbound, Outbound, Route

Effective: TypeAlias = Mapping[str, Merged]
"""The effective conf of each policy that says something, by its kind."""

_Rules: TypeAlias = Mapping[str, PolicyRules]
_Hooks: TypeAlias = tuple[str, ...]

_OF_CLUSTER: Final = ("cluster",)
_OF_ENDPOINTS: Final = ("endpoints",)
_OF_LISTENER: Final = ("listener", "route")
_OF_INBOUND: Final = ("cluster", "listener", "route")

BUILT_IN: Final = "built-in"
"""The `part` of the origin of a default."""

_encode: Final = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One outbound of a class: what it is, what holds for it, and what is built from that."""

    listening: Listening
    outbound: Outbound
    effective: Effective
    of_routes: Mapping[str, Effective]
    """What holds for the routes of each route resource, where it differs."""

    task: Task
    uses: tuple[Destination, ...]
    """The destinations to which its routes lead."""


@dataclass(frozen=True, slots=True, eq=False)
class Upstream:
    """One backend of a class: its cluster and its endpoints."""

    destination: Destination
    effective: Effective
    tasks: tuple[Task, Task]


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """What all proxies of a class have in common."""

    entries: Mapping[Listening, Entry]
    upstreams: Mapping[Destination, Upstream]
    part: Part


@dataclass(frozen=True, slots=True, eq=False)
class Reached:
    """One inbound of a proxy, and what holds for it."""

    inbound: Inbound
    effective: Effective
    task: Task


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
    """Computes proxies, and keeps what the next World can use again."""

    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        self._outbound_defaults = {p.kind.name: _default(p, p.outbound_default) for p in policies if p.outbound_default}
        self._inbound_defaults = {p.kind.name: _default(p, p.inbound_default) for p in policies if p.inbound_default}
        self._writers: dict[_Hooks, frozenset[str]] = {
            hooks: frozenset(policy.kind.name for policy in policies if _writes(policy, hooks))
            for hooks in (_OF_CLUSTER, _OF_ENDPOINTS, _OF_LISTENER, _OF_INBOUND)
        }
        self.fragments = Fragments(policies)
        self._world: World | None = None
        self._bundles: dict[tuple[int, tuple[Listening, ...]], Bundle] = {}
        self._parts: dict[tuple[Task, ...], Part] = {}
        self._wanted: dict[tuple[Task, ...], Part] = {}

    def snapshot(self, world: World, dataplane: Resource) -> Snapshot:
        return self.proxy(world, dataplane).snapshot

    def proxy(self, world: World, dataplane: Resource) -> Proxy:
        if world is not self._world:
            self._world, self._bundles = world, {}
        matched = match(world, dataplane)
        rules = {kind: build(world, found, world.kinds[kind]) for kind, found in matched.items()}
        listenings = outbounds(world, dataplane)
        key = (id(matched), listenings)
        if key not in self._bundles:
            self._bundles[key] = self._bundle(world, dataplane.mesh, rules, listenings)
        bundle = self._bundles[key]
        reached = tuple(self._reached(rules, index, inbound) for index, inbound in inbounds(dataplane))
        return Proxy(dataplane, bundle, reached, self._part(tuple(one.task for one in reached)))

    def forget_unused(self) -> None:
        """Drop the parts and fragments that nobody asked for since the last time."""
        self._parts, self._wanted = self._wanted, {}
        self.fragments.keep_only({task for tasks in self._parts for task in tasks})

    def _bundle(self, world: World, mesh: str, rules: _Rules, listenings: tuple[Listening, ...]) -> Bundle:
        entries = {one: self._entry(world, mesh, rules, one) for one in listenings}
        needed = dict.fromkeys(used for entry in entries.values() for used in entry.uses)
        upstreams = {one: self._upstream(world, mesh, rules, one) for one in needed}
        tasks = [entry.task for entry in entries.values()]
        tasks += [task for upstream in upstreams.values() for task in upstream.tasks]
        return Bundle(entries, upstreams, self._part(tuple(tasks)))

    def _part(self, tasks: tuple[Task, ...]) -> Part:
        """The same part for the same tasks, so that whoever serves it sees that nothing changed."""
        part = self._parts.get(tasks)
        if part is None:
            unique: dict[tuple[str, str], Packed] = {}
            for packed in (one for task in tasks for one in self.fragments.get(task)):
                unique.setdefault((packed.type_url, packed.name), packed)
            part = self._parts[tasks] = Part(unique.values())
        self._wanted[tasks] = part
        return part

    def _entry(self, world: World, mesh: str, rules: _Rules, listening: Listening) -> Entry:
        destination = listening.destination
        resolver = Resolver(world, mesh, destination)
        outbound = self._outbound(world, mesh, rules, listening, resolver)
        found = self._effective(rules, destination)
        of_routes = {
            name: self._effective(rules, destination, rule.owner, rule.hash) for name, rule in resolver.owners.items()
        }
        # What holds for a TCP route holds for the listener as a whole: it has one route.
        whole = found if outbound.protocol.is_http else of_routes.get(outbound.routes[0].owner, found)
        task = Task(outbound, self._confs(whole, _OF_LISTENER), self._route_confs(whole, of_routes))
        return Entry(listening, outbound, found, of_routes, task, tuple(resolver.used))

    def _outbound(self, world: World, mesh: str, rules: _Rules, listening: Listening, resolver: Resolver) -> Outbound:
        """The destination with its routes: those that policies give it, or one to itself."""
        destination = listening.destination
        name, protocol = cluster_name(destination), protocol_of(world, mesh, destination)
        outbound = Outbound(name, destination.service, listening.address, listening.port, protocol)
        for policy in self._policies:
            of_kind = rules.get(policy.kind.name) if policy.is_route else None
            found = routes(of_kind, destination) if of_kind is not None else ()
            if found:
                outbound = policy.shape(found, outbound, resolver)
        if outbound.routes:
            return outbound
        return replace(outbound, routes=(Route(name=name, splits=(resolver.itself(),)),))

    def _upstream(self, world: World, mesh: str, rules: _Rules, destination: Destination) -> Upstream:
        found = self._effective(rules, destination)
        cluster = Task(backend_of(world, mesh, destination), self._confs(found, _OF_CLUSTER))
        endpoints = Task(endpoints_of(world, mesh, destination), self._confs(found, _OF_ENDPOINTS))
        return Upstream(destination, found, (cluster, endpoints))

    def _effective(
        self, rules: _Rules, destination: Destination, route: Identity | None = None, matches: str = ""
    ) -> Effective:
        """What holds for a destination, or for a route to it, over the defaults of each policy."""
        found = dict(self._outbound_defaults)
        for of_kind in rules.values():
            said = effective(of_kind, destination, route, matches) if of_kind.shape.to else _of_proxy(of_kind)
            _lay(found, of_kind, said)
        return found

    def _reached(self, rules: _Rules, index: int, inbound: Inbound) -> Reached:
        found = dict(self._inbound_defaults)
        for of_kind in rules.values():
            _lay(found, of_kind, _of_proxy(of_kind) if of_kind.shape.single else _of_all_clients(of_kind, index))
        clients = tuple(
            (kind, some) for kind, of_kind in sorted(rules.items()) if (some := _of_clients(of_kind, index))
        )
        return Reached(inbound, found, Task(inbound, self._confs(found, _OF_INBOUND), clients=clients))

    def _confs(self, found: Effective, hooks: _Hooks) -> Confs:
        """The confs of those policies that have something to write there."""
        writers = self._writers[hooks]
        return tuple((kind, conf.canonical) for kind, conf in sorted(found.items()) if kind in writers)

    def _route_confs(self, whole: Effective, of_routes: Mapping[str, Effective]) -> RouteConfs:
        """Those of the routes' confs that differ from what holds for the whole."""
        of_whole = self._confs(whole, _OF_LISTENER)
        differing = (
            (name, tuple(one for one in self._confs(found, _OF_LISTENER) if one not in of_whole))
            for name, found in sorted(of_routes.items())
        )
        return tuple((name, confs) for name, confs in differing if confs)


def _writes(policy: Policy[Any], hooks: _Hooks) -> bool:
    return any(getattr(type(policy), hook) is not getattr(Policy, hook) for hook in hooks)


def _default(policy: Policy[Any], conf: Mapping[str, Any]) -> Merged:
    """A policy's own default as the most general conf of all, with an origin of its own."""
    kind = policy.kind.name
    origin = Origin(Key(kind, "", "default"), Identity(kind, "", "default"), BUILT_IN)
    return merge((Layer(dict(conf), origin),))


def _lay(found: dict[str, Merged], of_kind: PolicyRules, said: Merged) -> None:
    if said is not NOTHING:
        kind = of_kind.kind.name
        found[kind] = of_kind.lay((found[kind], said)) if kind in found else said


def _of_proxy(of_kind: PolicyRules) -> Merged:
    return NOTHING if of_kind.proxy is None else of_kind.proxy.conf


def _of_all_clients(of_kind: PolicyRules, index: int) -> Merged:
    found = of_kind.inbound(index).for_all
    return NOTHING if found is None else found.conf


def _of_clients(of_kind: PolicyRules, index: int) -> tuple[tuple[bytes, bytes], ...]:
    """Who gets which conf on an inbound, where that is not the same for everybody."""
    return tuple((_encode(who), conf.canonical) for who, conf in _clients(of_kind, index))


def _clients(of_kind: PolicyRules, index: int) -> Iterator[tuple[Mapping[str, Any], Merged]]:
    if of_kind.shape.from_ and not of_kind.shape.from_as_rules:
        for subset in of_kind.from_(index).rules:
            yield _tags(subset.matchers), subset.combined.conf
    inbound_rules = of_kind.inbound(index)
    if some := inbound_rules.for_some:
        yield from ((rule.match or {}, rule.combined.conf) for rule in some)
        yield from (({}, one.conf) for one in (inbound_rules.for_all,) if one is not None)


def _tags(matchers: Iterable[Matcher]) -> Mapping[str, Any]:
    wanted = {one.key: one.value for one in matchers if not one.is_not}
    unwanted = [[one.key, one.value] for one in matchers if one.is_not]
    return {"tags": wanted, "not": unwanted}
