"""What a service outside the mesh comes to: its certificates and keys, and who gets to see them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

import pytest
import trustme
import yaml
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from cp.api.envoy_json import as_data
from cp.model.names import Key
from cp.model.source import read_documents
from cp.policies import kinds
from cp.resources.secret import secret_document
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.packing import CLUSTER, LISTENER, ROUTES, SECRET
from cp.translate.view.outside import ExternalDestination, outside
from tests.snapshots import policies

CLIENT: Final = trustme.CA().issue_cert("client.example.com")
OTHER: Final = trustme.CA().issue_cert("other.example.com")
CHAIN: Final = CLIENT.cert_chain_pems[0].bytes()
KEY: Final = CLIENT.private_key_pem.bytes()
LOCKED: Final = load_pem_private_key(KEY, None).private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")
)
WEB: Final = {
    "address": "127.0.0.1",
    "inbound": [{"port": 80, "tags": {"kuma.io/service": "web"}}],
    "outbound": [{"port": 10001, "backendRef": {"kind": "MeshExternalService", "name": "api"}}],
}


def world_of(verification: dict[str, Any] | None = None, **secrets: bytes) -> World:
    """A service that is called over TLS, a proxy that calls it, and some secrets."""
    tls = {"enabled": True, "verification": verification or {}}
    spec = {
        "match": {"port": 443, "protocol": "http"},
        "endpoints": [{"address": "api.example.com", "port": 443}],
        "tls": tls,
    }
    documents = [
        {"type": "Mesh", "name": "default"},
        {"type": "MeshExternalService", "mesh": "default", "name": "api", "spec": spec},
        {"type": "Dataplane", "mesh": "default", "name": "web-1", "networking": WEB},
        *({"type": "Secret", "mesh": "default", "name": n, "data": b64encode(v).decode()} for n, v in secrets.items()),
    ]
    world = World.of(read_documents(yaml.safe_dump_all(documents)).documents, kinds(policies()))
    assert not list(world.findings)
    return world


def outside_in(world: World) -> ExternalDestination:
    service = world.get(Key("MeshExternalService", "default", "api"))
    assert service is not None
    return outside(world, service)


def shows(certificate: str = "chain", key: str = "key") -> dict[str, Any]:
    return {"clientCert": {"secret": certificate}, "clientKey": {"secret": key}}


@pytest.mark.parametrize(
    ("chain", "key", "faults"),
    [
        pytest.param(CHAIN, KEY, [], id="a certificate and its key"),
        pytest.param(CHAIN + KEY, KEY, [], id="a key beside the certificate"),
        pytest.param(CHAIN, OTHER.private_key_pem.bytes(), ["clientKey"], id="the key of another"),
        pytest.param(CHAIN, LOCKED, ["clientKey"], id="a key with a password"),
        pytest.param(b"\xff\xfe", KEY, ["clientCert"], id="no text"),
        pytest.param(b"", b"", ["clientCert", "clientKey"], id="nothing"),
        pytest.param(KEY, CHAIN, ["clientCert", "clientKey"], id="one for the other"),
    ],
)
def test_a_client_needs_a_certificate_and_its_key(chain: bytes, key: bytes, faults: list[str]) -> None:
    found = outside_in(world_of(shows(), chain=chain, key=key)).faults

    assert [fault.path for fault in found] == [f"spec.tls.verification.{name}" for name in faults]


def test_only_certificates_are_taken_out_of_where_a_key_is_too() -> None:
    tls = outside_in(world_of({**shows(), "caCert": {"secret": "chain"}}, chain=KEY + CHAIN, key=KEY)).tls

    assert tls is not None
    assert tls.certificate is not None
    assert tls.ca is not None
    assert (tls.certificate.text.encode(), tls.ca.text.encode()) == (CHAIN, CHAIN)


def test_a_private_key_is_in_one_secret_and_in_nothing_that_is_shown() -> None:
    world = world_of({**shows(), "caCert": {"secret": "chain"}}, chain=KEY + CHAIN, key=KEY)
    dataplane = world.get(Key("Dataplane", "default", "web-1"))
    assert dataplane is not None
    proxy = Compiler(policies()).proxy(world, dataplane)
    marked = KEY.splitlines()[1]

    served = {one.name for part in proxy.snapshot.parts for one in part if marked in one.body}
    assert served == {"kri_extsvc_default___api_443:identity"}
    assert marked.decode() not in str(as_data(proxy.snapshot, (CLUSTER, LISTENER, ROUTES, SECRET)))
    assert marked.decode() not in repr(proxy)
    assert marked.decode() not in repr(outside_in(world))


def test_what_is_wrong_with_a_secret_is_told_without_what_it_says() -> None:
    faults = outside_in(world_of(shows(), chain=KEY, key=b"a password of somebody's")).faults

    assert faults
    assert all("password of somebody" not in str(fault) for fault in faults)
    assert all(line.decode() not in str(fault) for fault in faults for line in KEY.splitlines())


@pytest.mark.parametrize(
    "name",
    [
        "default.ca-builtin-key-ca-1",
        "dataplane-token-signing-key-default-1",
        "dataplane-token-revocations-default",
        "default.ca-trust",
        "frontend.identity-trust",
    ],
)
def test_what_is_the_control_plane_s_own_is_never_sent_to_proxies(name: str) -> None:
    found = outside_in(world_of(shows(key=name), chain=CHAIN, **{name: KEY}))

    assert [fault.path for fault in found.faults] == ["spec.tls.verification.clientKey.secret"]
    assert f"the Secret `{name}` is the control plane's own" in found.reason
    assert found.tls is not None
    assert found.tls.key is None


def test_the_key_of_a_mesh_identity_is_known_by_who_made_it() -> None:
    """Its name is one that people may choose."""
    names = shows("web-root-ca", "web-private-key")
    theirs = world_of(names, **{"web-root-ca": CHAIN, "web-private-key": KEY})
    key = Key("Secret", "default", "web-private-key")
    made = theirs.next({key: secret_document(key, KEY)}, 1)

    assert not outside_in(theirs).faults
    assert [fault.path for fault in outside_in(made).faults] == ["spec.tls.verification.clientKey.secret"]


def test_it_is_read_again_only_when_it_or_one_of_its_secrets_changes() -> None:
    world = world_of(shows(), chain=CHAIN, key=KEY, unrelated=b"x")
    first = outside_in(world)

    def after(name: str, value: bytes) -> ExternalDestination:
        document = {"type": "Secret", "mesh": "default", "name": name, "data": b64encode(value).decode()}
        (changed,) = read_documents(yaml.safe_dump(document)).documents
        return outside_in(world.next({changed.key: changed}, 1))

    assert after("unrelated", b"y") is first
    assert after("key", OTHER.private_key_pem.bytes()).faults
