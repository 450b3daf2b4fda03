"""Whoever we call over HTTP has so long for a whole answer."""

from __future__ import annotations

from contextlib import closing

import pytest

from cp.calling import connection_to, ended_within
from cp.client.http import HttpRequest, whole_answer
from tests.support.endless import ENDLESS, HANDSHAKE, endless

pytestmark = pytest.mark.timeout(30)


@pytest.mark.parametrize("answer", ENDLESS.values(), ids=ENDLESS)
def test_an_answer_that_never_ends_is_given_up(answer: tuple[bytes, bytes]) -> None:
    with endless(answer) as where, pytest.raises(TimeoutError, match="more than 0"):
        whole_answer(HttpRequest("GET", f"http://{where}/", 0.2))


def test_a_handshake_that_never_ends_is_given_up() -> None:
    with endless(HANDSHAKE) as where:
        connection = connection_to(f"https://{where}/", 5)
        with closing(connection), pytest.raises(TimeoutError), ended_within(connection, 0.2):
            connection.request("GET", "/")


def test_a_connection_that_is_opened_too_late_is_ended_at_once() -> None:
    with endless(ENDLESS["body"]) as where:
        connection = connection_to(f"http://{where}/", 5)
        connection.end()
        with closing(connection), pytest.raises(TimeoutError), ended_within(connection, 60):
            connection.connect()


def test_what_fails_in_time_fails_as_it_does() -> None:
    connection = connection_to("http://127.0.0.1:9/", 5)

    with closing(connection), pytest.raises(ConnectionError), ended_within(connection, 60):
        connection.connect()


def test_an_address_of_ipv6_needs_no_port() -> None:
    connection = connection_to("https://[::1]/", 5)

    assert (connection.host, connection.port) == ("::1", 443)
