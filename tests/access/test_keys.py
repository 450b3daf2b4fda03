"""The keys of tokens: which sign and which verify, before and after they are rotated."""

from __future__ import annotations

from base64 import b64encode

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cp.access import keys
from cp.access.keys import KeyRing, OfflineKeys, SigningKey, UnusableKey, read_private_key, read_public_key
from cp.access.tokens import TokenRefused, dataplane_claims, user_claims
from cp.model.document import Document
from cp.model.names import Key
from cp.resources.world import World
from tests.access.forge import (
    DATAPLANE,
    HEADER,
    NOW,
    USER,
    pem,
    private_key,
    public_pem,
    secret,
    signing_keys,
    token,
    world,
)

NAME = "dataplane-token-signing-key-default"
OLD = token(DATAPLANE)
NEW = token(DATAPLANE, HEADER | {"kid": "2"}, private_key(2))


def key_secret(serial: str, number: int) -> Document:
    return secret(f"{NAME}-{serial}", pem(private_key(number)), "default")


def is_taken(text: str, at: World, offline: OfflineKeys | None = None) -> bool:
    try:
        dataplane_claims(text, KeyRing.of(at, offline), NOW)
    except TokenRefused:
        return False
    return True


def signing(at: World) -> SigningKey:
    key = keys.signing_key(at, "dataplane", "default")
    assert key is not None
    return key


def test_the_key_with_the_highest_number_signs() -> None:
    ordered = world(*(key_secret(serial, 1) for serial in ("2", "10", "9")))

    assert signing(ordered).kid == "10"


@pytest.mark.parametrize("name", [f"{NAME}-11x", f"{NAME}-011", f"{NAME}-", NAME, f"{NAME}-a-11", f"{NAME}--1"])
def test_a_secret_with_a_similar_name_does_not_sign(name: str) -> None:
    similar = world(key_secret("1", 1), secret(name, pem(private_key(2)), "default"))

    assert signing(similar).kid == "1"


def test_keys_are_rotated_by_their_numbers() -> None:
    before = world(key_secret("1", 1))
    both = before.next({key_secret("2", 2).key: key_secret("2", 2)}, revision=2)
    after = both.next({key_secret("1", 1).key: None}, revision=3)

    assert [is_taken(OLD, at) for at in (before, both, after)] == [True, True, False]
    assert [is_taken(NEW, at) for at in (before, both, after)] == [False, True, True]
    assert signing(both).kid == "2"


def test_a_key_that_is_replaced_under_its_number_verifies_no_token_from_before() -> None:
    before = world(key_secret("1", 1))
    assert is_taken(OLD, before)

    after = before.next({key_secret("1", 2).key: key_secret("1", 2)}, revision=2)

    assert not is_taken(OLD, after)


def test_a_token_can_be_revoked_and_that_be_taken_back() -> None:
    before = world(key_secret("1", 1))
    listed = secret("dataplane-token-revocations-default", b"id-0,id-1\n", "default")
    revoked = before.next({listed.key: listed}, revision=2)
    after = revoked.next({listed.key: None}, revision=3)

    assert [is_taken(OLD, at) for at in (before, revoked, after)] == [True, False, True]


def test_what_is_revoked_in_one_mesh_says_nothing_about_another() -> None:
    others = (
        secret("dataplane-token-revocations-default", b"id-1", "other"),
        secret("dataplane-token-revocations-other", b"id-1", "other"),
        secret("user-token-revocations", b"id-1"),
    )

    assert is_taken(OLD, world(*signing_keys(), *others))


@pytest.mark.parametrize("encoding", [serialization.Encoding.PEM, serialization.Encoding.DER])
@pytest.mark.parametrize("form", [serialization.PrivateFormat.TraditionalOpenSSL, serialization.PrivateFormat.PKCS8])
def test_a_key_may_be_written_in_any_customary_form(
    encoding: serialization.Encoding, form: serialization.PrivateFormat
) -> None:
    data = private_key().private_bytes(encoding, form, serialization.NoEncryption())

    assert is_taken(OLD, world(secret(f"{NAME}-1", data, "default")))


