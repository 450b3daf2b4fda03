"""Hosts with ports, and patterns of host names: which covers which, and what two have in common, name by name."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cp.model.hosts import ANY_HOST, common, covering, covers, hosts_with_ports

NAMES: Final = [".".join(parts) for length in range(1, 5) for parts in product("ab", repeat=length)]
"""Every name of up to four parts, so that a pattern of up to three covers some of them."""

PATTERNS: Final = [ANY_HOST, *(f"*.{name}" for name in NAMES if len(name) < 6), *(n for n in NAMES if len(n) < 6)]

patterns = st.sampled_from(PATTERNS)


def fits(pattern: str, name: str) -> bool:
    """Part by part from the end: a `*` stands for all parts that are left, and for one at least."""
    if pattern == ANY_HOST:
        return True
    wanted, parts = pattern.split("."), name.split(".")
    if wanted[0] != ANY_HOST:
        return wanted == parts
    return len(parts) >= len(wanted) and parts[1 - len(wanted) :] == wanted[1:]


def names_of(pattern: str) -> set[str]:
    return {name for name in NAMES if fits(pattern, name)}


@given(patterns, patterns)
def test_a_pattern_covers_another_if_each_name_of_the_other_fits_it(wider: str, narrower: str) -> None:
    assert covers(wider, narrower) == (names_of(wider) >= names_of(narrower))


@given(patterns, patterns)
def test_what_two_patterns_have_in_common_are_the_names_that_fit_both(first: str, second: str) -> None:
    shared = common(first, second)

    assert (set() if shared is None else names_of(shared)) == names_of(first) & names_of(second)
    assert shared == common(second, first)


@given(patterns)
def test_the_patterns_that_cover_one_are_all_there_the_narrowest_first(pattern: str) -> None:
    wider = list(covering(pattern))

    assert set(wider) & set(PATTERNS) == {each for each in PATTERNS if covers(each, pattern)}
    assert all(covers(after, before) for before, after in pairwise(wider))
    assert len(wider) == len(set(wider))


@pytest.mark.parametrize(
    ("wider", "narrower"),
    [("*.example.com", "example.com"), ("*.example.com", "anexample.com"), ("a.com", "*.a.com"), ("*.a.com", "*.com")],
)
def test_a_pattern_does_not_cover_what_only_looks_like_it(wider: str, narrower: str) -> None:
    assert not covers(wider, narrower)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("cp.example", (("cp.example", 5678),)),
        (" cp-1.example:1 ,cp-2.example, cp-1.example:1,", (("cp-1.example", 1), ("cp-2.example", 5678))),
        ("10.0.0.1:1,::1,[::1],[::1]:2", (("10.0.0.1", 1), ("::1", 5678), ("::1", 2))),
    ],
)
def test_hosts_may_have_ports_of_their_own(text: str, expected: tuple[tuple[str, int], ...]) -> None:
    assert hosts_with_ports(text, 5678) == expected


@pytest.mark.parametrize("text", ["a b", "https://cp", "cp/x", "cp:65536", "cp:x", ":5678", "me@cp", "[::1", "a,b c"])
def test_what_is_no_host_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is no host"):
        hosts_with_ports(text, 5678)
