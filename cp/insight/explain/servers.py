"""What the policies of servers do with a call: those for all clients, and those for the one that calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from cp.identity.identities import identity_of
from cp.insight.explain import effects
from cp.insight.explain.model import ExplainedServer, FieldValue
from cp.insight.explain.values import INBOUND, AppliedConf, acting_values, confs_of_inbound
from cp.policies import Policies, Policy
from cp.resources.world import World
from cp.translate.backend import BackendResult
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.inbound import ConfOfClients, InboundResult
from cp.translate.view.dataplanes import DataplanePort
from cp.translate.view.proxies import inbounds
from cp.translate.view.sidecars import sidecar_of
from generators.envoy.permissions import server_name_of, uri_conditions
from generators.proxy import Backend, Protocol


def served_inbound(compiler: Compiler, world: World, port: DataplanePort) -> tuple[int, InboundResult] | None:
    """The inbound that has an address, with its place; None for what has no proxy.

    Of several inbounds with one address the first is served, whichever is called (record 0042).
    """
    results = compiler.proxy(world, port.dataplane).inbounds
    address = port.inbound.address or port.dataplane.spec.networking.address
    for (index, _), result in zip(inbounds(port.dataplane), results, strict=True):
        if (result.inbound.address, result.inbound.port) == (address, port.inbound.port):
            return index, result
    return None


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A call as the servers of a cluster meet it."""

    site: Backend
    tags: frozenset[tuple[str, str]]
    """The tags of the caller that it shows: none where no HTTP is spoken, as they are in a header."""


class ServerPolicies:
    """What holds on the inbounds of a mesh for the calls of one proxy."""

    def __init__(self, compiler: Compiler, policies: Policies, world: World, caller: CompiledProxy) -> None:
        self._compiler, self._world, self._caller, self._all_policies = compiler, world, caller, policies
        self._policies = tuple(policy for policy in policies if not policy.judges_every_client)

    def of_backend(
        self, backend: BackendResult, ports: Iterable[DataplanePort], protocol: Protocol
    ) -> Iterator[ExplainedServer]:
        """The values on those behind a backend that is called with a protocol, those with equal values together."""
        site = backend.tasks[0].site
        if not isinstance(site, Backend) or site.external:
            return
        tags = self._caller.dataplane.derived(sidecar_of).tags if protocol.is_http else ()
        arrival = _Arrival(site, frozenset(tags))
        groups: list[tuple[tuple[FieldValue, ...], list[str]]] = []
        for port in ports:
            values = self._values(arrival, port)
            names = next((names for known_values, names in groups if known_values == values), None)
            if names is None:
                groups.append((values, names := []))
            names.append(port.dataplane.name)
        for values, names in groups:
            if values:
                yield ExplainedServer(site.cluster, tuple(dict.fromkeys(names)), values)

    def _values(self, arrival: _Arrival, port: DataplanePort) -> tuple[FieldValue, ...]:
        served = served_inbound(self._compiler, self._world, port)
        return () if served is None else tuple(acting_values(self._confs(arrival, served[1])))

    def _confs(self, arrival: _Arrival, reached: InboundResult) -> Iterator[AppliedConf]:
        for policy in self._policies:
            for_clients = reached.by_client.get(policy.kind.name, ())
            yield from self._fitting(arrival, policy, reached, for_clients)
            if not any("tags" not in client for client, _ in for_clients):  # of which the last is for all clients
                yield from confs_of_inbound((policy,), reached, None, self._all_policies)

    def _fitting(
        self,
        arrival: _Arrival,
        policy: Policy[Any],
        reached: InboundResult,
        for_clients: Sequence[ConfOfClients],
    ) -> Iterator[AppliedConf]:
        """The first conf by tags, and the first of the others, that is for the caller."""
        for by_tags in (True, False):
            of_list = [entry for entry in for_clients if ("tags" in entry[0]) is by_tags]
            fitting = next((entry for entry in of_list if self._is_for(entry[0], arrival)), None)
            if fitting is not None:
                yield AppliedConf(INBOUND, policy, fitting[1], effects.of_client(policy, reached, fitting[0]))

    def _is_for(self, client: Mapping[str, Any], arrival: _Arrival) -> bool:
        """Whether conditions hold for the caller: its tags are in a header, and its names in what it shows over TLS."""
        if "tags" in client:
            return _has_tags(client, arrival.tags)
        if not client or arrival.site.mesh_tls is None:
            return not client
        identity = identity_of(self._world, self._caller.dataplane)
        uris = () if identity is None else identity.uris
        is_named = all(condition.holds(uris) for condition in uri_conditions(client, self._caller.dataplane.mesh))
        return is_named and server_name_of(client) in {"", arrival.site.mesh_tls.sni}


def _has_tags(client: Mapping[str, Any], tags: AbstractSet[tuple[str, str]]) -> bool:
    return all(tag in tags for tag in client["tags"].items()) and all(
        (name, value) not in tags for name, value in client.get("not") or ()
    )
