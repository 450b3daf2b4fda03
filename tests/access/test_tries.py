"""Whoever tries too often has to wait, and no crowd of addresses takes all memory."""

from __future__ import annotations

import pytest

from cp.access.tries import MOST_ADDRESSES, MOST_TRIES, WINDOW, FailedTries


def failed(tries: FailedTries, address: str, times: int, now: float = 0.0) -> FailedTries:
    for number in range(times):
        tries.add(address, str(number), now)
    return tries


def test_too_many_failures_make_an_address_wait_until_its_window_is_over() -> None:
    tries = failed(FailedTries(), "192.0.2.1", MOST_TRIES - 1)
    assert tries.wait("192.0.2.1", 1.0) == 0

    tries.add("192.0.2.1", "another", 10.0)

    assert tries.wait("192.0.2.1", 20.0) == WINDOW - 20.0
    assert tries.wait("192.0.2.1", WINDOW) == 0
    assert tries.wait("192.0.2.2", 20.0) == 0


def test_a_token_that_is_repeated_is_one_try() -> None:
    """So that an agent with an old token keeps nobody else on its machine out."""
    tries = FailedTries()
    for _ in range(2 * MOST_TRIES):
        tries.add("192.0.2.1", "old", 0.0)

    assert tries.wait("192.0.2.1", 1.0) == 0


def test_a_new_window_begins_with_the_first_failure_after_the_last_one() -> None:
    tries = failed(FailedTries(), "192.0.2.1", MOST_TRIES)

    tries.add("192.0.2.1", "another", WINDOW + 1)

    assert tries.wait("192.0.2.1", WINDOW + 1) == 0


@pytest.mark.parametrize(
    ("failing", "asking", "waits"),
    [
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("", "", True),
    ],
)
def test_a_network_of_ipv6_counts_as_one_address(failing: str, asking: str, *, waits: bool) -> None:
    tries = failed(FailedTries(), failing, MOST_TRIES)

    assert (tries.wait(asking, 1.0) > 0) is waits


def test_a_crowd_is_forgotten_from_the_first_one_on() -> None:
    tries = FailedTries(most=1)
    for number in range(MOST_ADDRESSES + 10):
        tries.add(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", "bad", 0.0)

    assert len(tries) == MOST_ADDRESSES
    assert tries.wait("10.0.0.9", 1.0) == 0
    assert tries.wait("10.0.0.10", 1.0) > 0
