"""mTLS of a mesh, and who its proxies are, as it follows from the documents."""

from __future__ import annotations

from typing import Any

import pytest

from cp.identity.identities import AuthorityRef, identity_of
from cp.identity.security import MeshSecurity, TrustBundle, security_of
from cp.model.document import Document
from tests.identity.meshes import PEM, PLAIN, SERVICE, dataplane, mesh, proxy, record, secret, world


def test_a_mesh_without_an_enabled_backend_has_no_security() -> None:
    assert security_of(world(PLAIN), "default") is None
    assert security_of(world(), "default") is None


def test_a_proxy_is_nobody_without_an_enabled_backend() -> None:
    of = world(PLAIN, dataplane(SERVICE))

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
    assert security_of(world(mesh(), secret("default.ca-trust", b"xyz")), "default") == MeshSecurity(False, (), True)


def test_security_is_the_same_object_until_it_changes() -> None:
    newcomer, other = dataplane(SERVICE), record("BBBB")
    first = world(mesh(), record("AAAA"))
    security = security_of(first, "default")
    second = first.next({newcomer.key: newcomer}, 2)

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


@pytest.mark.parametrize("field", ["RSAbits", "rsaBits"])
def test_the_backend_says_for_how_long_and_with_what_key(field: str) -> None:
    """Kuma knows the first of the two alone."""
    conf: dict[str, Any] = {"dpCert": {"rotation": {"expiration": "2h"}}, "conf": {"caCert": {field: 4096}}}
    of = world(mesh(**conf), dataplane(SERVICE))

    identity = identity_of(of, proxy(of))

    assert identity is not None
    assert (identity.lifetime, identity.key) == (7_200.0, "RSA2048")
