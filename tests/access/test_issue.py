"""New tokens: what stands in them, read by a library that knows nothing of us, and what nobody may ask for."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cp.access import issue
from cp.access.issue import (
    DataplaneTokenRequest,
    TokenRequest,
    TooLong,
    UserTokenRequest,
    ZoneTokenRequest,
    new_token,
    request_of,
)
from cp.access.keys import KeyRing, SigningKey
from cp.access.tokens import dataplane_claims, user_claims
from tests.access.forge import NOW, private_key, public_pem, signing_keys, world

KEY = SigningKey("1", private_key())
TIMES = {"iat": 1799999995, "nbf": 1799999995}
HOUR = {"validFor": "1h"}


def made(schema: type[TokenRequest], data: dict[str, Any]) -> str:
    request, faults = request_of(schema, data)
    assert not faults
    assert request is not None
    return new_token(request, KEY, now=NOW, token_id="id-1")


def claims_of(token: str) -> dict[str, Any]:
    options = {"verify_exp": False, "verify_nbf": False, "verify_iat": False}
    claims: dict[str, Any] = jwt.decode(token, public_pem(private_key()), ["RS256"], options=options)  # type: ignore[arg-type]
    return claims


def test_the_token_of_a_proxy_has_the_claims_of_kuma() -> None:
    asked = {
        "name": "web-1",
        "mesh": "default",
        "tags": {"kuma.io/service": ["web", "web-api"]},
        "type": "dataplane",
        "workload": "web",
        "validFor": "24h0m0s",
    }

    token = made(DataplaneTokenRequest, asked)

    assert jwt.get_unverified_header(token) == {"alg": "RS256", "kid": "1", "typ": "JWT"}
    assert claims_of(token) == {
        "Name": "web-1",
        "Mesh": "default",
        "Tags": {"kuma.io/service": ["web", "web-api"]},
        "Type": "dataplane",
        "Workload": "web",
        "jti": "id-1",
        **TIMES,
        "exp": 1800086405,
    }


def test_the_token_of_a_person_has_the_claims_of_kuma() -> None:
    token = made(UserTokenRequest, {"name": "jane", "groups": ["team-a", "team-b"], **HOUR})

    assert claims_of(token) == {
        "Name": "jane",
        "Groups": ["team-a", "team-b"],
        "jti": "id-1",
        **TIMES,
        "exp": 1800003605,
    }


def test_the_token_of_a_zone_has_the_claims_of_kuma() -> None:
    token = made(ZoneTokenRequest, {"zone": "east", "scope": ["cp"], **HOUR})

    assert claims_of(token) == {"Zone": "east", "Scope": ["cp"], "jti": "id-1", **TIMES, "exp": 1800003605}


@pytest.mark.parametrize("left_out", [{}, {"validFor": ""}, {"validFor": None}])
def test_tokens_of_proxies_and_zones_are_good_for_ten_years_unless_said_otherwise(left_out: dict[str, Any]) -> None:
    ten_years = NOW + 10 * 365 * 24 * 3600 + 5

    assert claims_of(made(DataplaneTokenRequest, {"mesh": "default", **left_out}))["exp"] == ten_years
    assert claims_of(made(ZoneTokenRequest, {"zone": "east", **left_out}))["exp"] == ten_years


@pytest.mark.parametrize(
    ("schema", "data", "faults"),
    [
        (DataplaneTokenRequest, {}, ["mesh: must be set; a token is for the proxies of one mesh"]),
        (
            DataplaneTokenRequest,
            {"mesh": "", "name": 1, "validFor": "soon", "type": "sidecar", "tag": {}},
            [
                'name: must be a text, not `1`; write `"1"`',
                "validFor: `soon` is not a duration: write for example `15s`, `1h30m` or `300ms`",
                "tag: unknown field; did you mean `tags`?",
                "mesh: must be set; a token is for the proxies of one mesh",
                "type: `sidecar` is not one of dataplane, ingress, egress",
            ],
        ),
        (
            DataplaneTokenRequest,
            {"mesh": "default", "tags": {"kuma.io/service": [], "team": "a"}, "validFor": "-1s"},
            [
                'tags["team"]: must be a list, not a text; begin each item with `- `',
                'tags["kuma.io/service"]: has no value, so no proxy could use the token; give it one',
                "validFor: must be above zero, not `-1s`",
            ],
        ),
        (
            UserTokenRequest,
            {"groups": ["a\nb"]},
            [
                "name: must be set; say whose token it is",
                "groups: must not have control characters in it, such as line breaks",
                "validFor: must be set; say how long the token is good, such as `24h`",
            ],
        ),
        (ZoneTokenRequest, {"zone": "\x1b[31m"}, ["zone: must not have control characters in it, such as line breaks"]),
        (ZoneTokenRequest, [], [": must be an object, not a list; it has `validFor`, `zone`, `scope`"]),
    ],
)
def test_every_fault_of_a_request_is_told(schema: type[TokenRequest], data: Any, faults: list[str]) -> None:
    assert [str(fault) if fault.path else f": {fault}" for fault in request_of(schema, data)[1]] == faults


def test_no_token_is_longer_than_what_is_read() -> None:
    request = DataplaneTokenRequest(mesh="default", tags={"team": [str(number) for number in range(3000)]})

    with pytest.raises(TooLong):
        new_token(request, KEY, now=NOW, token_id="id-1")


@pytest.mark.parametrize(("beyond", "is_made"), [(0, True), (1, False)])
def test_token_may_have_the_most_characters(monkeypatch: pytest.MonkeyPatch, beyond: int, is_made: bool) -> None:
    request = DataplaneTokenRequest(mesh="default")
    length = len(new_token(request, KEY, now=NOW, token_id="id-1"))
    monkeypatch.setattr(issue, "MOST_CHARACTERS", length - beyond)

    with nullcontext() if is_made else pytest.raises(TooLong):
        new_token(request, KEY, now=NOW, token_id="id-1")


TEXTS = st.text(max_size=20)


@given(
    st.fixed_dictionaries(
        {"mesh": st.just("default")},
        optional={
            "name": TEXTS,
            "tags": st.dictionaries(TEXTS, st.lists(TEXTS, max_size=3), max_size=3),
            "type": st.sampled_from(["dataplane", "ingress", "egress"]),
            "workload": TEXTS,
            "validFor": st.sampled_from(["1ms", "1s", "1h", "87600h"]),
        },
    )
)
def test_whatever_can_be_asked_for_is_taken_at_the_door(data: dict[str, Any]) -> None:
    request, faults = request_of(DataplaneTokenRequest, data)
    if request is None or faults:
        return

    claims = dataplane_claims(new_token(request, KEY, now=NOW, token_id="id"), KeyRing.of(world(*signing_keys())), NOW)

    assert (claims.name, claims.workload, claims.type) == (
        request.name or "",
        request.workload or "",
        request.type or "",
    )
    assert claims.tags == {tag: frozenset(values) for tag, values in (request.tags or {}).items()}


def test_a_new_token_of_a_person_is_taken_at_the_door() -> None:
    token = made(UserTokenRequest, {"name": "jané", "groups": ["ü"], "validFor": "1ns"})

    assert user_claims(token, KeyRing.of(world(*signing_keys())), NOW).groups == ("ü",)
