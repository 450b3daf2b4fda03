"""Tokens that are taken, and those that are refused: at which door, and with which words."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding
from hypothesis import example, given
from hypothesis import strategies as st

from cp.access.keys import KeyRing
from cp.access.tokens import (
    MOST_CHARACTERS,
    DataplaneClaims,
    TokenRefused,
    UserClaims,
    dataplane_claims,
    must_admit,
    user_claims,
)
from cp.model.document import Document
from cp.model.names import Key
from cp.resources.resource import Resource
from tests.access.forge import (
    DATAPLANE,
    HEADER,
    NOW,
    REGISTERED,
    USER,
    encoded,
    part,
    private_key,
    public_pem,
    secret,
    signing_keys,
    token,
    world,
)

ZONE: Final = {"Zone": "east", "Scope": ["cp"], **REGISTERED}

NO_TOKEN: Final = "it is not a token"
NO_PROXY: Final = "it is not the token of a proxy"
NOT_SIGNED: Final = "it is not signed with RS256"
BAD_HEADER: Final = "it has a header that tokens do not have"
NO_KEY: Final = "there is no signing key of the number that it names; if keys were rotated, generate it anew"
BAD_SIGNATURE: Final = "its signature is wrong"
FOR_OTHERS: Final = "it is a token for something else: its claims are not those that are wanted here"


def ring() -> KeyRing:
    return KeyRing.of(world(*signing_keys(), secret("user-token-revocations", b"old, gone\nlost\n")))


def refusal(read: Callable[[str, KeyRing, float], object], text: str, now: float = NOW) -> str:
    with pytest.raises(TokenRefused) as refused:
        read(text, ring(), now)
    return refused.value.reason


def test_the_token_of_a_proxy_says_who_it_is() -> None:
    tags = {"kuma.io/service": ["web", "web-api"]}
    genuine = token(DATAPLANE | {"Tags": tags, "Type": "dataplane", "Workload": "web"})

    claims = dataplane_claims(genuine, ring(), NOW)

    allowed = {"kuma.io/service": frozenset({"web", "web-api"})}
    assert claims == DataplaneClaims("web-1", "default", allowed, "dataplane", "web", "id-1", NOW + 3600)


def test_the_token_of_a_person_says_who_it_is() -> None:
    assert user_claims(token(USER), ring(), NOW) == UserClaims("jane", ("team-a",), "id-1", NOW + 3600)


def test_what_go_leaves_out_or_writes_as_null_is_empty() -> None:
    assert dataplane_claims(token({"Mesh": "default", "Tags": None, **REGISTERED}), ring(), NOW).tags == {}
    assert user_claims(token(USER | {"Groups": None}), ring(), NOW).groups == ()


# --- what is refused ------------------------------------------------------------------------------------------------


def hmac_token(claims: Mapping[str, Any], key: bytes) -> str:
    """A token that is signed with a text as a key that both sides know."""
    text = f"{part(HEADER | {'alg': 'HS256'})}.{part(claims)}"
    return f"{text}.{encoded(hmac.digest(key, text.encode(), 'sha256'))}"


def signed(claims: str | bytes, header: str | bytes = json.dumps(HEADER)) -> str:
    """A token of texts as they are, with a good signature."""
    return token(_bytes(claims), _bytes(header))


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def twice(name: str, value: Any) -> str:
    """The claims of a proxy, with a second value for a claim that is there already."""
    return json.dumps(DATAPLANE)[:-1] + f', "{name}": {json.dumps(value)}}}'


def with_ec_key(claims: Mapping[str, Any]) -> str:
    return jwt.encode(dict(claims), ec.generate_private_key(ec.SECP256R1()), "ES256", headers={"kid": "1"})


def with_other_padding(claims: Mapping[str, Any]) -> str:
    """Signed by the right key in the way of PS256."""
    text = f"{part(HEADER)}.{part(claims)}"
    form = padding.PSS(padding.MGF1(hashes.SHA256()), hashlib.sha256().digest_size)
    return f"{text}.{encoded(private_key().sign(text.encode(), form, hashes.SHA256()))}"


def respelt(text: str) -> str:
    """The same bytes in another spelling: the last character of this signature has four bits that mean nothing."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return text[:-1] + alphabet[alphabet.index(text[-1]) ^ 1]


