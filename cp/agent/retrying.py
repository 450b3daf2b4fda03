"""Retries what may work soon: a control plane that starts, or is started again, comes back within seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from secrets import SystemRandom
from typing import Final, TypeVar

from cp.agent.say import Say
from cp.client.failures import NOT_FOUND, RequestRejected, Unreachable
from cp.client.problem import Problem

T = TypeVar("T")

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 3.0
_UNAVAILABLE: Final = 503
_NEWS_EVERY: Final = 10.0
_CHANCE: Final = SystemRandom()


@dataclass(frozen=True, slots=True)
class RetryTime:
    """How long to retry, and where to report that."""

    seconds: float
    say: Say


def persistently(attempt: Callable[[], T], patience: RetryTime) -> T:
    """Retry until it works or the time is over. A problem that cannot pass is raised at once."""
    begun = last_news = time.monotonic()
    pause, last_message, last_hint = FIRST_PAUSE, "", ""
    while True:
        try:
            return attempt()
        except Problem as problem:
            now = time.monotonic()
            if not may_pass(problem) or now - begun + pause > patience.seconds:
                raise
            if problem.message != last_message or now - last_news >= _NEWS_EVERY:
                patience.say(f"waiting: {problem.message} ({now - begun:.0f} s)")
                last_message, last_news = problem.message, now
            if problem.hint not in {"", last_hint}:
                patience.say(problem.hint)
                last_hint = problem.hint
        time.sleep(part_of(pause))
        pause = min(pause * 2, LONGEST_PAUSE)


def part_of(pause: float) -> float:
    """Some of a pause: agents that wait for one control plane do not come back to it all at once."""
    return pause * _CHANCE.random()


def may_pass(problem: Problem) -> bool:
    """Whether a problem may pass: a control plane that starts does not answer at first, then may lack the mesh."""
    if isinstance(problem, RequestRejected):
        return problem.may_pass or problem.status_code in {NOT_FOUND, _UNAVAILABLE}
    return isinstance(problem, Unreachable)
