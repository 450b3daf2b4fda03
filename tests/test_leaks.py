"""What looks for secrets in outputs finds them, or the tests that use it could not fail."""

from base64 import b64encode, urlsafe_b64encode
from pathlib import Path

import pytest

from tests.support.authority import Authority
from tests.support.leaks import leaks, leaks_of_answer


@pytest.mark.parametrize("offset", range(3))
def test_a_private_key_is_found_as_it_is_and_in_base64(offset: int) -> None:
    key = bytes(offset) + Authority().key

    assert list(leaks(b"{" + key + b"}"))
    assert list(leaks(b"{" + b64encode(key) + b"}"))


def test_a_certificate_is_no_secret() -> None:
    assert not list(leaks(b64encode(Authority().certificate) + Authority().certificate))


PARTS = (b'{"alg":"RS256","kid":"1"}', b'{"Name":"web","Mesh":"default"}', bytes(range(256)))
TOKEN = b".".join(urlsafe_b64encode(part).rstrip(b"=") for part in PARTS)


@pytest.mark.parametrize("offset", range(3))
def test_a_token_is_found_as_it_is_and_in_base64_and_what_resembles_one_is_not(offset: int) -> None:
    assert list(leaks(b'{"token": "' + TOKEN + b'"}'))
    assert list(leaks(b'{"data": "' + b64encode(bytes(offset) + TOKEN) + b'"}'))
    assert not list(leaks(b"eyJ0aGlz.is.none"))


def test_an_answer_may_have_in_it_what_was_asked_for_and_no_more() -> None:
    key = Authority().key

    assert not list(leaks_of_answer("/tokens/user", b"", TOKEN))
    assert not list(leaks_of_answer("/bootstrap", b"", TOKEN))
    assert not list(leaks_of_answer("/secrets", b"reveal=true", TOKEN + key))
    assert list(leaks_of_answer("/meshes", b"", TOKEN))
    assert list(leaks_of_answer("/tokens/user", b"", key))
    assert list(leaks_of_answer("/bootstrap", b"", key))


def test_no_golden_has_a_secret_in_it() -> None:
    goldens = [path for path in (Path(__file__).parent / "cases").rglob("*.out.*") if path.is_file()]

    assert len(goldens) > 100
    assert not [path for path in goldens if list(leaks(path.read_bytes()))]
