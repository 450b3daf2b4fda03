"""What a dashboard is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Unit: TypeAlias = Literal["short", "s", "bytes", "Bps", "reqps", "ops", "percentunit", "bool", "none", "cores"]
"""What the numbers of a panel are, in Grafana's words."""

PanelShape: TypeAlias = Literal["timeseries", "stat", "table"]


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """One expression, and what its lines are called."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    description: str
    unit: Unit
    queries: tuple[PanelQuery, ...]
    shape: PanelShape = "timeseries"
    width: int = 8


@dataclass(frozen=True, slots=True)
class PanelRow:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class DashboardVariable:
    """What a reader chooses at the top: one value of a label, several or all."""

    name: str
    label: str
    query: str


@dataclass(frozen=True, slots=True)
class Dashboard:
    uid: str
    title: str
    description: str
    variables: tuple[DashboardVariable, ...]
    rows: tuple[PanelRow, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        return tuple(panel for row in self.rows for panel in row.panels)


def panel(
    title: str,
    description: str,
    unit: Unit,
    *queries: tuple[str, str],
    shape: PanelShape = "timeseries",
    width: int = 8,
) -> Panel:
    """A panel; each query is an expression and a legend."""
    return Panel(title, description, unit, tuple(PanelQuery(*query) for query in queries), shape, width)
