"""The expressions of all alerts and dashboards, and the metrics in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from cp.monitoring.alerts import ALERTS
from cp.monitoring.dashboards import DASHBOARDS

_METRIC: Final = re.compile(r"\b((?:koguma|envoy|process)_\w+)\b")
_LABELS: Final = re.compile(r"(?:by|on|group_right|group_left) \([^)]*\)|\{[^}]*\}")


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression that is shipped, with where it stands."""
    yield from ((alert.name, alert.expression) for alert in ALERTS)
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            yield from ((f"{dashboard.uid}: {panel.title}", query.expression) for query in panel.queries)


def metrics_of(expression: str) -> set[str]:
    return set(_METRIC.findall(_LABELS.sub("", expression)))
