"""What is said of the authority of a mesh as time goes by."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from cp.identity.authority import Authority, KeyPair, authority
from cp.insight.lint import lint
from tests.identity.meshes import (
    CA,
    NOW,
    YEAR,
    dataplane,
    mesh,
    new_authority,
    pair_of,
    provided,
    secret,
    trusting,
    world,
)
from tests.snapshots import policies

DAY = 86_400.0


def codes(*, now: float | None, expiration: str | None = None) -> dict[str, str]:
    pair, made = new_authority(expiration=expiration)
    of = world(provided(pair), trusting(made))
    findings = lint(policies(), of, now=now)
    return {finding.code: str(finding) for finding in findings if "authority" in finding.code}


def test_an_authority_is_told_of_a_month_before_it_ends() -> None:
    assert not codes(now=NOW)
    assert not codes(now=NOW + 10 * YEAR - 31 * DAY)
    assert "ends in 29 days" in codes(now=NOW + 10 * YEAR - 29.5 * DAY)["authority-ends"]


def test_an_authority_that_never_lives_long_is_told_of_when_it_is_old() -> None:
    assert not codes(now=NOW + 5 * DAY, expiration="10d")
    assert set(codes(now=NOW + 9 * DAY, expiration="10d")) == {"authority-ends"}


def test_an_authority_that_has_ended_cannot_sign() -> None:
    found = codes(now=NOW + 10 * YEAR)

    assert set(found) == {"authority-ends", "no-authority"}
    assert "has expired at 2037-01-12" in found["no-authority"]


def test_nothing_ends_where_the_time_is_not_known() -> None:
    assert not codes(now=None)


def test_a_built_in_authority_that_is_stored_is_looked_at() -> None:
    pair, _ = new_authority()
    whole = (secret("default.ca-builtin-cert-ca-1", pair.certificate), secret("default.ca-builtin-key-ca-1", pair.key))

    def faults(*documents: object) -> list[str]:
        found = lint(policies(), world(mesh(), *documents))  # type: ignore[arg-type]  # documents
        return [finding.code for finding in found if finding.code == "no-authority"]

    assert not faults()
    assert not faults(*whole)
    assert faults(whole[0]) == ["no-authority"]


def test_a_proxy_with_too_many_names_is_told_that_it_gets_no_certificate() -> None:
    def found(tags: int) -> list[str]:
        inbounds = ({"kuma.io/service": "web", "version": str(number)} for number in range(tags))
        findings = lint(policies(), world(mesh(), dataplane(*inbounds)))
        return [finding.message for finding in findings if finding.code == "no-identity"]

    assert not found(198)  # beside the two names of the service
    assert found(199) == ["has 201 names by its tags, and a certificate at most 200: it gets none"]


def nameless() -> KeyPair:
    """An authority with the subject of all new ones, and no identifier."""
    subject = new_authority()[1].certificate.subject
    return pair_of(ec.generate_private_key(ec.SECP256R1()), CA, subject=subject)


@pytest.mark.parametrize(
    ("before", "after", "is_told"),
    [
        (new_authority()[0], nameless(), True),
        (nameless(), new_authority()[0], False),  # new certificates tell whose they are, and old ones did
        (nameless(), nameless(), False),
        (new_authority()[0], new_authority()[0], False),
    ],
    ids=["to nameless", "from nameless", "both nameless", "both named"],
)
def test_a_root_that_is_taken_for_the_one_before_is_told_of(before: KeyPair, after: KeyPair, *, is_told: bool) -> None:
    signer = authority(before, None)
    assert isinstance(signer, Authority)

    found = [one for one in lint(policies(), world(provided(after), trusting(signer))) if one.code == "roots-alike"]

    assert [(one.path, str(one.resource)) for one in found] == [("mtls.backends[0]", "Mesh default")] * is_told
