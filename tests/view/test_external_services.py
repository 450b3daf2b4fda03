"""ExternalServices: services outside the mesh that are called by a tag."""

from __future__ import annotations

from typing import Any, Final

import pytest

from cp.insight.lint import lint
from cp.model.document import Document, Source
from cp.model.names import Destination, Key
from cp.policies import kinds
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.packing import CLUSTER, ENDPOINTS, ROUTES
from cp.translate.view.outside import outside
from cp.translate.view.services import backend_of, protocol_of
from generators.proxy import Backend, Endpoint, Protocol
from tests.snapshots import policies

PAYMENTS: Final = "payments"
CALLED: Final = Destination(PAYMENTS)


def document(kind: str, name: str, **data: Any) -> Document:
    mesh = {} if kind == "Mesh" else {"mesh": "default"}
    return Document(Key(kind, mesh.get("mesh", ""), name), {"type": kind, **mesh, "name": name, **data})


def dataplane(name: str, address: str, service: str, *called: str) -> Document:
    inbound = {"port": 8080, "tags": {"kuma.io/service": service, "kuma.io/protocol": "http"}}
    outbound = [{"port": 10080 + index, "tags": {"kuma.io/service": tag}} for index, tag in enumerate(called)]
    networking = {"address": address, "inbound": [inbound], "outbound": outbound}
    return document("Dataplane", name, networking=networking)


def external(name: str, address: str, tls: dict[str, Any] | None = None, **tags: Any) -> Document:
    all_tags = {"kuma.io/service": PAYMENTS, "kuma.io/protocol": "http", **tags}
    networking = {"address": address} | ({} if tls is None else {"tls": tls})
    return document("ExternalService", name, tags=all_tags, networking=networking)


MESH: Final = document("Mesh", "default")
WEB: Final = dataplane("web", "10.0.0.1", "web", PAYMENTS)
OUTSIDE: Final = external(PAYMENTS, "example.com:80")
SERVED: Final = dataplane("payments-1", "10.0.0.2", PAYMENTS)


def world(*documents: Document) -> World:
    world = World.of([MESH, WEB, *documents], kinds(policies()))
    assert not list(world.findings)
    return world


def web(of: World) -> Resource:
    resource = of.get(WEB.key)
    assert resource is not None
    return resource


def clusters(of: World, compiler: Compiler, type_url: str = CLUSTER) -> set[str]:
    return {packed.name for packed in compiler.snapshot(of, web(of)).of(type_url)} - {"localhost:8080"}


def endpoints(of: World) -> tuple[Endpoint, ...]:
    return backend_of(of, "default", CALLED).external


def test_a_call_by_its_tag_goes_to_its_address() -> None:
    made = world(OUTSIDE)
    compiler = Compiler(policies())

    assert [(each.address, each.port, each.host) for each in endpoints(made)] == [("example.com", 80, "example.com")]
    assert clusters(made, compiler) == {PAYMENTS}
    assert not clusters(made, compiler, ENDPOINTS), "Envoy resolves its name"
    assert not [finding for finding in lint(policies(), made) if finding.severity != "info"]


def test_inbounds_that_carry_its_tag_come_first() -> None:
    made = world(OUTSIDE, SERVED)

    assert not endpoints(made)
    assert clusters(made, Compiler(policies()), ENDPOINTS) == {PAYMENTS}


def test_several_with_one_tag_are_one_destination_that_speaks_what_all_do() -> None:
    tags: dict[str, Any] = {"kuma.io/protocol": "http2", "version": "old"}
    made = world(OUTSIDE, external("other", "192.0.2.1:81", **tags))

    assert {each.address for each in endpoints(made)} == {"example.com", "192.0.2.1"}
    assert protocol_of(made, "default", CALLED) is Protocol.TCP
    old = Destination(PAYMENTS, tags=(("version", "old"),))
    assert [each.address for each in backend_of(made, "default", old).external] == ["192.0.2.1"]
    assert protocol_of(made, "default", old) is Protocol.HTTP2


