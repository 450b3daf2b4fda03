"""`koguma generate`: tokens from a control plane and without one, keys, and certificates in files."""

from __future__ import annotations

import os
import ssl
import stat
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from cp.access.keys import read_private_key
from tests.access.forge import pem, private_key, public_pem
from tests.cli.conftest import Koguma

HOUR = ("--valid-for", "1h")


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "key.pem"
    file.touch(mode=0o600)
    file.write_bytes(pem(private_key()))
    return file


@pytest.fixture
def with_keys(koguma: Koguma, tmp_path: Path) -> Koguma:
    """A control plane with a signing key that the test knows, which comes before those that it makes."""
    data = b64encode(pem(private_key())).decode()
    secrets = tmp_path / "secrets.yaml"
    secrets.write_text(
        f"{{type: Secret, mesh: default, name: dataplane-token-signing-key-default-8, data: {data}}}\n---\n"
        f"{{type: GlobalSecret, name: user-token-signing-key-8, data: {data}}}\n---\n"
        f"{{type: GlobalSecret, name: zone-token-signing-key-8, data: {data}}}\n"
    )
    assert koguma("apply", "-f", secrets).status == 0
    return koguma


def claims(token: str, kid: str) -> dict[str, Any]:
    assert jwt.get_unverified_header(token) == {"alg": "RS256", "kid": kid, "typ": "JWT"}
    decoded: dict[str, Any] = jwt.decode(token, public_pem(private_key()), ["RS256"])
    return {name: value for name, value in decoded.items() if name not in {"jti", "iat", "nbf", "exp"}}


PROXY = (
    "--name",
    "web-1",
    "--tag",
    "a=1,2",
    "--tag",
    "a=3",
    "--tag",
    "b=x=y",
    "--proxy-type",
    "dataplane",
    "--workload",
    "w",
)
SAID = {
    "Name": "web-1",
    "Mesh": "default",
    "Tags": {"a": ["1", "2", "3"], "b": ["x=y"]},
    "Type": "dataplane",
    "Workload": "w",
}


def test_a_control_plane_signs_tokens(with_keys: Koguma) -> None:
    proxy = with_keys("generate", "dataplane-token", *PROXY, *HOUR)
    person = with_keys("generate", "user-token", "--name", "jane", "--group", "a", "--group", "b", *HOUR)
    zone = with_keys("generate", "zone-token", "--zone", "east", "--scope", "cp", *HOUR)

    assert claims(proxy.out, "8") == SAID
    assert claims(person.out, "8") == {"Name": "jane", "Groups": ["a", "b"]}
    assert claims(zone.out, "8") == {"Zone": "east", "Scope": ["cp"]}


def test_a_control_plane_makes_the_key_that_it_needs(koguma: Koguma) -> None:
    result = koguma("generate", "dataplane-token", *HOUR)

    assert result.status == 0
    assert jwt.get_unverified_header(result.out)["kid"] == "1"
    assert "dataplane-token-signing-key-default-1" in koguma("get", "secrets").out


def test_a_new_control_plane_has_a_token_of_an_administrator_which_it_does_not_show(koguma: Koguma) -> None:
    listed = koguma("get", "globalsecrets", "-o", "yaml").out

    assert "name: admin-user-token" in listed
    assert "name: user-token-signing-key-1" in listed
    assert "data: '[redacted]'" in listed


def test_tokens_are_signed_without_a_control_plane(offline: Koguma, key_file: Path) -> None:
    sign = ("--signing-key-path", key_file, "--kid", "laptop", *HOUR)

    proxy = offline("generate", "dataplane-token", *PROXY, *sign)
    person = offline("generate", "user-token", "--name", "jane", *sign)
    zone = offline("generate", "zone-token", "--zone", "east", *sign)

    assert claims(proxy.out, "laptop") == SAID
    assert claims(person.out, "laptop") == {"Name": "jane", "Groups": []}
    assert claims(zone.out, "laptop") == {"Zone": "east", "Scope": []}
    assert [result.err for result in (proxy, person, zone)] == ["", "", ""]


def test_behind_a_token_no_line_ends(offline: Koguma, key_file: Path) -> None:
    result = offline("generate", "dataplane-token", *HOUR, "--signing-key-path", key_file, "--kid", "1")

    assert result.out == result.out.strip()