def swapped() -> str:
    """The claims of one token with the signature of another."""
    other = token(DATAPLANE | {"Name": "web-2"}).rpartition(".")[2]
    return f"{token(DATAPLANE).rpartition('.')[0]}.{other}"


def without(claims: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {claim: value for claim, value in claims.items() if claim != name}


@dataclass(frozen=True)
class Crossing:
    name: str
    token: str
    reason: str
    read: Callable[[str, KeyRing, float], object] = dataplane_claims


def crossings() -> Iterator[Crossing]:
    yield from bad_forms()
    yield from bad_headers()
    yield from bad_keys()
    yield from bad_times()
    yield from bad_claims()
    yield from tokens_of_others()


def bad_forms() -> Iterator[Crossing]:
    yield Crossing("empty", "", NO_TOKEN)
    yield Crossing("two parts", "a.b", NO_TOKEN)
    yield Crossing("four parts", token(DATAPLANE) + ".AAAA", NO_TOKEN)
    yield Crossing("a scheme before it", "Bearer " + token(DATAPLANE), NO_TOKEN)
    yield Crossing("a line break behind it", token(DATAPLANE) + "\n", NO_TOKEN)
    yield Crossing("padding", token(DATAPLANE) + "==", NO_TOKEN)
    yield Crossing("letters of no base64", token(DATAPLANE) + "é", NO_TOKEN)
    yield Crossing("another spelling of its bytes", respelt(token(DATAPLANE)), NO_TOKEN)
    yield Crossing("too long", token(DATAPLANE | {"Name": "x" * MOST_CHARACTERS}), "it has more than 16384 characters")
    yield Crossing("claims that are no JSON", signed("{"), NO_TOKEN)
    yield Crossing("claims in UTF-16", signed(json.dumps(DATAPLANE).encode("utf-16")), NO_TOKEN)
    yield Crossing("claims that are a list", signed("[]"), NO_TOKEN)
    yield Crossing("claims nested deeply", signed("[" * 5000 + "]" * 5000), NO_TOKEN)
    yield Crossing("a header nested deeply", signed("{}", '{"alg":' * 1500 + "1" + "}" * 1500), NO_TOKEN)
    yield Crossing("a claim twice", signed(twice("Mesh", "other")), NO_TOKEN)
    yield Crossing("a header twice", signed(json.dumps(DATAPLANE), '{"alg":"none","alg":"RS256","kid":"1"}'), NO_TOKEN)
    yield Crossing("a time that is no number in JSON", signed(json.dumps(DATAPLANE | {"exp": float("nan")})), NO_TOKEN)
    yield Crossing("a time of 5000 digits", signed(twice("at", 0)[:-2] + "9" * 5000 + "}"), NO_TOKEN)


def bad_headers() -> Iterator[Crossing]:
    yield Crossing("unsigned", f"{part(HEADER | {'alg': 'none'})}.{part(DATAPLANE)}.", NOT_SIGNED)
    yield Crossing("unsigned, in other letters", token(DATAPLANE, HEADER | {"alg": "NoNe"}), NOT_SIGNED)
    yield Crossing("no algorithm", token(DATAPLANE, without(HEADER, "alg")), NOT_SIGNED)
    yield Crossing("a list of algorithms", token(DATAPLANE, HEADER | {"alg": ["RS256"]}), NOT_SIGNED)
    yield Crossing("a public key as a password", hmac_token(DATAPLANE, public_pem(private_key())), NOT_SIGNED)
    yield Crossing("an empty password", hmac_token(DATAPLANE, b""), NOT_SIGNED)
    yield Crossing("another sort of key", with_ec_key(DATAPLANE), NOT_SIGNED)
    yield Crossing("another RSA", token(DATAPLANE, HEADER | {"alg": "RS512"}), NOT_SIGNED)
    for name in ("jku", "x5u", "jwk", "x5c", "crit", "b64", "zip"):
        yield Crossing(f"a header {name}", token(DATAPLANE, HEADER | {name: "https://example.com"}), BAD_HEADER)
    yield Crossing("a header typ of something else", token(DATAPLANE, HEADER | {"typ": "at+jwt"}), BAD_HEADER)


def bad_keys() -> Iterator[Crossing]:
    for kid in (
        "2",
        "",
        "0",
        "01",
        "1 ",
        "-1",
        "default-1",
        "../1",
        "1\0",
        "\u0661",
        "9" * 400,
        1,
        None,
        ["1"],
        {"1": 1},
    ):
        yield Crossing(f"kid {str(kid)[:12]!r}", token(DATAPLANE, HEADER | {"kid": kid}), NO_KEY)
    yield Crossing("no kid", token(DATAPLANE, without(HEADER, "kid")), NO_KEY)
    yield Crossing("a mesh without keys", token(DATAPLANE | {"Mesh": "nowhere"}), NO_KEY)
    yield Crossing("a mesh that reaches for a name", token(DATAPLANE | {"Mesh": "default-1"}), NO_KEY)
    yield Crossing("the key of another mesh", token(DATAPLANE | {"Mesh": "other"}), BAD_SIGNATURE)
    yield Crossing("a key of nobody's", token(DATAPLANE, key=private_key(3)), BAD_SIGNATURE)
    yield Crossing("another padding", with_other_padding(DATAPLANE), BAD_SIGNATURE)
    yield Crossing("no signature", token(DATAPLANE).rpartition(".")[0] + ".", BAD_SIGNATURE)
    yield Crossing("a short signature", token(DATAPLANE).rpartition(".")[0] + ".AAAA", BAD_SIGNATURE)
    yield Crossing("the signature of another token", swapped(), BAD_SIGNATURE)


def bad_times() -> Iterator[Crossing]:
    yield Crossing("expired", token(DATAPLANE | {"exp": NOW}), "it has expired; generate a new one")
    yield Crossing(
        "not yet valid",
        token(DATAPLANE | {"nbf": NOW + 1}),
        "it is not valid yet; compare the clocks of both machines",
    )
    values: tuple[Any, ...] = ("1", True, None, [], 1e300, 2**70, -(2**53))
    for name in ("exp", "nbf", "iat"):
        for value in values:
            reason = f"its claim `{name}` cannot be read"
            yield Crossing(f"{name} {value}", token(DATAPLANE | {name: value}), reason)


def bad_claims() -> Iterator[Crossing]:
    for name in ("jti", "exp"):
        yield Crossing(f"without {name}", token(without(DATAPLANE, name)), FOR_OTHERS)
    yield Crossing(
        "an empty jti", token(DATAPLANE | {"jti": ""}), "its claim `jti` is empty, so it could not be revoked"
    )
    yield Crossing("a claim too many", token(DATAPLANE | {"aud": "kuma"}), FOR_OTHERS)
    for name, value in (
        *(("Name", 1), ("Name", None), ("Name", "a\nb"), ("Name", "\ud800"), ("Type", ["dataplane"]), ("Workload", {})),
        *(("Tags", []), ("Tags", ""), ("Tags", False), ("Tags", {"a": "b"}), ("Tags", {"a": [1]}), ("Tags", {"a": {}})),
        ("jti", 7),
    ):
        reason = f"its claim `{name}` cannot be read"
        yield Crossing(f"{name} {value!r}", token(DATAPLANE | {name: value}), reason)
    for mesh in ("", None, ["default"], 0):
        yield Crossing(f"Mesh {mesh!r}", token(DATAPLANE | {"Mesh": mesh}), NO_PROXY)


def tokens_of_others() -> Iterator[Crossing]:
    yield Crossing("a person's", token(USER), NO_PROXY)
    yield Crossing("a person's with a mesh", token(USER | {"Mesh": "default"}), FOR_OTHERS)
    yield Crossing("a zone's", token(ZONE), NO_PROXY)
    yield Crossing("a proxy's for a person", token(DATAPLANE), FOR_OTHERS, user_claims)
    yield Crossing("a zone's for a person", token(ZONE), FOR_OTHERS, user_claims)
    yield Crossing("nobody", token(USER | {"Name": ""}), "it names nobody", user_claims)
    yield Crossing("one group", token(USER | {"Groups": "a"}), "its claim `Groups` cannot be read", user_claims)
    yield Crossing("no groups", token(without(USER, "Groups")), FOR_OTHERS, user_claims)
    yield Crossing(
        "a group in two lines", token(USER | {"Groups": ["a\n"]}), "its claim `Groups` cannot be read", user_claims
    )
    for token_id in ("old", "gone", "lost"):
        yield Crossing(f"revoked: {token_id}", token(USER | {"jti": token_id}), "it was revoked", user_claims)


CROSSINGS: Final = tuple(crossings())


@pytest.mark.parametrize("crossing", CROSSINGS, ids=lambda crossing: crossing.name)
def test_a_crossing_is_refused_with_its_reason(crossing: Crossing) -> None:
    assert refusal(crossing.read, crossing.token) == crossing.reason


def test_the_genuine_token_from_which_crossings_are_made_is_taken() -> None:
    assert dataplane_claims(token(DATAPLANE), ring(), NOW).name == "web-1"


@pytest.mark.parametrize("crossing", CROSSINGS, ids=lambda crossing: crossing.name)
def test_no_reason_repeats_the_token(crossing: Crossing) -> None:
    reason = refusal(crossing.read, crossing.token)

    assert not [piece for piece in crossing.token.split(".") if len(piece) > 20 and piece in reason]


def test_a_token_is_good_until_its_last_moment() -> None:
    last = token(DATAPLANE | {"nbf": NOW, "exp": NOW + 1})

    assert dataplane_claims(last, ring(), NOW).expires == NOW + 1
    assert dataplane_claims(last, ring(), NOW + 0.999).name == "web-1"
    assert refusal(dataplane_claims, last, NOW + 1).startswith("it has expired")
    assert refusal(dataplane_claims, last, NOW - 0.001).startswith("it is not valid yet")


GENUINE: Final = token(DATAPLANE | {"Tags": {"kuma.io/service": ["web"]}})
CHARACTERS: Final = st.one_of(st.sampled_from("ABCxyz019-_.=\n "), st.characters())


@given(st.integers(0, len(GENUINE) - 1), CHARACTERS)
@example(len(GENUINE) - 1, "A")
@example(len(GENUINE) - 1, "B")
def test_no_character_of_a_token_can_be_changed(place: int, character: str) -> None:
    if GENUINE[place] == character:
        return

    with pytest.raises(TokenRefused):
        dataplane_claims(GENUINE[:place] + character + GENUINE[place + 1 :], ring(), NOW)


@given(st.integers(0, len(GENUINE)), st.integers(0, len(GENUINE)), st.text(max_size=4))
def test_no_piece_of_a_token_can_be_replaced(begin: int, end: int, piece: str) -> None:
    changed = GENUINE[:begin] + piece + GENUINE[max(begin, end) :]
    if changed == GENUINE:
        return

    with pytest.raises(TokenRefused):
        dataplane_claims(changed, ring(), NOW)


JSON: Final = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
)


