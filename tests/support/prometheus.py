"""A real Prometheus: it scrapes what it is told, and evaluates expressions."""

from __future__ import annotations

from pathlib import Path
from shutil import which
from types import TracebackType
from typing import Any, Final, Self

import httpx
import pytest
import yaml

from tests.support.loopback import new_address
from tests.support.processes import Running
from tests.support.waiting import eventually

PROGRAM: Final = which("prometheus")

needs_prometheus = pytest.mark.skipif(PROGRAM is None, reason="there is no prometheus")


class Prometheus:
    """One that looks every second; `files` are beside its configuration."""

    def __init__(self, folder: Path, jobs: list[dict[str, Any]], files: dict[str, str]) -> None:
        self._folder, self.address = folder, new_address()
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)
        often = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        configuration = {"global": often, "rule_files": list(files), "scrape_configs": jobs}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
        self._client = httpx.Client(base_url=self.address.url, timeout=10)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an expression now. Raises if it cannot be evaluated."""
        answer = self._client.get("/api/v1/query", params={"query": expression})
        data = answer.json()
        assert data["status"] == "success", f"{expression}: {data.get('error')}"
        samples: list[dict[str, Any]] = data["data"]["result"]
        return samples

    def value(self, expression: str) -> float | None:
        """The only sample of an expression; None without one."""
        samples = self.query(expression)
        assert len(samples) <= 1, samples
        return float(samples[0]["value"][1]) if samples else None

    def alerts(self) -> set[str]:
        """The alerts that are pending or fire."""
        alerts = self._client.get("/api/v1/alerts").raise_for_status().json()["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts}

    def __enter__(self) -> Self:
        options = [f"--web.listen-address={self.address}", f"--storage.tsdb.path={self._folder / 'data'}"]
        command = [PROGRAM or "prometheus", f"--config.file={self._folder / 'prometheus.yml'}", *options]
        self._running = Running(command, self._folder / "prometheus.log")
        eventually(self._is_ready, 20)
        return self

    def _is_ready(self) -> bool:
        try:
            return self._client.get("/-/ready").is_success
        except httpx.HTTPError:
            self._running.check()
            return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()
        self._running.stop()
