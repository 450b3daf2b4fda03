"""The certificates of a gateway's listeners: whom Envoy can serve with them, and what is said where it cannot."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
import trustme
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from cp.api.envoy_json import as_data, short_names
from cp.model.names import Key
from cp.model.source import read_documents
from cp.policies import kinds
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.view.gateways import ServedGateway, served_gateway
from tests.snapshots import policies

CA: Final = trustme.CA()
OURS: Final = CA.issue_cert("shop.example.com")
CHAIN: Final = OURS.cert_chain_pems[0].bytes()
KEY: Final = OURS.private_key_pem.bytes()
OTHER: Final = CA.issue_cert("other.example.com")
LOCKED: Final = load_pem_private_key(KEY, None).private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")
)
ROOT: Final = CA.cert_pem.bytes()
SMALL: Final = rsa.generate_private_key(65537, 1024)  # noqa: S505  # it is to be refused
EDGE: Final = {"address": "127.0.0.1", "gateway": {"type": "BUILTIN", "tags": {"kuma.io/service": "edge"}}}


def https(*certificates: dict[str, str], hostname: str = "*", port: int = 8443) -> dict[str, Any]:
    tls = {"mode": "TERMINATE", "certificates": list(certificates)}
    return {"port": port, "protocol": "HTTPS", "hostname": hostname, "tls": tls}


def world_of(*listeners: dict[str, Any], **secrets: bytes) -> World:
    documents = [
        {"type": "Mesh", "name": "default"},
        {"type": "Dataplane", "mesh": "default", "name": "edge-1", "networking": EDGE},
        {
            "type": "MeshGateway",
            "mesh": "default",
            "name": "edge",
            "selectors": [{"match": {"kuma.io/service": "edge"}}],
            "conf": {"listeners": list(listeners)},
        },
        *({"type": "Secret", "mesh": "default", "name": n, "data": b64encode(v).decode()} for n, v in secrets.items()),
    ]
    world = World.of(read_documents(yaml.safe_dump_all(documents)).documents, kinds(policies()))
    assert not [finding for finding in world.findings if finding.severity == "error"]
    return world


def served(*listeners: dict[str, Any], **secrets: bytes) -> ServedGateway:
    world = world_of(*listeners, **secrets)
    gateway = world.get(Key("MeshGateway", "default", "edge"))
    assert gateway is not None
    return served_gateway(world, gateway)


def self_signed(key: Any, *names: str) -> bytes:
    """A certificate for a key of any sort, with the key."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each) for each in names])
    signer = ec.generate_private_key(ec.SECP256R1())
    now = datetime(2030, 1, 1, tzinfo=UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 5, now, now + timedelta(days=1))
        .sign(signer, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )
    return certificate + bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"", "is no certificate", id="nothing"),
        pytest.param(b"\xff\xfe", "is no certificate", id="no text"),
        pytest.param(KEY, "is no certificate", id="a key alone"),
        pytest.param(CHAIN, "has no private key", id="a certificate alone"),
        pytest.param(CHAIN + LOCKED, "with a password", id="a key with a password"),
        pytest.param(CHAIN + OTHER.private_key_pem.bytes(), "that of the first", id="the key of another"),
        pytest.param(ROOT + CHAIN + KEY, "that of the first", id="the authority first"),
        pytest.param(self_signed(SMALL, "a.example"), "Envoy does not take", id="a small key"),
        pytest.param(
            self_signed(ec.generate_private_key(ec.SECP224R1()), "a.example"), "Envoy does not take", id="a rare curve"
        ),
        pytest.param(self_signed(dsa.generate_private_key(2048), "a.example"), "Envoy does not take", id="DSA"),
        pytest.param(self_signed(ec.generate_private_key(ec.SECP256R1())), "is for no name", id="no name"),
    ],
)
def test_a_listener_whose_certificate_cannot_be_used_is_left_out_and_the_others_are_served(
    content: bytes, words: str
) -> None:
    broken, whole = https({"secret": "broken"}, hostname="a.example.com"), https({"secret": "whole"})

    gateway = served(broken, whole, broken=content, whole=KEY + CHAIN)

    assert [listener.hostname for port in gateway.ports for listener in port.listeners] == ["*"]
    [fault] = gateway.faults
    assert fault.path == "conf.listeners[0].tls.certificates[0]"
    assert words in fault.message


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(CHAIN + KEY, id="the certificate first"),
        pytest.param(KEY + CHAIN, id="the key first"),
        pytest.param(CHAIN + ROOT + KEY, id="with its authority"),
        pytest.param(b"a comment\n" + CHAIN + b"another\n" + KEY, id="with comments"),
        pytest.param(self_signed(ec.generate_private_key(ec.SECP384R1()), "a.example"), id="another curve"),
    ],
)
def test_a_secret_has_the_certificates_and_the_key_in_one_text(content: bytes) -> None:
    gateway = served(https({"secret": "mine"}), mine=content)

    assert not gateway.faults
    [certificate] = gateway.ports[0].listeners[0].certificates
    assert "PRIVATE KEY" not in certificate.certificate.text
    assert certificate.key.text.startswith("-----BEGIN ")
    assert "CERTIFICATE" not in certificate.key.text


