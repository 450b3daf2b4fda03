"""How rollouts are written: steps, and what has to hold of requests."""

from __future__ import annotations

from fractions import Fraction

import pytest

from cp.serving.rollouts.conditions import RequestCounts, RequestVerdict, limit_of
from cp.serving.rollouts.steps import steps_of


def test_each_step_is_a_number_of_proxies_or_a_share_of_a_class() -> None:
    first, second, last = steps_of("1, 10%,100%")

    assert [first.count(50), second.count(50), last.count(50)] == [1, 5, 50]
    assert (second.count(1), second.count(11), first.count(0)) == (1, 2, 0)
    assert [str(step) for step in (first, second, last)] == ["1", "10%", "100%"]


@pytest.mark.parametrize(
    "text", ["", "0", "0%", "101%", "1,1", "10%,5%", "2,1,100%", "a", "-1", "1;2", ",".join("12345" * 5)]
)
def test_steps_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        steps_of(text)


@pytest.mark.parametrize("text", ["", "5xx", "5xx > 1%", "5xx < 1", "p99 < 200ms", "5xx < 0%", "5xx < 200%"])
def test_a_condition_that_is_not_judged_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="5xx < 1%"):
        limit_of(text)


def test_so_many_requests_are_needed_that_a_single_error_is_within_the_limit() -> None:
    limit = limit_of("5xx < 0.5%")

    assert limit.share == Fraction(1, 200)
    assert limit.fewest == 400
    assert limit.verdict(RequestCounts(399, 1)) is RequestVerdict.TOO_FEW
    assert limit.verdict(RequestCounts(5, 2)) is RequestVerdict.FAILS
    assert limit.verdict(RequestCounts(400, 1)) is RequestVerdict.HOLDS
    assert limit.verdict(RequestCounts(400, 2)) is RequestVerdict.FAILS
    assert limit_of("5xx<50%").fewest == 20


def test_a_proxy_with_enough_requests_is_judged_by_itself_too() -> None:
    limit, good, bad = limit_of("5xx < 10%"), RequestCounts(10_000, 0), RequestCounts(20, 2)

    assert limit.judge({"a": good, "b": good})[0] is RequestVerdict.HOLDS
    verdict, reason = limit.judge({"a": good, "b": bad})
    assert (verdict, reason) == (RequestVerdict.FAILS, "2 of 20 requests were answered with 5xx at b")
    assert limit.judge({"a": RequestCounts(10, 5), "b": RequestCounts(10, 0)})[0] is RequestVerdict.FAILS
    assert limit.judge({})[0] is RequestVerdict.TOO_FEW


def test_a_proxy_with_very_many_requests_hides_nobody_who_has_few() -> None:
    limit, busy = limit_of("5xx < 1%"), RequestCounts(10**9, 0)

    assert limit.judge({"busy": busy, "quiet": RequestCounts(150, 150)}) == (
        RequestVerdict.FAILS,
        "150 of 150 requests were answered with 5xx at quiet",
    )
    ones = {f"quiet-{number}": RequestCounts(30, 1) for number in range(5)}
    assert limit.judge({"busy": busy, **ones})[0] is RequestVerdict.FAILS
    assert limit.judge({"busy": busy, "quiet": RequestCounts(30, 1)})[0] is RequestVerdict.HOLDS


def test_counters_that_went_down_are_those_of_an_envoy_that_began_anew() -> None:
    assert RequestCounts(30, 3).since(RequestCounts(10, 1)) == RequestCounts(20, 2)
    assert RequestCounts(5, 1).since(RequestCounts(10, 1)) == RequestCounts(5, 1)
