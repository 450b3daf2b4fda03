"""Of proxies that are refused again and again a few lines tell."""

from __future__ import annotations

from typing import Any

import structlog.testing

from cp.ads.refusal_log import RefusalLog


def test_each_sort_is_told_a_few_times_in_a_window_and_then_how_many_were_left_out() -> None:
    now = 0.0
    refusals = RefusalLog(lambda: now)
    with structlog.testing.capture_logs() as lines:
        for _ in range(25):
            refusals.tell("unauthenticated", "no token", proxy="default.web-1")
        refusals.tell("forbidden", "of another")
        assert [line["reason"] for line in lines] == ["no token"] * 10 + ["of another"]

        now = 10.0
        refusals.tell("unauthenticated", "no token", proxy="default.web-1")
        now = 20.0
        refusals.tell("unauthenticated", "no token", proxy="default.web-1")

    assert [line.get("left_out") for line in lines[-2:]] == [15, None]


def test_what_a_caller_says_of_itself_is_told_in_short() -> None:
    lines: list[dict[str, Any]] = []
    refusals = RefusalLog(lambda: 0.0, lambda **facts: lines.append(facts))
    refusals.tell("unauthenticated", "r" * 5000, proxy="p" * 5000, port=1)

    (line,) = lines
    assert line["port"] == 1
    assert max(len(line["reason"]), len(line["proxy"])) <= 501
    assert line["proxy"].endswith("p…")
