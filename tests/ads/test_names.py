"""Names are held once, and read once from bytes that repeat them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import pytest
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DiscoveryRequest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from cp.ads.session.name_sets import LONG, REMEMBERED, NameSets
from cp.ads.session.wire import decoded, decoded_delta, encoded_names
from cp.translate.packing import CLUSTER, ENDPOINTS, ROUTES

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
MANY = [f"service-{number}" for number in range(200)]


def request(names: list[str], type_url: str = ENDPOINTS, version: str = "", nonce: str = "", error: str = "") -> bytes:
    message = DiscoveryRequest(type_url=type_url, resource_names=names, version_info=version, response_nonce=nonce)
    if error != "":
        message.error_detail.message = error
    return message.SerializeToString()


def delta_request(names: list[str], node: str = "", nonce: str = "", held: Mapping[str, str] = NOTHING) -> bytes:
    message = DeltaDiscoveryRequest(
        type_url=ENDPOINTS, resource_names_subscribe=names, response_nonce=nonce, initial_resource_versions=held
    )
    message.node.id = node
    return message.SerializeToString()


def test_equal_names_are_one_set_for_as_long_as_anybody_holds_it() -> None:
    names = NameSets(encoded_names)
    first = names.shared(frozenset({"a", "b"}))

    assert names.shared(frozenset({"b", "a"})) is first
    del first
    assert len(names) == 0


def test_names_that_are_repeated_are_not_made_a_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    known = NameSets(encoded_names)
    first = decoded(request(MANY), known)
    monkeypatch.setattr("cp.ads.session.name_sets.frozenset", pytest.fail, raising=False)

    again = decoded(request(MANY, version="7", nonce="n", error="no"), known)

    assert again.names is first.names
    assert (again.version, again.nonce, again.error) == ("7", "n", "no")


def test_long_names_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    known = NameSets(encoded_names)
    monkeypatch.setattr(NameSets, "_encodes", lambda *_: pytest.fail("it would copy them"))

    assert decoded(request(["a" * 2000, "b" * 2000]), known).names == {"a" * 2000, "b" * 2000}


def test_names_that_another_delta_stream_subscribed_to_are_not_made_a_set_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = NameSets(encoded_names)
    first = decoded_delta(delta_request(MANY, "web"), known)
    monkeypatch.setattr("cp.ads.session.name_sets.frozenset", pytest.fail, raising=False)

    assert decoded_delta(delta_request(MANY, "other"), known).subscribe is first.subscribe


def test_the_same_names_in_another_order_are_the_same_set() -> None:
    known = NameSets(encoded_names)
    first = decoded(request(MANY), known)

    assert decoded(request(MANY[::-1]), known).names is first.names


def test_no_more_is_remembered_than_is_bounded() -> None:
    known, kept = NameSets(lambda names: names[0].encode()), []
    for number in range(REMEMBERED + 5):
        run = f"{number}".ljust(LONG)
        kept.append(known.read([run], memoryview(run.encode())))

    assert len(known._recognised) == 5


MORE = (b"", request(["late"]), request(MANY), b"\x1a\x01b", b"\x22\x01b", b"\x0a", b"\x12\xff", b"\x1a\x02" * 2)
LISTS: Final[tuple[list[str], ...]] = (MANY, MANY[:150], [*MANY, CLUSTER], [])


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """What clients send, and what none would: fields in any order, cut off, or with a type's URL within an error."""
    whole = request(
        draw(st.sampled_from(LISTS)),
        draw(st.sampled_from([ENDPOINTS, ROUTES])),
        version=draw(st.sampled_from(["", "v"])),
        nonce=draw(st.sampled_from(["", "n"])),
        error=draw(st.sampled_from(["", "no", f'no: "{ENDPOINTS}', "\x1a\x01b"])),
    )
    more = draw(st.sampled_from(MORE))
    return draw(st.sampled_from([whole, whole + more, more + whole, whole[: draw(st.integers(0, len(whole)))]]))


@st.composite
def delta_requests(draw: st.DrawFn) -> bytes:
    whole = delta_request(
        draw(st.sampled_from(LISTS)),
        draw(st.sampled_from(["", "web"])),
        draw(st.sampled_from(["", "n"])),
        draw(st.sampled_from([NOTHING, {"a": "1"}])),
    )
    more = draw(st.sampled_from(MORE))
    return draw(st.sampled_from([whole, whole + more, more + whole, whole[: draw(st.integers(0, len(whole)))]]))


@given(st.lists(requests(), max_size=6))
def test_a_request_says_the_same_whatever_was_said_before(told: list[bytes]) -> None:
    _say_the_same(told, decoded)


@given(st.lists(delta_requests(), max_size=6))
def test_a_delta_request_says_the_same_whatever_was_said_before(told: list[bytes]) -> None:
    _say_the_same(told, decoded_delta)


def _say_the_same(told: list[bytes], decode: Callable[[bytes, NameSets], Any]) -> None:
    known = NameSets(encoded_names)
    kept = []  # sets that nobody holds are not known any more
    for data in told:
        read = _read(data, known, decode)
        kept.append(read)
        assert read == _read(data, NameSets(encoded_names), decode)


def _read(data: bytes, known: NameSets, decode: Callable[[bytes, NameSets], Any]) -> object:
    try:
        return decode(data, known)
    except DecodeError:
        return None


def test_a_run_that_is_known_says_nothing_of_names_elsewhere() -> None:
    known = NameSets(encoded_names)
    first = decoded(request(MANY), known)

    assert decoded(request(MANY) + b"\x1a\x01b", known).names == {*first.names, "b"}


def test_a_run_that_holds_more_than_names_or_less_is_not_known_later() -> None:
    known = NameSets(encoded_names)
    type_first = DiscoveryRequest(type_url=ENDPOINTS).SerializeToString()
    one, other = ([*MANY, f"{ENDPOINTS}/{last}"] for last in "ab")

    first = decoded(type_first + encoded_names(one), known)

    assert first.names == frozenset(one)
    assert decoded(type_first + encoded_names(other), known).names == frozenset(other)
