"""Services outside the mesh: called by name, address and socket, with and without TLS, beside services inside."""

import ssl
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import trustme

from tests.support.client import TICK, call, greeting
from tests.support.loopback import Address, free_port, new_address
from tests.support.mesh import (
    Document,
    external_service,
    http_route,
    mesh_service,
    policy,
    prefix,
    request_timeout,
    rule,
    secret,
)
from tests.support.playground import Playground
from tests.support.services import HttpService, TcpService
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

NAMES = ("plain", "other", "socket", "database", "secured")
CLIENTS = ("frontend", "other-frontend")
"""One for each form of the protocol, which matters for secrets."""

CA, OTHER_CA = trustme.CA(), trustme.CA()
CLIENT = CA.issue_cert("client.example.com")

CA_REFUSED, NAME_REFUSED = "fail_verify_error", "fail_verify_san"
OTHER_NAME = "other.example.com"
OWN, WRONG = {"caCert": {"secret": "ca"}}, {"caCert": {"secret": "other-ca"}}
VERIFICATIONS: Final[dict[str, tuple[Document, str]]] = {
    "own-ca": (OWN, ""),
    "own-ca-inline": ({"caCert": {"inlineString": CA.cert_pem.bytes().decode()}}, ""),
    "machine-cas": ({}, ""),
    "wrong-ca": (WRONG, CA_REFUSED),
    "wrong-server-name": ({**OWN, "serverName": OTHER_NAME}, NAME_REFUSED),
    "wrong-name": ({**OWN, "subjectAltNames": [{"type": "Exact", "value": OTHER_NAME}]}, NAME_REFUSED),
    "name-prefix": (
        {**OWN, "serverName": OTHER_NAME, "subjectAltNames": [{"type": "Prefix", "value": "local"}]},
        "",
    ),
    "any-name": ({**OWN, "mode": "SkipSAN", "serverName": OTHER_NAME}, ""),
    "any-name-wrong-ca": ({**WRONG, "mode": "SkipSAN"}, CA_REFUSED),
    "any-ca": ({**WRONG, "mode": "SkipCA"}, ""),
    "any-certificate": ({**WRONG, "mode": "SkipAll", "serverName": OTHER_NAME}, ""),
}
"""Verifications of a certificate, and the reason for which Envoy does not accept it.

Each is tried with a service of its own, for which Envoy has counted no failures yet.
"""


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    """Two clients with an outbound for each service of a test, and one service inside."""
    trusted = empty_mesh.folder / "system.pem"
    CA.cert_pem.write_to_path(str(trusted))
    empty_mesh.system_ca = str(trusted)
    empty_mesh.control_plane.apply(
        mesh_service("backend"), secret("ca", CA.cert_pem.bytes()), secret("other-ca", OTHER_CA.cert_pem.bytes())
    )
    empty_mesh.service("backend").on("/slow", delay=5)
    for name in (*NAMES, *VERIFICATIONS):  # outbounds are there for as long as their services are
        empty_mesh.control_plane.apply(external_service(name, {"address": "127.0.0.1", "port": 9}))
    for client in CLIENTS:
        empty_mesh.client(client, "backend", *(f"external={name}" for name in (*NAMES, *VERIFICATIONS)))
    empty_mesh.ready()
    return empty_mesh


@pytest.fixture(scope="module")
def plain(mesh: Playground) -> HttpService:
    """A service that only its name tells: it is at localhost, and Envoy resolves that."""
    service = HttpService("plain", Address("127.0.0.1", free_port("127.0.0.1")))
    return mesh.stack.enter_context(service)


@pytest.fixture(scope="module")
def secured(mesh: Playground) -> HttpService:
    """A service with a certificate for localhost, which asks no client for one."""
    service = HttpService("secured", Address("127.0.0.1", free_port("127.0.0.1")), tls=server_context("localhost"))
    return mesh.stack.enter_context(service)


