"""What a MeshProxyPatch changes in an Envoy, as those who call notice it."""

from typing import Any

import pytest

from tests.support.client import call
from tests.support.loopback import Address, new_address
from tests.support.mesh import Document, mesh_service
from tests.support.playground import Playground
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

HEADER_MUTATION = """
name: ours
typedConfig:
  '@type': type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation
  mutations: {responseMutations: [{append: {header: {key: x-patched, value: 'yes'}}}]}
"""


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    empty_mesh.control_plane.apply(mesh_service("backend"))
    empty_mesh.service("backend")
    empty_mesh.client("frontend", "backend")
    empty_mesh.ready()
    return empty_mesh


@pytest.fixture
def backend(mesh: Playground) -> Address:
    return mesh.proxies["frontend"].outbound()


def patch(*modifications: dict[str, Any], proxy: str = "frontend") -> Document:
    target = {"kind": "Dataplane", "name": proxy}
    spec = {"targetRef": target, "default": {"appendModifications": list(modifications)}}
    return {"type": "MeshProxyPatch", "mesh": "default", "name": "patch", "spec": spec}


def json_patch(what: str, path: str, value: Any, **match: str) -> dict[str, Any]:
    change = {"operation": "Patch", "jsonPatches": [{"op": "add", "path": path, "value": value}], "match": match}
    return {what: change}


def added(what: str, operation: str, value: str, **match: str) -> dict[str, Any]:
    return {what: {"operation": operation, "value": value} | ({"match": match} if match else {})}


def test_a_filter_on_the_inbound_changes_every_response(mesh: Playground, backend: Address) -> None:
    with mesh.having(patch(added("httpFilter", "AddLast", HEADER_MUTATION, origin="inbound"), proxy="backend")):
        eventually(lambda: call(backend, "/").headers.get("x-patched") == "yes")
    eventually(lambda: "x-patched" not in call(backend, "/").headers)


def test_a_patched_virtual_host_answers_one_path_by_itself(mesh: Playground, backend: Address) -> None:
    hello = {"match": {"path": "/hello"}, "directResponse": {"status": 218}}
    with mesh.having(patch(json_patch("virtualHost", "/routes/0", hello, origin="outbound"))):
        eventually(lambda: call(backend, "/hello").status == 218)
        assert call(backend, "/other").status == 200


def test_a_patched_network_filter_refuses_what_it_is_told_to(mesh: Playground, backend: Address) -> None:
    manager = "envoy.filters.network.http_connection_manager"
    with mesh.having(patch(json_patch("networkFilter", "/maxRequestHeadersKb", 1, name=manager, origin="outbound"))):
        eventually(lambda: call(backend, "/", headers={"x-long": "x" * 2000}).status == 431)
        assert call(backend, "/").status == 200


def test_a_listener_that_is_added_leads_to_a_cluster_that_is_added(mesh: Playground) -> None:
    there, workload = new_address(), mesh.services["backend"].address
    cluster = f"""
        name: extra
        type: STATIC
        connectTimeout: 1s
        loadAssignment:
          clusterName: extra
          endpoints: [{{lbEndpoints: [{{endpoint: {{address: {_socket(workload)}}}}}]}}]
    """
    listener = f"""
        name: extra
        address: {_socket(there)}
        filterChains:
        - filters:
          - name: envoy.filters.network.tcp_proxy
            typedConfig:
              '@type': type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
              statPrefix: extra
              cluster: extra
    """
    with mesh.having(patch(added("cluster", "Add", cluster), added("listener", "Add", listener))):
        eventually(lambda: _answers(there))
        assert call(there, "/").headers["x-service"] == "backend"
    eventually(lambda: not _answers(there))


def test_what_cannot_be_made_leaves_the_rest_alone(mesh: Playground, backend: Address) -> None:
    hello = {"match": {"path": "/hello"}, "directResponse": {"status": 218}}
    wrong = json_patch("cluster", "/no/such/thing", 1)
    with mesh.having(patch(wrong, json_patch("virtualHost", "/routes/0", hello, origin="outbound"))):
        eventually(lambda: call(backend, "/hello").status == 218)
        assert call(backend, "/other").status == 200


def _socket(address: Address) -> str:
    return f"{{socketAddress: {{address: {address.host}, portValue: {address.port}}}}}"


def _answers(address: Address) -> bool:
    try:
        return call(address, "/").status == 200
    except OSError:
        return False
