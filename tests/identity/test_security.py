"""mTLS of a mesh, and who its proxies are, as it follows from the documents."""

from __future__ import annotations

from typing import Any

from cp.identity.identities import AuthorityRef, identity_of
from cp.identity.security import MeshSecurity, TrustBundle, security_of
from cp.identity.trust import TrustedRoot, TrustRecord, document_of
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.resource import Resource
from cp.resources.world import World

SERVICE = {"kuma.io/service": "web"}
KINDS = kinds(discover())
PEM = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n"


def mesh(**backend: Any) -> Document:
    backends = [{"name": "ca-1", "type": "builtin", **backend}]
    mtls = {"enabledBackend": "ca-1", "backends": backends}
    return Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default", "mtls": mtls})


def dataplane(*tags: dict[str, str], **networking: Any) -> Document:
    key = Key("Dataplane", "default", "web-1")
    inbound = [{"port": 8000 + index, "tags": of_inbound} for index, of_inbound in enumerate(tags)]
    networking = {"address": "127.0.0.1", **({"inbound": inbound} if inbound else {}), **networking}
    return Document(key, {"type": key.type, "mesh": key.mesh, "name": key.name, "networking": networking})


def record(*texts: str, callers: bool = False) -> Document:
    roots = tuple(
        TrustedRoot(fingerprint=text, certificate=PEM.format(text), backend="ca-1", since=0.0, lifetime=1.0)
        for text in texts
    )
    return document_of("default", TrustRecord(roots=roots, signer=texts[0], callers=callers))


def world(*documents: Document) -> World:
    return World.of(documents, KINDS)


def proxy(world: World) -> Resource:
    found = world.get(Key("Dataplane", "default", "web-1"))
    assert found is not None
    return found


def test_a_mesh_without_an_enabled_backend_has_no_security() -> None:
    plain = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})

    assert security_of(world(plain), "default") is None
    assert security_of(world(), "default") is None


def test_a_proxy_is_nobody_without_an_enabled_backend() -> None:
    of = world(Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"}), dataplane(SERVICE))

    assert identity_of(of, proxy(of)) is None


def test_nobody_is_trusted_before_there_is_a_record() -> None:
    assert security_of(world(mesh()), "default") == MeshSecurity(False, (), True)


def test_every_root_of_the_record_is_trusted_once() -> None:
    security = security_of(world(mesh(), record("AAAA", "BBBB", "AAAA")), "default")

    assert security is not None
    assert security.bundles == (TrustBundle("default", PEM.format("AAAA") + PEM.format("BBBB")),)


def test_callers_speak_tls_at_once_under_strict_and_once_it_is_recorded_under_permissive() -> None:
    def callers(*documents: Document) -> bool:
        security = security_of(world(*documents), "default")
        assert security is not None
        return security.callers_use_tls

    assert callers(mesh(mode="STRICT"), record("AAAA"))
    assert not callers(mesh(mode="PERMISSIVE"), record("AAAA"))
    assert callers(mesh(mode="PERMISSIVE"), record("AAAA", callers=True))


def test_a_record_that_nobody_can_read_trusts_nobody() -> None:
    key = Key("Secret", "default", "default.ca-trust")
    secret = Document(key, {"type": "Secret", "mesh": "default", "name": key.name, "data": "eHl6"})

    assert security_of(world(mesh(), secret), "default") == MeshSecurity(False, (), True)


def test_security_is_the_same_object_until_it_changes() -> None:
    proxy, other = dataplane(SERVICE), record("BBBB")
    first = world(mesh(), record("AAAA"))
    security = security_of(first, "default")
    second = first.next({proxy.key: proxy}, 2)

    assert security_of(second, "default") is security
    assert security_of(second.next({other.key: other}, 3), "default") != security


def test_a_proxy_is_called_by_its_services_and_by_each_of_its_tags() -> None:
    tags = {"kuma.io/service": "web", "version": "v2"}, {"kuma.io/service": "admin", "version": "v1"}
    of = world(mesh(), dataplane(*tags))

    identity = identity_of(of, proxy(of))

    assert identity is not None
    assert identity.uris == (
        "spiffe://default/admin",
        "spiffe://default/web",
        "kuma://kuma.io/service/admin",
        "kuma://kuma.io/service/web",
        "kuma://version/v1",
        "kuma://version/v2",
    )
    assert identity.authority == AuthorityRef("Mesh", "default", "ca-1")
    assert (identity.lifetime, identity.key) == (86_400.0, "EC")


def test_a_gateway_is_called_by_its_tags() -> None:
    of = world(mesh(), dataplane(gateway={"tags": {"kuma.io/service": "edge"}}))

    identity = identity_of(of, proxy(of))

    assert identity is not None
    assert identity.uris == ("spiffe://default/edge", "kuma://kuma.io/service/edge")


def test_the_backend_says_for_how_long_and_with_what_key() -> None:
    conf = {"dpCert": {"rotation": {"expiration": "2h"}}, "conf": {"caCert": {"rsaBits": 4096}}}
    of = world(mesh(**conf), dataplane(SERVICE))

    identity = identity_of(of, proxy(of))

    assert identity is not None
    assert (identity.lifetime, identity.key) == (7_200.0, "RSA2048")
