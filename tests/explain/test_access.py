"""Who is explained to be let in is let in by the configuration that both sides are served, over random meshes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Final, TypeAlias

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import UpstreamTlsContext

from cp.identity.identities import identity_of
from cp.insight.explain import Explanation, explain
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.packing import CLUSTER
from tests.explain.test_served import calls
from tests.oracle.door import LET_IN, LOGGED, REFUSED, Client, lets_in, listener, takes_tls
from tests.random_mesh import Mesh, dataplanes, for_meshes, mesh_of
from tests.snapshots import policies

KINDS: Final = (
    *("Dataplane", "Dataplane", "MeshService", "MeshService", "MeshHTTPRoute", "MeshMultiZoneService"),
    *("MeshTrafficPermission", "MeshTrafficPermission", "MeshTLS"),
)

Answer: TypeAlias = tuple[str, str, str]
"""A cluster, the name of a server, and what becomes of the call."""

Answers: TypeAlias = set[Answer]


@for_meshes(KINDS)
def test_who_is_explained_to_be_let_in_is_let_in_by_what_is_served(mesh: Mesh) -> None:
    world, compiler = mesh.world(), Compiler(policies())
    for dataplane, _, call in calls(world, Random(mesh.seed)):
        explanation = explain(compiler, policies(), world, dataplane, call)
        if "mtls" in mesh.documents[0]:
            assert explained(world, explanation) == set(served(world, compiler, dataplane, explanation))
        else:
            assert explanation.access == ()


def test_all_answers_are_drawn() -> None:
    """Or the comparison would be of nothing."""
    drawn: set[str] = set()
    for seed in range(60):
        world, compiler = mesh_of(seed, KINDS).world(), Compiler(policies())
        for dataplane, _, call in calls(world, Random(seed)):
            drawn |= {answer for *_, answer in explained(world, explain(compiler, policies(), world, dataplane, call))}
        if drawn == {REFUSED, LET_IN, LOGGED}:
            return

    raise AssertionError(f"only {drawn}")


def servers(world: World) -> dict[str, Resource]:
    """Proxies by their addresses. Of two with one address either may be called, and neither is compared."""
    proxies = dataplanes(world)
    counts = Counter(proxy.spec.networking.address for proxy in proxies)
    return {address: proxy for proxy in proxies if counts[address := proxy.spec.networking.address] == 1}


def explained(world: World, explanation: Explanation) -> Answers:
    names = {server.name for server in servers(world).values()}
    return {
        (access.cluster, name, REFUSED if not access.is_allowed else LOGGED if access.shadow_denied_by else LET_IN)
        for access in explanation.access
        for name in access.servers
        if name in names
    }


def served(world: World, compiler: Compiler, caller: Resource, explanation: Explanation) -> Iterator[Answer]:
    snapshot = compiler.snapshot(world, caller)
    for backend in explanation.backends:
        packed = snapshot.get(CLUSTER, backend.cluster)
        for endpoint in backend.endpoints if packed is not None else ():
            address, _, port = endpoint.rpartition(":")
            server = servers(world).get(address)
            if server is not None and packed is not None:
                cluster = Cluster.FromString(packed.body)
                door = listener(compiler.snapshot(world, server), server.spec.networking.address, int(port))
                yield backend.cluster, server.name, becomes_of(world, caller, cluster, server, door)


def becomes_of(world: World, caller: Resource, cluster: Cluster, server: Resource, door: Listener | None) -> str:
    """What becomes of a call that leaves by a cluster, at the listener of a server."""
    if not cluster.HasField("transport_socket"):
        return LET_IN if door is None else lets_in(door, None)
    context = UpstreamTlsContext()
    cluster.transport_socket.typed_config.Unpack(context)
    of_caller, of_server = identity_of(world, caller), identity_of(world, server)
    if door is None or not takes_tls(door) or of_caller is None or of_server is None:
        return REFUSED
    if not any(is_expected(context, uri) for uri in of_server.uris):
        return REFUSED
    return lets_in(door, Client(of_caller.uris, context.sni))


def is_expected(context: UpstreamTlsContext, uri: str) -> bool:
    validation = context.common_tls_context.combined_validation_context.default_validation_context
    names = [name.matcher for name in validation.match_typed_subject_alt_names]
    return any(uri == name.exact if name.exact else uri.startswith(name.prefix) for name in names)
