"""The graph of a mesh: its services, and which of them call which, as their proxies are served it.

Proxies that are served the same calls are one group, so nothing here is a pair of a proxy and a destination, nor of two
services: in a mesh where everybody may call everybody there is one group with one list of calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cp.model.checkpoint import Checkpoint, checked, never_stopped, pass_checkpoint
from cp.model.failure import Failure
from cp.model.memo import IdentityDict
from cp.model.names import Destination, Key
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.proxy_class import ProxyClass
from cp.translate.view.backends import cluster_of, reached
from cp.translate.view.services import external_services, ports_behind, ports_behind_service
from generators.proxy import Route, Split

_MESH_SERVICE: Final = "MeshService"
_EXTERNAL_SERVICE: Final = "MeshExternalService"
_SERVICE_KINDS: Final = (_MESH_SERVICE, "MeshMultiZoneService", _EXTERNAL_SERVICE)
BY_TAG: Final = "kuma.io/service"
"""The kind of what is called by its tag alone."""

GATEWAY: Final = "gateway"
HOSTNAME: Final = "hostname"
"""The kind of what clients call at a gateway."""

NOBODY: Final = "proxies without a service"


@dataclass(frozen=True, slots=True, order=True)
class GraphPoint:
    """A service, or what stands in place of one."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class GraphSplit:
    """A share of the calls by one route."""

    point: GraphPoint | None
    """None: there is no such service, and its share is answered with 500."""

    section: str
    weight: int
    cluster: str
    """That of Envoy by which it is called."""


@dataclass(frozen=True, slots=True)
class GraphCopy:
    """A service that receives copies of the requests by one route."""

    point: GraphPoint
    section: str
    percentage: float
    cluster: str
    """That of Envoy by which it is called."""


@dataclass(frozen=True, slots=True)
class GraphRoute:
    """One row of what holds for calls to a destination."""

    owner: str
    """The route resource behind it; empty without any."""

    path: str
    splits: tuple[GraphSplit, ...]
    reason: str = ""
    """Why it answers with an error; empty if it does not."""

    copies: tuple[GraphCopy, ...] = ()
    """The services that receive copies of the requests; none where it answers with an error."""


@dataclass(frozen=True, slots=True)
class GraphCall:
    """A destination that a group calls, and where its calls go; of a gateway, one of its hostnames."""

    called: GraphPoint
    section: str
    protocol: str
    clusters: tuple[str, ...]
    """Those of Envoy in which calls to it, and copies of them, end."""

    routes: tuple[GraphRoute, ...]


@dataclass(frozen=True, slots=True)
class CallerGroup:
    """Proxies that are served the same calls, and the services that they serve."""

    proxies: tuple[Key, ...]
    callers: tuple[GraphPoint, ...]
    calls: tuple[GraphCall, ...]


@dataclass(frozen=True, slots=True)
class GraphService:
    """A point of the graph with the proxies behind it."""

    point: GraphPoint
    protocols: tuple[str, ...]
    proxies: tuple[Key, ...]
    is_outside: bool = False
    """Whether it is outside the mesh: whoever serves it is no proxy."""


@dataclass(frozen=True, slots=True)
class MeshGraph:
    """A mesh, as its proxies are served it."""

    services: tuple[GraphService, ...]
    groups: tuple[CallerGroup, ...]
    failed: tuple[Key, ...] = ()
    """The proxies that cannot be compiled, by a fault of ours: nobody can tell what they call."""


