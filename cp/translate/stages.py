"""The stages in order, for one outbound, one backend, one inbound at a time: pure functions of a World.

Each answers with the effective confs, which keep their origins, beside the fragment that is built from them: inspection
and serving look at the same computation.

See record 0044.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary, ref

from cp.model.canonical import canonical_json
from cp.model.failure import Failure, failure
from cp.model.names import Destination, Identity, Key
from cp.policies import Policies, Policy
from cp.resources.caller import Caller, caller_of
from cp.resources.client import is_grpc_client
from cp.resources.resource import Resource
from cp.resources.schema import decode
from cp.resources.world import World
from cp.rules import PolicyRules, RouteRule, TagCondition, build, effective, routes
from cp.rules.matching import match
from cp.rules.merging import NOTHING, Layer, MergedConf, Origin, merge
from cp.translate.change_scope import Name
from cp.translate.fragments import Confs, Fragment, FragmentCache, RouteConfs, Task
from cp.translate.view import backend_refs
from cp.translate.view.backends import ANY, BackendResolver
from cp.translate.view.dataplanes import SERVICE_TAG
from cp.translate.view.outbound_address import OutboundAddress
from cp.translate.view.services import backend_of, cluster_name, endpoints_of, outside_of, protocol_of
from cp.translate.view.sidecars import sidecar_fields, sidecar_of, sidecar_of_caller
from generators.proxy import Capture, Endpoints, Inbound, Outbound, Protocol, Route, Sidecar

Effective: TypeAlias = Mapping[str, MergedConf]
"""The effective conf of each policy that says something, by its kind."""

Rules: TypeAlias = Mapping[str, PolicyRules]
"""What the policies that select a proxy come to, by their kind."""

_Hooks: TypeAlias = tuple[str, ...]

_OF_CLUSTER: Final = ("cluster", "finish")
_OF_ENDPOINTS: Final = ("endpoints",)
_OF_LISTENER: Final = ("listener", "route", "finish")
_OF_INBOUND: Final = ("cluster", "listener", "route", "finish")
_OF_SIDECAR: Final = ("sidecar", "finish")
_OF_CAPTURE: Final = ("finish",)

BUILT_IN: Final = "built-in"
"""The `part` of the origin of a default."""


@dataclass(frozen=True, slots=True, eq=False)
class OutboundResult:
    """One outbound of a class: what it is, what holds for it, and what is built from that."""

    listening: OutboundAddress
    outbound: Outbound
    effective: Effective
    of_routes: Mapping[str, Effective]
    """What holds for the routes to which the same route resources contribute, by their name (`RouteRule.name`)."""

    owners: Mapping[str, RouteRule]
    """The rules of route resources that it has rows from, by the same names."""

    task: Task
    fragment: Fragment
    uses: tuple[Destination, ...]
    """The destinations to which its routes lead."""

    names: frozenset[Name]
    """Everything that it depends on: its destination, its routes, and what those refer to, be it there or not."""


@dataclass(frozen=True, slots=True, eq=False)
class BackendResult:
    """One backend of a class: its cluster and, unless Envoy finds them by itself, its endpoints."""

    destination: Destination
    effective: Effective
    tasks: tuple[Task, ...]
    fragments: tuple[Fragment, ...]
    names: frozenset[Name]
    """Everything that it depends on."""


@dataclass(frozen=True, slots=True, eq=False)
class InboundResult:
    """One inbound of a proxy, and what holds for it."""

    inbound: Inbound
    effective: Effective
    task: Task
    fragment: Fragment


@dataclass(frozen=True, slots=True, eq=False)
class SidecarResult:
    """What a proxy has beside its inbounds and outbounds, and what holds for it."""

    effective: Effective
    task: Task
    fragment: Fragment


@dataclass(frozen=True, slots=True, eq=False)
class CaptureResult:
    """What takes the traffic that a machine redirects to its proxy."""

    capture: Capture
    """What the Dataplane and its Mesh say about it."""

    task: Task
    fragment: Fragment


@dataclass(frozen=True, slots=True, eq=False)
class _Questions:
    """What the policies of a mesh together want to know of a caller, in one World, and the callers by that."""

    world: ref[World]
    looks_at: frozenset[str]
    asks: frozenset[str]
    callers: WeakKeyDictionary[Resource, Caller]


def rules_of(world: World, dataplane: Resource) -> Rules:
    """The rules of a proxy. Proxies for which they come to the same get the same mapping."""
    matched = match(world, dataplane)
    return world.derived(_rules).of(world, matched)


class _KnownRules:
    """The rules of each set of matched policies, once for a World."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, Rules]] = {}

    def of(self, world: World, matched: Mapping[str, Any]) -> Rules:
        known = self._known.get(id(matched))
        if known is None:
            rules = {kind: build(world, found, world.kinds[kind]) for kind, found in matched.items()}
            known = self._known[id(matched)] = (matched, rules)  # kept, so that no other gets its id
        return known[1]


