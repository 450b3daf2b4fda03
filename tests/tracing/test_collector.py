"""Headers for the collector of traces, as operators write them."""

from __future__ import annotations

import pytest

from cp.tracing.collector import headers_of


def test_headers_are_decoded_and_named_in_lower_case() -> None:
    assert headers_of("Authorization=Bearer%2051f0c2, x-tenant = a ,") == {
        "authorization": "Bearer 51f0c2",
        "x-tenant": "a",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=b,no value", "entry 2 does not begin with the name of a header"),
        ("a=b,=c", "entry 2 does not begin with the name of a header"),
        ("Host=a", "entry 1 is a header that says what is sent"),
        ("grpc-timeout=1S", "entry 1 is a header that says what is sent"),
        ("GRPC-Encoding=gzip", "entry 1 is a header that says what is sent"),
        ("a=%0A", "entry 1 has a character that no header may have"),
    ],
)
def test_headers_of_a_message_are_invalid(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        headers_of(text)
