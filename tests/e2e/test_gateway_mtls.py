"""From a gateway into a mesh with mTLS: as whom it calls, and who lets it in."""

import http
from collections.abc import Iterator

import pytest

from tests.support.client import Answer, call
from tests.support.edge import Edge, all_to
from tests.support.mesh import MESH, Document, listener, mesh_gateway, mesh_item, mesh_service, policy
from tests.support.playground import playground
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

BACKEND = {"name": "ca-1", "type": "builtin", "mode": "STRICT"}
STRICT = {**MESH, "mtls": {"enabledBackend": "ca-1", "backends": [BACKEND]}}
EDGE = "spiffe://default/edge"
FORBIDDEN, OK = http.HTTPStatus.FORBIDDEN, http.HTTPStatus.OK


def permission(name: str, action: str, spiffe_id: str) -> Document:
    item = {"default": {action: [{"spiffeID": {"type": "Exact", "value": spiffe_id}}]}}
    spec = {"targetRef": {"kind": "Mesh"}, "rules": [item]}
    return {"type": "MeshTrafficPermission", "mesh": "default", "name": name, "spec": spec}


SHORT_CONNECTIONS = policy("MeshTimeout", "short", mesh_item({"http": {"maxConnectionDuration": "100ms"}}))
"""A certificate is shown when a connection opens."""

ALLOWED = permission("edge", "allow", EDGE)


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    with playground(tmp_path_factory.mktemp("mesh"), KOGUMA_TRUST_PROPAGATION="0.5") as mesh:
        mesh.control_plane.apply(STRICT, ALLOWED, SHORT_CONNECTIONS, mesh_service("web"), all_to("web"))
        mesh.service("web")
        edge = Edge(mesh, mesh.gateway("edge"))
        mesh.ready()
        edge.serves(mesh_gateway("edge", listener(edge.address("http").port)))
        eventually(lambda: ask(edge).status == OK)
        yield edge


def ask(edge: Edge, **headers: str) -> Answer:
    return call(edge.address("http"), headers={name.replace("_", "-"): value for name, value in headers.items()})


def caller(edge: Edge, **headers: str) -> str:
    """Who calls, as the service reads it."""
    answer = ask(edge, **headers)
    assert answer.status == OK
    seen = {name.lower(): value for name, value in answer.seen["headers"].items()}
    return str(seen["x-forwarded-client-cert"])


def test_it_calls_as_itself_and_believes_no_client_who_says_otherwise(edge: Edge) -> None:
    inbound = edge.mesh.proxies["web"].inbound
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        call(inbound, timeout=5)

    said = caller(edge, x_forwarded_client_cert="URI=spiffe://default/root", x_kuma_tags="&kuma.io/service=root&")

    assert f"URI={EDGE}" in said
    assert "root" not in said


def test_a_service_lets_it_in_by_its_identity_alone(edge: Edge) -> None:
    edge.serves(permission("edge", "allow", "spiffe://default/another"))
    try:
        eventually(lambda: ask(edge).status == FORBIDDEN)
    finally:
        edge.serves(ALLOWED)
    eventually(lambda: ask(edge).status == OK)

    with edge.mesh.having(permission("nobody", "deny", EDGE)):
        eventually(lambda: ask(edge).status == FORBIDDEN)
    eventually(lambda: ask(edge).status == OK)


@pytest.fixture
def named(edge: Edge) -> Iterator[str]:
    """What a MeshIdentity calls the gateway."""
    name = "spiffe://default.local/proxy/edge"
    provider = {"type": "Bundled", "bundled": {"insecureAllowSelfSigned": True, "autogenerate": {"enabled": True}}}
    names = {"trustDomain": "default.local", "path": '/proxy/{{ label "kuma.io/display-name" }}'}
    spec = {"selector": {"dataplane": {}}, "spiffeID": names, "provider": provider}
    edge.serves(permission("edge-by-another-name", "allow", name))
    with edge.mesh.having({"type": "MeshIdentity", "mesh": "default", "name": "edge", "spec": spec}):
        yield name


def test_a_mesh_identity_gives_it_another_name(edge: Edge, named: str) -> None:
    eventually(lambda: f"URI={named}" in caller(edge), within=30)
