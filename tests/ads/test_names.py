"""Names are held once, and read once from bytes that repeat them."""

from __future__ import annotations

import pytest
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from cp.ads.names import REMEMBERED, Names
from cp.ads.wire import decoded
from cp.snapshot import CLUSTER, ENDPOINTS, ROUTES

MANY = [f"service-{number}" for number in range(200)]


def request(names: list[str], type_url: str = ENDPOINTS, version: str = "", nonce: str = "", error: str = "") -> bytes:
    message = DiscoveryRequest(type_url=type_url, resource_names=names, version_info=version, response_nonce=nonce)
    if error != "":
        message.error_detail.message = error
    return message.SerializeToString()


def test_equal_names_are_one_set_for_as_long_as_anybody_holds_it() -> None:
    names = Names()
    first = names.shared(frozenset({"a", "b"}))

    assert names.shared(frozenset({"b", "a"})) is first
    del first
    assert len(names) == 0


def test_names_that_are_repeated_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Names()
    first = decoded(request(MANY), known)
    monkeypatch.setattr("cp.ads.wire.frozenset", pytest.fail, raising=False)

    again = decoded(request(MANY, version="7", nonce="n", error="no"), known)

    assert again.names is first.names
    assert (again.version, again.nonce, again.error) == ("7", "n", "no")


def test_the_same_names_in_another_order_are_the_same_set() -> None:
    known = Names()
    first = decoded(request(MANY), known)

    assert decoded(request(MANY[::-1]), known).names is first.names


def test_no_more_is_remembered_than_is_bounded() -> None:
    known, kept = Names(), frozenset(MANY)
    for number in range(REMEMBERED + 5):
        known.remember(memoryview(number.to_bytes(4)), kept)

    assert len(known._said) <= REMEMBERED


def _read(data: bytes, known: Names) -> object:
    try:
        return decoded(data, known)
    except DecodeError:
        return None


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """What clients send, and what none would: fields in any order, cut off, or with a type's URL within an error."""
    many = draw(st.sampled_from([MANY, MANY[:150], [*MANY, "type.googleapis.com/x"], []]))
    whole = request(
        many,
        draw(st.sampled_from([ENDPOINTS, ROUTES])),
        version=draw(st.sampled_from(["", "v"])),
        nonce=draw(st.sampled_from(["", "n"])),
        error=draw(st.sampled_from(["", "no", f'no: "{CLUSTER}', "\x1a\x01b"])),
    )
    more = draw(st.sampled_from([b"", request(["late"]), request(MANY), b"\x1a\x01b", b"\x0a", b"\x12\xff"]))
    return draw(st.sampled_from([whole + more, more + whole, whole[: draw(st.integers(0, len(whole)))]]))


@given(st.lists(requests(), max_size=6))
def test_a_request_says_the_same_whatever_was_said_before(said: list[bytes]) -> None:
    known = Names()
    kept = []  # sets that nobody holds are not known any more
    for data in said:
        read = _read(data, known)
        kept.append(read)
        assert read == _read(data, Names())