def _rules(_: World, __: _KnownRules | None) -> _KnownRules:
    return _KnownRules()


class Translator:
    """What the stages need beside the World: the policies, their defaults, and the fragments that there are."""

    def __init__(self, policies: Policies) -> None:
        self.fragments = FragmentCache(policies)
        self._of_grpc_clients = frozenset(policy.kind.name for policy in policies if policy.is_for_grpc_clients)
        self._route_policies = [policy for policy in policies if policy.is_route]
        self._arrangers = [policy for policy in policies if _writes(policy, ("arrange",))]
        self._passers = [policy for policy in policies if _writes(policy, ("capture",))]
        self._askers = [policy for policy in policies if _writes(policy, ("caller_tags", "sidecar_fields"))]
        self._questions: dict[str, _Questions] = {}
        self._outbound_defaults = {p.kind.name: built_in(p, p.outbound_default) for p in policies if p.outbound_default}
        self._inbound_defaults = {p.kind.name: built_in(p, p.inbound_default) for p in policies if p.inbound_default}
        self._writers: dict[_Hooks, frozenset[str]] = {
            hooks: frozenset(policy.kind.name for policy in policies if _writes(policy, hooks))
            for hooks in (_OF_CLUSTER, _OF_ENDPOINTS, _OF_LISTENER, _OF_INBOUND, _OF_SIDECAR, _OF_CAPTURE)
        }

    def entry(
        self, world: World, mesh: str, rules: Rules, listening: OutboundAddress, caller: Caller
    ) -> OutboundResult:
        """One outbound. Where a fault of ours is in the way, it answers every call with 500 and the reason."""
        part = f"the listener of {listening.destination.service}"
        try:
            entry = self._entry(world, mesh, rules, listening, caller)
        except Exception as error:  # noqa: BLE001  # whatever it is, all other outbounds are served
            entry = _no_entry(listening, failure(error, part))
        why = entry.fragment.failure
        if why is None:
            return entry
        return replace(entry, fragment=self._refusing(entry.task, _of_part(why, part, rules, entry.effective)))

    def _refusing(self, task: Task, why: Failure) -> Fragment:
        """A listener that answers with the reason. If that cannot be built either, it is left out."""
        route = Route("failed", unavailable_reason=f"{why.kind or 'koguma'}: {why.reason}")
        if not isinstance(task.site, Outbound):
            return Fragment((), failure=why)
        refusing = self.fragments.get(Task(replace(task.site, routes=(route,)), is_grpc=task.is_grpc))
        is_there = refusing.failure is None
        return Fragment(refusing.resources, failure=replace(why, instead=_REFUSAL if is_there else why.instead))

    def _entry(
        self, world: World, mesh: str, rules: Rules, listening: OutboundAddress, caller: Caller
    ) -> OutboundResult:
        destination = listening.destination
        resolver = BackendResolver(world, mesh, destination)
        outbound = replace(self._outbound(world, mesh, rules, listening, resolver), sidecar=sidecar_of_caller(caller))
        if caller.is_grpc:
            outbound = _called_by_grpc(outbound)
        found = self._of_destination(rules, destination)
        of_routes = {
            name: self._of_destination(rules, destination, rule.contributors, rule.hash)
            for name, rule in resolver.owners.items()
        }
        task = self.listener_task(world, mesh, outbound, found, of_routes, is_grpc=caller.is_grpc)
        return OutboundResult(
            listening=listening,
            outbound=outbound,
            effective=found,
            of_routes=of_routes,
            owners=resolver.owners,
            task=task,
            fragment=self.fragments.get(task),
            uses=tuple(resolver.used) if outbound.names or not caller.is_grpc else (),
            names=frozenset(
                {
                    *names_of(destination),
                    *_owners(resolver),
                    *resolver.names_referred_to,
                    *_referred(found, *of_routes.values()),
                }
            ),
        )

    def listener_task(  # noqa: PLR0913  # all on which it depends
        self,
        world: World,
        mesh: str,
        outbound: Outbound,
        found: Effective,
        of_routes: Mapping[str, Effective],
        *,
        is_grpc: bool,
    ) -> Task:
        """What is asked of the generator for an outbound for which this holds, and this for each of its routes."""
        # What holds for a TCP route holds for the listener as a whole: it has one route.
        whole = found if outbound.protocol.is_http else of_routes.get(outbound.routes[0].owner, found)
        place = _Place(world, mesh)
        confs, of_rows = self._confs(place, whole, _OF_LISTENER), self._route_confs(place, whole, of_routes)
        return Task(outbound, confs, of_rows, is_grpc=is_grpc)

    def caller(self, world: World, dataplane: Resource) -> Caller:
        """A proxy as policies see it that arrange endpoints for it, or have its listeners say something about it."""
        questions = self._questions_of(world, dataplane.mesh)
        known = questions.callers.get(dataplane)
        if known is None:
            known = caller_of(dataplane, questions.looks_at)
            if not known.is_grpc:  # which has no listener that could say anything about it
                known = replace(known, sidecar_fields=sidecar_fields(dataplane, questions.asks))
            questions.callers[dataplane] = known
        return known

    def _questions_of(self, world: World, mesh: str) -> _Questions:
        """What is asked in a mesh. As long as that is the same, so are the callers that are known already."""
        before = self._questions.get(mesh)
        if before is not None and before.world() is world:
            return before
        looks_at, asks = self._found(world, mesh, "caller_tags"), self._found(world, mesh, "sidecar_fields")
        is_same = before is not None and (before.looks_at, before.asks) == (looks_at, asks)
        callers = before.callers if before is not None and is_same else WeakKeyDictionary()
        questions = self._questions[mesh] = _Questions(ref(world), looks_at, asks, callers)
        return questions

    def of_outbounds(self, rules: Rules, caller: Caller) -> Rules:
        """The rules that decide over what a caller calls: for a gRPC client those that it can do something of."""
        if not caller.is_grpc:
            return rules
        return {kind: of_kind for kind, of_kind in rules.items() if kind in self._of_grpc_clients}

    def _found(self, world: World, mesh: str, hook: str) -> frozenset[str]:
        """What all policies of a mesh together answer to a question about their documents."""
        asked = (policy for policy in self._askers if _writes(policy, (hook,)))
        tables = ((policy, world.table(policy.kind.name, mesh)) for policy in asked)
        return frozenset[str]().union(*(table.derived(getattr(policy, hook)) for policy, table in tables))

    def upstream(
        self, world: World, mesh: str, rules: Rules, destination: Destination, caller: Caller
    ) -> BackendResult:
        """One backend. Without it, what is sent there is answered with 503."""
        part = f"the cluster of {destination.service}"
        try:
            upstream = self._upstream(world, mesh, rules, destination, caller)
        except Exception as error:  # noqa: BLE001
            fragment = Fragment((), failure=failure(error, part))
            upstream = BackendResult(destination, {}, (_NO_TASK,), (fragment,), names_of(destination))
        of_part = partial(_told, part=part, rules=rules, effective=upstream.effective)
        return replace(upstream, fragments=tuple(map(of_part, upstream.fragments)))

    def _upstream(
        self, world: World, mesh: str, rules: Rules, destination: Destination, caller: Caller
    ) -> BackendResult:
        found = self._of_destination(rules, destination)
        outside = outside_of(world, destination)
        tasks = self.cluster_tasks(world, mesh, destination, found, caller)
        names = names_of(destination) | _referred(found)
        names = names if outside is None else names | outside.names
        return BackendResult(destination, found, tasks, tuple(map(self.fragments.get, tasks)), names)

    def cluster_tasks(
        self, world: World, mesh: str, destination: Destination, found: Effective, caller: Caller
    ) -> tuple[Task, ...]:
        """What is asked of the generator for the cluster of a destination for which this holds, and its endpoints."""
        place, backend = _Place(world, mesh), backend_of(world, mesh, destination)
        cluster = Task(backend, self._confs(place, found, _OF_CLUSTER), is_grpc=caller.is_grpc)
        if outside_of(world, destination) is not None:
            return (cluster,)
        arranged = self._arranged(endpoints_of(world, mesh, destination), found, caller)
        return cluster, Task(arranged, self._confs(place, found, _OF_ENDPOINTS), is_grpc=caller.is_grpc)

    def reached(self, world: World, mesh: str, rules: Rules, index: int, inbound: Inbound) -> InboundResult:
        """One inbound. Without it nobody is let in: what should be checked of clients is not known."""
        part = f"inbound {inbound.port}"
        try:
            reached = self._reached(world, mesh, rules, index, inbound)
        except Exception as error:  # noqa: BLE001
            reached = InboundResult(inbound, {}, Task(inbound), Fragment((), failure=failure(error, part)))
        return replace(reached, fragment=_told(reached.fragment, part, rules, reached.effective))

    def _reached(self, world: World, mesh: str, rules: Rules, index: int, inbound: Inbound) -> InboundResult:
        place = _Place(world, mesh)
        found = dict(self._inbound_defaults)
        for of_kind in rules.values():
            _lay(found, of_kind, _of_proxy(of_kind) if of_kind.shape.single else _of_all_clients(of_kind, index))
        clients = tuple(
            (kind, some) for kind, of_kind in sorted(rules.items()) if (some := _of_clients(place, of_kind, index))
        )
        task = Task(inbound, self._confs(place, found, _OF_INBOUND), clients=clients)
        return InboundResult(inbound, found, task, self.fragments.get(task))

    def beside(self, world: World, rules: Rules, dataplane: Resource) -> SidecarResult:
        """What a proxy has beside its inbounds and outbounds; nothing, unless some policy is about that."""
        part = "what a proxy has beside its inbounds and outbounds"
        try:
            beside = self._beside(world, rules, dataplane)
        except Exception as error:  # noqa: BLE001
            beside = SidecarResult({}, _NO_TASK, Fragment((), failure=failure(error, part)))
        return replace(beside, fragment=_told(beside.fragment, part, rules, beside.effective))

    def _beside(self, world: World, rules: Rules, dataplane: Resource) -> SidecarResult:
        found = {} if is_grpc_client(dataplane) else _of_proxies(rules)
        confs = self._confs(_Place(world, dataplane.mesh), found, _OF_SIDECAR)
        task = Task(dataplane.derived(sidecar_of) if confs else Sidecar(), confs)
        return SidecarResult(found, task, self.fragments.get(task))

    def captured(self, world: World, mesh: str, rules: Rules, capture: Capture) -> CaptureResult:
        """What takes the calls that are redirected to a proxy and are for none of its destinations."""
        part = "what takes redirected calls"
        try:
            captured = self._captured(world, mesh, rules, capture)
        except Exception as error:  # noqa: BLE001
            captured = CaptureResult(capture, Task(capture), Fragment((), failure=failure(error, part)))
        return replace(captured, fragment=_told(captured.fragment, part, rules, {}))

    def _captured(self, world: World, mesh: str, rules: Rules, capture: Capture) -> CaptureResult:
        found, site = _of_proxies(rules), capture
        for policy in self._passers:
            if (said := found.get(policy.kind.name)) is not None:
                site = policy.capture(decode(policy.conf, said.value), site)
        task = Task(site, self._confs(_Place(world, mesh), found, _OF_CAPTURE))
        return CaptureResult(capture, task, self.fragments.get(task))

    def _outbound(
        self, world: World, mesh: str, rules: Rules, listening: OutboundAddress, resolver: BackendResolver
    ) -> Outbound:
        """The destination with its routes: those that policies give it, or one to itself."""
        destination = listening.destination
        name, protocol = cluster_name(destination), protocol_of(world, mesh, destination)
        place = listening.address, listening.port
        outbound = Outbound(
            name, destination.service, *place, protocol, is_bound=listening.is_bound, names=listening.names
        )
        for policy in self._route_policies:
            of_kind = rules.get(policy.kind.name)
            found = routes(of_kind, destination) if of_kind is not None else None
            if found is not None:
                outbound = policy.shape(found, outbound, resolver)
        if outbound.routes:
            return outbound
        return replace(outbound, routes=(resolver.unmatched(),))

    def _arranged(self, endpoints: Endpoints, found: Effective, caller: Caller) -> Endpoints:
        for policy in self._arrangers:
            said = found.get(policy.kind.name)
            conf = None if said is None else decode(policy.conf, said.value)
            endpoints = policy.arrange(conf, endpoints, caller)
        return endpoints

    def _of_destination(
        self, rules: Rules, destination: Destination, via: tuple[Identity, ...] = (), matches: str = ""
    ) -> Effective:
        """What holds for a destination, or for routes to it, over the defaults of each policy."""
        found = dict(self._outbound_defaults)
        for of_kind in rules.values():
            said = effective(of_kind, destination, via, matches) if of_kind.shape.to else _of_proxy(of_kind)
            _lay(found, of_kind, said)
        return found

    def _confs(self, place: _Place, found: Effective, hooks: _Hooks) -> Confs:
        """The confs of those policies that have something to write there."""
        writers = self._writers[hooks]
        return tuple((kind, place.resolved(conf)) for kind, conf in sorted(found.items()) if kind in writers)

    def _route_confs(self, place: _Place, whole: Effective, of_routes: Mapping[str, Effective]) -> RouteConfs:
        """Those of the routes' confs that differ from what holds for the whole."""
        if not of_routes:
            return ()
        of_whole = self._confs(place, whole, _OF_LISTENER)
        differing = (
            (name, tuple(one for one in self._confs(place, found, _OF_LISTENER) if one not in of_whole))
            for name, found in sorted(of_routes.items())
        )
        return tuple((name, confs) for name, confs in differing if confs)


