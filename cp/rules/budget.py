"""`StepBudget`: how much work something may be, in steps and not in seconds, so that it is the same everywhere."""

from __future__ import annotations


class TooManySteps(Exception):
    """More work than one policy may make."""


class StepBudget:
    """What is left of the steps that a computation may take."""

    def __init__(self, steps: int) -> None:
        self._steps_left = steps

    def spend(self, steps: int) -> None:
        """Raises `TooManySteps` when nothing is left."""
        self._steps_left -= steps
        if self._steps_left < 0:
            raise TooManySteps