def with_password() -> bytes:
    password = serialization.BestAvailableEncryption(b"word")
    return private_key().private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, password)


def of_a_curve() -> bytes:
    form = serialization.PrivateFormat.PKCS8
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


UNUSABLE = {
    "short": pem(private_key(4, bits=1024)),
    "with a password": with_password(),
    "of a curve": of_a_curve(),
    "public": public_pem(private_key()),
    "text": b"secret text",
    "empty": b"",
    "cut": pem(private_key())[:200],
}


@pytest.mark.parametrize("data", UNUSABLE.values(), ids=UNUSABLE)
def test_what_is_no_key_verifies_nothing_and_is_not_repeated(data: bytes) -> None:
    unusable = world(secret(f"{NAME}-1", data, "default"))

    assert not is_taken(OLD, unusable)
    with pytest.raises(UnusableKey) as fault:
        keys.signing_key(unusable, "dataplane", "default")
    message = f"Secret default/{NAME}-1 is not an RSA key of at least 2048 bits; replace it, or delete it"
    assert str(fault.value) == message


def test_an_unusable_key_with_the_highest_number_stops_new_tokens_and_no_old_ones() -> None:
    broken = world(key_secret("1", 1), secret(f"{NAME}-2", b"text", "default"))

    assert is_taken(OLD, broken)
    with pytest.raises(UnusableKey):
        keys.signing_key(broken, "dataplane", "default")


def test_a_mesh_may_have_no_key_that_signs() -> None:
    assert keys.signing_key(world(key_secret("1", 1)), "dataplane", "other") is None


def test_public_keys_of_the_settings_verify_without_a_secret() -> None:
    public = {("dataplane", "default"): {"laptop": private_key().public_key()}}
    offline = OfflineKeys(public=public, without_secrets=frozenset({"dataplane"}))  # type: ignore[arg-type]
    named = token(DATAPLANE, HEADER | {"kid": "laptop"})

    assert is_taken(named, world(), offline)
    assert not is_taken(OLD, world(*signing_keys()), offline)
    assert not is_taken(token(DATAPLANE | {"Mesh": "other"}, HEADER | {"kid": "laptop"}), world(), offline)


def test_public_keys_stand_beside_those_of_secrets() -> None:
    offline = OfflineKeys(public={("dataplane", "default"): {"2": private_key(2).public_key()}})

    assert is_taken(OLD, world(*signing_keys()), offline)
    assert is_taken(NEW, world(*signing_keys()), offline)


def test_tokens_that_are_verified_offline_can_be_revoked() -> None:
    offline = OfflineKeys({("user", ""): {"1": private_key().public_key()}}, frozenset({"user"}))
    revoked = world(secret("user-token-revocations", b"id-1"))

    assert user_claims(token(USER), KeyRing.of(world(), offline), NOW).name == "jane"
    with pytest.raises(TokenRefused):
        user_claims(token(USER), KeyRing.of(revoked, offline), NOW)


@pytest.mark.parametrize("text", [b"", b"text", of_a_curve(), pem(private_key(4, bits=1024)), pem(private_key())])
def test_what_is_no_public_key_is_refused(text: bytes) -> None:
    with pytest.raises(UnusableKey) as unusable:
        read_public_key(text)

    assert str(unusable.value) == "is not an RSA key of at least 2048 bits"


def test_a_new_key_can_sign_and_its_public_half_is_its_own() -> None:
    made = read_private_key(keys.new_private_key())

    assert made.key_size == keys.FEWEST_BITS
    assert read_public_key(keys.public_pem(made).encode()) == made.public_key()


def test_a_key_is_read_once_for_as_long_as_its_secret_stays() -> None:
    before = world(*signing_keys())
    after = before.next({Key("Mesh", "", "m"): Document(Key("Mesh", "", "m"), {"type": "Mesh", "name": "m"})}, 2)

    assert signing(after).key is signing(before).key


def test_a_ring_shows_no_key() -> None:
    shown = repr(signing(world(*signing_keys()))) + repr(KeyRing.of(world(*signing_keys())))

    assert "PRIVATE" not in shown
    assert b64encode(pem(private_key())).decode()[:40] not in shown
