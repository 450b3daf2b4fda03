"""Every value that holds on a proxy, with its origin: at its inbounds, and route by route for one of its outbounds.

No call is asked for: what is told is what is built for whoever comes, and for whatever is sent. With each part come the
names of its Envoy resources, so that both can be shown beside each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cp.insight.explain import effects
from cp.insight.explain.gateways import confs_of_clients, confs_of_part
from cp.insight.explain.model import BUILT_IN, ExplainedOutbound, ExplainedRow, FieldValue, shown
from cp.insight.explain.outbounds import destination_label, explained_outbound
from cp.insight.explain.query import AmbiguousCall
from cp.insight.explain.rows import explained_rows, route_indexes, row_without_rule
from cp.insight.explain.unset import uncovered, unset
from cp.insight.explain.values import (
    INBOUND,
    AppliedConf,
    acting_values,
    confs_of_backend,
    confs_of_inbound,
    confs_of_request,
    idle_values,
    removed_values,
    unheard,
    with_references_resolved,
)
from cp.insight.gateways import GatewayPart, gateway_parts
from cp.insight.simulate import (
    Call,
    ForwardedCall,
    NoListener,
    Outcome,
    RetryRule,
    UnsimulatedFeature,
    retries_by_row,
    simulate,
)
from cp.insight.whole import ServedRow
from cp.model.names import Key
from cp.policies import Policies
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.backend import endpoints_to_arrange
from cp.translate.compiler import Compiler
from cp.translate.effective import has_hook, rules_of
from cp.translate.fragments import Fragment
from cp.translate.inbound import InboundResult
from cp.translate.outbound import OutboundResult
from cp.translate.packing import SHORT
from cp.translate.view.backends import cluster_of
from generators.proxy import Protocol, Route

_MOST_ROUTES: Final = 50
"""Routes of one outbound whose values are worked out for one answer."""


@dataclass(frozen=True, slots=True)
class EnvoyName:
    """One Envoy resource: its type, such as `clusters`, and its name."""

    type: str
    name: str


@dataclass(frozen=True, slots=True)
class ValuesOfClients:
    """What holds only for those clients of an inbound who meet a condition."""

    match: Mapping[str, Any]
    values: tuple[FieldValue, ...]


@dataclass(frozen=True, slots=True)
class ValuesOfInbound:
    """What holds at one inbound."""

    address: str
    port: int
    service: str
    protocol: str
    values: tuple[FieldValue, ...]
    clients: tuple[ValuesOfClients, ...]
    resources: tuple[EnvoyName, ...]


@dataclass(frozen=True, slots=True)
class ValuesOfListener:
    """What holds at one listener of a builtin gateway, for some of its routes, or for its clients."""

    port: int
    protocol: str
    hostname: str
    route: Key | None
    for_clients: bool
    values: tuple[FieldValue, ...]


@dataclass(frozen=True, slots=True)
class ValuesOfRoute:
    """What holds for requests by one row of a route table."""

    row: ExplainedRow
    values: tuple[FieldValue, ...]


@dataclass(frozen=True, slots=True)
class ValuesOfBackend:
    """What holds for one cluster to which routes lead."""

    cluster: str
    service: str
    values: tuple[FieldValue, ...]


@dataclass(frozen=True, slots=True)
class ValuesOfOutbound:
    """What holds for one outbound."""

    outbound: ExplainedOutbound
    routes: tuple[ValuesOfRoute, ...]
    more_routes: int
    """How many routes there are whose values are not told."""

    backends: tuple[ValuesOfBackend, ...]
    resources: tuple[EnvoyName, ...]


class ProxyValues:
    """One proxy, compiled, and the values that hold on it."""

    def __init__(self, compiler: Compiler, policies: Policies, world: World, dataplane: Resource) -> None:
        self._policies, self._world = policies, world
        self._proxy = compiler.proxy(world, dataplane)
        self._mesh = dataplane.mesh

    def listed(self) -> dict[str, Any]:
        """The inbounds with their values, and the outbounds without: there may be thousands of these."""
        outbounds = self._proxy.proxy_class.outbounds.values()
        listed: dict[str, Any] = shown(
            {
                "inbounds": [self._inbound(result) for result in self._proxy.inbounds],
                "outbounds": [explained_outbound(self._world, result) for result in outbounds],
                "listeners": list(self._listeners()),
            }
        )
        return listed

    def outbound(self, address: str) -> dict[str, Any]:
        """The values for one outbound, named by its address and port. Raises `AmbiguousCall` if there is none."""
        results = self._proxy.proxy_class.outbounds.values()
        result = next((known for known in results if _address(known) == address), None)
        if result is None:
            listed = ", ".join(f"`{_address(known)}`" for _, known in zip(range(3), results, strict=False)) or "none"
            raise AmbiguousCall(f"{self._proxy.dataplane.key} has no outbound `{address}`", f"there is {listed}")
        values: dict[str, Any] = shown(self._values_of(result))
        return values

    def _inbound(self, result: InboundResult) -> ValuesOfInbound:
        inbound = result.inbound
        confs = confs_of_inbound(self._policies, result, None, self._policies)
        return ValuesOfInbound(
            address=inbound.address,
            port=inbound.port,
            service=inbound.service,
            protocol=inbound.protocol.value,
            values=(*self._values(confs, (), inbound.protocol), *removed_values(confs)),
            clients=tuple(self._clients(result)),
            resources=_names((result.fragment,)),
        )

    def _clients(self, result: InboundResult) -> Iterator[ValuesOfClients]:
        by_match: dict[str, tuple[Mapping[str, Any], list[AppliedConf]]] = {}
        for policy in self._policies:
            for match, conf in result.by_client.get(policy.kind.name, ()):
                of_match = by_match.setdefault(repr(match), (match, []))
                of_match[1].append(AppliedConf(INBOUND, policy, conf, effects.of_client(policy, result, match)))
        for match, confs in by_match.values():
            if match:
                yield ValuesOfClients(match, tuple(acting_values(confs)))

    def _values_of(self, result: OutboundResult) -> ValuesOfOutbound:
        outcome = self._outcome(result)
        rows = [(row, self._route_of(result, index)) for row, index in self._rows(result, outcome)]
        retries = retries_by_row(self._proxy.snapshot, outcome)
        shown = rows[:_MOST_ROUTES]
        clusters = dict.fromkeys(split.cluster for _, route in shown if route is not None for split in route.splits)
        backends = {cluster_of(key): backend for key, backend in self._proxy.proxy_class.backends.items()}
        reached = {cluster: backends[cluster] for cluster in clusters if cluster in backends}
        confs = {
            cluster: confs_of_backend(
                self._policies,
                backend,
                endpoints_to_arrange(self._world, self._mesh, backend.destination, self._proxy.proxy_class.caller),
                self._proxy.proxy_class.caller,
            )
            for cluster, backend in reached.items()
        }
        cluster_confs = [conf for of_cluster in confs.values() for conf in of_cluster]
        return ValuesOfOutbound(
            outbound=explained_outbound(self._world, result),
            routes=tuple(
                ValuesOfRoute(row, self._of_route(result, route, row.index, cluster_confs, retries.get(row.index)))
                for row, route in shown
            ),
            more_routes=len(rows) - len(shown),
            backends=tuple(
                ValuesOfBackend(
                    cluster, destination_label(self._world, reached[cluster].destination), tuple(acting_values(applied))
                )
                for cluster, applied in confs.items()
            ),
            resources=_names((result.fragment, *(part for backend in reached.values() for part in backend.fragments))),
        )

    def _rows(self, result: OutboundResult, outcome: Outcome) -> Iterator[tuple[ExplainedRow, int | None]]:
        """The rows as they are served, each with the index of its route; None for one that a patch wrote."""
        rows = explained_rows(self._world, rules_of(self._world, self._proxy.dataplane), result, outcome)
        if not result.outbound.protocol.is_http:
            yield from ((row, 0) for row in rows or (row_without_rule(),))
            return
        indexes = route_indexes(result.outbound.service, result.outbound.routes, outcome)
        yield from ((row, indexes.get(row.index)) for row in rows)

    def _outcome(self, result: OutboundResult) -> Outcome:
        """What becomes of some call of the outbound: its rows are those of any."""
        address = result.address
        call = Call(address.address, address.port, "GET", "/", _address(result), ())
        try:
            return simulate(self._proxy.snapshot, call)
        except (NoListener, UnsimulatedFeature):
            return Outcome("")

    @staticmethod
    def _route_of(result: OutboundResult, index: int | None) -> Route | None:
        return None if index is None else result.outbound.routes[index]

    def _of_route(
        self,
        result: OutboundResult,
        route: Route | None,
        row: int,
        cluster_confs: Sequence[AppliedConf],
        retries: RetryRule | None,
    ) -> tuple[FieldValue, ...]:
        if route is None:
            return ()
        served = ServedRow(result.outbound.service, row)
        confs = confs_of_request(self._policies, self._world, self._mesh, result, route, served=served)
        protocol = result.outbound.protocol
        values = self._values(confs, cluster_confs, protocol)
        if any(has_hook(conf.policy, "finish") for conf in (*confs, *cluster_confs)):  # it may set any field
            return (*values, *removed_values(confs))
        forward = ForwardedCall((), retry=retries)
        unset_values = unset(self._policies, values, forward, protocol)
        built_in = (value for value in unset_values if value.winner.level == BUILT_IN)
        return (*values, *uncovered(removed_values(confs), built_in))

    @staticmethod
    def _values(
        confs: Sequence[AppliedConf], cluster_confs: Sequence[AppliedConf], protocol: Protocol
    ) -> tuple[FieldValue, ...]:
        """The values that the confs set."""
        idle = idle_values(confs, cluster_confs, lambda conf, path: unheard(conf, path, protocol))
        return (*acting_values(confs), *idle)

    def _listeners(self) -> Iterator[ValuesOfListener]:
        gateway = self._proxy.proxy_class.gateway
        for part in () if gateway is None else gateway_parts(gateway):
            if values := tuple(acting_values(self._confs_of_part(part))):
                yield ValuesOfListener(
                    port=part.port.port,
                    protocol=part.port.protocol,
                    hostname=part.hostname,
                    route=None if part.rule is None else part.rule.origin.policy,
                    for_clients=part.is_of_clients,
                    values=values,
                )

    def _confs_of_part(self, part: GatewayPart) -> Iterable[AppliedConf]:
        confs = confs_of_clients if part.is_of_clients else confs_of_part
        return (with_references_resolved(conf, self._world, self._mesh) for conf in confs(self._policies, part))


def _address(result: OutboundResult) -> str:
    return f"{result.address.address}:{result.address.port}"


def _names(fragments: Iterable[Fragment]) -> tuple[EnvoyName, ...]:
    packed = (resource for fragment in fragments for resource in fragment)
    names = (EnvoyName(SHORT.get(resource.type_url, resource.type_url), resource.name) for resource in packed)
    return tuple(dict.fromkeys(names))
