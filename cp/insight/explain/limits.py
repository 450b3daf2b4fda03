"""Both hops: the limits of the client's proxy and those of the server's, and which of them is reached first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from cp.insight.explain.model import ExplainedBackend, ExplainedHop, ExplainedLimit, FieldValue
from cp.insight.explain.servers import served_inbound
from cp.insight.explain.values import ShownNames, confs_of_inbound, find, is_written_over, values_of_inbound
from cp.model.duration import Duration
from cp.model.failure import Failure
from cp.model.names import Key
from cp.policies import LimitedTime, Policies
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.view.dataplanes import DataplanePort, ports_of
from cp.translate.view.proxies import inbounds
from generators.proxy import Protocol

CLIENT: Final = "client"
SERVER: Final = "server"

_ON_SERVER: Final[Mapping[LimitedTime, LimitedTime]] = MappingProxyType({LimitedTime.TRY: LimitedTime.REQUEST})
"""What the server's proxy sees of it: each try of the client's is a request to the server's proxy."""


class ServerLimits:
    """The limits of the inbounds behind endpoints.

    Where one could not be made, it is not known whether an earlier version of it is served, or none.
    """

    def __init__(self, compiler: Compiler, policies: Policies, world: World, mesh: str) -> None:
        self._compiler, self._world = compiler, world
        self._all_policies = policies
        self.policies = tuple(policy for policy in policies if policy.time_limits)
        ports = (port for dataplane in world.table("Dataplane", mesh) for port in ports_of(dataplane))
        self._ports: Mapping[str, DataplanePort] = {f"{port.address}:{port.inbound.port}": port for port in ports}

    def behind(
        self, endpoints: Iterable[str], shown: ShownNames | None
    ) -> Iterator[tuple[tuple[str, ...], tuple[FieldValue, ...]]]:
        """The names of Dataplanes, with what holds on the inbound that is reached for a caller that shows such names.

        Those with equal values are together.
        """
        groups: list[tuple[tuple[FieldValue, ...], list[str]]] = []
        for port in self.ports(endpoints):
            values = self._values(port, shown)
            names = next((names for known_values, names in groups if known_values == values), None)
            if names is None:
                groups.append((values, names := []))
            names.append(port.dataplane.name)
        return ((tuple(names), values) for values, names in groups)

    def ports(self, endpoints: Iterable[str]) -> Iterator[DataplanePort]:
        """Those endpoints that are inbounds of the mesh, unless nobody can tell what they do."""
        return (port for port in self._all_ports(endpoints) if self._failure(port) is None)

    def failures(self, endpoints: Iterable[str]) -> Iterator[tuple[Key, Failure]]:
        """The Dataplanes of whose inbounds nobody can tell what they do, with the faults of ours."""
        for port in self._all_ports(endpoints):
            if (failure := self._failure(port)) is not None:
                yield port.dataplane.key, failure

    def dataplanes(self, endpoints: Iterable[str]) -> Iterator[Resource]:
        """The Dataplanes of those endpoints that are inbounds of the mesh."""
        return (port.dataplane for port in self._all_ports(endpoints))

    def _all_ports(self, endpoints: Iterable[str]) -> Iterator[DataplanePort]:
        return (self._ports[endpoint] for endpoint in endpoints if endpoint in self._ports)

    def _failure(self, port: DataplanePort) -> Failure | None:
        proxy = self._compiler.proxy_or_failure(self._world, port.dataplane)
        if isinstance(proxy, Failure):
            return proxy
        served = served_inbound(self._compiler, self._world, port)
        return None if served is None else served[1].fragment.failure

    def _values(self, port: DataplanePort, shown: ShownNames | None) -> tuple[FieldValue, ...]:
        results = self._compiler.proxy(self._world, port.dataplane).inbounds
        indexes = [index for index, _ in inbounds(port.dataplane)]
        reached = [result for index, result in zip(indexes, results, strict=True) if index == port.index]
        confs = [conf for of in reached for conf in confs_of_inbound(self.policies, of, shown, self._all_policies)]
        return values_of_inbound(confs)


def hops(
    servers: ServerLimits,
    values: Sequence[FieldValue],
    backends: Iterable[tuple[ExplainedBackend, ShownNames | None]],
    protocol: Protocol,
) -> Iterator[ExplainedHop]:
    """`backends` come with what the caller shows there."""
    for backend, shown in ((backend, shown) for backend, shown in backends if not backend.missing_reason):
        on_client = (*values, *backend.values)
        behind = [*servers.behind(backend.endpoints, shown)]
        for names, on_server in behind or ([] if any(servers.failures(backend.endpoints)) else [((), ())]):
            compared = (_compared(servers.policies, of, protocol, on_client, on_server) for of in LimitedTime)
            yield ExplainedHop(backend.cluster, names, tuple(limit for limits in compared for limit in limits))


def _compared(
    policies: Policies,
    of: LimitedTime,
    protocol: Protocol,
    on_client: Sequence[FieldValue],
    on_server: Sequence[FieldValue],
) -> tuple[ExplainedLimit, ...]:
    """The limits of both sides, of which the smallest is marked. Zero is no limit, and so never the smallest.

    Nothing where another policy writes over one of them: which limit that sets is not known.
    """
    sides = (of, on_client), (_ON_SERVER.get(of, of), on_server)
    if any(_is_written_over(policies, of_side, protocol, values) for of_side, values in sides):
        return ()
    of_client = [_limit(of, CLIENT, value) for value in _limiting(policies, of, protocol, on_client)]
    of_server = [
        _limit(of, SERVER, value) for value in _limiting(policies, _ON_SERVER.get(of, of), protocol, on_server)
    ]
    if not of_client and of in _ON_SERVER:
        return ()  # the same limits of the server's are listed where they belong
    limits = (*of_client, *of_server)
    smallest = min((limit.seconds for limit in limits if limit.seconds > 0), default=0.0)
    return tuple(replace(limit, is_binding=limit.seconds > 0 and limit.seconds == smallest) for limit in limits)


def _limit(of: LimitedTime, side: str, value: FieldValue) -> ExplainedLimit:
    return ExplainedLimit(of.value, side, value.policy, value.path, value.winner, _seconds(value))


def _limiting(
    policies: Policies, of: LimitedTime, protocol: Protocol, values: Sequence[FieldValue]
) -> Iterator[FieldValue]:
    """The values, in the configuration of one side, of the fields that limit something."""
    for policy in policies:
        for limit in policy.time_limits:
            value = find(values, policy.kind.name, limit.field)
            if limit.of is of and protocol in limit.protocols and value is not None and value.served_in:
                yield value


def _is_written_over(policies: Policies, of: LimitedTime, protocol: Protocol, values: Iterable[FieldValue]) -> bool:
    written_over = {(value.policy, value.path) for value in values if is_written_over(value)}
    return any(
        (policy.kind.name, limit.field) in written_over
        for policy in policies
        for limit in policy.time_limits
        if limit.of is of and protocol in limit.protocols
    )


def _seconds(value: FieldValue) -> float:
    try:
        return Duration.parse(str(value.winner.value)).seconds
    except ValueError:
        return 0.0
