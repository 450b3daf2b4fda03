"""MeshGatewayRoutes: what a builtin gateway does with requests, by routes of the older kind."""

import pytest

from tests.support.client import call, greeting
from tests.support.edge import Edge
from tests.support.loopback import Address
from tests.support.mesh import Document, gateway_route, legacy_external_service, listener, mesh_gateway, prefix, rule
from tests.support.playground import Playground
from tests.support.services import HttpService, TcpService
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy


def route(name: str, *rules: Document, listener: str = "http", **http: object) -> Document:
    selectors = [{"match": {"kuma.io/service": "edge", "use": listener}}]
    conf = {"http": {"rules": list(rules), **http}}
    return {"type": "MeshGatewayRoute", "mesh": "default", "name": name, "selectors": selectors, "conf": conf}


def to(service: str, path: str = "/", *filters: Document, **tags: str) -> Document:
    backend = {"weight": 1, "destination": {"kuma.io/service": service, **tags}}
    match = {"path": {"match": "PREFIX", "value": path}}
    return {"matches": [match], "filters": list(filters), "backends": [backend]}


@pytest.fixture(scope="module")
def edge(empty_mesh: Playground) -> Edge:
    """A gateway with a listener for HTTP and one for TCP, and two versions of a service."""
    for version in ("v1", "v2"):
        empty_mesh.service(f"web-{version}", "web", version=version)
    edge = Edge(empty_mesh, empty_mesh.gateway("edge"))
    listeners = [
        listener(edge.address(use).port, "TCP" if use == "tcp" else "HTTP", tags={"use": use})
        for use in ("http", "tcp")
    ]
    edge.serves(mesh_gateway("edge", *listeners))
    empty_mesh.ready()
    return edge


@pytest.fixture(scope="module")
def http(edge: Edge) -> Address:
    return edge.address("http")


def services(address: Address, path: str = "/", **headers: str) -> set[str]:
    return {call(address, path, headers=headers).service for _ in range(10)}


def test_requests_go_where_the_tags_of_a_backend_say(edge: Edge, http: Address) -> None:
    with edge.mesh.having(route("web", to("web"), to("web", "/new", version="v2"))):
        eventually(lambda: services(http, "/new") == {"web-v2"})

        assert eventually(lambda: services(http) == {"web-v1", "web-v2"})


def test_filters_change_requests_on_their_way(edge: Edge, http: Address) -> None:
    filters: list[Document] = [
        {"requestHeader": {"set": [{"name": "Host", "value": "inner.example"}, {"name": "X-By", "value": "edge"}]}},
        {"rewrite": {"replacePrefixMatch": "/inner"}},
    ]
    with edge.mesh.having(route("web", to("web", "/outer", *filters))):
        eventually(lambda: call(http, "/outer/a").status == 200)
        seen = call(http, "/outer/a").seen

    assert (seen["path"], seen["headers"]["host"], seen["headers"]["x-by"]) == ("/inner/a", "inner.example", "edge")


def test_a_redirect_asks_nobody(edge: Edge, http: Address) -> None:
    redirect = {"redirect": {"scheme": "https", "hostname": "new.example", "statusCode": 301}}
    gone = {"matches": [{"path": {"match": "EXACT", "value": "/old"}}], "filters": [redirect]}
    with edge.mesh.having(route("web", gone, to("web"))):
        eventually(lambda: call(http, "/old").status == 301)

        assert call(http, "/older").status == 200


def test_a_hostname_has_its_own_routes(edge: Edge, http: Address) -> None:
    shop = route("shop", to("web", "/", version="v2"), hostnames=["shop.example"])
    with edge.mesh.having(shop, route("all", to("web", "/", version="v1"))):
        eventually(lambda: services(http, host="shop.example") == {"web-v2"})

        assert services(http, host="other.example") == {"web-v1"}


def test_a_mesh_http_route_for_the_listener_takes_its_place(edge: Edge, http: Address) -> None:
    subset = {"kind": "MeshServiceSubset", "name": "web", "tags": {"version": "v2"}}
    with edge.mesh.having(route("web", to("web", "/", version="v1"))):
        eventually(lambda: services(http) == {"web-v1"})
        with edge.mesh.having(gateway_route("newer", "edge", rule(prefix("/"), backendRefs=[subset]), use="http")):
            eventually(lambda: services(http) == {"web-v2"})
        eventually(lambda: services(http) == {"web-v1"})


def test_an_external_service_is_called_through_a_gateway(edge: Edge, http: Address) -> None:
    with HttpService("outside") as outside:
        paid = legacy_external_service("paid", "paid", str(outside.address))
        with edge.mesh.having(paid, route("paid", to("paid"))):
            eventually(lambda: services(http) == {"outside"})


def test_connections_go_where_a_route_for_tcp_says(edge: Edge) -> None:
    with TcpService("database") as database:
        edge.mesh.tcp("database", database.address)
        edge.mesh.envoys["database"].ready()
        selectors = [{"match": {"kuma.io/service": "*", "use": "tcp"}}]
        backend = {"weight": 1, "destination": {"kuma.io/service": "database"}}
        conf = {"tcp": {"rules": [{"backends": [backend]}]}}
        tcp = {"type": "MeshGatewayRoute", "mesh": "default", "name": "tcp", "selectors": selectors, "conf": conf}
        with edge.mesh.having(tcp):
            assert eventually(lambda: greeting(edge.address("tcp")) or None) == "database"
