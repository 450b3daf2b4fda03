"""Random gateways with their routes, and random requests to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from cp.insight.simulate import Call
from cp.model.source import universal
from tests.edge.oracle import Request
from tests.random_mesh import Mesh, gateways, mesh_of
from tests.random_mesh.documents import data
from tests.random_mesh.gateways import CALLED, LISTENER_PORTS, PATHS
from tests.random_mesh.words import GATEWAYS, NAME_LABEL, Data

KINDS: Final = (
    *("MeshService", "MeshExternalService", "MeshMultiZoneService", "Dataplane"),
    *("MeshGateway of the edge", "certificate of a gateway"),
    *("MeshHTTPRoute of a gateway", "MeshTCPRoute of a gateway"),
)
"""Which decide where a request goes. No policy has a say in it."""

_PIECES: Final = ("api", "v1", "slow", "/", "/", "//", "%2F", "%2f", "%5C", "\\", "..", ".", "%2e", "?", "a%41")
_ODD_HOSTS: Final = (
    *("a.example.com.", ".example.com", "a.example.com:", "a.example.com:port", "[::1]:80", "[::1]"),
    *("a.example.com:8080:1", "c.test:99999", "*.example.com", "c_d.test", "A.C.TEST:8443", "localhost"),
)
_ODD_HEADERS: Final = (
    *(("x_version", "1"), ("x-forwarded-proto", "https"), ("x-forwarded-proto", "ftp"), ("x-forwarded-for", "1.2.3.4")),
    *(("x-envoy-internal", "true"), ("x-envoy-original-path", "/api"), ("x-kuma-tags", "&kuma.io/service=web&")),
    *(("x-forwarded-host", "c.test"), ("x-forwarded-port", "1"), ("te", "trailers"), ("x-version", "")),
)

_MORE: Final[Mapping[str, int]] = {
    "certificate of a gateway": 6,
    "MeshHTTPRoute of a gateway": 3,
    "MeshTCPRoute of a gateway": 2,
    "Dataplane": 2,
    "MeshService": 2,
}


@dataclass(frozen=True)
class Draw:
    """A gateway at an address of its own, and a mesh around it."""

    mesh: Mesh
    proxy: str

    @property
    def address(self) -> str:
        (address,) = (data["networking"]["address"] for data in self.mesh.documents if data.get("name") == self.proxy)
        return str(address)


def draw(seed: int, address: str, kinds: Sequence[str] = KINDS, more: Mapping[str, int] = _MORE) -> Draw:
    """A mesh with a gateway more, with routes and certificates, so that most listeners are served."""
    mesh, chance = mesh_of(seed, kinds), Random(f"gateway {seed}")
    mesh_gateway = gateways.gateway(chance)
    drawn = [data(chance, [kind]) for kind, number in more.items() for _ in range(number)]
    aimed = [_aimed(chance, each, mesh_gateway) for each in drawn]
    documents = {_key(each): each for each in (*mesh.documents, mesh_gateway, *aimed)}
    service = chance.choice([*[_selected(mesh_gateway)] * 9, *GATEWAYS])
    tags = {"kuma.io/service": service, "team": mesh_gateway["selectors"][0]["match"].get("team", "red")}
    networking = {"address": address, "gateway": {"type": "BUILTIN", "tags": tags}}
    proxy: Data = {"type": "Dataplane", "mesh": "default", "name": "the-edge", "networking": networking}
    return Draw(Mesh((*documents.values(), proxy), seed), "the-edge")


def _selected(mesh_gateway: Data) -> str:
    service: str = mesh_gateway["selectors"][0]["match"]["kuma.io/service"]
    return GATEWAYS[0] if service == "*" else service


def _aimed(chance: Random, drawn: Data, mesh_gateway: Data) -> Data:
    """Most routes are for this gateway, and for all of its listeners; most policies are for it as well."""
    target = drawn.get("spec", {}).get("targetRef", {})
    if target.get("kind") != "MeshGateway" or chance.random() < 0.3:
        return drawn
    is_route = drawn["type"] in {"MeshHTTPRoute", "MeshTCPRoute"}
    named = {"kind": "MeshGateway", "name": mesh_gateway.get("labels", {}).get(NAME_LABEL, mesh_gateway["name"])}
    return {**drawn, "spec": {**drawn["spec"], "targetRef": named if is_route else {**target, **named}}}


def _key(document: Data) -> tuple[str, str]:
    fields = universal(document)
    return fields["type"], fields["name"]


def requests(chance: Random, listeners: Sequence[Data], count: int) -> Iterator[Request]:
    """Requests of which most are for some listener, and speak as it does."""
    nowhere: Data = {"port": chance.choice(LISTENER_PORTS), "protocol": "HTTP"}
    for _ in range(count):
        request = _request(chance, chance.choice([*4 * list(listeners), nowhere]))
        yield _odd(chance, request) if chance.random() < 0.15 else request


def _request(chance: Random, listener: Data) -> Request:
    host = _host(chance, listener.get("hostname", "*"))
    speaks_tls = (listener["protocol"] in {"HTTPS", "TLS"}) is not (chance.random() < 0.05)
    asked = host if chance.random() < 0.8 else chance.choice(CALLED)
    server_name = "" if chance.random() < 0.05 or asked[0].isdigit() else asked.partition(":")[0]
    return Request(
        listener["port"],
        host,
        path=chance.choice([*PATHS, "/apis", "/api/v2", "/slow/x", "/new"]),
        method=chance.choice(["GET", "GET", "POST"]),
        headers=tuple(
            (name, chance.choice(["1", "2", "12"])) for name in ("x-version", "x-team") if chance.random() < 0.4
        ),
        query=(("q", chance.choice(["1", "2"])),) if chance.random() < 0.3 else (),
        server_name=server_name if speaks_tls else None,
    )


def _odd(chance: Random, request: Request) -> Request:
    """A path with slashes of all sorts, a host that is none, or a header that nobody outside may send."""
    changes: list[dict[str, Any]] = [
        {"path": f"/{''.join(chance.choices(_PIECES, k=chance.randint(1, 5)))}"},
        {"host": chance.choice(_ODD_HOSTS)},
        {"headers": (*request.headers, chance.choice(_ODD_HEADERS))},
    ]
    return replace(request, **chance.choice(changes), is_odd=True)


def _host(chance: Random, hostname: str) -> str:
    """One that a listener is for, or any other."""
    if hostname == "*" or chance.random() < 0.4:
        return chance.choice(CALLED)
    return hostname.replace("*", chance.choice(["a", "x", "x.a", "z"]))


def call_of(request: Request, address: str) -> Call:
    query = "&".join(f"{name}={value}" for name, value in request.query)
    path = f"{request.path}?{query}" if query else request.path
    return Call(
        address, request.port, request.method, path, request.host, request.headers, server_name=request.server_name
    )