def server_context(name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert(name).configure_cert(context)
    return context


def at(service: HttpService, host: str = "localhost") -> Document:
    return {"address": host, "port": service.address.port}


def outbound(mesh: Playground, name: str, client: str = "frontend") -> Address:
    return mesh.proxies[client].outbound(f"external={name}")


def answers(mesh: Playground, name: str, status: int) -> Callable[[], bool]:
    """Whether both clients get this answer."""
    return lambda: all(call(outbound(mesh, name, client)).status == status for client in CLIENTS)


def over_tls(**verification: Any) -> Document:
    return {"enabled": True, "verification": verification} if verification else {"enabled": True}


def test_a_service_by_name_is_asked_for_by_its_name(mesh: Playground, plain: HttpService) -> None:
    with mesh.having(external_service("plain", at(plain))):
        eventually(lambda: call(outbound(mesh, "plain")).service == "plain")

        assert call(outbound(mesh, "plain")).seen["headers"]["host"] == "localhost"


def test_a_service_by_address_is_asked_for_as_the_workload_asks(mesh: Playground) -> None:
    with HttpService("other") as other, mesh.having(external_service("other", at(other, other.address.host))):
        eventually(lambda: call(outbound(mesh, "other")).service == "other")

        seen = call(outbound(mesh, "other"), headers={"host": "whatever.example.com"}).seen

    assert seen["headers"]["host"] == "whatever.example.com"


def test_a_socket_of_the_machine_is_a_service_too(mesh: Playground, tmp_path: Path) -> None:
    path = tmp_path / "app.sock"
    with (
        HttpService("app", path=path),
        mesh.having(external_service("socket", {"address": f"unix://{path}"})),
    ):
        eventually(lambda: call(outbound(mesh, "socket")).service == "app")


def test_tcp_goes_out_as_well(mesh: Playground) -> None:
    with TcpService("database", Address("127.0.0.1", free_port("127.0.0.1"))) as database:
        service = external_service("database", {"address": "localhost", "port": database.address.port}, protocol="tcp")
        with mesh.having(service):
            assert eventually(lambda: greeting(outbound(mesh, "database")) or None) == "database"


def test_the_next_priority_is_for_when_the_first_does_not_answer(mesh: Playground, plain: HttpService) -> None:
    dead = {"address": "localhost", "port": new_address().port, "priority": 3}
    checks = {"interval": "1s", "timeout": "1s", "unhealthyThreshold": 1, "tcp": {}}
    item = {"targetRef": {"kind": "MeshExternalService", "name": "plain"}, "default": checks}
    with mesh.having(
        external_service("plain", dead, {**at(plain), "priority": 9}), policy("MeshHealthCheck", "health", item)
    ):
        eventually(lambda: {call(outbound(mesh, "plain")).service for _ in range(5)} == {"plain"})


@pytest.mark.parametrize("name", VERIFICATIONS)
def test_who_answers_has_to_prove_who_it_is(mesh: Playground, secured: HttpService, name: str) -> None:
    verification, refusal = VERIFICATIONS[name]
    is_answered = answers(mesh, name, 503 if refusal else 200)
    with mesh.having(external_service(name, at(secured), tls=over_tls(**verification))):
        eventually(lambda: is_answered() and _failed_verifications(mesh, name) == ({refusal} if refusal else set()))


def _failed_verifications(mesh: Playground, name: str) -> set[str]:
    """Return the reasons for which a certificate was not accepted."""
    counts = mesh.envoys["frontend"].stats(rf"extsvc_default___{name}_80.ssl.fail_verify")
    return {stat.rpartition(".")[2] for stat, count in counts.items() if count}


def test_an_address_with_a_server_name_is_asked_for_by_that(mesh: Playground, secured: HttpService) -> None:
    tls = over_tls(caCert={"secret": "ca"}, serverName="localhost")
    with mesh.having(external_service("secured", at(secured, "127.0.0.1"), tls=tls)):
        eventually(answers(mesh, "secured", 200))

        assert call(outbound(mesh, "secured")).seen["headers"]["host"] == "localhost"


def test_a_check_asks_for_it_by_its_name_as_well(mesh: Playground, plain: HttpService) -> None:
    plain.on("/health")
    checks = {"interval": "1s", "http": {"path": "/health"}}
    item = {"targetRef": {"kind": "MeshExternalService", "name": "plain"}, "default": checks}
    with mesh.having(external_service("plain", at(plain)), policy("MeshHealthCheck", "health", item)):
        eventually(lambda: plain.hits("/health") > 0)

    assert plain.headers("/health")["host"] == "localhost"


def test_several_names_are_each_asked_for_by_their_own(mesh: Playground, secured: HttpService) -> None:
    """One of the two is nobody's; the certificate of the other is for its own name."""
    nobody = {"address": "127.0.0.1", "port": new_address().port}
    with mesh.having(external_service("secured", at(secured), nobody, tls=over_tls(caCert={"secret": "ca"}))):
        eventually(lambda: call(outbound(mesh, "secured")).service == "secured")


@pytest.mark.parametrize("from_files", [False, True])
def test_a_client_shows_the_certificate_that_it_is_asked_for(
    mesh: Playground, tmp_path: Path, from_files: bool
) -> None:
    context = server_context("localhost")
    context.verify_mode = ssl.CERT_REQUIRED
    CA.configure_trust(context)
    chain, key = CLIENT.cert_chain_pems[0].bytes(), CLIENT.private_key_pem.bytes()
    if from_files:
        (tmp_path / "client.crt").write_bytes(chain)
        (tmp_path / "client.key").write_bytes(key)
        identity = {name: {"file": str(tmp_path / f"client.{name}")} for name in ("crt", "key")}
    else:
        mesh.control_plane.apply(secret("client.crt", chain), secret("client.key", key))
        identity = {name: {"secret": f"client.{name}"} for name in ("crt", "key")}
    shown = {"clientCert": identity["crt"], "clientKey": identity["key"]}
    with HttpService("strict", Address("127.0.0.1", free_port("127.0.0.1")), tls=context) as strict:
        with mesh.having(external_service("secured", at(strict), tls=over_tls(caCert={"secret": "ca"}))):
            eventually(answers(mesh, "secured", 503))
        with mesh.having(external_service("secured", at(strict), tls=over_tls(caCert={"secret": "ca"}, **shown))):
            eventually(answers(mesh, "secured", 200))


def test_a_private_key_is_told_to_envoy_alone(mesh: Playground, secured: HttpService) -> None:
    """Not to the log, not to who inspects, and not by Envoy either."""
    chain, key = CLIENT.cert_chain_pems[0].bytes(), CLIENT.private_key_pem.bytes()
    identity = {"clientCert": {"secret": "told-chain"}, "clientKey": {"secret": "told-key"}}
    service = external_service("secured", at(secured), tls=over_tls(caCert={"secret": "ca"}, **identity))
    with mesh.having(secret("told-chain", chain), secret("told-key", key), service):
        eventually(answers(mesh, "secured", 200))

        where = "/meshes/default/dataplanes/frontend"
        asked = ["_config", "_rules", "_policies"]
        told = [mesh.control_plane.request("GET", f"{where}/{what}").text for what in asked]
        told += [mesh.control_plane.log.read_text(), str(mesh.envoys["frontend"].config("dynamic_active_secrets"))]

    assert "kri_extsvc_default___secured_80:identity" in told[0]
    secrets = [key.splitlines()[1].decode(), b64encode(key).decode()]
    assert not [one for text in told for one in secrets if one in text]


def test_a_new_secret_is_in_force_at_once_and_ends_no_connection(mesh: Playground, secured: HttpService) -> None:
    mesh.control_plane.apply(secret("rotated", OTHER_CA.cert_pem.bytes()))
    with mesh.having(external_service("secured", at(secured), tls=over_tls(caCert={"secret": "rotated"}))):
        eventually(answers(mesh, "secured", 503))

        mesh.control_plane.apply(secret("rotated", CA.cert_pem.bytes()))
        eventually(answers(mesh, "secured", 200))

        mesh.control_plane.apply(secret("rotated", CA.cert_pem.bytes() + OTHER_CA.cert_pem.bytes()))
        statuses = {call(outbound(mesh, "secured")).status for _ in range(50)}

    assert statuses == {200}


def test_without_its_secret_only_this_service_fails(mesh: Playground, plain: HttpService, secured: HttpService) -> None:
    document = external_service("secured", at(secured), tls=over_tls(caCert={"secret": "later"}))
    with mesh.having(external_service("plain", at(plain)), document):
        eventually(answers(mesh, "secured", 500))
        eventually(lambda: call(outbound(mesh, "plain")).service == "plain")
        assert "there is no Secret later in mesh default" in call(outbound(mesh, "secured")).body

        with mesh.having(secret("later", CA.cert_pem.bytes())):
            eventually(answers(mesh, "secured", 200))

        eventually(answers(mesh, "secured", 500))


def test_a_file_that_is_not_there_takes_away_only_what_needs_it(mesh: Playground, plain: HttpService) -> None:
    lost = over_tls(caCert={"file": "/nowhere/ca.crt"})
    with mesh.having(external_service("plain", at(plain)), external_service("secured", at(plain), tls=lost)):
        eventually(answers(mesh, "secured", 503))
        eventually(lambda: call(outbound(mesh, "plain")).service == "plain")


def test_a_route_divides_between_inside_and_outside(mesh: Playground, plain: HttpService) -> None:
    backends = [
        {"kind": "MeshService", "name": "backend", "port": 80, "weight": 1},
        {"kind": "MeshExternalService", "name": "plain", "weight": 1},
    ]
    backend = mesh.proxies["frontend"].outbound("backend")
    with mesh.having(
        external_service("plain", at(plain)), http_route("split", "backend", rule(prefix("/"), backendRefs=backends))
    ):
        eventually(lambda: {call(backend).service for _ in range(10)} == {"backend", "plain"})

        found = [call(backend, headers={"host": "backend.mesh"}) for _ in range(40)]

    hosts = {answer.service: answer.seen["headers"]["host"] for answer in found}
    assert hosts == {"backend": "backend.mesh", "plain": "localhost"}, "only outside has a name of its own"


def test_a_copy_outside_is_asked_for_by_its_name(mesh: Playground, plain: HttpService) -> None:
    mirror = {
        "type": "RequestMirror",
        "requestMirror": {"backendRef": {"kind": "MeshExternalService", "name": "plain"}},
    }
    backend = mesh.proxies["frontend"].outbound("backend")
    plain.on("/copied")
    with mesh.having(
        external_service("plain", at(plain)), http_route("copy", "backend", rule(prefix("/copied"), filters=[mirror]))
    ):
        eventually(lambda: call(backend, "/copied").service == "backend" and plain.hits("/copied") > 0)

        assert plain.headers("/copied")["host"] == "localhost"


def test_a_timeout_for_one_of_two(mesh: Playground, plain: HttpService) -> None:
    plain.on("/slow", delay=1)
    item = {"targetRef": {"kind": "MeshExternalService", "name": "plain"}, "default": request_timeout("300ms")}
    with mesh.having(
        external_service("plain", at(plain)), external_service("other", at(plain)), policy("MeshTimeout", "t", item)
    ):
        eventually(lambda: call(outbound(mesh, "plain"), "/slow").status == 504)
        eventually(lambda: call(outbound(mesh, "other")).service == "plain")

        assert call(outbound(mesh, "plain"), "/slow").seconds >= 0.3 - TICK
        assert call(outbound(mesh, "other"), "/slow").status == 200
