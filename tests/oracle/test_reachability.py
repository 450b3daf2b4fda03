"""Whom a proxy is told of is whom it may call by the documents, where reachability is derived from permissions."""

from __future__ import annotations

from collections.abc import Iterator

from cp.model.names import Destination
from cp.model.names import Identity as ServiceIdentity
from cp.policies import kinds
from cp.resources.resource import Resource as Dataplane
from cp.resources.world import World
from cp.translate.view.proxies import outbounds
from tests.oracle.matching import carries
from tests.oracle.permissions import reaches
from tests.oracle.reading import Data, Documents, Identity, Resource, read
from tests.random_mesh import REACHED, Mesh, dataplanes, for_meshes, mesh_of
from tests.snapshots import policies


def world_of(mesh: Mesh, *, derives: bool) -> World:
    return World.of(mesh.read(), kinds(policies(), derives_reachability=derives))


def asks_permissions(proxy: Resource) -> bool:
    """Whether its document leaves it to permissions whom it reaches.

    A gRPC client calls by names, of which a service that is left out leaves its own to another: it is not compared.
    """
    if is_grpc_client(proxy):
        return False
    redirection = proxy.spec["networking"].get("transparentProxying")
    return redirection is not None and not redirection.keys() & {"reachableServices", "reachableBackends"}


def inbounds(proxy: Resource) -> list[Data]:
    """Of those in one place that are for several workloads, a proxy serves those for the first one."""
    every: list[Data] = list(proxy.spec["networking"].get("inbound") or ())
    workloads: dict[int, int] = {}
    for inbound in every:
        workloads.setdefault(inbound["port"], workload(inbound))
    if is_grpc_client(proxy):
        return every
    return [inbound for inbound in every if workload(inbound) == workloads[inbound["port"]]]


def is_grpc_client(proxy: Resource) -> bool:
    return proxy.labels.get("koguma.io/client") == "grpc"


def workload(inbound: Data) -> int:
    port: int = inbound.get("servicePort", inbound["port"])
    return port


def tags_of(proxy: Resource) -> list[Data]:
    """Those of each inbound, whoever is served there, or those of a gateway."""
    networking = proxy.spec["networking"]
    gateway = [networking["gateway"]["tags"]] if "gateway" in networking else []
    return [inbound["tags"] for inbound in networking.get("inbound") or ()] + gateway


def of_service(documents: Documents, called: ServiceIdentity) -> Iterator[tuple[Resource, Data]]:
    """The inbounds behind any port of a MeshService, with their proxies: its selector chooses whole proxies."""
    own = Identity("MeshService", called.name, called.namespace, called.zone)
    (service,) = (service for service in documents.of("MeshService") if service.identity == own)
    ports = {port.get("targetPort", port["port"]) for port in service.spec["ports"]}
    wanted = service.spec["selector"]["dataplaneTags"]
    for proxy in documents.of("Dataplane") if wanted else ():
        if any(carries(inbound["tags"], wanted) for inbound in inbounds(proxy)):
            yield from ((proxy, inbound) for inbound in inbounds(proxy) if inbound["port"] in ports)


def of_tag(documents: Documents, tag: str) -> Iterator[tuple[Resource, Data]]:
    """The inbounds with a tag, with their proxies, and those that ExternalServices with it would have."""
    for proxy in documents.of("Dataplane"):
        yield from ((proxy, inbound) for inbound in inbounds(proxy) if inbound["tags"].get("kuma.io/service") == tag)
    for outside in documents.of("ExternalService"):
        if outside.spec["tags"]["kuma.io/service"] == tag:
            inbound = {"port": 1, "tags": outside.spec["tags"]}
            yield Resource("Dataplane", outside.stored, {}, {"networking": {"inbound": [inbound]}}), inbound


def is_reached(documents: Documents, proxy: Resource, called: Destination) -> bool:
    if called.identity is not None and called.identity.type != "MeshService":
        return True
    behind = of_tag(documents, called.service) if called.identity is None else of_service(documents, called.identity)
    return any(reaches(documents, tags_of(proxy), server, inbound) for server, inbound in behind)


def told(mesh: Mesh) -> Iterator[tuple[Resource, set[Destination], set[Destination]]]:
    """Each proxy about which permissions are asked: what it would be told of without them, and what it is told of."""
    documents, every, derived = read(mesh.documents), world_of(mesh, derives=False), world_of(mesh, derives=True)
    for dataplane, same in zip(dataplanes(every), dataplanes(derived), strict=True):
        proxy = documents.get("Dataplane", dataplane.name)
        if proxy is not None and asks_permissions(proxy):
            yield proxy, destinations(every, dataplane), destinations(derived, same)


def destinations(world: World, dataplane: Dataplane) -> set[Destination]:
    return {address.destination for address in outbounds(world, dataplane)}


@for_meshes(REACHED, times=2)
def test_a_proxy_is_told_of_whom_it_may_call(mesh: Mesh) -> None:
    documents = read(mesh.documents)
    for proxy, everybody, actual in told(mesh):
        expected = {called for called in everybody if is_reached(documents, proxy, called)}
        assert actual == expected, f"{proxy.stored} is told of {actual - expected}, and not of {expected - actual}"


def test_permissions_leave_out_some_and_not_all() -> None:
    """Or the comparison would be of nothing."""
    shares = [
        (len(actual), len(everybody)) for seed in range(30) for _, everybody, actual in told(mesh_of(seed, REACHED))
    ]

    assert sum(actual == 0 < everybody for actual, everybody in shares) > 5
    assert sum(0 < actual < everybody for actual, everybody in shares) > 5