_NO_TASK: Final = Task(Sidecar())
_REFUSAL: Final = "an answer of 500"


def _no_entry(listening: OutboundAddress, why: Failure) -> OutboundResult:
    """Of an outbound of which nothing is known any more but where it is."""
    destination = listening.destination
    outbound = Outbound(
        cluster_name(destination),
        destination.service,
        listening.address,
        listening.port,
        Protocol.HTTP,
        routes=(Route("failed", unavailable_reason=why.reason),),
        is_bound=listening.is_bound,
        names=listening.names,
    )
    task, fragment = Task(outbound), Fragment((), failure=why)
    return OutboundResult(listening, outbound, {}, {}, {}, task, fragment, (), names_of(destination))


def _told(fragment: Fragment, part: str, rules: Rules, effective: Effective) -> Fragment:
    """The fragment itself or, where it could not be made, one that says of which part it would have been."""
    if fragment.failure is None:
        return fragment
    return Fragment(fragment.resources, failure=_of_part(fragment.failure, part, rules, effective))


def _of_part(why: Failure, part: str, rules: Rules, effective: Effective) -> Failure:
    return replace(why, part=part, policies=_policies(why.kind, rules, effective))


def _policies(kind: str, rules: Rules, effective: Effective) -> tuple[Key, ...]:
    """The policies of a kind that have a say: those whose fields hold or, where that is not known, all matched ones."""
    fields = effective[kind].fields.values() if kind in effective else ()
    origins = (field.winner.origin for field in fields)
    writers = tuple(dict.fromkeys(origin.policy for origin in origins if origin.part != BUILT_IN))
    matched = rules[kind].matched if kind in rules else ()
    return writers or tuple(dict.fromkeys(one.policy.key for one in matched))