def test_a_signing_key_that_others_can_read_is_told(offline: Koguma, key_file: Path) -> None:
    key_file.chmod(0o640)

    result = offline("generate", "dataplane-token", *HOUR, "--signing-key-path", key_file, "--kid", "1")

    assert result.status == 0
    assert result.err.startswith(f"Warning: {key_file} can be read by others")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--kid", "1"), "--signing-key-path and --kid belong together"),
        (("--signing-key-path", "KEY"), "--signing-key-path and --kid belong together"),
        (("--signing-key-path", "/nowhere", "--kid", "1"), "/nowhere cannot be read: No such file or directory"),
        (("--signing-key-path", "TEXT", "--kid", "1"), "is not an RSA key of at least 2048 bits"),
        (("--tag", "a", "--signing-key-path", "KEY", "--kid", "1"), "`a` is not a tag"),
        (("--tag", "a=", "--signing-key-path", "KEY", "--kid", "1"), "`a=` is not a tag"),
        (
            ("--proxy-type", "car", "--mesh", "", "--signing-key-path", "KEY", "--kid", "1"),
            "mesh: must be set; a token is for the proxies of one mesh\n  type: `car` is not one of dataplane, ingress",
        ),
    ],
)
def test_what_is_wrong_is_told_without_a_token(
    offline: Koguma, key_file: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "text").write_text("SECRET TEXT")
    files = {"KEY": str(key_file), "TEXT": str(tmp_path / "text")}

    result = offline("generate", "dataplane-token", *HOUR, *(files.get(argument, argument) for argument in arguments))

    assert (result.status, result.out) == (1, "")
    assert message in result.err
    assert "SECRET" not in result.err


def test_the_faults_that_a_control_plane_finds_are_told(koguma: Koguma) -> None:
    result = koguma("generate", "dataplane-token", "--mesh", "nowhere", "--valid-for", "1h")

    assert (result.status, result.out) == (1, "")
    assert "there is no Mesh `nowhere`" in result.err


@pytest.mark.parametrize("command", ["dataplane-token", "user-token", "zone-token"])
def test_how_long_a_token_is_good_has_to_be_said(offline: Koguma, command: str) -> None:
    result = offline("generate", command, "--name" if command != "zone-token" else "--zone", "x")

    assert result.status != 0
    assert "--valid-for" in result.err


def test_a_signing_key_is_printed_in_both_forms(offline: Koguma) -> None:
    plain = offline("generate", "signing-key").out.encode()
    base64 = b64decode(offline("generate", "signing-key", "--format", "pem-base64").out, validate=True)

    assert plain.startswith(b"-----BEGIN RSA PRIVATE KEY-----")
    assert read_private_key(plain).key_size == read_private_key(base64).key_size == 2048
    assert plain != base64


def test_the_public_half_of_a_key_verifies_its_tokens(offline: Koguma, key_file: Path) -> None:
    public = offline("generate", "public-key", "--signing-key-path", key_file).out
    token = offline("generate", "user-token", "--name", "jane", *HOUR, "--signing-key-path", key_file, "--kid", "1").out

    assert public.startswith("-----BEGIN RSA PUBLIC KEY-----")
    assert jwt.decode(token, public, ["RS256"])["Name"] == "jane"


