"""What looks for secrets in outputs finds them, or the tests that use it could not fail."""

from base64 import b64encode, urlsafe_b64encode

import pytest

from tests.support.authority import Authority
from tests.support.leaks import leaks


@pytest.mark.parametrize("offset", range(3))
def test_a_private_key_is_found_as_it_is_and_in_base64(offset: int) -> None:
    key = bytes(offset) + Authority().key

    assert list(leaks(b"{" + key + b"}"))
    assert list(leaks(b"{" + b64encode(key) + b"}"))


def test_a_certificate_is_no_secret() -> None:
    assert not list(leaks(b64encode(Authority().certificate) + Authority().certificate))


def test_a_token_is_found_and_what_resembles_one_is_not() -> None:
    parts = (b'{"alg":"RS256","kid":"1"}', b'{"Name":"web","Mesh":"default"}', bytes(range(256)))
    token = b".".join(urlsafe_b64encode(part).rstrip(b"=") for part in parts)

    assert list(leaks(b'{"token": "' + token + b'"}'))
    assert not list(leaks(b"eyJ0aGlz.is.none"))