def _called_by_grpc(outbound: Outbound) -> Outbound:
    """Its calls are gRPC's, whatever else is carried there. Where gRPC is not understood, there is nothing to call."""
    if outbound.protocol in {Protocol.GRPC, Protocol.HTTP2}:
        return replace(outbound, protocol=Protocol.GRPC)
    return replace(outbound, names=())


@dataclass(frozen=True, slots=True)
class _Place:
    """Where confs hold, which decides what their references lead to."""

    world: World
    mesh: str

    def resolved(self, conf: MergedConf) -> bytes:
        return backend_refs.resolved(self.world, self.mesh, conf.canonical)


@lru_cache(maxsize=100_000)
def names_of(destination: Destination) -> frozenset[Name]:
    """By what names policies and changes know a destination."""
    by_tag = (SERVICE_TAG, destination.service)
    identity = destination.identity
    if identity is None:
        return frozenset({by_tag})
    depends = {("MeshService", ANY)} if identity.type == "MeshMultiZoneService" else set()
    return frozenset({by_tag, (identity.type, identity.name), *depends})


def _owners(resolver: BackendResolver) -> set[Name]:
    return {(route.type, route.name) for rule in resolver.owners.values() for route in rule.contributors}


def _referred(*every: Effective) -> frozenset[Name]:
    """What the references in confs are to."""
    return backend_refs.names_referred_to(conf.canonical for found in every for conf in found.values())