# --- certificates ---------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def handshake(folder: Path, hostname: str, certificate: Path) -> None:
    """A handshake in memory: the server has the certificate, and the client trusts it and nothing else."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate, folder / "key.pem")
    calling = ssl.create_default_context(cafile=str(certificate))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    client = calling.wrap_bio(to_client, to_server, server_hostname=hostname)
    unfinished = [client, server]
    for _ in range(10):
        for side in list(unfinished):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            unfinished.remove(side)
    assert not unfinished


@pytest.mark.parametrize("key_type", ["rsa", "ecdsa"])
@pytest.mark.parametrize("hostname", ["cp.example.com", "127.0.0.1"])
def test_who_trusts_the_certificate_of_a_server_can_call_it(
    offline: Koguma, folder: Path, key_type: str, hostname: str
) -> None:
    names = ("--hostname", "cp.example.com", "--hostname", "127.0.0.1")

    result = offline("generate", "tls-certificate", "--type", "server", *names, "--key-type", key_type)

    assert (result.status, result.out) == (0, "the key is in key.pem, the certificate in cert.pem\n")
    handshake(folder, hostname, folder / "cert.pem")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(folder, "other.example.com", folder / "cert.pem")
    key = load_pem_private_key((folder / "key.pem").read_bytes(), password=None)
    assert isinstance(key, rsa.RSAPrivateKey if key_type == "rsa" else ec.EllipticCurvePrivateKey)


def test_a_folder_in_the_place_of_a_file_is_told_before_anything_is_replaced(offline: Koguma, folder: Path) -> None:
    (folder / "cert.pem").mkdir()
    (folder / "key.pem").write_text("before")

    result = offline("generate", "tls-certificate", "--type", "server", "--hostname", "a", "--overwrite")

    assert (result.status, result.err.partition("\n")[0]) == (1, "Error: cert.pem is a folder")
    assert sorted(path.name for path in folder.iterdir()) == ["cert.pem", "key.pem"]
    assert (folder / "key.pem").read_text() == "before"


@pytest.mark.parametrize(("use", "oid"), [("server", "1.3.6.1.5.5.7.3.1"), ("client", "1.3.6.1.5.5.7.3.2")])
def test_a_certificate_is_for_one_use_and_signs_no_other(offline: Koguma, folder: Path, use: str, oid: str) -> None:
    offline("generate", "tls-certificate", "--type", use, "--hostname", "a", "--valid-for", "48h")

    certificate = x509.load_pem_x509_certificate((folder / "cert.pem").read_bytes())
    uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [found.dotted_string for found in uses] == [oid]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert lifetime.total_seconds() == 48 * 3600 + 300


def test_the_owner_alone_reads_the_key_whatever_others_may(offline: Koguma, folder: Path) -> None:
    before = os.umask(0)
    try:
        offline("generate", "tls-certificate", "--type", "server", "--hostname", "a")
    finally:
        os.umask(before)

    assert (mode(folder / "key.pem"), mode(folder / "cert.pem")) == (0o600, 0o644)
    assert sorted(file.name for file in folder.iterdir()) == ["cert.pem", "key.pem"]


@pytest.mark.parametrize("present", ["key.pem", "cert.pem"])
def test_files_that_exist_are_replaced_only_if_somebody_says_so(offline: Koguma, folder: Path, present: str) -> None:
    (folder / present).write_text("mine")
    (folder / present).chmod(0o644)
    command = ("generate", "tls-certificate", "--type", "server", "--hostname", "a")

    refused = offline(*command)

    assert refused.status == 1
    assert refused.err.startswith(f"Error: there is already {present}")
    assert [file.read_text() for file in folder.iterdir()] == ["mine"]
    assert offline(*command, "--overwrite").status == 0
    assert mode(folder / "key.pem") == 0o600
    handshake(folder, "a", folder / "cert.pem")


def test_a_link_is_replaced_and_not_followed(offline: Koguma, folder: Path) -> None:
    (folder / "elsewhere").write_text("mine")
    (folder / "key.pem").symlink_to(folder / "elsewhere")

    offline("generate", "tls-certificate", "--type", "server", "--hostname", "a", "--overwrite")

    assert (folder / "elsewhere").read_text() == "mine"
    assert not (folder / "key.pem").is_symlink()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--hostname", ""), "`` is no host name"),
        (("--hostname", "a b"), "`a b` is no host name"),
        (("--hostname", "bär.de"), "`bär.de` is no host name"),
        (("--hostname", "a", "--valid-for", "0s"), "--valid-for: must be above zero, not `0s`"),
        (("--hostname", "a", "--valid-for", "soon"), "--valid-for: `soon` is not a duration"),
        (("--hostname", "a", "--key-file", "x", "--cert-file", "x"), "the key and the certificate cannot be one file"),
        (
            ("--hostname", "a", "--key-file", "gone/key.pem"),
            "gone/key.pem cannot be written: No such file or directory",
        ),
    ],
)
def test_what_is_wrong_with_a_certificate_is_told_and_nothing_is_written(
    offline: Koguma, folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = offline("generate", "tls-certificate", "--type", "server", *arguments)

    assert result.status == 1
    assert message in result.err
    assert not list(folder.iterdir())
