"""mTLS between real Envoys: who is let in, and who is believed.

The mesh has a provided authority that is the test's own, so the test can sign whatever an attacker might show.
"""

import http.client
import ssl
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import trustme

from cp.resources.tls import CIPHERS
from tests.support.authority import Authority, Certified, provided, unverified
from tests.support.client import Answer, ClientTls, Conversation, call
from tests.support.loopback import Address, free_port
from tests.support.mesh import MESH, Document, external_service, mesh_service, policy, service_item
from tests.support.playground import Playground
from tests.support.services import HttpService, TcpService
from tests.support.upstreams import healthy
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

AUTHORITY = Authority()
FRONTEND = "spiffe://default/frontend"
OF_BACKEND = {"kind": "MeshSubset", "tags": {"kuma.io/service": "backend"}}
OF_ECHO = {"kind": "MeshSubset", "tags": {"kuma.io/service": "echo"}}


def mesh_with(mode: str = "STRICT") -> Document:
    return {**MESH, "mtls": {"enabledBackend": "ca-1", "backends": [provided(mode=mode)]}}


def permission(*items: Document, of: str = "", name: str = "permission", field: str = "from") -> Document:
    target = {"kind": "MeshService", "name": of} if of else {"kind": "Mesh"}
    return {
        "type": "MeshTrafficPermission",
        "mesh": "default",
        "name": name,
        "spec": {"targetRef": target, field: list(items)},
    }


def of_service(service: str, action: str) -> Document:
    return {"targetRef": {"kind": "MeshService", "name": service}, "default": {"action": action}}


EVERYBODY = {"targetRef": {"kind": "Mesh"}, "default": {"action": "Allow"}}
ALLOWED = permission(EVERYBODY, name="everybody")


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    empty_mesh.control_plane.apply(*AUTHORITY.secrets(), mesh_with(), ALLOWED)
    empty_mesh.control_plane.apply(mesh_service("backend"), mesh_service("other"), mesh_service("echo", "tcp"))
    empty_mesh.control_plane.apply(external_service("outside", {"address": "127.0.0.1", "port": 9}))
    empty_mesh.service("backend")
    empty_mesh.service("other")
    echo = empty_mesh.stack.enter_context(TcpService("echo"))
    empty_mesh.tcp("echo", echo.address)
    empty_mesh.client("frontend", "backend", "other", "tag=backend", "echo", "external=outside")
    empty_mesh.ready()
    return empty_mesh


@pytest.fixture
def backend(mesh: Playground) -> Address:
    return mesh.proxies["frontend"].outbound("backend")


@pytest.fixture
def inbound(mesh: Playground) -> Address:
    return mesh.proxies["backend"].inbound


