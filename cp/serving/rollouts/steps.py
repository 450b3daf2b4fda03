"""The steps of a rollout: how many proxies of each class it goes to at a time."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

_STEP: Final = re.compile(r"(\d{1,9})(%?)")
_WHOLE: Final = 100
MOST: Final = 20
"""How many steps there may be."""


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """So many proxies of a class, or so many of a hundred."""

    amount: int
    is_percentage: bool

    def count(self, proxies: int) -> int:
        """How many of so many: never none, and never more than there are."""
        wanted = math.ceil(proxies * self.amount / _WHOLE) if self.is_percentage else self.amount
        return min(proxies, max(1, wanted))

    def __str__(self) -> str:
        return f"{self.amount}%" if self.is_percentage else str(self.amount)


def steps_of(text: str) -> tuple[RolloutStep, ...]:
    """Steps as they are written: `1,10%,100%`. Raises `ValueError` with a sentence for the operator."""
    steps = tuple(map(_step, text.split(",")))
    if len(steps) > MOST:
        raise ValueError(f"{len(steps)} steps are too many; {MOST} are the most")
    for is_percentage in (False, True):
        amounts = [step.amount for step in steps if step.is_percentage is is_percentage]
        if amounts != sorted(set(amounts)):
            raise ValueError(f"`{text}` does not go up from step to step; write them as in `1,10%,100%`")
    return steps


def _step(text: str) -> RolloutStep:
    match = _STEP.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"`{text.strip()[:20]}` is no step; write a number of proxies, or a percentage such as `10%`")
    amount, is_percentage = int(match[1]), match[2] == "%"
    if amount == 0 or (is_percentage and amount > _WHOLE):
        raise ValueError(f"`{text.strip()}` is no step: there is none with no proxies, or with more than all")
    return RolloutStep(amount, is_percentage)