class GraphMaker:
    """Makes the graphs of one mesh, World after World, each with what the one before came to."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._classes: dict[Key, ProxyClass] = {}

    def graph(self, world: World, mesh: str, checkpoint: Checkpoint = never_stopped) -> MeshGraph:
        before, self._classes = self._classes, {}
        calls_of_class: IdentityDict[ProxyClass, tuple[GraphCall, ...]] = IdentityDict()
        proxies_by_calls: dict[tuple[GraphCall, ...], list[Key]] = {}
        failed: list[Key] = []
        for dataplane in checked(world.table("Dataplane", mesh), checkpoint):
            key = dataplane.key
            proxy_class = self._compiler.class_or_failure(world, dataplane, before.get(key))
            if isinstance(proxy_class, Failure):
                failed.append(key)
                continue
            self._classes[key] = proxy_class
            calls = calls_of_class.get(proxy_class)
            if calls is None:
                calls_of_class.put(proxy_class, calls := tuple(_calls(proxy_class)))
            proxies_by_calls.setdefault(calls, []).append(key)
        proxies_of = _proxies_by_point(world, mesh)
        points_of = _points_by_proxy(world, mesh, proxies_of)
        groups = tuple(_group(calls, proxies, points_of) for calls, proxies in proxies_by_calls.items())
        return MeshGraph(tuple(_services(world, mesh, proxies_of, points_of, groups)), groups, tuple(failed))


def _group(
    calls: tuple[GraphCall, ...], proxies: Iterable[Key], points_of: Mapping[str, tuple[GraphPoint, ...]]
) -> CallerGroup:
    keys = tuple(proxies)
    callers = sorted({point for key in keys for point in points_of.get(key.name, ())})
    return CallerGroup(keys, tuple(callers), calls)


# --- who serves what ---


def _proxies_by_point(world: World, mesh: str) -> Mapping[GraphPoint, Iterable[Key]]:
    """The proxies behind each service that is a resource: those that calls to it can reach."""
    proxies: dict[GraphPoint, dict[Key, None]] = {}
    for service in (service for kind in _SERVICE_KINDS for service in world.table(kind, mesh)):
        behind = (port.dataplane.key for port in ports_behind_service(world, service))
        proxies.setdefault(GraphPoint(service.type, service.display_name), {}).update(dict.fromkeys(behind))
    return proxies


def _points_by_proxy(
    world: World, mesh: str, proxies_of: Mapping[GraphPoint, Iterable[Key]]
) -> Mapping[str, tuple[GraphPoint, ...]]:
    """What each proxy is as a caller: its MeshServices, or else the services of its tags, or nobody's proxy."""
    points: dict[str, tuple[GraphPoint, ...]] = {}
    for point, keys in proxies_of.items():
        for key in keys if point.kind == _MESH_SERVICE else ():
            points[key.name] = (*points.get(key.name, ()), point)
    for dataplane in world.table("Dataplane", mesh):
        if dataplane.name not in points:
            points[dataplane.name] = tuple(_points_by_tags(dataplane)) or (GraphPoint("", NOBODY),)
    return points


def _points_by_tags(dataplane: Resource) -> Iterator[GraphPoint]:
    gateway = dataplane.spec.net.gateway
    if gateway is not None:
        yield GraphPoint(GATEWAY, (gateway.tags or {}).get(SERVICE_TAG, dataplane.name))
        return
    services = ((inbound.tags or {}).get(SERVICE_TAG) for inbound in dataplane.spec.net.inbound or ())
    yield from (GraphPoint(BY_TAG, service) for service in dict.fromkeys(services) if service)


def _services(
    world: World,
    mesh: str,
    proxies_of: Mapping[GraphPoint, Iterable[Key]],
    points_of: Mapping[str, tuple[GraphPoint, ...]],
    groups: Iterable[CallerGroup],
) -> Iterator[GraphService]:
    """All services that there are, and those that are called although there are none."""
    callers: dict[GraphPoint, list[Key]] = {}
    for name, points in points_of.items():
        for point in points:
            callers.setdefault(point, []).append(Key("Dataplane", mesh, name))
    protocols: dict[GraphPoint, set[str]] = {}
    for point, protocol in _called(groups):
        protocols.setdefault(point, set()).update(protocol)
    for point in sorted({*proxies_of, *callers, *protocols}):
        destination = Destination(point.name)
        if point.kind == BY_TAG:  # also of a proxy that is drawn as a MeshService where it calls
            behind = (port.dataplane.key for port in ports_behind(world, mesh, destination))
            proxies: Iterable[Key] = dict.fromkeys((*callers.get(point, ()), *behind))
            is_outside = bool(external_services(world, mesh, destination))
        else:
            proxies, is_outside = proxies_of.get(point, callers.get(point, ())), point.kind == _EXTERNAL_SERVICE
        yield GraphService(point, tuple(sorted(protocols.get(point, ()))), tuple(proxies), is_outside)