def test_one_that_cannot_be_served_costs_its_own_endpoints_alone() -> None:
    broken = external("broken", "192.0.2.1:443", {"enabled": True, "caCert": {"secret": "missing"}})

    assert [each.address for each in endpoints(world(OUTSIDE, broken))] == ["example.com"]
    assert clusters(world(broken), Compiler(policies())) == set()
    assert [found.code for found in lint(policies(), world(broken)) if found.severity == "error"] == ["not-served"]


@pytest.mark.parametrize(
    ("tls", "verified", "names", "sni"),
    [
        pytest.param({}, False, [], "example.com", id="nobody is verified without a CA"),
        pytest.param({"caCert": {"file": "/ca"}}, True, ["example.com"], "example.com", id="its address"),
        pytest.param({"caCert": {"file": "/ca"}, "serverName": "a.test"}, True, ["a.test"], "a.test", id="its name"),
        pytest.param(
            {"caCert": {"file": "/ca"}, "skipHostnameVerification": True}, True, [], "example.com", id="any name"
        ),
    ],
)
def test_who_is_verified_is_as_in_kuma(
    tls: dict[str, Any], verified: bool, names: list[str], sni: str
) -> None:  # a value of a table
    spoken = endpoints(world(external(PAYMENTS, "example.com:443", {"enabled": True, **tls})))[0].tls

    assert spoken is not None
    assert (spoken.verified, [name.value for name in spoken.names], spoken.sni) == (verified, names, sni)


def test_a_certificate_of_the_client_without_its_key_is_not_shown() -> None:
    tls = {"enabled": True, "clientCert": {"file": "/certificate"}}
    spoken = endpoints(world(external(PAYMENTS, "example.com:443", tls)))[0].tls

    assert spoken is not None
    assert spoken.certificate is None


def test_an_address_of_ipv6_stands_in_brackets() -> None:
    assert [(each.address, each.port) for each in endpoints(world(external("six", "[2001:db8::1]:443")))] == [
        ("2001:db8::1", 443)
    ]


def test_it_is_read_again_only_when_it_changes() -> None:
    before = world(OUTSIDE)
    service = before.get(OUTSIDE.key)
    assert service is not None

    first = outside(before, service)

    assert outside(before.next({SERVED.key: SERVED}, 1), service) is first


@pytest.mark.parametrize("first", [[], [OUTSIDE], [SERVED], [OUTSIDE, SERVED]])
@pytest.mark.parametrize("then", [[], [OUTSIDE], [SERVED], [OUTSIDE, SERVED]])
def test_whatever_comes_or_goes_it_is_as_if_it_had_always_been_so(first: list[Document], then: list[Document]) -> None:
    compiler, before = Compiler(policies()), world(*first)
    compiler.snapshot(before, web(before))
    changes = {each.key: (each if each in then else None) for each in (OUTSIDE, SERVED)}
    after = before.next(changes, 1)

    assert compiler.snapshot(after, web(after)) == Compiler(policies()).snapshot(after.afresh(), web(after))


LEGACY: Final = document("Mesh", "default", policyEngine="Legacy")
MAIL: Final = dataplane("mail-1", "10.0.0.3", "mail", PAYMENTS)


def permission(name: str, source: dict[str, str], destination: dict[str, str], created: str = "") -> Document:
    key = Key("TrafficPermission", "default", name)
    data = {"type": key.type, "mesh": "default", "name": name}
    sides = {"sources": [{"match": source}], "destinations": [{"match": destination}]}
    return Document(key, {**data, **sides}, Source(created=created))


def callers(of: World, compiler: Compiler | None = None) -> set[str]:
    """Those who have a cluster for the ExternalService."""
    compiler = compiler or Compiler(policies())
    dataplanes = [of.get(WEB.key), of.get(MAIL.key)]
    having = (each for each in dataplanes if each is not None and PAYMENTS in _clusters_of(compiler, of, each))
    return {each.name for each in having}


def _clusters_of(compiler: Compiler, of: World, proxy: Resource) -> set[str]:
    return {packed.name for packed in compiler.snapshot(of, proxy).of(CLUSTER)}