def _writes(policy: Policy[Any], hooks: _Hooks) -> bool:
    return any(getattr(type(policy), hook) is not getattr(Policy, hook) for hook in hooks)


def built_in(policy: Policy[Any], conf: Mapping[str, Any]) -> MergedConf:
    """A policy's own default as the most general conf of all, with an origin of its own."""
    kind = policy.kind.name
    origin = Origin(Key(kind, "", "default"), Identity(kind, "", "default"), BUILT_IN)
    return merge((Layer(dict(conf), origin),))


def _lay(found: dict[str, MergedConf], of_kind: PolicyRules, said: MergedConf) -> None:
    if said is not NOTHING:
        kind = of_kind.kind.name
        found[kind] = of_kind.lay((found[kind], said)) if kind in found else said


def _of_proxy(of_kind: PolicyRules) -> MergedConf:
    return NOTHING if of_kind.proxy is None else of_kind.proxy.conf


def _of_proxies(rules: Rules) -> Effective:
    """What policies say about proxies as a whole."""
    found: dict[str, MergedConf] = {}
    for of_kind in rules.values():
        if of_kind.shape.single:
            _lay(found, of_kind, _of_proxy(of_kind))
    return found


def _of_all_clients(of_kind: PolicyRules, index: int) -> MergedConf:
    found = of_kind.inbound(index).for_all
    return NOTHING if found is None else found.conf


def _of_clients(place: _Place, of_kind: PolicyRules, index: int) -> tuple[tuple[bytes, bytes], ...]:
    """Who gets which conf on an inbound, where that is not the same for everybody."""
    return tuple((canonical_json(who), place.resolved(conf)) for who, conf in _clients(of_kind, index))


def _clients(of_kind: PolicyRules, index: int) -> Iterator[tuple[Mapping[str, Any], MergedConf]]:
    if of_kind.shape.from_ and not of_kind.shape.from_as_rules:
        for subset in of_kind.from_(index).rules:
            yield _tags(subset.matchers), subset.combined.conf
    inbound_rules = of_kind.inbound(index)
    if some := inbound_rules.with_matches:
        yield from ((rule.match or {}, rule.combined.conf) for rule in some)
        yield from (({}, one.conf) for one in (inbound_rules.for_all,) if one is not None)


def _tags(matchers: Iterable[TagCondition]) -> Mapping[str, Any]:
    wanted = {one.key: one.value for one in matchers if not one.is_not}
    unwanted = [[one.key, one.value] for one in matchers if one.is_not]
    return {"tags": wanted, "not": unwanted}