def _called(groups: Iterable[CallerGroup]) -> Iterator[tuple[GraphPoint, tuple[str, ...]]]:
    """Every service that is called or to which a route leads, with the protocol of the call."""
    for call in (call for group in groups for call in group.calls):
        if call.called.kind != HOSTNAME:
            yield call.called, (call.protocol,)
        for route in call.routes:
            yield from ((split.point, ()) for split in route.splits if split.point is not None)
            yield from ((copy.point, ()) for copy in route.copies)


# --- who calls what ---


def _calls(proxy_class: ProxyClass) -> Iterator[GraphCall]:
    """What the proxies of a class call: the outbounds that they have or, of a gateway, its hostnames."""
    by_cluster = {cluster_of(key): reached(key) for key in proxy_class.backends}
    for result in proxy_class.outbounds.values():
        outbound = result.outbound
        if outbound.names or not proxy_class.caller.is_grpc:  # a gRPC client calls names, not addresses
            routes = tuple(_route(row, by_cluster) for row in outbound.routes)
            yield _call(result.address.destination, outbound.protocol, outbound.routes, routes)
    if proxy_class.gateway is not None:
        for host in proxy_class.gateway.hosts.values():
            routes = tuple(_route(row, by_cluster) for row in host.routes)
            point = GraphPoint(HOSTNAME, f"{host.hostname}:{host.port.port}")
            yield GraphCall(point, "", host.port.protocol.lower(), _clusters(host.routes), routes)


def _call(destination: Destination, protocol: str, rows: Iterable[Route], routes: tuple[GraphRoute, ...]) -> GraphCall:
    return GraphCall(point_of(destination), _section(destination), str(protocol), _clusters(rows), routes)


def _clusters(rows: Iterable[Route]) -> tuple[str, ...]:
    return tuple(sorted({cluster for row in rows for cluster in _clusters_of_row(row)}))


def _clusters_of_row(row: Route) -> Iterator[str]:
    yield from (split.cluster for split in row.splits if not split.missing)
    yield from (mirror.cluster for mirror in row.mirrors)


def _route(row: Route, by_cluster: Mapping[str, Destination]) -> GraphRoute:
    pass_checkpoint()
    splits = tuple(_split(by_cluster.get(split.cluster), split) for split in row.splits)
    reason = row.unavailable_reason or next((split.reason for split in row.splits if split.missing), "")
    return GraphRoute(row.owner, row.match.path.value, splits, reason, tuple(_copies(row, by_cluster)))


def _split(destination: Destination | None, split: Split) -> GraphSplit:
    if destination is None:
        return GraphSplit(None, "", split.weight, split.cluster)
    return GraphSplit(point_of(destination), _section(destination), split.weight, split.cluster)


def _copies(row: Route, by_cluster: Mapping[str, Destination]) -> Iterator[GraphCopy]:
    for mirror in () if row.unavailable_reason else row.mirrors:
        destination = by_cluster[mirror.cluster]
        yield GraphCopy(point_of(destination), _section(destination), mirror.percentage, mirror.cluster)


def point_of(destination: Destination) -> GraphPoint:
    identity = destination.identity
    return GraphPoint(BY_TAG, destination.service) if identity is None else GraphPoint(identity.type, identity.name)


def _section(destination: Destination) -> str:
    if destination.identity is not None:
        return destination.identity.section
    return ", ".join(f"{name}={value}" for name, value in destination.tags)
