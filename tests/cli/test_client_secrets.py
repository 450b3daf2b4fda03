"""`koguma dp certificates`: what it writes, what it accepts, and what it says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret

from cp.agent.certificate_folder import AUTHORITIES, CERTIFICATE, KEY, CertificateFolder, ClientSecrets
from cp.agent.client_secrets import ClientSecretSource, SecretKeeper
from cp.client.credentials import Credentials
from cp.client.problem import Problem
from cp.translate.packing import SECRET, PackedResource
from tests.ads.serving import Serving
from tests.support.authority import Authority, Certified
from tests.support.loopback import new_address
from tests.support.waiting import eventually

AUTHORITY = Authority()
NODE = "default.shop"


def packed(secret: Secret) -> PackedResource:
    return PackedResource.of(SECRET, secret.name, secret.SerializeToString(deterministic=True))


def identity(certified: Certified) -> PackedResource:
    secret = Secret(name="identity_cert:secret:default")
    secret.tls_certificate.certificate_chain.inline_string = certified.certificate.decode()
    secret.tls_certificate.private_key.inline_bytes = certified.key
    return packed(secret)


def trust(authority: Authority = AUTHORITY) -> PackedResource:
    secret = Secret(name="mesh_ca:secret:default")
    secret.validation_context.trusted_ca.inline_bytes = authority.certificate
    return packed(secret)


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (folder / "current").iterdir()}


def expected(certified: Certified, authority: Authority = AUTHORITY) -> dict[str, bytes]:
    return {CERTIFICATE: certified.certificate, KEY: certified.key, AUTHORITIES: authority.certificate}


@pytest.fixture
def serving() -> Iterator[Serving]:
    with Serving(new_address()) as serving:
        yield serving


@contextmanager
def kept(serving: Serving, folder: Path, messages: list[str], gone: str = "") -> Iterator[None]:
    """While this lasts: what the client is sent is kept in a folder. A control plane that is gone is asked first."""
    address = serving._options  # where it listens
    targets = [*filter(None, [gone]), f"{address.host}:{address.port}"]
    source = ClientSecretSource(targets[0], over_tls=False, mesh="default", node=NODE, fallbacks=tuple(targets[1:]))
    keeper = SecretKeeper(source, Credentials(), CertificateFolder(folder), messages.append, lambda: 0.1)
    ended = threading.Event()
    running = threading.Thread(target=keeper.run, args=(ended,))
    running.start()
    try:
        yield
    finally:
        ended.set()
        serving.stop()
        running.join(20)
        assert not running.is_alive()


def test_each_certificate_is_written_with_its_key_and_accepted_then(serving: Serving, tmp_path: Path) -> None:
    first, second = (AUTHORITY.leaf("spiffe://default/shop") for _ in range(2))
    messages = list[str]()
    serving.publish(NODE, identity(first), trust())
    with kept(serving, tmp_path / "shop", messages):
        serving.in_sync(NODE)
        assert files(tmp_path / "shop") == expected(first)

        serving.publish(NODE, identity(second), trust())
        serving.in_sync(NODE)
        assert files(tmp_path / "shop") == expected(second)

        other = Authority()
        serving.publish(NODE, identity(second), trust(other))
        serving.in_sync(NODE)
        assert files(tmp_path / "shop") == expected(second, other)

    assert len(messages) >= 3
    assert all("spiffe://default/shop" in message for message in messages[:3])
    assert not any("PRIVATE KEY" in message for message in messages)


def test_a_client_whose_control_plane_is_gone_gets_its_certificate_from_the_next(
    serving: Serving, tmp_path: Path
) -> None:
    leaf, messages = AUTHORITY.leaf("spiffe://default/shop"), list[str]()
    serving.publish(NODE, identity(leaf), trust())
    with kept(serving, tmp_path / "shop", messages, gone=str(new_address())):
        serving.in_sync(NODE)
        assert files(tmp_path / "shop") == expected(leaf)

    assert "cannot be reached" in messages[0]


def test_what_a_client_knows_of_control_planes_is_in_its_bootstrap() -> None:
    servers = [{"server_uri": f"cp-{number}:5678", "channel_creds": [{"type": "tls"}]} for number in (1, 2, 3)]
    source = ClientSecretSource.of({"xds_servers": servers, "node": {"id": NODE}}, "default", "")

    assert [source.target, source.next.target, source.next.next.target] == ["cp-1:5678", "cp-2:5678", "cp-3:5678"]
    assert source.next.next.next == source


def test_a_key_of_another_certificate_is_not_written(serving: Serving, tmp_path: Path) -> None:
    good, other = (AUTHORITY.leaf("spiffe://default/shop") for _ in range(2))
    messages = list[str]()
    serving.publish(NODE, identity(Certified(good.certificate, other.key)), trust())
    with kept(serving, tmp_path / "shop", messages):
        eventually(lambda: any("a key that is not that of the certificate" in message for message in messages))
        assert not (tmp_path / "shop").exists()

        def is_written() -> bool:
            serving.publish(NODE, identity(good), trust())
            return (tmp_path / "shop").exists() and files(tmp_path / "shop") == expected(good)

        eventually(is_written)


def test_readers_find_old_or_new_files_and_never_some_of_each(tmp_path: Path) -> None:
    folder = CertificateFolder(tmp_path / "shop")
    folder.write(ClientSecrets(b"c0", b"k0", b"a0"))
    before = (tmp_path / "shop" / "current").resolve()
    folder.write(ClientSecrets(b"c1", b"k1", b"a1"))
    folder.write(ClientSecrets(b"c2", b"k2", b"a2"))

    assert files(tmp_path / "shop") == {"certificate.pem": b"c2", "key.pem": b"k2", "authorities.pem": b"a2"}
    assert not before.exists(), "keys of long ago are not left behind"
    assert len(list((tmp_path / "shop").iterdir())) == 3, "the link, what it leads to, and what it led to before"
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "shop").rglob("*")} == {0}


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(Problem, match="certificates cannot be written to"):
        CertificateFolder(tmp_path / "file").write(ClientSecrets(b"c", b"k", b"a"))


def test_nobody_sees_the_key_of_a_client() -> None:
    assert "hidden" not in repr(ClientSecrets(b"c", b"hidden", b"a"))
