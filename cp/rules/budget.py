"""`StepBudget`: a bound on a computation in steps, not in seconds, so that its outcome is the same on every machine."""

from __future__ import annotations


class TooManySteps(Exception):
    """The computation needs more steps than its budget has."""


class StepBudget:
    """The steps that a computation may still take."""

    def __init__(self, steps: int) -> None:
        self._steps_left = steps

    def spend(self, steps: int) -> None:
        """Take steps from the budget. Raises `TooManySteps` if it has fewer."""
        self._steps_left -= steps
        if self._steps_left < 0:
            raise TooManySteps