@given(
    st.dictionaries(st.sampled_from(sorted(DATAPLANE)), JSON), st.dictionaries(st.sampled_from(sorted(HEADER)), JSON)
)
def test_a_token_of_anything_is_taken_or_refused(claims: dict[str, Any], header: dict[str, Any]) -> None:
    try:
        taken = dataplane_claims(token(DATAPLANE | claims, HEADER | header), ring(), NOW)
    except TokenRefused:
        return

    assert taken.mesh == "default"
    assert taken.expires > NOW


@given(st.text())
def test_a_text_is_no_token(text: str) -> None:
    with pytest.raises(TokenRefused):
        user_claims(text, ring(), NOW)


# --- for which proxy ------------------------------------------------------------------------------------------------


def dataplane(*tags: Mapping[str, str], gateway: Mapping[str, str] | None = None, workload: str = "") -> Resource:
    networking: dict[str, Any] = {"address": "10.0.0.1"}
    if tags:
        networking["inbound"] = [{"port": 8080 + index, "tags": dict(of)} for index, of in enumerate(tags)]
    if gateway is not None:
        networking["gateway"] = {"tags": dict(gateway)}
    labels = {"labels": {"kuma.io/workload": workload}} if workload else {}
    key = Key("Dataplane", "default", "web-1")
    data = {"type": "Dataplane", "mesh": "default", "name": "web-1", "networking": networking, **labels}
    resource = world(Document(key, data)).get(key)
    assert resource is not None
    return resource


