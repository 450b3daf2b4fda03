"""A delegated gateway: software of somebody else's lets clients in, and calls the mesh through the sidecar beside it.

The software is an Envoy with a configuration of its own here, of which the control plane knows nothing.
"""

from __future__ import annotations

import http
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from tests.support.bootstraps import static
from tests.support.client import Answer, Traffic, call
from tests.support.envoy import Envoy
from tests.support.loopback import Address
from tests.support.mesh import (
    MESH,
    Document,
    Proxy,
    http_route,
    mesh_service,
    policy,
    prefix,
    request_timeout,
    rule,
    service_item,
)
from tests.support.playground import Playground, timeouts
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy


@dataclass(frozen=True)
class Delegated:
    mesh: Playground
    proxy: Proxy
    entrance: Address
    """Where the software listens, for clients from outside."""

    @property
    def sidecar(self) -> Envoy:
        return self.mesh.envoys[self.proxy.name]

    def ask(self, path: str = "/") -> Answer:
        return call(self.entrance, path)


@pytest.fixture(scope="module")
def gateway(empty_mesh: Playground) -> Iterator[Delegated]:
    for name in ("web", "next"):
        empty_mesh.control_plane.apply(mesh_service(name))
        empty_mesh.service(name)
    proxy = empty_mesh.started(Proxy("edge-1", "edge", gateway="DELEGATED", backends=("web",)))
    empty_mesh.ready()
    admin, entrance = (Address(proxy.host, proxy.port(use)) for use in ("admin of the software", "entrance"))
    software = static(admin, entrance, proxy.outbound("web"), timeout="30s")
    with Envoy(software, empty_mesh.folder / "software") as envoy:
        envoy.ready()
        delegated = Delegated(empty_mesh, proxy, entrance)
        eventually(lambda: delegated.ask().service == "web")
        yield delegated


def test_it_has_outbounds_and_no_listener_for_anybody_else(gateway: Delegated) -> None:
    names = [each["name"] for each in gateway.sidecar.config("dynamic_listeners")]

    assert [name.split(":")[0] for name in names] == ["outbound"]
    assert gateway.proxy.document["networking"]["gateway"]["type"] == "DELEGATED"


def test_routes_and_policies_of_services_hold_for_its_calls(gateway: Delegated) -> None:
    to_next = http_route("next", "web", rule(prefix("/next"), to={"next": 1}))
    with gateway.mesh.having(to_next):
        eventually(lambda: gateway.ask("/next").service == "next")
        assert gateway.ask("/other").service == "web"

    gateway.mesh.services["web"].on("/slow", delay=5.0)
    with gateway.mesh.having(policy("MeshTimeout", "soon", service_item("web", request_timeout("200ms")))):
        assert gateway.ask("/slow").status == http.HTTPStatus.GATEWAY_TIMEOUT


@pytest.mark.parametrize("kind", ["Gateway", "Sidecar"])
def test_policies_select_it_among_gateways(gateway: Delegated, kind: str) -> None:
    target = {"kind": "Mesh", "proxyTypes": [kind]}
    timeout = policy("MeshTimeout", "of-kind", service_item("web", request_timeout("7s")), target=target)
    with gateway.mesh.having(timeout):
        assert ("7s" in timeouts(gateway.sidecar).values()) is (kind == "Gateway")


def test_it_calls_as_itself_where_the_mesh_has_mtls(gateway: Delegated) -> None:
    backend = {"name": "ca-1", "type": "builtin", "mode": "STRICT"}
    strict: Document = {**MESH, "mtls": {"enabledBackend": "ca-1", "backends": [backend]}}
    with gateway.mesh.having(permission("spiffe://default/edge"), strict):

        def caller() -> str:
            seen = gateway.ask().seen["headers"]
            return str({name.lower(): value for name, value in seen.items()}["x-forwarded-client-cert"])

        assert "URI=spiffe://default/edge" in eventually(caller, within=20)
        with gateway.mesh.having(permission("spiffe://default/another")):
            eventually(lambda: gateway.ask().status == http.HTTPStatus.FORBIDDEN)
    eventually(lambda: gateway.ask().service == "web", within=20)


def permission(spiffe_id: str) -> Document:
    item = {"default": {"allow": [{"spiffeID": {"type": "Exact", "value": spiffe_id}}]}}
    spec = {"targetRef": {"kind": "Mesh"}, "rules": [item]}
    return {"type": "MeshTrafficPermission", "mesh": "default", "name": "permission", "spec": spec}


def test_edits_of_its_outbounds_lose_no_request(gateway: Delegated) -> None:
    with Traffic(gateway.entrance) as traffic:
        eventually(lambda: len(traffic.outcomes) > 5)
        wider = replace(gateway.proxy, backends=("web", "next"))
        gateway.mesh.control_plane.apply(wider.document)
        eventually(lambda: call(wider.outbound("next")).service == "next")
        gateway.mesh.control_plane.apply(gateway.proxy.document)
        sent = len(traffic.outcomes)
        eventually(lambda: len(traffic.outcomes) > sent + 10)

    assert traffic.failures == []
