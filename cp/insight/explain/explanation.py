"""The explanation of one call, read from the results of the same compiler that serves the proxy.

Nothing is computed a second time for display. The route and its values come from the served bytes (`simulate`), and who
set each value comes from the effective confs that these bytes were built from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cp.insight.explain import values
from cp.insight.explain.access import AccessAnswers
from cp.insight.explain.enforcement import enforcement_warnings
from cp.insight.explain.limits import ServerLimits, hops
from cp.insight.explain.model import ExplainedAccess, ExplainedBackend, ExplainedOutbound, Explanation, FieldValue
from cp.insight.explain.outbounds import destination_label, outbound_for
from cp.insight.explain.query import AmbiguousCall, CallQuery
from cp.insight.explain.rows import explained_rows, taken_route
from cp.insight.explain.unset import unset, with_note
from cp.insight.explain.values import AppliedConf, acting_values, idle_values, removed_values
from cp.insight.parts import DestinationParts, destination_parts
from cp.insight.simulate import Call, NoListener, Outcome, TrafficShare, simulate
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
_PATCH_KIND = "MeshProxyPatch"


def explain(compiler: Compiler, policies: Policies, world: World, dataplane: Resource, call: CallQuery) -> Explanation:
    """Why a call of a proxy goes where it goes, and what holds for it. Raises `AmbiguousCall` or `UnsimulatedFeature`.

    A compiler that served other questions before is welcome: it remembers what it compiled.
    """
    address = outbound_for(world, dataplane, call)
    return _Explainer(compiler, policies, world, dataplane).explain(call, address)


@dataclass(frozen=True, slots=True)
class _Backends:
    """The backends that a call can reach, and the confs that apply to the cluster of each, by cluster name."""

    by_cluster: Mapping[str, BackendResult]
    confs: Mapping[str, tuple[AppliedConf, ...]]


class _Explainer:
    """One proxy, compiled, and what the parts of an explanation share."""

    def __init__(self, compiler: Compiler, policies: Policies, world: World, dataplane: Resource) -> None:
        self._policies, self._world = policies, world
        self._translator = compiler.translator
        self._proxy = compiler.proxy(world, dataplane)
        self._servers = ServerLimits(compiler, policies, world, dataplane.mesh)
        self._answers = AccessAnswers(compiler, policies, world, self._proxy)

    def explain(self, call: CallQuery, address: OutboundAddress) -> Explanation:
        if self._proxy.proxy_class.caller.is_grpc:
            proxy = self._proxy.dataplane.key
            hint = "`koguma inspect` shows the rules that it has, `koguma render` what it is served"
            raise AmbiguousCall(f"{proxy} is a gRPC client without a proxy, and calls of such are not followed", hint)
        result = self._proxy.proxy_class.outbounds[address]
        outcome = self._outcome(call, address)
        row = taken_route(result, outcome)
        confs = values.confs_of_request(self._policies, self._world, self._proxy.dataplane.mesh, result, row)
        backends = self._backends(outcome)
        explained_backends = tuple(self._backend(share, row, outcome, backends) for share in _shares(outcome))
        field_values = tuple(self._field_values(confs, backends, result, outcome))
        return Explanation(
            proxy=self._proxy.dataplane.key,
            call=call,
            outbound=self._outbound(result),
            outcome=outcome,
            rows=explained_rows(self._world, rules_of(self._world, self._proxy.dataplane), result, outcome),
            values=field_values,
            backends=explained_backends,
            hops=tuple(hops(self._servers, field_values, explained_backends, result.outbound.protocol)),
            access=tuple(self._access(explained_backends, backends)),
            changes=tuple(_changes(row)),
            not_enforced=tuple(self._enforcement_warnings(explained_backends)),
        )

    def _access(self, explained: Iterable[ExplainedBackend], backends: _Backends) -> Iterator[ExplainedAccess]:
        for backend in explained:
            if (result := backends.by_cluster.get(backend.cluster)) is not None:
                yield from self._answers.of_backend(result, self._servers.ports(backend.endpoints))

    def _enforcement_warnings(self, backends: Iterable[ExplainedBackend]) -> Iterator[str]:
        endpoints = (endpoint for backend in backends for endpoint in backend.endpoints)
        return enforcement_warnings(self._world, self._proxy.dataplane, self._servers.dataplanes(endpoints))

    def _outcome(self, call: CallQuery, address: OutboundAddress) -> Outcome:
        host = call.authority if call.host else f"{address.address}:{address.port}"
        sent_call = Call(address.address, address.port, call.method, call.path, host, call.headers)
        try:
            return simulate(self._proxy.snapshot, sent_call)
        except NoListener as fault:
            is_patched = _PATCH_KIND in match(self._world, self._proxy.dataplane)
            hint = "a MeshProxyPatch has taken the listener away" if is_patched else "see what `koguma lint` says of it"
            raise AmbiguousCall(str(fault), hint) from None

    def _backends(self, outcome: Outcome) -> _Backends:
        clusters = {share.cluster for share in _shares(outcome)}
        backends = {cluster_name(backend.destination): backend for backend in self._proxy.proxy_class.backends.values()}
        reachable = {cluster: backend for cluster, backend in backends.items() if cluster in clusters}
        return _Backends(reachable, {cluster: self._confs(backend) for cluster, backend in reachable.items()})

    def _confs(self, backend: BackendResult) -> tuple[AppliedConf, ...]:
        endpoints = endpoints_of(self._world, self._proxy.dataplane.mesh, backend.destination)
        return values.confs_of_backend(self._policies, backend, endpoints, self._proxy.proxy_class.caller)

    def _field_values(
        self, confs: Sequence[AppliedConf], backends: _Backends, result: OutboundResult, outcome: Outcome
    ) -> Iterator[FieldValue]:
        """The values that hold for the request; then those without effect and those that nobody set."""
        cluster_confs = [conf for confs_of_cluster in backends.confs.values() for conf in confs_of_cluster]
        acting = tuple(with_note(self._policies, value, outcome.forward) for value in acting_values(confs))
        values_without_effect = (
            *idle_values(confs, cluster_confs, lambda kind, path: self._idle_reason(result, outcome, kind, path)),
            *removed_values(confs),
        )
        yield from (*acting, *values_without_effect)
        known_values = (*acting, *values_without_effect, *acting_values(cluster_confs))
        yield from unset(self._policies, known_values, outcome.forward, result.outbound.protocol)

    def _idle_reason(self, result: OutboundResult, outcome: Outcome, kind: str, path: str) -> str:
        """Why a field has no effect on a call."""
        if outcome.reply is not None:
            return "has no meaning for a request that Envoy answers by itself"
        own_cluster = cluster_name(result.address.destination)
        parts = self._parts[result.address.destination]
        if own_cluster not in {share.cluster for share in _shares(outcome)} and parts.acts_on_cluster_only(kind, path):
            why = parts.why if parts.backend is None else f"the call goes to others than {parts.name}"
            return f"has no effect: {why}"
        identity = result.address.destination.identity
        outside = " with a service outside the mesh" if identity is not None and identity.type == EXTERNAL else ""
        return f"has no meaning where {result.outbound.protocol} is spoken{outside}"

    @remembered
    def _parts(self) -> Mapping[Destination, DestinationParts]:
        """The parts that are served, by destination."""
        served = destination_parts(self._translator, self._proxy.proxy_class, self._proxy.dataplane.mesh)
        return {parts.destination: parts for parts in served}

    def _backend(
        self, share: TrafficShare, row: Route | None, outcome: Outcome, backends: _Backends
    ) -> ExplainedBackend:
        backend = backends.by_cluster.get(share.cluster)
        return ExplainedBackend(
            cluster=share.cluster,
            service="" if backend is None else destination_label(self._world, backend.destination),
            weight=share.weight,
            share=round(_WHOLE * share.weight / _total_weight(outcome), 2),
            endpoints=share.endpoints,
            values=tuple(acting_values(backends.confs.get(share.cluster, ()))),
            missing_reason=_missing_reason(share, row),
        )

    def _outbound(self, result: OutboundResult) -> ExplainedOutbound:
        identity = result.address.destination.identity
        return ExplainedOutbound(
            address=result.address.address,
            port=result.address.port,
            destination=destination_label(self._world, result.address.destination),
            protocol=result.outbound.protocol.value,
            kind="kuma.io/service" if identity is None else identity.type,
        )


def _shares(outcome: Outcome) -> tuple[TrafficShare, ...]:
    return () if outcome.forward is None else outcome.forward.shares


def _total_weight(outcome: Outcome) -> int:
    return sum(share.weight for share in _shares(outcome)) or 1


def _missing_reason(share: TrafficShare, row: Route | None) -> str:
    if not share.is_missing:
        return ""
    reasons = dict.fromkeys(split.reason for split in row.splits if split.missing) if row is not None else {}
    return ", ".join(reasons) or "there is no such cluster"


def _changes(row: Route | None) -> Iterator[str]:
    """The changes to headers and the copies that a route makes, in words."""
    for route_filter in row.filters if row is not None else ():
        if isinstance(route_filter, HeaderChange):
            yield from (f"{route_filter.on} header {name} is set to `{value}`" for name, value in route_filter.set)
            yield from (f"{route_filter.on} header {name} gets `{value}` too" for name, value in route_filter.add)
            yield from (f"{route_filter.on} header {name} is removed" for name in route_filter.remove)
        elif isinstance(route_filter, Mirror):
            yield f"{route_filter.percentage:g} % are copied to {route_filter.cluster}"
