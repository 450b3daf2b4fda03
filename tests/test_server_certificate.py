"""The certificate of the control plane's own servers: made, given, renewed, read again."""

from __future__ import annotations

import datetime as dt
import errno
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
import structlog
import trustme
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from cp.serving import own_authority
from cp.serving.own_names import own_names
from cp.serving.server_certificate import (
    CertificateFiles,
    ServedCertificate,
    ServerCertificate,
    UnusableCertificate,
    certificate_files,
    read,
)
from cp.settings import BadSettings, load

NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def made(folder: Path) -> CertificateFiles:
    return certificate_files(load(work_dir=folder))


def given(folder: Path, *names: str, common: str = "given") -> CertificateFiles:
    authority = trustme.CA()
    certificate = authority.issue_cert(*names, common_name=common)
    files = CertificateFiles(folder / "a.crt", folder / "a.key", folder / "ca.crt")
    certificate.private_key_pem.write_to_path(files.key)
    (folder / "a.crt").write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    authority.cert_pem.write_to_path(folder / "ca.crt")
    return files


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """A handshake in memory; raises what a client would."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller = client.wrap_bio(to_client, to_server, server_hostname=host)
    called = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [caller, called]
    while waiting:
        for end in tuple(waiting):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(end)
    return caller


def trusting(certificate: ServerCertificate) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=certificate.current.trusted)


@pytest.mark.parametrize("host", sorted(NAMES))
def test_clients_that_trust_the_authority_take_the_certificate_that_is_made(tmp_path: Path, host: str) -> None:
    certificate = ServerCertificate.begun(made(tmp_path), NAMES)

    assert handshake(certificate.context, trusting(certificate), host).version() == "TLSv1.3"


def test_a_client_that_calls_another_name_does_not(tmp_path: Path) -> None:
    certificate = ServerCertificate.begun(made(tmp_path), NAMES)

    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(certificate.context, trusting(certificate), "elsewhere")


def test_tls_1_1_is_not_spoken(tmp_path: Path) -> None:
    assert ServerCertificate.begun(made(tmp_path), NAMES).context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    ServerCertificate.begun(made(tmp_path), NAMES)

    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert modes == {
        "koguma-cp-ca.crt": 0o644,
        "koguma-cp-ca.key": 0o600,
        "koguma-cp.crt": 0o644,
        "koguma-cp.key": 0o600,
    }


def test_a_second_start_takes_what_is_there(tmp_path: Path) -> None:
    before = ServerCertificate.begun(made(tmp_path), NAMES).current

    assert ServerCertificate.begun(made(tmp_path), NAMES).current == before


def test_a_name_that_is_new_is_added_and_the_authority_stays(tmp_path: Path) -> None:
    before = ServerCertificate.begun(made(tmp_path), NAMES).current
    after = ServerCertificate.begun(made(tmp_path), frozenset({"10.0.0.7"})).current

    assert after.names == NAMES | {"10.0.0.7"}
    assert after.trusted == before.trusted


def test_it_is_renewed_when_a_third_of_its_life_is_left(tmp_path: Path) -> None:
    def serial(now: dt.datetime) -> int:
        own_authority.ensure_certificate(tmp_path, NAMES, now)
        return x509.load_pem_x509_certificate((tmp_path / own_authority.CERTIFICATE).read_bytes()).serial_number

    two_thirds = NOW + own_authority.LIFE * 2 / 3
    first = serial(NOW)
    assert serial(two_thirds - dt.timedelta(hours=1)) == first
    assert serial(two_thirds + dt.timedelta(hours=1)) != first


def _names(folder: Path) -> tuple[str, ...]:
    content = (folder / own_authority.CERTIFICATE).read_bytes()
    return tuple(own_authority.names_of(x509.load_pem_x509_certificate(content)))


def test_names_of_earlier_certificates_stay_when_it_is_renewed(tmp_path: Path) -> None:
    own_authority.ensure_certificate(tmp_path, {"10.0.0.7"}, NOW)
    own_authority.ensure_certificate(tmp_path, NAMES, NOW)

    own_authority.ensure_certificate(tmp_path, NAMES, NOW + own_authority.LIFE)

    assert set(_names(tmp_path)) == NAMES | {"10.0.0.7"}


def test_of_many_earlier_names_the_newest_stay(tmp_path: Path) -> None:
    for day in range(70):
        own_authority.ensure_certificate(tmp_path, {"cp.example", f"10.0.0.{day}"}, NOW)

    assert set(_names(tmp_path)) == {"cp.example", *(f"10.0.0.{day}" for day in range(5, 70))}


def test_a_name_that_no_certificate_can_have_is_told_and_the_authority_is_not_blamed(tmp_path: Path) -> None:
    with pytest.raises(
        UnusableCertificate, match=r"the name `bücher\.example` cannot stand in a certificate"
    ) as raised:
        ServerCertificate.begun(made(tmp_path), NAMES | {"bücher.example"})

    assert "remove" not in str(raised.value)


def test_it_lasts_no_longer_than_its_authority_and_is_not_made_again_for_that(tmp_path: Path) -> None:
    own_authority.ensure_certificate(tmp_path, NAMES, NOW)
    authority = x509.load_pem_x509_certificate((tmp_path / own_authority.AUTHORITY).read_bytes())
    late = authority.not_valid_after_utc - dt.timedelta(days=2)

    own_authority.ensure_certificate(tmp_path, NAMES, late)
    made_late = (tmp_path / own_authority.CERTIFICATE).read_bytes()
    own_authority.ensure_certificate(tmp_path, NAMES, late)

    assert x509.load_pem_x509_certificate(made_late).not_valid_after_utc == authority.not_valid_after_utc
    assert (tmp_path / own_authority.CERTIFICATE).read_bytes() == made_late


def test_a_certificate_that_was_cut_short_is_made_again(tmp_path: Path) -> None:
    ServerCertificate.begun(made(tmp_path), NAMES)
    (tmp_path / own_authority.CERTIFICATE).write_text("-----BEGIN")

    assert ServerCertificate.begun(made(tmp_path), NAMES).current.names == NAMES


def test_an_authority_without_its_key_is_told_with_what_to_do(tmp_path: Path) -> None:
    ServerCertificate.begun(made(tmp_path), NAMES)
    (tmp_path / "koguma-cp-ca.key").write_text("nothing")

    with pytest.raises(UnusableCertificate, match=r"remove koguma-cp-ca\.crt"):
        ServerCertificate.begun(made(tmp_path), NAMES | {"more"})


def test_an_authority_whose_key_is_gone_is_told_with_what_to_do(tmp_path: Path) -> None:
    ServerCertificate.begun(made(tmp_path), NAMES)
    (tmp_path / "koguma-cp-ca.key").unlink()

    with pytest.raises(UnusableCertificate, match=r"koguma-cp-ca\.key is missing; remove koguma-cp-ca\.crt"):
        ServerCertificate.begun(made(tmp_path), NAMES | {"more"})


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(UnusableCertificate, match=f"no certificate can be made in {tmp_path}/file: File exists"):
        ServerCertificate.begun(made(tmp_path / "file"), NAMES)


def test_a_worker_reads_and_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnusableCertificate, match=r"koguma-cp\.crt cannot be read: No such file"):
        ServerCertificate.begun(made(tmp_path))


def test_files_that_change_are_in_force_for_new_connections(tmp_path: Path) -> None:
    certificate = ServerCertificate.begun(given(tmp_path, "one.example"))
    given(tmp_path, "two.example")

    certificate.look()

    assert certificate.current.names == {"two.example"}
    assert handshake(certificate.context, trusting(certificate), "two.example").version()


def test_files_that_become_unusable_change_nothing(tmp_path: Path) -> None:
    certificate = ServerCertificate.begun(given(tmp_path, "one.example"))
    (tmp_path / "a.key").write_text("nothing")

    certificate.look()

    assert certificate.current.names == {"one.example"}
    given(tmp_path, "two.example")
    certificate.look()
    assert certificate.current.names == {"two.example"}


def _raising(error: Exception) -> Callable[..., NoReturn]:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail


FAILURES = {
    "the disk is full": ("tempfile.TemporaryDirectory", OSError(errno.ENOSPC, "No space left on device")),
    "a key of a kind that the library does not know": ("load_pem_private_key", UnsupportedAlgorithm("curve")),
    "a certificate whose names cannot be read": ("own_authority.names_of", ValueError("error parsing asn1 value")),
    "an extension twice": (
        "own_authority.names_of",
        x509.DuplicateExtension("twice", x509.SubjectAlternativeName.oid),
    ),
    "names of a sort that is unknown": ("own_authority.names_of", x509.UnsupportedGeneralNameType("x400")),
    "a certificate of a version that is unknown": (
        "x509.load_pem_x509_certificates",
        x509.InvalidVersion("no such version", 9),
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_whatever_is_wrong_with_files_that_change_nothing_changes_and_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    where, error = FAILURES[failure]
    certificate = ServerCertificate.begun(given(tmp_path, "one.example"))
    given(tmp_path, "two.example")
    with structlog.testing.capture_logs() as logs, monkeypatch.context() as patches:
        patches.setattr(f"cp.serving.server_certificate.{where}", _raising(error))
        certificate.look()
        certificate.look()

    assert [entry["event"] for entry in logs] == ["certificate.unusable"]
    assert certificate.current.names == {"one.example"}


def test_an_extension_that_is_garbage_is_told(tmp_path: Path) -> None:
    files, key = given(tmp_path, "one.example"), ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([])
    garbage = x509.UnrecognizedExtension(x509.SubjectAlternativeName.oid, b"garbage")
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW + dt.timedelta(days=36500))
        .add_extension(garbage, critical=False)
        .sign(key, hashes.SHA256())
    )
    files.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    with pytest.raises(UnusableCertificate, match=r"a\.crt and .*a\.key cannot be used"):
        read(files)


@pytest.mark.parametrize("error", [UnsupportedAlgorithm("curve"), x509.InvalidVersion("no such version", 9)])
def test_a_renewal_that_fails_is_told_and_the_certificate_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    certificate = ServerCertificate.begun(made(tmp_path), NAMES)
    (tmp_path / own_authority.CERTIFICATE).unlink()
    monkeypatch.setattr(own_authority, "load_pem_private_key", _raising(error))

    with structlog.testing.capture_logs() as logs:
        certificate.renew()

    assert [entry["event"] for entry in logs] == ["certificate.unusable"]


def test_files_that_change_while_they_are_read_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_and_replaced(files: CertificateFiles) -> ServedCertificate:
        before = read(files)
        given(tmp_path, "two.example")
        return before

    files = given(tmp_path, "one.example")
    with monkeypatch.context() as patches:
        patches.setattr("cp.serving.server_certificate.read", read_and_replaced)
        certificate = ServerCertificate.begun(files)
    assert certificate.current.names == {"one.example"}

    certificate.look()

    assert certificate.current.names == {"two.example"}


def test_a_key_is_in_no_text_of_a_certificate(tmp_path: Path) -> None:
    certificate = read(given(tmp_path, "one.example"))

    assert "PRIVATE KEY" not in repr(certificate)


def test_what_is_renewed_here_is_in_force_without_a_restart(tmp_path: Path) -> None:
    certificate = ServerCertificate.begun(made(tmp_path), NAMES)
    before = certificate.current
    (tmp_path / own_authority.CERTIFICATE).unlink()

    certificate.renew()
    certificate.look()

    assert certificate.current.chain != before.chain
    assert certificate.current.trusted == before.trusted


def test_a_file_that_cannot_be_used_is_named_with_the_reason(tmp_path: Path) -> None:
    def fault() -> str:
        with pytest.raises(UnusableCertificate) as raised:
            read(files)
        return str(raised.value).replace(f"{tmp_path}/", "")

    files = given(tmp_path, "one.example")
    (tmp_path / "ca.crt").write_bytes((tmp_path / "a.crt").read_bytes())
    assert fault() == "ca.crt has no certificate of an authority (CA:TRUE) in it"
    (tmp_path / "ca.crt").write_text("nothing")
    assert fault() == "ca.crt has no certificate in PEM in it"
    trustme.CA().issue_cert("other").private_key_pem.write_to_path(tmp_path / "a.key")
    assert fault() == "a.key is not the key of the certificate in a.crt"
    (tmp_path / "a.key").write_text("nothing")
    assert fault() == "a.key has no private key in PEM without a password"
    (tmp_path / "a.crt").unlink()
    assert fault() == "a.crt cannot be read: No such file or directory"


def test_an_expired_certificate_is_told(tmp_path: Path) -> None:
    files = given(tmp_path, "one.example")
    old = trustme.CA().issue_cert("one.example", not_after=NOW - dt.timedelta(days=1))
    old.private_key_pem.write_to_path(files.key)
    old.cert_chain_pems[0].write_to_path(files.certificate)

    with pytest.raises(UnusableCertificate, match="expired on 2025-12-31"):
        read(files)


def test_a_root_at_the_end_of_the_chain_is_what_clients_trust(tmp_path: Path) -> None:
    files = given(tmp_path, "one.example")
    root = (tmp_path / "ca.crt").read_bytes()
    alone = CertificateFiles(files.certificate, files.key, None)
    assert read(alone).trusted == ""

    files.certificate.write_bytes(files.certificate.read_bytes() + root)
    assert read(alone).trusted.strip() == root.decode().strip()


def test_a_certificate_is_for_its_names_and_for_those_below_an_asterisk(tmp_path: Path) -> None:
    certificate = read(given(tmp_path, "One.example", "*.two.example", "10.0.0.7", "fd00::1"))

    assert all(map(certificate.is_for, ("one.example", "ONE.example", "a.two.example", "10.0.0.7", "fd00:0::1")))
    assert not any(map(certificate.is_for, ("two.example", "a.b.two.example", "10.0.0.8", "a.one.example")))


def test_the_names_of_a_control_plane_are_those_by_which_it_may_be_called(tmp_path: Path) -> None:
    settings = load(work_dir=tmp_path, bind="0.0.0.0", api_hosts="cp.example, *", xds_host="XDS.example")

    names = own_names(settings)

    assert {"cp.example", "xds.example", "localhost", "127.0.0.1", "::1", socket.gethostname().lower()} <= names
    assert not {"*", "0.0.0.0", ""} & names


def test_own_names_include_no_link_local_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = tmp_path / "if_inet6"
    addresses.write_text(f"{'fd00':0<31}7 02 40 00 80 eth0\n{'fe80':0<31}7 02 40 20 80 eth0\n")
    monkeypatch.setattr("cp.serving.own_names._IPV6_ADDRESSES", addresses)

    names = own_names(load(work_dir=tmp_path))

    assert "fd00::7" in names
    assert "fe80::7" not in names


@pytest.mark.parametrize("setting", ["tls_certificate", "tls_key"])
def test_a_certificate_and_its_key_are_given_together(setting: str) -> None:
    with pytest.raises(BadSettings, match="given together"):
        load(**{setting: Path("/a")})


def test_an_authority_is_given_together_with_its_certificate() -> None:
    with pytest.raises(BadSettings, match="KUMA_GENERAL_TLS_CA_FILE") as raised:
        load(tls_authority=Path("/a"))

    assert "KUMA_GENERAL_TLS_CERT_FILE" in str(raised.value)
    assert load(tls_certificate=Path("/a"), tls_key=Path("/b"), tls_authority=Path("/c")).tls_authority == Path("/c")
