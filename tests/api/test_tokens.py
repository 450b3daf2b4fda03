"""`POST /tokens/…`: what is answered, what is said of bad requests, and what is not said."""

from __future__ import annotations

from typing import Any

import httpx
import jwt
import pytest
import structlog

from cp.access.keys import KeyRing
from cp.access.tokens import dataplane_claims, user_claims
from cp.model.document import Document
from cp.model.names import Key
from tests.access.forge import pem, private_key, public_pem, secret, signing_keys, world
from tests.api.conftest import Api, FixedState, Unit

MESH = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})
ZONE_KEY = secret("zone-token-signing-key-4", pem(private_key()))
WORLD = world(MESH, *signing_keys(), ZONE_KEY)
DATAPLANE = {
    "name": "web-1",
    "mesh": "default",
    "tags": {"kuma.io/service": ["web"]},
    "type": "dataplane",
    "workload": "web",
    "validFor": "24h0m0s",
}
USER = {"name": "jane", "groups": ["team-a"], "validFor": "1h"}
ZONE = {"zone": "east", "scope": ["cp"], "validFor": "1h"}
OF = {"dataplane": DATAPLANE, "user": USER, "zone": ZONE}


@pytest.fixture
def tokens(start: Unit) -> Api:
    return start(state=FixedState(WORLD))


def faults(answer: httpx.Response) -> list[str]:
    return [f"{fault['field']}: {fault['reason']}" for fault in answer.json()["invalid_parameters"]]


def test_the_answer_is_the_token_and_nothing_else(tokens: Api) -> None:
    answer = tokens.post("/tokens/dataplane", json=DATAPLANE)

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["cache-control"] == "no-store"
    claims = jwt.decode(answer.text, public_pem(private_key()), ["RS256"])
    assert claims["exp"] - claims["nbf"] == 24 * 3600 + 10
    assert {name: claims[name] for name in ("Name", "Mesh", "Tags", "Type", "Workload")} == {
        "Name": "web-1",
        "Mesh": "default",
        "Tags": {"kuma.io/service": ["web"]},
        "Type": "dataplane",
        "Workload": "web",
    }


def test_each_token_has_an_id_of_its_own(tokens: Api) -> None:
    answers = [tokens.post("/tokens/user", json=USER).text for _ in range(3)]

    assert len({jwt.decode(text, public_pem(private_key()), ["RS256"])["jti"] for text in answers}) == 3


def test_tokens_for_people_and_zones_are_signed_with_their_own_keys(tokens: Api) -> None:
    user, zone = tokens.post("/tokens/user", json=USER).text, tokens.post("/tokens/zone", json=ZONE).text

    assert jwt.get_unverified_header(user)["kid"] == "1"
    assert jwt.get_unverified_header(zone)["kid"] == "4"
    claims = jwt.decode(zone, public_pem(private_key()), ["RS256"])
    assert (claims["Zone"], claims["Scope"]) == ("east", ["cp"])


def test_a_mesh_gets_its_key_with_its_first_token(start: Unit) -> None:
    api = start(state=FixedState(world(MESH)))

    answer = api.post("/tokens/dataplane", json=DATAPLANE)

    now = jwt.decode(answer.text, options={"verify_signature": False})["iat"] + 5
    assert dataplane_claims(answer.text, KeyRing.of(api.world()), now).name == "web-1"


def test_a_key_that_was_made_goes_with_its_mesh(start: Unit) -> None:
    api = start(state=FixedState(world(MESH))).with_mesh()
    api.post("/tokens/dataplane", json=DATAPLANE).raise_for_status()

    assert api.delete("/meshes/default").status_code == 200
    assert not list(api.world().table("Secret", "default"))


@pytest.mark.parametrize("serial", ["1", "2"])
def test_a_key_that_somebody_stored_does_not_go_with_its_mesh_unasked(api: Api, serial: str) -> None:
    name = f"dataplane-token-signing-key-default-{serial}"
    stored = secret(name, pem(private_key()), "default").data
    api.put(f"/meshes/default/secrets/{name}", stored).raise_for_status()

    assert api.delete("/meshes/default").status_code == 400
    assert api.delete("/meshes/default", params={"cascade": "true"}).status_code == 200


def test_people_get_their_key_with_their_first_token(start: Unit) -> None:
    api = start(state=FixedState(world()))

    answer = api.post("/tokens/user", json=USER)

    now = jwt.decode(answer.text, options={"verify_signature": False})["iat"] + 5
    assert user_claims(answer.text, KeyRing.of(api.world()), now).groups == ("team-a",)


