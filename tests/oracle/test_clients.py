"""Each client of an inbound gets the timeouts that the documents say: random meshes, and a second implementation."""

from __future__ import annotations

from typing import Any, Final

from cp.translate.compiler import Compiler
from tests.oracle.clients import served_timeouts, timeouts
from tests.oracle.door import listener, takes_tls
from tests.oracle.permissions import Caller
from tests.oracle.reading import Resource, read
from tests.oracle.test_permissions import callers, client, inbounds
from tests.random_mesh import Mesh, dataplanes, for_meshes, mesh_of
from tests.snapshots import policies

KINDS: Final = ("Dataplane", "MeshTimeout", "MeshTimeout", "MeshTimeout")
HTTP: Final = {"http", "http2", "grpc"}


def http_inbounds(server: Resource) -> list[dict[str, Any]]:
    return [one for one in inbounds(server) if one["tags"].get("kuma.io/protocol") in HTTP]


@for_meshes(KINDS, times=2)
def test_whoever_calls_gets_the_time_that_the_documents_say(mesh: Mesh) -> None:
    world, documents, compiler = mesh.world(), read(mesh.documents), Compiler(policies())
    for dataplane in dataplanes(world):
        server, snapshot = documents.get("Dataplane", dataplane.name), compiler.snapshot(world, dataplane)
        assert server is not None
        for inbound in http_inbounds(server):
            served = listener(snapshot, server.spec["networking"]["address"], inbound["port"])
            with_names: list[Caller | None] = list(callers()) if served is not None and takes_tls(served) else []
            for caller in (None, *with_names) if served is not None else ():
                expected = timeouts(documents, server, inbound, caller)
                actual = served_timeouts(snapshot, server, inbound, client(caller) if caller is not None else None)
                assert expected == actual, f"{server.stored}:{inbound['port']} {caller}: served {actual}"


def test_clients_with_timeouts_of_their_own_are_drawn() -> None:
    """Or the comparison would be of nothing."""
    drawn = 0
    for seed in range(40):
        documents = read(mesh_of(seed, KINDS).documents)
        for server in documents.of("Dataplane"):
            for inbound in http_inbounds(server):
                drawn += len({timeouts(documents, server, inbound, caller) for caller in (None, *callers())}) > 2

    assert drawn > 2