PROXY: Final = Key("Dataplane", "default", "web-1")
WEB: Final = {"kuma.io/service": "web", "team": "a"}
API: Final = {"kuma.io/service": "web-api"}


def claims_of(**claims: Any) -> DataplaneClaims:
    fields: dict[str, Any] = {"name": "", "mesh": "default", "tags": {}, "type": "", "workload": ""} | claims
    fields["tags"] = {tag: frozenset(values) for tag, values in fields["tags"].items()}
    return DataplaneClaims(**fields, id="id-1", expires=NOW + 1)


@pytest.mark.parametrize(
    ("claims", "proxy"),
    [
        (claims_of(), dataplane(WEB)),
        (claims_of(), None),
        (claims_of(name="web-1"), dataplane(WEB)),
        (claims_of(type="dataplane"), dataplane(WEB)),
        (claims_of(tags={"kuma.io/service": ["web"]}), dataplane(WEB)),
        (claims_of(tags={"kuma.io/service": ["web", "web-api", "more"]}), dataplane(WEB, API)),
        (claims_of(tags={"team": ["a"]}), dataplane(WEB, API)),
        (claims_of(tags={"kuma.io/service": ["edge"]}), dataplane(gateway={"kuma.io/service": "edge"})),
        (claims_of(workload="web"), dataplane(WEB, workload="web")),
        (claims_of(), dataplane(WEB, workload="web")),
    ],
)
def test_a_token_is_good_for_the_proxies_that_it_names(claims: DataplaneClaims, proxy: Resource | None) -> None:
    must_admit(claims, PROXY, proxy)