@pytest.fixture
def shown(inbound: Address, tmp_path: Path) -> Callable[[Certified | None], int]:
    """Calls the service with TLS and a certificate; 0 if the connection is closed."""

    def status(leaf: Certified | None) -> int:
        context = unverified() if leaf is None else leaf.client(tmp_path)
        connection = http.client.HTTPSConnection(*inbound, context=context, timeout=5)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status
        except (ssl.SSLError, ConnectionError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    return status


def is_closed(address: Address) -> bool:
    """Whether plain text gets no answer at all."""
    try:
        call(address, timeout=5)
    except (http.client.HTTPException, ConnectionError):
        return True
    return False


def test_a_call_goes_over_tls_and_the_service_reads_who_calls(mesh: Playground, backend: Address) -> None:
    answer = eventually(lambda: _taken(call(backend, headers={"x-forwarded-client-cert": "URI=spiffe://default/root"})))

    assert answer.service == "backend"
    seen = {name.lower(): value for name, value in answer.seen["headers"].items()}
    assert f"URI={FRONTEND}" in seen["x-forwarded-client-cert"]
    assert "root" not in seen["x-forwarded-client-cert"]
    assert call(mesh.proxies["frontend"].outbound("tag=backend")).service == "backend"


def _taken(answer: Answer) -> Answer:
    assert answer.status == http.HTTPStatus.OK
    return answer


def test_strict_refuses_plain_text_and_permissive_takes_both(
    mesh: Playground, inbound: Address, backend: Address, shown: Callable[[Certified | None], int]
) -> None:
    assert is_closed(inbound)
    with mesh.having(mesh_with(mode="PERMISSIVE")):
        eventually(lambda: call(inbound).status == http.HTTPStatus.OK)
        eventually(lambda: shown(AUTHORITY.leaf(FRONTEND)) == http.HTTPStatus.OK)
        assert call(backend).status == http.HTTPStatus.OK
    eventually(lambda: is_closed(inbound))


@pytest.mark.parametrize(("of_mesh", "of_backend"), [("STRICT", "Permissive"), ("PERMISSIVE", "Strict")])
def test_one_proxy_has_another_mode_than_its_mesh(
    mesh: Playground, inbound: Address, backend: Address, of_mesh: str, of_backend: str
) -> None:
    other, takes_plain_text = mesh.proxies["other"].inbound, of_backend == "Permissive"
    spec = {"targetRef": OF_BACKEND, "rules": [{"default": {"mode": of_backend}}]}
    with mesh.having(mesh_with(of_mesh), {"type": "MeshTLS", "mesh": "default", "name": "mode", "spec": spec}):
        eventually(lambda: (is_closed(inbound), is_closed(other)) == (not takes_plain_text, takes_plain_text))
        assert call(backend).status == http.HTTPStatus.OK
    eventually(lambda: is_closed(inbound) and is_closed(other))


def test_a_permissive_inbound_counts_who_speaks_plain_text(
    mesh: Playground, inbound: Address, backend: Address
) -> None:
    envoy = mesh.envoys["backend"]

    def counted() -> tuple[int, int]:
        stats = envoy.stats(r"^http\.backend(_plain_text)?\.downstream_rq_total$")
        of_tls, of_plain = (f"http.{name}.downstream_rq_total" for name in ("backend", "backend_plain_text"))
        return stats.get(of_tls, 0), stats.get(of_plain, 0)

    with mesh.having(mesh_with(mode="PERMISSIVE")):
        eventually(lambda: call(inbound).status == http.HTTPStatus.OK)
        over_tls, plain = counted()
        assert call(backend).status == call(inbound).status == http.HTTPStatus.OK
        eventually(lambda: counted() == (over_tls + 1, plain + 1))
    eventually(lambda: is_closed(inbound))


def test_connections_in_plain_text_are_counted_too(mesh: Playground) -> None:
    inbound, envoy = mesh.proxies["echo"].inbound, mesh.envoys["echo"]
    with mesh.having(mesh_with(mode="PERMISSIVE")):
        eventually(lambda: _is_answered(inbound))
        assert envoy.stat("tcp.echo_plain_text.downstream_cx_total") > 0


def _is_answered(address: Address) -> bool:
    with Conversation(address) as conversation:
        conversation.say("hello\n")
        return conversation.hear() != ""


@pytest.mark.parametrize(
    ("name", "leaf", "status"),
    [
        ("none", lambda: None, 0),
        ("right", lambda: AUTHORITY.leaf(FRONTEND), 200),
        ("expired", lambda: AUTHORITY.leaf(FRONTEND, valid_until=timedelta(minutes=-1)), 0),
        ("not yet valid", lambda: AUTHORITY.leaf(FRONTEND, valid_from=timedelta(minutes=1)), 0),
        ("another authority", lambda: Authority().leaf(FRONTEND), 0),
        ("another mesh", lambda: AUTHORITY.leaf("spiffe://other/frontend"), 0),
        ("a mesh whose name begins alike", lambda: AUTHORITY.leaf("spiffe://default2/frontend"), 0),
    ],
)
def test_only_a_valid_certificate_of_the_mesh_is_let_in(
    shown: Callable[[Certified | None], int], name: str, leaf: Callable[[], Certified | None], status: int
) -> None:
    eventually(lambda: shown(leaf()) == status)


def test_who_answers_by_another_name_is_not_believed(mesh: Playground, backend: Address) -> None:
    somebody = mesh_service("backend")
    somebody["spec"]["identities"] = [{"type": "ServiceTag", "value": "somebody-else"}]
    with mesh.having(somebody):
        eventually(lambda: call(backend).status == http.HTTPStatus.SERVICE_UNAVAILABLE)
    eventually(lambda: call(backend).status == http.HTTPStatus.OK)


def test_without_a_permission_nobody_may_call(mesh: Playground, backend: Address) -> None:
    mesh.control_plane.delete(ALLOWED)
    try:
        eventually(lambda: call(backend).status == http.HTTPStatus.FORBIDDEN)
        eventually(lambda: _echo(mesh.proxies["frontend"].outbound("echo")) == "")
    finally:
        mesh.control_plane.apply(ALLOWED)
    eventually(lambda: call(backend).status == http.HTTPStatus.OK)
    eventually(lambda: _echo(mesh.proxies["frontend"].outbound("echo")) != "")


def _echo(address: Address) -> str:
    """What comes back. Envoy judges a connection by its first byte: what the service says before, everybody hears."""
    try:
        with Conversation(address) as conversation:
            conversation.hear()
            conversation.say("hello\n")
            return conversation.hear()
    except OSError:
        return ""


def frontend_at(target: Document, field: str, action: str) -> Document:
    """What becomes of the frontend at some inbounds, in either form of a permission."""
    lists = {"Deny": "deny", "AllowWithShadowDeny": "allowWithShadowDeny"}
    exact = {"spiffeID": {"type": "Exact", "value": FRONTEND}}
    item = of_service("frontend", action) if field == "from" else {"default": {lists[action]: [exact]}}
    document = permission(item, field=field)
    document["spec"]["targetRef"] = target
    return document


@pytest.mark.parametrize("field", ["from", "rules"])
def test_one_service_denies_what_others_allow(mesh: Playground, backend: Address, field: str) -> None:
    with mesh.having(frontend_at(OF_BACKEND, field, "Deny")):
        answer = eventually(lambda: _refused(backend))

        assert "RBAC" in answer
        assert call(mesh.proxies["frontend"].outbound("other")).status == http.HTTPStatus.OK
    eventually(lambda: call(backend).status == http.HTTPStatus.OK)


@pytest.mark.parametrize("field", ["from", "rules"])
def test_a_connection_of_somebody_who_is_denied_is_closed(mesh: Playground, backend: Address, field: str) -> None:
    echo = mesh.proxies["frontend"].outbound("echo")
    with mesh.having(frontend_at(OF_ECHO, field, "Deny")):
        eventually(lambda: _echo(echo) == "")

        assert call(backend).status == http.HTTPStatus.OK
    eventually(lambda: _echo(echo) != "")


@pytest.mark.parametrize("field", ["from", "rules"])
def test_a_shadow_closes_no_connection_and_is_counted(mesh: Playground, field: str) -> None:
    echo, envoy = mesh.proxies["frontend"].outbound("echo"), mesh.envoys["echo"]
    with mesh.having(frontend_at(OF_ECHO, field, "AllowWithShadowDeny")):

        def counted() -> bool:
            assert _echo(echo) != ""
            return any(envoy.stats(r"rbac\.shadow_denied$").values())

        eventually(counted)


def test_the_server_name_that_a_caller_asks_for_decides_who_may_call(
    mesh: Playground, inbound: Address, tmp_path: Path
) -> None:
    leaf = AUTHORITY.leaf(FRONTEND)
    closed = permission({"default": {"deny": [{"sni": {"type": "Exact", "value": "closed.example"}}]}}, field="rules")

    def asked_for(name: str) -> int:
        return call(inbound, tls=ClientTls(leaf.client(tmp_path), name), timeout=5).status

    with mesh.having(closed):
        eventually(lambda: asked_for("closed.example") == http.HTTPStatus.FORBIDDEN)

        assert asked_for("open.example") == asked_for("") == http.HTTPStatus.OK
    eventually(lambda: asked_for("closed.example") == http.HTTPStatus.OK)


def test_proxies_ask_for_the_server_names_by_which_permissions_tell_destinations_apart(
    mesh: Playground, backend: Address
) -> None:
    by_name = {"sni": {"type": "Exact", "value": server_name(mesh, "kri_msvc_default___backend_main")}}
    allowed = permission({"default": {"allow": [by_name]}}, field="rules", name="by-name")
    by_tag = mesh.proxies["frontend"].outbound("tag=backend")
    mesh.control_plane.apply(allowed)
    mesh.control_plane.delete(ALLOWED)
    try:
        eventually(lambda: call(by_tag).status == http.HTTPStatus.FORBIDDEN)
        assert call(backend).status == http.HTTPStatus.OK
    finally:
        mesh.control_plane.apply(ALLOWED)
        mesh.control_plane.delete(allowed)
    eventually(lambda: call(by_tag).status == http.HTTPStatus.OK)


def server_name(mesh: Playground, cluster: str) -> str:
    """What the frontend asks for when it calls."""
    clusters = [entry["cluster"] for entry in mesh.envoys["frontend"].config("dynamic_active_clusters")]
    [socket] = [entry["transport_socket"] for entry in clusters if entry["name"] == cluster]
    name: str = socket["typed_config"]["sni"]
    return name


def _refused(address: Address) -> str:
    answer = call(address)
    assert answer.status == http.HTTPStatus.FORBIDDEN
    return answer.body


def test_an_exact_identity_is_found_among_all_that_a_certificate_has(
    mesh: Playground, shown: Callable[[Certified | None], int]
) -> None:
    exact = {"spiffeID": {"type": "Exact", "value": "spiffe://default/tester"}}
    mesh.control_plane.apply(permission({"default": {"allow": [exact]}}, field="rules", name="tester"))
    mesh.control_plane.delete(ALLOWED)
    try:
        eventually(lambda: shown(AUTHORITY.leaf("spiffe://default/other", "kuma://version/v1")) == 403)
        assert shown(AUTHORITY.leaf("kuma://version/v1", "spiffe://default/tester", "kuma://zone/a")) == 200
        assert shown(AUTHORITY.leaf("spiffe://default/tester2", "kuma://version/v1")) == 403
    finally:
        mesh.control_plane.apply(ALLOWED)
        mesh.control_plane.delete(permission(name="tester"))


def test_a_shadow_denies_nobody_and_is_counted(mesh: Playground, backend: Address) -> None:
    with mesh.having(permission(of_service("frontend", "AllowWithShadowDeny"), name="everybody")):
        envoy = mesh.envoys["backend"]

        def counted() -> bool:
            assert call(backend).status == http.HTTPStatus.OK
            return any(value for name, value in envoy.stats(r"rbac\..*shadow_denied$").items() if name)

        eventually(counted)


def test_a_rate_limit_is_for_the_client_with_one_identity(
    mesh: Playground, shown: Callable[[Certified | None], int]
) -> None:
    limit = {"local": {"http": {"requestRate": {"num": 1, "interval": "60s"}}}}
    tester = {"spiffeID": {"type": "Exact", "value": "spiffe://default/tester"}}
    document = {
        "type": "MeshRateLimit",
        "mesh": "default",
        "name": "tester",
        "spec": {
            "targetRef": {"kind": "Mesh", "proxyTypes": ["Sidecar"]},
            "rules": [{"matches": [tester], "default": limit}],
        },
    }
    slow, free = AUTHORITY.leaf("spiffe://default/tester", "kuma://a/b"), AUTHORITY.leaf("spiffe://default/tester2")
    with mesh.having(document):
        eventually(lambda: shown(slow) == http.HTTPStatus.TOO_MANY_REQUESTS)

        assert [shown(free) for _ in range(3)] == [http.HTTPStatus.OK] * 3


@pytest.fixture
def modern(mesh: Playground) -> Iterator[None]:
    spec = {"targetRef": {"kind": "Mesh"}, "rules": [{"default": {"tlsVersion": {"min": "TLS13"}}}]}
    with mesh.having({"type": "MeshTLS", "mesh": "default", "name": "modern", "spec": spec}):
        yield


@pytest.mark.usefixtures("modern")
def test_a_version_that_is_too_old_is_refused_and_the_mesh_speaks_a_newer_one(
    backend: Address, inbound: Address, tmp_path: Path
) -> None:
    def is_refused() -> bool:
        context = AUTHORITY.leaf(FRONTEND).client(tmp_path)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        connection = http.client.HTTPSConnection(*inbound, context=context, timeout=5)
        try:
            connection.request("GET", "/")
        except (ssl.SSLError, ConnectionError):
            return True
        finally:
            connection.close()
        return False

    eventually(is_refused)
    assert call(backend).status == http.HTTPStatus.OK


@pytest.mark.parametrize("cipher", [cipher for cipher in CIPHERS if "ECDSA" in cipher])
def test_callers_offer_each_cipher_that_a_policy_may_demand(mesh: Playground, backend: Address, cipher: str) -> None:
    conf = {"tlsVersion": {"min": "TLS12", "max": "TLS12"}, "tlsCiphers": [cipher]}
    spec = {"targetRef": {"kind": "Mesh"}, "rules": [{"default": conf}]}

    def is_used() -> bool:
        assert call(backend).status == http.HTTPStatus.OK
        return any(mesh.envoys["backend"].stats(rf"ssl\.ciphers\.{cipher}$").values())

    with mesh.having({"type": "MeshTLS", "mesh": "default", "name": "cipher", "spec": spec}):
        eventually(is_used)


def test_health_checks_go_over_tls_too(mesh: Playground, backend: Address) -> None:
    soon = {"interval": "100ms", "noTrafficInterval": "100ms", "timeout": "2s", "unhealthyThreshold": 1}
    item = service_item("backend", {**soon, "http": {"path": "/health"}})
    with mesh.having(policy("MeshHealthCheck", "of-backend", item)):
        envoy = mesh.envoys["frontend"]
        checks = r"^cluster\.kri_msvc_default___backend_main\.health_check\.success$"

        eventually(lambda: any(envoy.stats(checks).values()))
        assert healthy(envoy, "backend") == 1
        assert call(backend).status == http.HTTPStatus.OK


def test_an_authority_of_another_domain_vouches_for_no_name_of_the_mesh(
    mesh: Playground, shown: Callable[[Certified | None], int]
) -> None:
    partner = Authority("partner")
    bundle = {"type": "Pem", "pem": {"value": partner.certificate.decode()}}
    trust = {"type": "MeshTrust", "mesh": "default", "name": "partner"}
    allow = [{"spiffeID": {"type": "Prefix", "value": f"spiffe://{domain}/"}} for domain in ("default", "partner")]
    with mesh.having({**trust, "spec": {"trustDomain": "partner", "caBundles": [bundle]}}):
        mesh.control_plane.apply(permission({"default": {"allow": allow}}, field="rules", name="of-both"))
        try:
            eventually(lambda: shown(partner.leaf("spiffe://partner/x")) == http.HTTPStatus.OK)

            assert shown(partner.leaf("spiffe://default/frontend")) == 0
            assert shown(partner.leaf("spiffe://partner/x", "spiffe://default/frontend")) == http.HTTPStatus.FORBIDDEN
            assert shown(partner.leaf("spiffe://partner/x,spiffe://default/frontend")) == http.HTTPStatus.FORBIDDEN
            assert shown(AUTHORITY.leaf(FRONTEND)) == http.HTTPStatus.OK
        finally:
            mesh.control_plane.delete(permission(name="of-both"))


def test_nobody_of_another_domain_is_believed_to_be_a_service(
    mesh: Playground, backend: Address, tmp_path: Path
) -> None:
    partner = Authority("partner")
    certificate, key = partner.leaf("spiffe://partner/x", "spiffe://default/backend").written(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    bundle = {"type": "Pem", "pem": {"value": partner.certificate.decode()}}
    trust = {"type": "MeshTrust", "mesh": "default", "name": "partner"}
    with HttpService("rogue", tls=context) as rogue:
        inbound = {"name": "main", "port": rogue.address.port, "tags": {"kuma.io/service": "backend"}}
        dataplane = {"networking": {"address": rogue.address.host, "inbound": [inbound]}}
        stolen = {"type": "Dataplane", "mesh": "default", "name": "rogue", **dataplane}
        with mesh.having({**trust, "spec": {"trustDomain": "partner", "caBundles": [bundle]}}, stolen):
            envoy = mesh.envoys["frontend"]
            failed = "cluster.kri_msvc_default___backend_main.ssl.fail_verify_san"
            error = "cluster.kri_msvc_default___backend_main.ssl.fail_verify_error"

            def refused() -> bool:
                assert call(backend).service in {"backend", ""}
                return envoy.stat(failed) + envoy.stat(error) > 0

            eventually(refused)


def test_a_service_outside_is_called_with_its_own_tls_and_is_shown_no_certificate_of_the_mesh(
    mesh: Playground,
) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL  # it refuses a certificate of the mesh, and takes a client without any
    verification = {"caCert": {"inlineString": authority.cert_pem.bytes().decode()}}
    outside, place = mesh.proxies["frontend"].outbound("external=outside"), Address("127.0.0.1", free_port("127.0.0.1"))
    endpoint, tls = {"address": "localhost", "port": place.port}, {"enabled": True, "verification": verification}
    with HttpService("outside", place, tls=context), mesh.having(external_service("outside", endpoint, tls=tls)):
        eventually(lambda: call(outside).service == "outside")
