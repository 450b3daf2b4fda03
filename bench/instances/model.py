"""Straight lines through what was measured with few instances, and what they say of more."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import linear_regression
from typing import Final

MODELLED: Final = (3, 10, 30)
"""The numbers of instances of which is told; of those that were not measured by the model alone."""


@dataclass(frozen=True, slots=True)
class Line:
    """What something costs by itself, and what each instance adds."""

    fixed: float
    of_each: float
    worst: float
    """By how much a measured value was off at the most, as a share of it."""

    @classmethod
    def through(cls, measured: Mapping[int, float]) -> Line:
        """The line that is nearest to what was measured. It needs two numbers of instances at least."""
        slope, intercept = linear_regression(list(measured), list(measured.values()))
        off = [abs(intercept + slope * count - value) / value for count, value in measured.items() if value > 0]
        return cls(intercept, slope, max(off, default=0.0))

    def at(self, instances: int) -> float:
        return self.fixed + self.of_each * instances


@dataclass(frozen=True, slots=True)
class ModelledCosts:
    """What is told of a number of instances."""

    instances: int
    is_measured: bool
    database_ms: float
    """Processor time of the database for a write of many, with what all instances read of it."""

    transactions: float
    """For an edit that comes alone."""

    idle: float
    """Transactions in a second in which nothing happens."""

    connections: float

    @property
    def writes_a_second(self) -> float:
        """How many writes keep one processor of the database busy."""
        return math.inf if self.database_ms <= 0 else 1000 / self.database_ms


@dataclass(frozen=True, slots=True)
class Model:
    """How the costs of the database grow with the instances."""

    database_ms: Line
    transactions: Line
    idle: Line
    connections: Line

    def costs(self, instances: int) -> ModelledCosts:
        lines = self.database_ms, self.transactions, self.idle, self.connections
        return ModelledCosts(instances, False, *(line.at(instances) for line in lines))  # noqa: FBT003  # as the field is named
