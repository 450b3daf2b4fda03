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
LONGEST_ASKED: Final = 60.0
"""Seconds that an agent waits because the control plane asks for it, at the most."""

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
            wait = pause_after(problem, pause)
        time.sleep(wait)
        pause = min(pause * 2, LONGEST_PAUSE)


def part_of(pause: float) -> float:
    """Some of a pause: agents that wait for one control plane do not come back to it all at once."""
    return pause * _CHANCE.random()


def pause_after(problem: Problem, pause: float) -> float:
    """Return how long to wait after a problem: some of a pause, and at least as long as the control plane asks for."""
    asked = problem.retry_after if isinstance(problem, RequestRejected) and problem.retry_after is not None else 0.0
    return min(asked, LONGEST_ASKED) + part_of(pause)


def may_pass(problem: Problem) -> bool:
    """Whether a problem may pass: a control plane that starts does not answer at first, then may lack the mesh."""
    if isinstance(problem, RequestRejected):
        return problem.may_pass or problem.status_code in {NOT_FOUND, _UNAVAILABLE}
    return isinstance(problem, Unreachable)
