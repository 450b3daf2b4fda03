"""The explanation of one call, read from the results of the same compiler that serves the proxy.

Nothing is computed a second time for display. The route and its values come from the served bytes (`simulate`), and who
set each value comes from the effective confs that these bytes were built from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from cp.insight.explain import gateways, unknown, values
from cp.insight.explain.access import AccessAnswers, spoken_by_grpc_client
from cp.insight.explain.enforcement import enforcement_warnings
from cp.insight.explain.limits import ServerLimits, hops
from cp.insight.explain.model import (
    ExplainedAccess,
    ExplainedBackend,
    ExplainedServer,
    Explanation,
    FieldValue,
)
from cp.insight.explain.outbounds import destination_label, explained_outbound, outbound_for
from cp.insight.explain.query import AmbiguousCall, CallQuery
from cp.insight.explain.rows import explained_rows, taken_route
from cp.insight.explain.servers import ServerPolicies
from cp.insight.explain.unset import as_served, uncovered, unset, with_note, with_what_is_served
from cp.insight.explain.values import AppliedConf, ShownNames, acting_values, idle_values, removed_values, unheard
from cp.insight.parts import DestinationParts, destination_parts
from cp.insight.simulate import Call, NoListener, Outcome, TrafficShare, simulate
from cp.insight.whole import ServedRow
from cp.model.names import Destination
from cp.model.remembered import remembered
from cp.model.secret_texts import shown_value
from cp.model.wording import few
from cp.policies import Policies
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.matching import match
from cp.translate.backend import BackendResult, endpoints_to_arrange
from cp.translate.compiler import Compiler
from cp.translate.effective import has_hook, rules_of, types_behind
from cp.translate.fragments import Fragment, failures_of
from cp.translate.gateway import NO_GATEWAY
from cp.translate.outbound import OutboundResult
from cp.translate.view.backends import cluster_of
from cp.translate.view.proxies import OutboundAddress
from cp.translate.view.services import cluster_name
from generators.proxy import HeaderChange, Mirror, Protocol, Route

_WHOLE = 100.0
_PATCH_KIND = "MeshProxyPatch"
_ANSWERED = "has no meaning for a request that Envoy answers by itself"


def explain(compiler: Compiler, policies: Policies, world: World, dataplane: Resource, call: CallQuery) -> Explanation:
    """Why a call of a proxy goes where it goes, and what holds for it. Raises `AmbiguousCall` or `UnsimulatedFeature`.

    A compiler that served other questions before is welcome: it remembers what it compiled.
    """

    def explanation() -> Explanation:
        explainer = _Explainer(compiler, policies, world, dataplane)
        if dataplane.spec.is_builtin_gateway:
            return explainer.explain_at_gateway(call)
        return explainer.explain(call, outbound_for(world, dataplane, call))

    return unknown.of_proxy(dataplane, explanation)


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
        self._server_policies = ServerPolicies(compiler, policies, world, self._proxy)

    def explain(self, call: CallQuery, address: OutboundAddress) -> Explanation:
        if self._proxy.proxy_class.caller.is_grpc:
            proxy = self._proxy.dataplane.key
            hint = "`koguma inspect` shows the rules that it has, `koguma render` what it is served"
            spoken = spoken_by_grpc_client(self._world, self._proxy)
            text = f"{proxy} is a gRPC client without a proxy, and calls of such are not followed{spoken}"
            raise AmbiguousCall(text, hint)
        result = self._proxy.proxy_class.outbounds[address]
        outcome = self._outcome(call, address)
        row = taken_route(result, outcome)
        served = None if outcome.row is None else ServedRow(outcome.virtual_host, outcome.row.index)
        confs = values.confs_of_request(
            self._policies, self._world, self._proxy.dataplane.mesh, result, row, served=served
        )
        backends = self._backends(outcome)
        explained_backends = tuple(self._backend(share, row, outcome, backends) for share in _shares(outcome))
        protocol = result.outbound.protocol
        field_values = tuple(
            self._field_values(
                confs, backends, protocol, outcome, lambda conf, path: self._idle_reason(result, outcome, conf, path)
            )
        )
        return Explanation(
            proxy=self._proxy.dataplane.key,
            call=call,
            outbound=explained_outbound(self._world, result),
            outcome=outcome,
            rows=explained_rows(self._world, rules_of(self._world, self._proxy.dataplane), result, outcome),
            values=field_values,
            backends=explained_backends,
            hops=tuple(hops(self._servers, field_values, self._with_shown(explained_backends, backends), protocol)),
            servers=tuple(self._server_values(explained_backends, backends, protocol)),
            access=tuple(self._access(explained_backends, backends)),
            changes=tuple(_changes(row)),
            not_enforced=tuple(self._enforcement_warnings(explained_backends)),
            not_known=tuple(self._unknown_servers(explained_backends)),
            left_out=_left_out((result.fragment,), backends),
        )

    def explain_at_gateway(self, call: CallQuery) -> Explanation:
        """The same for a call that comes in at a builtin gateway, from outside the mesh."""
        dataplane, served = self._proxy.dataplane, self._proxy.proxy_class.gateway or NO_GATEWAY
        port = gateways.port_for(dataplane, served, call)
        outcome = self._simulated(gateways.call_to(dataplane, port, call))
        where = gateways.entrance(served, port, call, outcome)
        confs = gateways.confs_at_gateway(self._policies, self._world, dataplane.mesh, where)
        backends = self._backends(outcome)
        explained_backends = tuple(self._backend(share, where.row, outcome, backends) for share in _shares(outcome))
        clients = gateways.values_for_clients(self._policies, self._world, dataplane.mesh, where)
        field_values = tuple(
            self._field_values(
                confs,
                backends,
                where.protocol,
                outcome,
                lambda conf, path: _ANSWERED if outcome.reply is not None else unheard(conf, path, where.protocol),
                also_known=clients,
            )
        )
        # A connection is as long idle for its client as for the service; a request is not.
        of_gateway = field_values if where.protocol.is_http else (*clients, *field_values)
        return Explanation(
            proxy=dataplane.key,
            call=call,
            outbound=None,
            outcome=outcome,
            rows=gateways.gateway_rows(self._world, where, outcome),
            values=field_values,
            backends=explained_backends,
            hops=tuple(hops(self._servers, of_gateway, self._with_shown(explained_backends, backends), where.protocol)),
            servers=tuple(self._server_values(explained_backends, backends, where.protocol)),
            access=tuple(self._access(explained_backends, backends)),
            changes=tuple(_changes(where.row)),
            not_enforced=tuple(self._enforcement_warnings(explained_backends, (where.gateway,))),
            not_known=tuple(self._unknown_servers(explained_backends)),
            left_out=_left_out((part.fragment for part in (where.host, where.chain) if part is not None), backends),
            listener=gateways.explained_listener(dataplane, call, outcome, where, clients),
        )

    def _server_values(
        self, explained: Iterable[ExplainedBackend], backends: _Backends, protocol: Protocol
    ) -> Iterator[ExplainedServer]:
        for backend in explained:
            if (result := backends.by_cluster.get(backend.cluster)) is not None:
                ports = self._servers.ports(backend.endpoints)
                yield from self._server_policies.of_backend(result, ports, protocol)

    def _access(self, explained: Iterable[ExplainedBackend], backends: _Backends) -> Iterator[ExplainedAccess]:
        for backend in explained:
            if (result := backends.by_cluster.get(backend.cluster)) is not None:
                yield from self._answers.of_backend(result, self._servers.ports(backend.endpoints))

    def _with_shown(
        self, explained: Iterable[ExplainedBackend], backends: _Backends
    ) -> Iterator[tuple[ExplainedBackend, ShownNames | None]]:
        return ((backend, self._answers.shown_to(backends.by_cluster.get(backend.cluster))) for backend in explained)

    def _enforcement_warnings(
        self, backends: Iterable[ExplainedBackend], mesh_gateways: Iterable[Resource] = ()
    ) -> Iterator[str]:
        endpoints = (endpoint for backend in backends for endpoint in backend.endpoints)
        servers = self._servers.dataplanes(endpoints)
        return enforcement_warnings(self._world, self._proxy.dataplane, servers, mesh_gateways)

    def _unknown_servers(self, backends: Iterable[ExplainedBackend]) -> Iterator[str]:
        """Those of which nobody can tell what they do with the call. All else of the explanation leaves them out."""
        names: dict[str, dict[str, None]] = {}
        for key, failure in self._servers.failures(endpoint for backend in backends for endpoint in backend.endpoints):
            names.setdefault(failure.unknown, {})[key.name] = None
        return (f"what becomes of it at {few(list(servers))} {unknown}" for unknown, servers in names.items())

    def _outcome(self, call: CallQuery, address: OutboundAddress) -> Outcome:
        host = call.authority if call.host else f"{address.address}:{address.port}"
        return self._simulated(Call(address.address, address.port, call.method, call.path, host, call.headers))

    def _simulated(self, call: Call) -> Outcome:
        try:
            return simulate(self._proxy.snapshot, call)
        except NoListener as fault:
            is_patched = _PATCH_KIND in match(self._world, self._proxy.dataplane)
            hint = "a MeshProxyPatch has taken the listener away" if is_patched else "see what `koguma lint` says of it"
            raise AmbiguousCall(str(fault), hint) from None

    def _backends(self, outcome: Outcome) -> _Backends:
        clusters = {share.cluster for share in _shares(outcome)}
        backends = {cluster_of(key): backend for key, backend in self._proxy.proxy_class.backends.items()}
        reachable = {cluster: backend for cluster, backend in backends.items() if cluster in clusters}
        return _Backends(reachable, {cluster: self._confs(backend) for cluster, backend in reachable.items()})

    def _confs(self, backend: BackendResult) -> tuple[AppliedConf, ...]:
        caller = self._proxy.proxy_class.caller
        endpoints = endpoints_to_arrange(self._world, self._proxy.dataplane.mesh, backend.destination, caller)
        return values.confs_of_backend(self._policies, backend, endpoints, caller)

    def _field_values(  # noqa: PLR0913  # all that decides which values hold
        self,
        confs: Sequence[AppliedConf],
        backends: _Backends,
        protocol: Protocol,
        outcome: Outcome,
        idle_reason: Callable[[AppliedConf, str], str],
        *,
        also_known: Sequence[FieldValue] = (),
    ) -> Iterator[FieldValue]:
        """The values that hold for the request; then those without effect and those that nobody set."""
        cluster_confs = [conf for confs_of_cluster in backends.confs.values() for conf in confs_of_cluster]
        finishing = (conf for conf in (*confs, *cluster_confs) if has_hook(conf.policy, "finish"))
        patches = tuple(name for conf in finishing for name in types_behind(conf.policy.kind.name, conf.merged))
        acting = tuple(
            with_what_is_served(
                self._policies, with_note(self._policies, value, outcome.forward), outcome.forward, patches
            )
            for value in acting_values(confs)
        )
        idle = tuple(idle_values(confs, cluster_confs, idle_reason))
        known_values = (*acting, *idle, *acting_values(cluster_confs), *also_known)
        unset_values = tuple(unset(self._policies, known_values, outcome.forward, protocol))
        if patches:  # which may set any field
            unset_values = tuple(as_served(value) for value in unset_values if value.served_in)
        yield from (*acting, *idle, *uncovered(removed_values(confs), unset_values))

    def _idle_reason(self, result: OutboundResult, outcome: Outcome, conf: AppliedConf, path: str) -> str:
        """Why a field has no effect on a call."""
        if outcome.reply is not None:
            return _ANSWERED
        own_cluster = cluster_name(result.address.destination)
        parts = self._parts[result.address.destination]
        is_for_others = own_cluster not in {share.cluster for share in _shares(outcome)}
        if is_for_others and parts.acts_on_cluster_only(conf.policy.kind.name, path):
            why = parts.why if parts.backend is None else f"the call goes to others than {parts.name}"
            return f"has no effect: {why}"
        return unheard(conf, path, result.outbound.protocol)

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
            missing_reason=_missing_reason(share, row, backend),
        )


def _shares(outcome: Outcome) -> tuple[TrafficShare, ...]:
    return () if outcome.forward is None else outcome.forward.shares


def _total_weight(outcome: Outcome) -> int:
    return sum(share.weight for share in _shares(outcome)) or 1


def _left_out(fragments: Iterable[Fragment], backends: _Backends) -> tuple[str, ...]:
    """Return the failures of the parts that a call meets, as sentences."""
    of_backends = chain.from_iterable(backend.fragments for backend in backends.by_cluster.values())
    return tuple(map(str, failures_of((*fragments, *of_backends))))


def _missing_reason(share: TrafficShare, row: Route | None, backend: BackendResult | None) -> str:
    if not share.is_missing:
        return ""
    if backend is not None and (failures := failures_of(backend.fragments)):
        return str(failures[0])
    if row is not None and row.unavailable_reason:
        return row.unavailable_reason
    reasons = dict.fromkeys(split.reason for split in row.splits if split.missing) if row is not None else {}
    return ", ".join(reasons) or "there is no such cluster"


def _changes(row: Route | None) -> Iterator[str]:
    """The changes to headers and the copies that a route makes, in words."""
    for route_filter in row.filters if row is not None else ():
        if isinstance(route_filter, HeaderChange):
            for name, value in route_filter.set:
                yield f"{route_filter.on} header {name} is set to `{shown_value(name, value)}`"
            for name, value in route_filter.add:
                yield f"{route_filter.on} header {name} gets `{shown_value(name, value)}` too"
            yield from (f"{route_filter.on} header {name} is removed" for name in route_filter.remove)
        elif isinstance(route_filter, Mirror):
            yield f"{route_filter.percentage:g} % are copied to {route_filter.cluster}"