@pytest.mark.parametrize(
    ("path", "body", "wanted"),
    [
        ("dataplane", {}, ["mesh: must be set"]),
        ("dataplane", {"mesh": "nowhere"}, ["mesh: there is no Mesh `nowhere`"]),
        (
            "dataplane",
            {"mesh": 1, "tags": {"a": "b"}, "validFor": "x"},
            [
                "mesh: must be a text, not `1`",
                'tags["a"]: must be a list, not a text',
                "validFor: `x` is not a duration: write for example `15s`, `1h30m` or `300ms`",
            ],
        ),
        ("user", {}, ["name: must be set", "validFor: must be set"]),
        ("user", {**USER, "validFor": ""}, ["validFor: must be set"]),
        ("user", {**USER, "validFor": "0s"}, ["validFor: must be above zero, not `0s`"]),
        ("zone", {"zon": "east"}, ["zon: unknown field", "zone: must be set"]),
    ],
)
def test_every_fault_of_a_request_is_told(tokens: Api, path: str, body: Any, wanted: list[str]) -> None:
    answer = tokens.post(f"/tokens/{path}", json=body)

    assert answer.status_code == 400
    assert faults(answer) == wanted


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"text"', b"\xff", b"[" * 4000])
def test_a_body_that_is_no_request_is_refused(tokens: Api, body: bytes) -> None:
    answer = tokens.post("/tokens/user", content=body, headers={"content-type": "application/json"})

    assert answer.status_code == 400


def test_a_large_body_is_refused(tokens: Api) -> None:
    assert tokens.post("/tokens/user", json={**USER, "groups": ["x" * 9000]}).status_code == 413


def test_a_token_that_would_be_too_long_is_not_made(tokens: Api) -> None:
    answer = tokens.post("/tokens/user", json={**USER, "groups": ["é" * 3500]})

    assert answer.status_code == 400
    assert "more than 16384 characters" in answer.json()["detail"]


def test_empty_texts_are_as_good_as_none(tokens: Api) -> None:
    body = {"name": "", "mesh": "default", "tags": None, "type": "", "workload": "", "validFor": ""}

    answer = tokens.post("/tokens/dataplane", json=body)

    claims = jwt.decode(answer.text, public_pem(private_key()), ["RS256"])
    assert claims["exp"] - claims["nbf"] == 10 * 365 * 24 * 3600 + 10


@pytest.mark.parametrize("purpose", OF)
def test_who_calls_from_elsewhere_gets_none(start: Unit, purpose: str) -> None:
    answer = start(state=FixedState(WORLD)).post(f"/tokens/{purpose}", json=OF[purpose], peer="192.0.2.1")

    assert answer.status_code == 401
    assert f"may not write {purpose.capitalize()}Token" in answer.json()["detail"]


@pytest.mark.parametrize("purpose", OF)
def test_where_tokens_are_made_elsewhere_none_is_issued(start: Unit, purpose: str) -> None:
    issued = {"dataplane", "user", "zone"} - {purpose}
    api = start(state=FixedState(WORLD), issued_tokens=issued)

    statuses = {path: api.post(f"/tokens/{path}", json=body).status_code for path, body in OF.items()}

    assert statuses == {path: 403 if path == purpose else 200 for path in OF}


def test_before_the_store_is_read_nobody_can_tell(start: Unit) -> None:
    answer = start(state=FixedState(world(), is_ready=False)).post("/tokens/user", json=USER)

    assert answer.status_code == 503
    assert "retry-after" in answer.headers


def test_a_broken_key_is_told_with_its_name(start: Unit) -> None:
    broken = secret("user-token-signing-key-9", b"no key")

    answer = start(state=FixedState(world(*signing_keys(), broken))).post("/tokens/user", json=USER)

    assert answer.status_code == 503
    assert "GlobalSecret user-token-signing-key-9 is not an RSA key" in answer.json()["detail"]


def test_the_log_has_the_id_of_a_token_and_not_the_token(tokens: Api) -> None:
    with structlog.testing.capture_logs() as logs:
        answer = tokens.post("/tokens/dataplane", json=DATAPLANE)

    token_id = jwt.decode(answer.text, options={"verify_signature": False})["jti"]
    (entry,) = (entry for entry in logs if entry["event"] == "token.issued")
    assert (entry["id"], entry["purpose"], entry["valid_for"]) == (token_id, "dataplane", "24h0m0s")
    assert entry["claims"] == {
        "name": "web-1",
        "mesh": "default",
        "tags": {"kuma.io/service": ["web"]},
        "type": "dataplane",
        "workload": "web",
    }
    assert not [piece for piece in answer.text.split(".") if piece in repr(logs)]
