"""Who may call an ExternalService under either policy engine, in a mesh with mTLS."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.authority import Authority, provided
from tests.support.client import call
from tests.support.loopback import Address, free_port
from tests.support.mesh import MESH, Document, legacy_external_service
from tests.support.playground import Playground
from tests.support.services import HttpService
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

AUTHORITY = Authority()
CLIENTS = ("web", "mail")
EVERYBODY: Document = {"kuma.io/service": "*"}
PAYMENTS: Document = {"kuma.io/service": "payments"}


def mesh_of(engine: str) -> Document:
    mtls = {"enabledBackend": "ca-1", "backends": [provided(mode="STRICT")]}
    return {**MESH, "mtls": mtls, "policyEngine": engine}


def permission(name: str, source: Document, destination: Document) -> Document:
    sides: dict[str, Any] = {"sources": [{"match": source}], "destinations": [{"match": destination}]}
    return {"type": "TrafficPermission", "mesh": "default", "name": name, **sides}


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Iterator[Playground]:
    empty_mesh.control_plane.apply(*AUTHORITY.secrets(), mesh_of("Legacy"))
    with HttpService("outside", Address("127.0.0.1", free_port("127.0.0.1"))) as outside:
        address = f"localhost:{outside.address.port}"
        empty_mesh.services["outside"] = outside
        empty_mesh.control_plane.apply(legacy_external_service("payments", "payments", address))
        for client in CLIENTS:
            empty_mesh.client(client, "tag=payments")
        empty_mesh.ready()
        yield empty_mesh


def statuses(mesh: Playground) -> dict[str, int]:
    return {name: call(mesh.proxies[name].outbound("tag=payments")).status for name in CLIENTS}


def test_under_legacy_nobody_calls_it_without_a_permission(mesh: Playground) -> None:
    eventually(lambda: statuses(mesh) == {"web": 500, "mail": 500})


def test_under_legacy_those_call_it_whom_the_best_permission_names(mesh: Playground) -> None:
    with mesh.having(permission("everybody", EVERYBODY, EVERYBODY)):
        eventually(lambda: statuses(mesh) == {"web": 200, "mail": 200})
        with mesh.having(permission("web", {"kuma.io/service": "web"}, PAYMENTS)):
            eventually(lambda: statuses(mesh) == {"web": 200, "mail": 500})
        eventually(lambda: statuses(mesh) == {"web": 200, "mail": 200})


def test_whom_no_permission_names_is_not_sent_the_address(mesh: Playground) -> None:
    with mesh.having(permission("web", {"kuma.io/service": "web"}, PAYMENTS)):
        eventually(lambda: knowing(mesh) == {"web"})
        with mesh.having(permission("mail", {"kuma.io/service": "mail"}, {**PAYMENTS, "kuma.io/protocol": "http"})):
            eventually(lambda: knowing(mesh) == {"mail"})  # the more specific one holds, and no other


def knowing(mesh: Playground) -> set[str]:
    """Whose Envoys have any configuration with the port at which it is."""
    port = f"'port_value': {mesh.services['outside'].address.port}}}"
    return {name for name in CLIENTS if port in str(mesh.envoys[name].get("/config_dump"))}


def test_under_target_ref_everybody_calls_it(mesh: Playground) -> None:
    with mesh.having(mesh_of("TargetRef")):
        eventually(lambda: statuses(mesh) == {"web": 200, "mail": 200})
