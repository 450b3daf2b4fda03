"""Proxies that are told only of what MeshTrafficPermissions let them call: what two Envoys have, and who is reached."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.client import Traffic
from tests.support.envoy import FLAGS, Envoy
from tests.support.loopback import Address
from tests.support.mesh import Document, bare_dataplane, legacy_external_service, mesh_service
from tests.support.redirected import Redirected, asked_for, dataplane, redirected, vip
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

ANSWERS = 5
EVERYBODY: Document = {"kind": "Mesh"}
BACKEND, LEDGER = mesh_service("backend"), mesh_service("ledger")
OF_BACKEND = {"backend", "kri_msvc_default___backend_main"}
OF_LEDGER = {"ledger", "kri_msvc_default___ledger_main"}


def permission(name: str, caller: Document, called: str, action: str = "Allow") -> Document:
    item = {"targetRef": caller, "default": {"action": action}}
    spec = {"targetRef": {"kind": "MeshService", "name": called}, "from": [item]}
    return {"type": "MeshTrafficPermission", "mesh": "default", "name": name, "spec": spec}


def service(name: str) -> Document:
    return {"kind": "MeshService", "name": name}


@pytest.fixture(scope="module")
def mesh() -> Iterator[Redirected]:
    """A machine whose workload may call `backend`, beside a service that nobody may call."""
    with redirected(KUMA_EXPERIMENTAL_AUTO_REACHABLE_SERVICES="true") as mesh:
        ledger = bare_dataplane("ledger", "ledger", mesh.services["other"].address, kuma_io__protocol="http")
        mesh.apply(ledger, LEDGER, permission("to-backend", EVERYBODY, "backend"))
        eventually(lambda: answers(mesh, vip(BACKEND)) == "backend")
        yield mesh


@pytest.fixture(scope="module")
def mail(mesh: Redirected) -> Iterator[Envoy]:
    """Another proxy, on the other machine: nothing is called there, it is only asked what it has."""
    inbound = {"port": 8025, "tags": {"kuma.io/service": "mail", "kuma.io/protocol": "http"}}
    networking = {"address": "10.99.0.3", "admin": {"port": 9901}, "inbound": [inbound]}
    redirection = {"transparentProxying": {"redirectPortOutbound": 15001}}
    document: Document = {
        "type": "Dataplane",
        "mesh": "default",
        "name": "mail",
        "networking": {**networking, **redirection},
    }
    mesh.apply(document)
    bootstrap = mesh.far.run(mesh.control_plane.bootstrap, document, delta=False)
    envoy = mesh.far.run(Envoy, bootstrap, mesh.control_plane.log.parent, FLAGS)
    try:
        mesh.far.run(envoy.ready)
        yield envoy
    finally:
        mesh.far.run(envoy.stop)


def clusters(mesh: Redirected) -> set[str]:
    """Those of services that the proxy of the workload has."""
    return mesh.near.run(of_services, mesh.envoy)


def of_services(envoy: Envoy) -> set[str]:
    names = {entry["cluster"]["name"] for entry in envoy.config("dynamic_active_clusters")}
    return names & {"backend", "ledger", "paid", *OF_BACKEND, *OF_LEDGER}


def answers(mesh: Redirected, address: Address) -> str:
    """Who answers a call; nothing if it is closed."""
    try:
        return mesh.call(address).service
    except OSError:
        return ""


@contextmanager
def calls(mesh: Redirected, address: Address) -> Iterator[Traffic]:
    """Steady calls of the workload."""
    traffic = Traffic(address)
    mesh.near.run(traffic.__enter__)
    try:
        yield traffic
    finally:
        mesh.near.run(traffic.stop)


def goes_on(traffic: Traffic) -> None:
    """Until some more calls have ended."""
    before = len(traffic.outcomes)
    eventually(lambda: len(traffic.outcomes) >= before + ANSWERS)


def test_who_may_not_be_called_has_no_cluster(mesh: Redirected) -> None:
    assert clusters(mesh) == OF_BACKEND
    assert answers(mesh, vip(BACKEND)) == "backend"
    assert answers(mesh, vip(BACKEND, LEDGER)) == ""


def test_a_permission_opens_a_service_under_traffic_and_its_end_closes_it(mesh: Redirected) -> None:
    with calls(mesh, vip(BACKEND)) as to_backend, calls(mesh, vip(BACKEND, LEDGER)) as to_ledger:
        goes_on(to_ledger)
        assert not any(outcome.ok for outcome in to_ledger.outcomes)
        with mesh.having(permission("to-ledger", service("web"), "ledger")):
            eventually(lambda: to_ledger.outcomes[-1].ok)
            opened = [outcome.ok for outcome in to_ledger.outcomes].index(True)
            goes_on(to_ledger)
            assert all(outcome.ok for outcome in to_ledger.outcomes[opened:]), "open at once, and not by halves"
            assert clusters(mesh) == OF_BACKEND | OF_LEDGER
        eventually(lambda: not to_ledger.outcomes[-1].ok)
        eventually(lambda: clusters(mesh) == OF_BACKEND)
        goes_on(to_backend)

    assert to_backend.failures == [], "who was let in before is not disturbed"
    assert to_backend.connections == 1


def test_a_permission_is_for_those_whom_it_names(mesh: Redirected, mail: Envoy) -> None:
    with mesh.having(permission("to-ledger", service("mail"), "ledger")):
        eventually(lambda: mesh.far.run(of_services, mail) == OF_BACKEND | OF_LEDGER)
        assert clusters(mesh) == OF_BACKEND
    eventually(lambda: mesh.far.run(of_services, mail) == OF_BACKEND)


def test_an_external_service_is_called_once_a_permission_is_for_its_tag(mesh: Redirected) -> None:
    paid = legacy_external_service("paid", "paid", str(mesh.services["outside"].address))
    with mesh.having(paid):
        mesh.far.run(mesh.control_plane.in_force)
        assert clusters(mesh) == OF_BACKEND
        with mesh.having(permission("to-paid", service("web"), "paid")):
            eventually(lambda: clusters(mesh) == {*OF_BACKEND, "paid"})
            address = eventually(lambda: mesh.near.run(asked_for, "paid.mesh", Address("10.99.0.3", 53)))
            eventually(lambda: answers(mesh, Address(address, 80)) == "outside")
        eventually(lambda: clusters(mesh) == OF_BACKEND)


def test_what_a_dataplane_lists_comes_before_what_is_derived(mesh: Redirected) -> None:
    document, listing = (dataplane(mesh.near, mesh.services["workload"]) for _ in range(2))
    listing["networking"]["transparentProxying"]["reachableServices"] = ["ledger"]
    mesh.apply(listing)
    try:
        eventually(lambda: clusters(mesh) == {"ledger"})
    finally:
        mesh.apply(document)
    eventually(lambda: clusters(mesh) == OF_BACKEND)
