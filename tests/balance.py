"""How the work of a run was shared: the seconds of each worker, in the last lines. A pytest plugin."""

from __future__ import annotations

from collections import defaultdict

import pytest


class Balance:
    """Lives where results come together, which is not in a worker."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        worker: str | None = getattr(report, "worker_id", None)
        if worker is not None:
            self._seconds[worker] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._seconds:
            shares = ", ".join(f"{worker} {seconds:.0f} s" for worker, seconds in sorted(self._seconds.items()))
            terminalreporter.write_line(f"work of the workers: {shares}")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Balance(), "koguma-balance")
