"""What an authority is, how a built-in one is made, and what is said of one that cannot sign."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from cp.files import read_file
from cp.identity import certificates
from cp.identity.authority import Authority, KeyPair, authority
from cp.identity.backends import enabled_authority
from cp.model.document import Document
from cp.model.violation import Violation
from tests.identity.meshes import CA, NOW, YEAR, mesh, new_authority, pair_of, provided, secret, world

KEY = ec.generate_private_key(ec.SECP256R1())
SOUND = rsa.generate_private_key(65537, 2048)
WEAK = rsa.generate_private_key(65537, 1024)  # noqa: S505  # that is the point


def unsound(bits: int) -> bytes:
    """What looks like an RSA key, as a real one of many bits takes long to make."""
    p, q, d = (1 << (bits // 2)) - 1, (1 << (bits // 2)) - 3, (1 << (bits - 1)) + 1
    public = rsa.RSAPublicNumbers(65537, p * q)
    numbers = rsa.RSAPrivateNumbers(p, q, d, d % (p - 1), d % (q - 1), 1, public)
    key = numbers.private_key(unsafe_skip_rsa_key_validation=True)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def fault(pair: KeyPair) -> Violation:
    found = authority(pair, NOW)
    assert isinstance(found, Violation)
    return found


def test_a_built_in_authority_is_an_ecdsa_root_of_the_mesh_for_ten_years() -> None:
    _, made = new_authority("payments")

    certificate, extensions = made.certificate, made.certificate.extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    constraints = extensions.get_extension_for_class(x509.BasicConstraints)
    usage = extensions.get_extension_for_class(x509.KeyUsage)
    assert isinstance(made.key, ec.EllipticCurvePrivateKey)
    assert isinstance(made.key.curve, ec.SECP256R1)
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["spiffe://payments"]
    assert constraints.critical
    assert constraints.value.ca
    assert usage.critical
    assert usage.value.key_cert_sign
    assert not usage.value.digital_signature
    assert certificate.subject == certificate.issuer
    assert made.expires == NOW + 10 * YEAR
    assert certificate.not_valid_before_utc < datetime.fromtimestamp(NOW, UTC)
    certificate.verify_directly_issued_by(certificate)


def test_a_backend_can_ask_for_rsa_and_for_another_life() -> None:
    _, made = new_authority(rsa_bits=2048, expiration="30d")

    assert isinstance(made.key, rsa.RSAPrivateKey)
    assert made.key.key_size == 2048
    assert made.expires == NOW + 30 * 86_400


def test_an_authority_that_is_to_live_for_ever_ends_with_the_calendar() -> None:
    _, made = new_authority(expiration="99999999999y")

    assert made.certificate.not_valid_after_utc.year == 9999


def test_a_name_of_a_mesh_that_is_too_long_for_a_subject_is_whole_in_the_uri() -> None:
    name = "m" * 63 + ".long"
    _, made = new_authority(name)

    names = made.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [f"spiffe://{name}"]


@pytest.mark.parametrize(
    ("pair", "path", "text"),
    [
        (KeyPair(b"nothing", b"nothing"), "cert", "is no certificate"),
        (KeyPair(pair_of(KEY, CA).certificate, b"nothing"), "key", "is no private key"),
        (KeyPair(pair_of(KEY, CA).certificate, unsound(4096)), "key", "is no private key"),
        (KeyPair(pair_of(KEY, CA).certificate, unsound(8192)), "key", "is too large a key"),
        (KeyPair(pair_of(KEY, CA).certificate, pair_of(KEY, CA).key + b"\n" * 20_000), "key", "is too large a key"),
        (KeyPair(pair_of(KEY, CA).key, pair_of(KEY, CA).certificate), "cert", "is no certificate"),
        (pair_of(KEY), "cert", "no certificate of an authority"),
        (pair_of(KEY, x509.BasicConstraints(ca=False, path_length=None)), "cert", "no certificate of an authority"),
        (pair_of(KEY, CA, ends=NOW), "cert", "has expired at 2027-01-15"),
        (pair_of(KEY, CA, begins=NOW + 60), "cert", "is not valid before 2027-01-15"),
        (KeyPair(pair_of(KEY, CA).certificate, new_authority()[0].key), "key", "is not the key of `cert`"),
        (pair_of(ed25519.Ed25519PrivateKey.generate(), CA), "key", "of a kind that proxies do not take"),
        (pair_of(WEAK, CA), "key", "of a kind that proxies do not take"),
        (pair_of(ec.generate_private_key(ec.SECP256K1()), CA), "key", "of a kind that proxies do not take"),
    ],
)
def test_what_cannot_sign_is_told_without_a_word_of_the_key(pair: KeyPair, path: str, text: str) -> None:
    found = fault(pair)

    assert found.path == path
    assert text in found.message
    assert "BEGIN PRIVATE" not in str(found).replace("-----BEGIN`", "")


def test_a_key_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which takes half a second, for one of 4096 bits, whenever somebody looks for the authority."""
    checked: list[bytes] = []

    def load(text: bytes, *, password: None, unsafe_skip_rsa_key_validation: bool = False) -> PrivateKeyTypes:
        if not unsafe_skip_rsa_key_validation:
            checked.append(text)
        return load_pem_private_key(text, password, unsafe_skip_rsa_key_validation=unsafe_skip_rsa_key_validation)

    monkeypatch.setattr(certificates, "load_pem_private_key", load)
    pair = pair_of(SOUND, CA)
    found = [authority(pair, NOW) for _ in range(3)]

    assert all(isinstance(one, Authority) for one in found)
    assert checked == [pair.key]


