"""The certificate of a proxy."""

from __future__ import annotations

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from cp.identity.authority import Authority, authority
from cp.identity.identities import AuthorityRef, ProxyIdentity
from cp.identity.leaf import LeafCertificate, issue
from tests.identity.meshes import CA as IS_AUTHORITY
from tests.identity.meshes import NOW, new_authority, pair_of

URIS = ("spiffe://default/web", "kuma://kuma.io/service/web")
DAY = 86_400.0
_, CA = new_authority()


def identity(lifetime: float = DAY, **fields: str) -> ProxyIdentity:
    return ProxyIdentity(URIS, AuthorityRef("Mesh", "default", "ca-1"), lifetime, **{"key": "EC", **fields})  # type: ignore[arg-type]


def certificates(leaf: LeafCertificate) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(leaf.chain.encode())


def test_it_says_who_the_proxy_is_by_uris_alone() -> None:
    [certificate] = certificates(issue(CA, identity(), NOW))

    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.critical
    assert names.value.get_values_for_type(x509.UniformResourceIdentifier) == list(URIS)
    assert len(list(names.value)) == len(URIS)
    assert certificate.subject == x509.Name([])


def test_it_is_for_clients_and_servers_and_signs_nothing() -> None:
    [certificate] = certificates(issue(CA, identity(), NOW))

    of = certificate.extensions.get_extension_for_class
    assert set(of(x509.ExtendedKeyUsage).value) == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    assert not of(x509.BasicConstraints).value.ca
    assert not of(x509.KeyUsage).value.key_cert_sign
    assert of(x509.KeyUsage).value.digital_signature


def test_it_is_signed_by_the_authority_and_fits_its_key() -> None:
    leaf = issue(CA, identity(), NOW)
    [certificate] = certificates(leaf)
    key = load_pem_private_key(leaf.key, None)

    certificate.verify_directly_issued_by(CA.certificate)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert key.public_key() == certificate.public_key()


def test_no_two_have_a_serial_or_a_key_in_common() -> None:
    leaves = [issue(CA, identity(), NOW) for _ in range(3)]

    assert len({leaf.serial for leaf in leaves}) == 3
    assert len({leaf.key for leaf in leaves}) == 3


def test_it_is_valid_from_a_minute_ago_for_as_long_as_the_backend_says() -> None:
    leaf = issue(CA, identity(7_200), NOW)
    [certificate] = certificates(leaf)

    assert leaf.not_before == certificate.not_valid_before_utc.timestamp() == NOW - 60
    assert leaf.not_after == certificate.not_valid_after_utc.timestamp() == NOW + 7_200
    assert leaf.due(0.8) == NOW + 5_760


def test_it_does_not_outlive_its_authority_and_is_not_renewed_then() -> None:
    _, short = new_authority(expiration="1h")
    leaf = issue(short, identity(), NOW)

    assert leaf.not_after == short.expires
    assert leaf.due(0.8) is None


def test_a_life_of_nothing_is_a_second() -> None:
    assert issue(CA, identity(0.001), NOW).not_after == NOW + 1


def test_an_rsa_key_is_made_where_the_backend_asks_for_one() -> None:
    leaf = issue(CA, identity(key="RSA2048"), NOW)
    [certificate] = certificates(leaf)
    key = load_pem_private_key(leaf.key, None)

    assert isinstance(key, rsa.RSAPrivateKey)
    assert key.key_size == 2048
    assert certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_encipherment


def test_who_trusts_the_root_can_follow_from_an_authority_below_it() -> None:
    below = authority(pair_of(ec.generate_private_key(ec.SECP256R1()), IS_AUTHORITY, issuer=CA), NOW)
    assert isinstance(below, Authority)

    own, issuer = certificates(issue(below, identity(), NOW))

    own.verify_directly_issued_by(issuer)
    issuer.verify_directly_issued_by(CA.certificate)


def test_authorities_with_one_name_are_told_apart_by_what_they_issue() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    nameless = authority(pair_of(key, IS_AUTHORITY), NOW)  # it does not say what its key is called
    assert isinstance(nameless, Authority)

    def named(issuer: Authority) -> x509.AuthorityKeyIdentifier:
        [certificate, *_] = certificates(issue(issuer, identity(), NOW))
        return certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value

    of = CA.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    assert named(CA).key_identifier == of.value.digest
    assert named(nameless).authority_cert_serial_number == nameless.certificate.serial_number


def test_beside_a_nameless_authority_of_its_name_the_number_tells_who_issued_it() -> None:
    [certificate] = certificates(issue(CA, identity(), NOW, has_twin=True))

    issuer = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    of = CA.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    assert issuer.key_identifier == of.value.digest
    assert issuer.authority_cert_serial_number == CA.certificate.serial_number
    assert [name.value for name in issuer.authority_cert_issuer or ()] == [CA.certificate.issuer]


def test_nothing_shows_its_key() -> None:
    leaf = issue(CA, identity(), NOW)

    assert leaf.key.splitlines()[1].decode() not in repr(leaf)