@pytest.mark.parametrize(
    ("claims", "proxy", "reason"),
    [
        (claims_of(mesh="other"), dataplane(WEB), "it is for the mesh `other`, and the proxy is in `default`"),
        (claims_of(name="web-2"), dataplane(WEB), "it is for the proxy `web-2`, and this is `web-1`"),
        (claims_of(name="WEB-1"), dataplane(WEB), "it is for the proxy `WEB-1`, and this is `web-1`"),
        (
            claims_of(type="ingress"),
            dataplane(WEB),
            "it is for a proxy of type ingress, and this is of type dataplane",
        ),
        (
            claims_of(tags={"kuma.io/service": ["web"]}),
            dataplane(WEB, API),
            "it allows `web` for the tag `kuma.io/service`, and this proxy has `web-api`",
        ),
        (
            claims_of(tags={"kuma.io/service": ["web"], "team": ["b", "c"]}),
            dataplane(WEB),
            "it allows `b`, `c` for the tag `team`, and this proxy has `a`",
        ),
        (
            claims_of(tags={"zone": ["east"]}),
            dataplane(WEB),
            "it is for proxies with the tag `zone`, which this proxy does not have",
        ),
        (
            claims_of(tags={"kuma.io/service": []}),
            dataplane(WEB),
            "it allows no value for the tag `kuma.io/service`, and this proxy has `web`",
        ),
        (
            claims_of(tags={"kuma.io/service": ["web"]}),
            None,
            "it is for proxies with the tag `kuma.io/service`, which this proxy does not have",
        ),
        (
            claims_of(workload="web"),
            dataplane(WEB),
            "it is for the workload `web`, and this proxy has no label kuma.io/workload",
        ),
        (
            claims_of(workload="web"),
            dataplane(WEB, workload="api"),
            "it is for the workload `web`, and this proxy is of `api`",
        ),
    ],
)
def test_a_token_is_good_for_no_other_proxy(claims: DataplaneClaims, proxy: Resource | None, reason: str) -> None:
    with pytest.raises(TokenRefused) as refused:
        must_admit(claims, PROXY, proxy)

    assert refused.value.reason == reason


def test_a_proxy_that_is_named_by_its_workload_needs_a_token_that_names_it() -> None:
    proxy = dataplane(WEB, workload="web")

    must_admit(claims_of(workload="web"), PROXY, proxy, is_named_by_workload=True)
    with pytest.raises(TokenRefused) as refused:
        must_admit(claims_of(), PROXY, proxy, is_named_by_workload=True)

    assert "made of its label kuma.io/workload" in refused.value.reason
