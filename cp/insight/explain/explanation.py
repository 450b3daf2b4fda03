"""From a question to its explanation: the same computation that serves the proxy, looked at from one call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cp.insight.explain import values
from cp.insight.explain.enforcement import not_enforced
from cp.insight.explain.limits import ServerLimits, hops
from cp.insight.explain.model import ExplainedBackend, ExplainedOutbound, Explanation, FieldValue
from cp.insight.explain.outbounds import called, listening_for
from cp.insight.explain.query import AmbiguousCall, CallQuery
from cp.insight.explain.rows import rows, taken
from cp.insight.explain.unset import unset, with_conditions
from cp.insight.explain.values import ConfPlace, acting, idle, taken_away
from cp.insight.parts import DestinationParts, destination_parts
from cp.insight.simulate import Call, NotListening, Outcome, TrafficShare, simulate
from cp.model.names import Destination
from cp.model.remembered import remembered
from cp.policies import Policies
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.matching import match
from cp.translate.backend import BackendResult
from cp.translate.compiler import Compiler
from cp.translate.effective import rules_of
from cp.translate.outbound import OutboundResult
from cp.translate.view.outside import EXTERNAL
from cp.translate.view.proxies import OutboundAddress
from cp.translate.view.services import cluster_name, endpoints_of
from generators.proxy import HeaderChange, Mirror, Route

_WHOLE = 100.0
_PATCH = "MeshProxyPatch"


def explain(compiler: Compiler, policies: Policies, world: World, dataplane: Resource, call: CallQuery) -> Explanation:
    """Why a call of a proxy goes where it goes, and what holds for it. Raises `AmbiguousCall`, or `Unsimulated`.

    The compiler may be one that is in use: what it has worked out already is not worked out again.
    """
    listening = listening_for(world, dataplane, call)
    return _Explainer(compiler, policies, world, dataplane).explain(call, listening)


@dataclass(frozen=True, slots=True)
class _Backends:
    """The clusters that an outbound can lead to."""

    by_cluster: Mapping[str, BackendResult]
    places: Mapping[str, tuple[ConfPlace, ...]]


class _Explainer:
    """What is needed for all parts of one explanation."""

    def __init__(self, compiler: Compiler, policies: Policies, world: World, dataplane: Resource) -> None:
        self._policies, self._world = policies, world
        self._translator = compiler.translator
        self._proxy = compiler.proxy(world, dataplane)
        self._servers = ServerLimits(compiler, policies, world, dataplane.mesh)

    def explain(self, call: CallQuery, listening: OutboundAddress) -> Explanation:
        if self._proxy.bundle.caller.is_grpc:
            who = self._proxy.dataplane.key
            hint = "`koguma inspect` shows the rules that it has, `koguma render` what it is served"
            raise AmbiguousCall(f"{who} is a gRPC client without a proxy, and calls of such are not followed", hint)
        entry = self._proxy.bundle.entries[listening]
        outcome = self._outcome(call, listening)
        row = taken(entry, outcome)
        places = values.of_request(self._policies, self._world, self._proxy.dataplane.mesh, entry, row)
        known = self._backends(outcome)
        backends = tuple(self._backend(share, row, outcome, known) for share in _shares(outcome))
        held = tuple(self._held(places, known, entry, outcome))
        return Explanation(
            proxy=self._proxy.dataplane.key,
            call=call,
            outbound=self._outbound(entry),
            outcome=outcome,
            rows=rows(self._world, rules_of(self._world, self._proxy.dataplane), entry, outcome),
            values=held,
            backends=backends,
            hops=tuple(hops(self._servers, held, backends, entry.outbound.protocol)),
            changes=tuple(_changes(row)),
            not_enforced=tuple(self._not_enforced(backends)),
        )

    def _not_enforced(self, backends: Iterable[ExplainedBackend]) -> Iterator[str]:
        endpoints = (endpoint for backend in backends for endpoint in backend.endpoints)
        return not_enforced(self._world, self._proxy.dataplane, self._servers.dataplanes(endpoints))

    def _outcome(self, call: CallQuery, listening: OutboundAddress) -> Outcome:
        host = call.authority if call.host else f"{listening.address}:{listening.port}"
        sent = Call(listening.address, listening.port, call.method, call.path, host, call.headers)
        try:
            return simulate(self._proxy.snapshot, sent)
        except NotListening as fault:
            patched = _PATCH in match(self._world, self._proxy.dataplane)
            hint = "a MeshProxyPatch has taken the listener away" if patched else "see what `koguma lint` says of it"
            raise AmbiguousCall(str(fault), hint) from None

    def _backends(self, outcome: Outcome) -> _Backends:
        """Those of the clusters that this call can end up at."""
        wanted = {share.cluster for share in _shares(outcome)}
        found = {cluster_name(one.destination): one for one in self._proxy.bundle.upstreams.values()}
        reached = {name: upstream for name, upstream in found.items() if name in wanted}
        return _Backends(reached, {name: self._places(upstream) for name, upstream in reached.items()})

    def _places(self, upstream: BackendResult) -> tuple[ConfPlace, ...]:
        endpoints = endpoints_of(self._world, self._proxy.dataplane.mesh, upstream.destination)
        return values.of_backend(self._policies, upstream, endpoints, self._proxy.bundle.caller)

    def _held(
        self, places: Sequence[ConfPlace], known: _Backends, entry: OutboundResult, outcome: Outcome
    ) -> Iterator[FieldValue]:
        """What holds for the request; and once for everything, what holds nowhere."""
        of_clusters = [place for found in known.places.values() for place in found]
        acts = tuple(with_conditions(one, outcome.forward) for one in acting(places))
        others = (
            *idle(places, of_clusters, lambda kind, path: self._why_idle(entry, outcome, kind, path)),
            *taken_away(places),
        )
        yield from (*acts, *others)
        yield from unset((*acts, *others, *acting(of_clusters)), outcome.forward, entry.outbound.protocol)

    def _why_idle(self, entry: OutboundResult, outcome: Outcome, kind: str, path: str) -> str:
        """Why a field can do nothing for a call."""
        if outcome.reply is not None:
            return "has no meaning for a request that Envoy answers by itself"
        own = cluster_name(entry.listening.destination)
        parts = self._parts[entry.listening.destination]
        if own not in {share.cluster for share in _shares(outcome)} and parts.changes_cluster_only(kind, path):
            why = parts.why if parts.upstream is None else f"the call goes to others than {parts.name}"
            return f"has no effect: {why}"
        identity = entry.listening.destination.identity
        outside = " with a service outside the mesh" if identity is not None and identity.type == EXTERNAL else ""
        return f"has no meaning where {entry.outbound.protocol} is spoken{outside}"

    @remembered
    def _parts(self) -> Mapping[Destination, DestinationParts]:
        """What is served of each destination."""
        found = destination_parts(self._translator, self._proxy.bundle, self._proxy.dataplane.mesh)
        return {one.destination: one for one in found}

    def _backend(self, share: TrafficShare, row: Route | None, outcome: Outcome, known: _Backends) -> ExplainedBackend:
        total = sum(one.weight for one in _shares(outcome)) or 1
        upstream = known.by_cluster.get(share.cluster)
        return ExplainedBackend(
            cluster=share.cluster,
            service="" if upstream is None else called(self._world, upstream.destination),
            weight=share.weight,
            share=round(_WHOLE * share.weight / total, 2),
            endpoints=share.endpoints,
            values=tuple(acting(known.places.get(share.cluster, ()))),
            missing=_missing(share, row),
        )

    def _outbound(self, entry: OutboundResult) -> ExplainedOutbound:
        identity = entry.listening.destination.identity
        return ExplainedOutbound(
            address=entry.listening.address,
            port=entry.listening.port,
            destination=called(self._world, entry.listening.destination),
            protocol=entry.outbound.protocol.value,
            kind="kuma.io/service" if identity is None else identity.type,
        )


def _shares(outcome: Outcome) -> tuple[TrafficShare, ...]:
    return () if outcome.forward is None else outcome.forward.shares


def _missing(share: TrafficShare, row: Route | None) -> str:
    if not share.missing:
        return ""
    reasons = dict.fromkeys(split.reason for split in row.splits if split.missing) if row is not None else {}
    return ", ".join(reasons) or "there is no such cluster"


def _changes(row: Route | None) -> Iterator[str]:
    """What the route does on the way, in words. Where the request goes is told elsewhere."""
    for one in row.filters if row is not None else ():
        if isinstance(one, HeaderChange):
            yield from (f"{one.on} header {name} is set to `{value}`" for name, value in one.set)
            yield from (f"{one.on} header {name} gets `{value}` too" for name, value in one.add)
            yield from (f"{one.on} header {name} is removed" for name in one.remove)
        elif isinstance(one, Mirror):
            yield f"{one.percentage:g} % are copied to {one.cluster}"