def of_engine(mesh: Document, *documents: Document) -> World:
    made = World.of([mesh, WEB, MAIL, *documents], kinds(policies()))
    assert not list(made.findings)
    return made


ANY: Final = {"kuma.io/service": "*"}
TO_PAYMENTS: Final = {"kuma.io/service": PAYMENTS}
FROM_WEB: Final = {"kuma.io/service": "web"}
ALLOW_ALL: Final = permission("allow-all", ANY, ANY)
WEB_ALONE: Final = permission("web-alone", FROM_WEB, TO_PAYMENTS)


@pytest.mark.parametrize(
    ("mesh", "permissions", "who"),
    [
        pytest.param(MESH, [], {"web", "mail-1"}, id="everybody without an engine of the old kind"),
        pytest.param(MESH, [WEB_ALONE], {"web", "mail-1"}, id="permissions mean nothing there"),
        pytest.param(LEGACY, [], set(), id="nobody without a permission"),
        pytest.param(LEGACY, [ALLOW_ALL], {"web", "mail-1"}, id="everybody by the usual one"),
        pytest.param(LEGACY, [ALLOW_ALL, WEB_ALONE], {"web"}, id="the more specific one alone holds"),
        pytest.param(LEGACY, [permission("other", ANY, {"kuma.io/service": "other"})], set(), id="one for others"),
    ],
)
def test_who_may_call_it_is_said_by_the_engine_and_the_best_permission(
    mesh: Document, permissions: list[Document], who: set[str]
) -> None:
    assert callers(of_engine(mesh, OUTSIDE, *permissions)) == who


def test_of_two_permissions_of_one_rank_the_newest_holds() -> None:
    old = permission("z", ANY, TO_PAYMENTS, "2024-01-01T00:00:00Z")
    new = permission("a", FROM_WEB, TO_PAYMENTS, "2025-01-01T00:00:00Z")

    assert callers(of_engine(LEGACY, OUTSIDE, old, new)) == {"web"}


def test_permissions_tell_external_services_apart_by_their_tags() -> None:
    secret = external("secret", "secret.example.com:80", version="secret")
    to_secret = permission("secret", FROM_WEB, {**TO_PAYMENTS, "version": "secret"})
    made = of_engine(LEGACY, OUTSIDE, secret, ALLOW_ALL, to_secret)
    compiler = Compiler(policies())

    def called(key: Key) -> set[str]:
        proxy = made.get(key)
        assert proxy is not None
        backend = next(iter(compiler.proxy(made, proxy).proxy_class.backends.values()))
        site = backend.tasks[0].site
        return {endpoint.address for endpoint in site.external} if isinstance(site, Backend) else set()

    assert called(WEB.key) == {"example.com", "secret.example.com"}
    assert called(MAIL.key) == {"example.com"}


def test_calls_that_nobody_permits_are_answered_with_the_reason() -> None:
    made = of_engine(LEGACY, OUTSIDE)
    routes = [
        packed.body for packed in Compiler(policies()).snapshot(made, web(made)).of(ROUTES) if packed.name == PAYMENTS
    ]

    assert b"no TrafficPermission lets this proxy call it" in b"".join(routes)
    assert {"nobody-may-call"} <= {found.code for found in lint(policies(), made)}


@pytest.mark.parametrize("first", [[], [OUTSIDE], [OUTSIDE, ALLOW_ALL], [OUTSIDE, ALLOW_ALL, WEB_ALONE]])
@pytest.mark.parametrize("then", [[], [OUTSIDE], [OUTSIDE, ALLOW_ALL], [OUTSIDE, WEB_ALONE]])
def test_permissions_come_and_go_as_if_they_had_always_been_so(first: list[Document], then: list[Document]) -> None:
    compiler, before = Compiler(policies()), of_engine(LEGACY, *first)
    callers(before, compiler)
    after = before.next({each.key: (each if each in then else None) for each in (OUTSIDE, ALLOW_ALL, WEB_ALONE)}, 1)

    assert callers(after, compiler) == callers(after.afresh())
    assert compiler.snapshot(after, web(after)) == Compiler(policies()).snapshot(after.afresh(), web(after))