def test_a_certificate_may_sign_only_if_its_usage_says_so() -> None:
    usage = new_authority()[1].certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    other = x509.KeyUsage(True, False, False, False, False, False, False, False, False)

    assert isinstance(authority(pair_of(KEY, CA, usage), NOW), Authority)
    assert "no certificate of an authority" in fault(pair_of(KEY, CA, other)).message


def test_nothing_shows_the_key() -> None:
    pair, made = new_authority()
    body = pair.key.splitlines()[1].decode()

    assert body not in repr(pair)
    assert body not in repr(made)
    assert "PrivateKey" not in repr(made)


def found(*documents: Document) -> Authority | Violation:
    of = world(*documents)
    resource = of.mesh("default")
    assert resource is not None
    return enabled_authority(of, resource, read_file, NOW)


def test_a_provided_authority_comes_from_a_secret_a_file_or_the_mesh_itself(tmp_path: Path) -> None:
    pair, made = new_authority()
    (tmp_path / "key.pem").write_bytes(pair.key)
    conf = {"cert": {"secret": "our-ca"}, "key": {"file": str(tmp_path / "key.pem")}}
    text = {"cert": {"inlineString": pair.certificate.decode()}, "key": {"inlineString": pair.key.decode()}}

    assert found(provided(pair)) == made
    assert found(mesh(type="provided", conf=conf), secret("our-ca", pair.certificate)) == made
    assert found(mesh(type="provided", conf=text)) == made


def test_a_file_that_cannot_be_read_is_told_by_its_name_and_its_field(tmp_path: Path) -> None:
    pair, _ = new_authority()
    (tmp_path / "large.pem").write_bytes(b"x" * 2_000_000)

    def fault_of(name: str) -> Violation:
        conf = {"cert": {"file": str(tmp_path / name)}, "key": {"inlineString": pair.key.decode()}}
        fault = found(mesh(type="provided", conf=conf))
        assert isinstance(fault, Violation)
        return fault

    assert fault_of("none.pem").path == "mtls.backends[0].conf.cert"
    assert "none.pem` cannot be read: No such file or directory" in fault_of("none.pem").message
    assert "large.pem` cannot be read: it has more than" in fault_of("large.pem").message


def test_what_a_provided_authority_lacks_is_told_at_its_field() -> None:
    pair, _ = new_authority()
    missing = found(mesh(type="provided", conf={"cert": {"secret": "our-ca"}, "key": {"secret": "our-key"}}))
    half = found(mesh(type="provided", conf={"cert": {"inlineString": pair.certificate.decode()}}))

    assert isinstance(missing, Violation)
    assert str(missing) == "mtls.backends[0].conf.cert: there is no Secret `our-ca`; store it, or name another"
    assert isinstance(half, Violation)
    assert half.path == "mtls.backends[0].conf.key"


def test_a_mesh_may_name_its_own_authority_and_no_other_secret_of_the_control_plane() -> None:
    pair, made = new_authority()

    def signs_with(key: str) -> Authority | Violation:
        conf = {"cert": {"inlineString": pair.certificate.decode()}, "key": {"secret": key}}
        return found(mesh(type="provided", conf=conf), secret(key, pair.key))

    assert signs_with("default.ca-builtin-key-old") == made
    assert signs_with("other.ca-builtin-key-old") == made  # somebody stored it under this name
    for name in ("dataplane-token-signing-key-default-1", "a.identity-trust"):
        fault = signs_with(name)
        assert isinstance(fault, Violation)
        assert "is the control plane's own" in fault.message


def test_a_built_in_authority_of_which_the_half_is_stored_cannot_sign() -> None:
    pair, made = new_authority()
    whole = (secret("default.ca-builtin-cert-ca-1", pair.certificate), secret("default.ca-builtin-key-ca-1", pair.key))
    half = found(mesh(), whole[0])

    assert found(mesh(), *whole) == made
    assert isinstance(half, Violation)
    assert "there is no Secret default/default.ca-builtin-key-ca-1" in half.message
