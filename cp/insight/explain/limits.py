"""Both hops: the limits of the client's proxy and those of the server's, and which of them is reached first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cp.insight.explain.model import ExplainedBackend, ExplainedHop, ExplainedLimit, FieldValue
from cp.insight.explain.values import acting_values, confs_of_inbound, find
from cp.model.duration import Duration
from cp.policies import Policies
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.view.dataplanes import DataplanePort, ports_of
from cp.translate.view.proxies import inbounds
from generators.proxy import Protocol

CLIENT: Final = "client"
SERVER: Final = "server"

_TIMEOUT: Final = "MeshTimeout"
_REQUEST: Final = ((_TIMEOUT, "http.requestTimeout"), (_TIMEOUT, "http.maxStreamDuration"))


@dataclass(frozen=True, slots=True)
class _Limited:
    """Something that is limited, by which fields on which side."""

    of: str
    client: tuple[tuple[str, str], ...]
    server: tuple[tuple[str, str], ...]


def _http(section: str) -> tuple[_Limited, ...]:
    silence, headers = ((_TIMEOUT, f"http.{name}") for name in ("streamIdleTimeout", "requestHeadersTimeout"))
    return (
        _Limited("a request", _REQUEST, _REQUEST),
        _Limited("each try of it", (("MeshRetry", f"{section}.perTryTimeout"),), _REQUEST),
        _Limited("silence within it", (silence,), (silence,)),
        _Limited("its headers", (headers,), (headers,)),
    )


_TCP: Final = (_Limited("silence on the connection", ((_TIMEOUT, "idleTimeout"),), ((_TIMEOUT, "idleTimeout"),)),)


class ServerLimits:
    """The limits of the inbounds behind endpoints."""

    def __init__(self, compiler: Compiler, policies: Policies, world: World, mesh: str) -> None:
        self._compiler, self._policies, self._world = compiler, policies, world
        found = (port for dataplane in world.table("Dataplane", mesh) for port in ports_of(dataplane))
        self._ports: Mapping[str, DataplanePort] = {f"{port.address}:{port.inbound.port}": port for port in found}

    def behind(self, endpoints: Iterable[str]) -> Iterator[tuple[tuple[str, ...], tuple[FieldValue, ...]]]:
        """Dataplanes with what holds on the inbound that is reached: those for which that is the same together."""
        groups: list[tuple[tuple[FieldValue, ...], list[str]]] = []
        for port in (self._ports[endpoint] for endpoint in endpoints if endpoint in self._ports):
            values = self._values(port)
            names = next((names for same, names in groups if same == values), None)
            if names is None:
                groups.append((values, names := []))
            names.append(port.dataplane.name)
        return ((tuple(names), values) for values, names in groups)

    def dataplanes(self, endpoints: Iterable[str]) -> Iterator[Resource]:
        """The Dataplanes of those endpoints that are inbounds of the mesh."""
        return (self._ports[endpoint].dataplane for endpoint in endpoints if endpoint in self._ports)

    def _values(self, port: DataplanePort) -> tuple[FieldValue, ...]:
        reached = self._compiler.proxy(self._world, port.dataplane).inbounds
        indexes = [index for index, _ in inbounds(port.dataplane)]
        found = [one for index, one in zip(indexes, reached, strict=True) if index == port.index]
        limiting = [policy for policy in self._policies if policy.kind.name == _TIMEOUT]
        return tuple(acting_values(place for one in found for place in confs_of_inbound(limiting, one)))


def hops(
    servers: ServerLimits, values: Sequence[FieldValue], backends: Iterable[ExplainedBackend], protocol: Protocol
) -> Iterator[ExplainedHop]:
    section = "grpc" if protocol is Protocol.GRPC else "http"
    limited = _http(section) if protocol.is_http else _TCP
    for backend in (one for one in backends if not one.missing_reason):
        own = (*values, *backend.values)
        for names, reached in [*servers.behind(backend.endpoints)] or [((), ())]:
            found = (limit for one in limited for limit in _marked(tuple(_limits(one, own, reached))))
            yield ExplainedHop(backend.cluster, names, tuple(found))


def _limits(limited: _Limited, client: Sequence[FieldValue], server: Sequence[FieldValue]) -> Iterator[ExplainedLimit]:
    for side, fields, values in ((CLIENT, limited.client, client), (SERVER, limited.server, server)):
        for policy, path in fields:
            value = find(values, policy, path)
            if value is not None and value.served_in:
                yield ExplainedLimit(limited.of, side, policy, path, value.winner, _seconds(value))


def _marked(limits: tuple[ExplainedLimit, ...]) -> tuple[ExplainedLimit, ...]:
    """Zero is no limit, and so never the smallest. What only the server limits is no news of its own."""
    if all(one.side == SERVER for one in limits) and limits and limits[0].subject == "each try of it":
        return ()
    smallest = min((one.seconds for one in limits if one.seconds > 0), default=0.0)
    return tuple(replace(one, is_binding=one.seconds > 0 and one.seconds == smallest) for one in limits)


def _seconds(value: FieldValue) -> float:
    try:
        return Duration.parse(str(value.winner.value)).seconds
    except ValueError:
        return 0.0
