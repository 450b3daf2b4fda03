"""Texts as an operator sees them."""

from __future__ import annotations

import pytest

from cp.model.wording import few


@pytest.mark.parametrize(
    ("names", "text"),
    [("", ""), ("a", "a"), ("abc", "a, b, c"), ("abcd", "a, b, c and 1 more"), ("abcdefg", "a, b, c and 4 more")],
)
def test_of_many_names_the_first_are_told_and_how_many_more_there_are(names: str, text: str) -> None:
    assert few(list(names)) == text


def test_there_may_be_room_for_more() -> None:
    assert few(list("abcd"), 4) == "a, b, c, d"
