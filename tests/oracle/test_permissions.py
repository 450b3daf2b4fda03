"""Who may call is who may by the documents: random meshes, each inbound held against a second implementation."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, Final

from cp.translate.compiler import Compiler
from tests.oracle.door import LET_IN, LOGGED, REFUSED, Client, lets_in, listener, takes_tls
from tests.oracle.permissions import Caller, becomes_of
from tests.oracle.reading import Resource, read
from tests.random_mesh import SERVICES, Mesh, dataplanes, for_meshes, mesh_of
from tests.random_mesh.confs import SERVER_NAMES
from tests.random_mesh.words import MISSING, TEAMS
from tests.snapshots import policies

KINDS: Final = ("Dataplane", "MeshTrafficPermission", "MeshTrafficPermission", "MeshTLS")
WORDS: Final = {REFUSED: "refused", LET_IN: "let in", LOGGED: "logged"}


def callers() -> Iterator[Caller]:
    """Those that there could be: of every service, some with a team, who ask for some server name."""
    for service, team, name in product((*SERVICES, MISSING), (*TEAMS, ""), (*SERVER_NAMES, "")):
        yield Caller({"kuma.io/service": service, **({"team": team} if team else {})}, server_name=name)


def client(caller: Caller) -> Client:
    """What such a caller shows: a URI for its service, and one for each tag."""
    tags = tuple(f"kuma://{name}/{value}" for name, value in caller.tags.items())
    return Client((caller.spiffe_id, *tags), caller.server_name)


def inbounds(server: Resource) -> Iterator[dict[str, Any]]:
    """Of those in one place the first is served."""
    places: dict[int, dict[str, Any]] = {}
    for inbound in server.spec["networking"].get("inbound") or []:
        places.setdefault(inbound["port"], inbound)
    yield from places.values()


@for_meshes(KINDS, times=2, also=(188, 411, 600))
def test_whoever_calls_is_let_in_if_the_documents_say_so(mesh: Mesh) -> None:
    world, documents, compiler = mesh.world(), read(mesh.documents), Compiler(policies())
    for dataplane in dataplanes(world):
        server, snapshot = documents.get("Dataplane", dataplane.name), compiler.snapshot(world, dataplane)
        assert server is not None
        for inbound in inbounds(server):
            served = listener(snapshot, server.spec["networking"]["address"], inbound["port"])
            for caller in callers() if served is not None and takes_tls(served) else ():
                assert served is not None
                expected, actual = (
                    becomes_of(documents, server, inbound, caller),
                    WORDS[lets_in(served, client(caller))],
                )
                assert expected == actual, f"{server.stored}:{inbound['port']} {caller}: served {actual}"


def test_all_answers_are_drawn() -> None:
    """Or the comparison would be of nothing."""
    drawn = set()
    for seed in range(30):
        documents = read(mesh_of(seed, KINDS).documents)
        for server in documents.of("Dataplane"):
            for inbound in inbounds(server):
                drawn |= {becomes_of(documents, server, inbound, caller) for caller in callers()}

    assert drawn == set(WORDS.values())
