"""Expressions of which panels are made, and the variable that dashboards share."""

from __future__ import annotations

from typing import Final

from cp.monitoring.panels import DashboardVariable

JOB: Final = DashboardVariable("job", "Job", "label_values(koguma_build_info, job)")


def quantile(part: str, series: str, labels: str, by: str = "le") -> str:
    return f"histogram_quantile({part}, sum by ({by}) (rate({series}_bucket{{{labels}}}[$__rate_interval])))"


def rate(series: str, labels: str, by: str = "") -> str:
    return f"sum{f' by ({by}) ' if by else ''}(rate({series}{{{labels}}}[$__rate_interval]))"
