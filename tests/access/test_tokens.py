"""Tokens that are taken, and those that are refused: at which door, and with which words."""

from __future__ import annotations

from cp.access.keys import KeyRing
from cp.access.tokens import DataplaneClaims, UserClaims, dataplane_claims, user_claims
from tests.access.forge import DATAPLANE, NOW, USER, signing_keys, token, world


def test_the_token_of_a_proxy_says_who_it_is() -> None:
    tags = {"kuma.io/service": ["web", "web-api"]}
    genuine = token(DATAPLANE | {"Tags": tags, "Type": "dataplane", "Workload": "web"})

    claims = dataplane_claims(genuine, KeyRing.of(world(*signing_keys())), NOW)

    allowed = {"kuma.io/service": frozenset({"web", "web-api"})}
    assert claims == DataplaneClaims("web-1", "default", allowed, "dataplane", "web", "id-1", NOW + 3600)


def test_the_token_of_a_person_says_who_it_is() -> None:
    claims = user_claims(token(USER), KeyRing.of(world(*signing_keys())), NOW)

    assert claims == UserClaims("jane", ("team-a",), "id-1", NOW + 3600)