def test_certificates_also_come_from_the_document_or_from_a_file_of_the_gateway() -> None:
    text = CHAIN + KEY
    sources = [
        {"inline": b64encode(text).decode()},
        {"inlineString": text.decode()},
        {"file": "/etc/edge/shop.pem"},
    ]

    gateway = served(*(https(source, port=8443 + index) for index, source in enumerate(sources)))

    assert not gateway.faults
    inline, string, file = (port.listeners[0].certificates[0] for port in gateway.ports)
    assert inline.certificate == string.certificate
    assert inline.key == string.key
    assert file.certificate.file == file.key.file == "/etc/edge/shop.pem"


def test_a_certificate_without_a_name_keeps_the_one_it_is_given_when_other_listeners_go() -> None:
    first = https({"secret": "mine"}, hostname="a.example.com")
    second = https({"inlineString": (CHAIN + KEY).decode()}, hostname="b.example.com")

    [name], [_, same] = (
        [certificate.name for listener in gateway.ports[0].listeners for certificate in listener.certificates]
        for gateway in (served(second), served(first, second, mine=CHAIN + KEY))
    )

    assert name == same


def test_a_secret_that_is_missing_is_a_fault_of_its_listener_alone() -> None:
    gateway = served(https({"secret": "gone"}, hostname="a.example.com"), https({"secret": "mine"}), mine=CHAIN + KEY)

    assert [fault.path for fault in gateway.faults] == ["conf.listeners[0].tls.certificates[0].secret"]
    assert [listener.hostname for listener in gateway.ports[0].listeners] == ["*"]


@pytest.mark.parametrize(
    ("protocol", "tls"),
    [
        ("HTTP", {"mode": "TERMINATE", "certificates": [{"secret": "mine"}]}),
        ("TCP", {"mode": "PASSTHROUGH"}),
        ("TLS", None),
    ],
)
def test_what_is_said_of_tls_has_to_go_with_the_protocol(protocol: str, tls: dict[str, Any] | None) -> None:
    odd = {"port": 8443, "protocol": protocol, **({} if tls is None else {"tls": tls})}

    gateway = served(odd, https({"secret": "mine"}, port=9443), mine=CHAIN + KEY)

    assert [fault.path for fault in gateway.faults] == ["conf.listeners[0].tls"]
    assert [port.port for port in gateway.ports] == [9443]


def test_no_key_of_a_gateway_is_shown() -> None:
    world = world_of(https({"secret": "mine"}), mine=CHAIN + KEY)
    edge = world.get(Key("Dataplane", "default", "edge-1"))
    assert edge is not None
    compiled = Compiler(policies()).proxy(world, edge)

    shown = short_names(as_data(compiled.snapshot))

    [secret] = shown["secrets"].values()
    assert secret["tlsCertificate"]["privateKey"] == {"inlineString": "[redacted]"}
    for line in KEY.decode().splitlines()[1:-1]:
        assert line not in repr((shown, compiled, served(https({"secret": "mine"}), mine=CHAIN + KEY)))
