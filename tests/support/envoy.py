"""A real Envoy under test."""

import json
import os
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx
import pytest

from tests.support.loopback import Address
from tests.support.processes import Running
from tests.support.waiting import eventually

ROOT: Final = Path(__file__).resolve().parents[2]

FLAGS: Final = (
    *("--log-level", "warning"),
    *("--concurrency", "1"),
    "--disable-hot-restart",
    *("--drain-strategy", "immediate"),
    *("--drain-time-s", "1"),
    *("--file-flush-interval-msec", "100"),
)


def envoy_binary() -> Path:
    """The Envoy that the tests run: the one of `make setup`, or the one that KOGUMA_ENVOY names."""
    default = ROOT / ".envoy/bin/envoy"
    named = Path(os.environ.get("KOGUMA_ENVOY", default))  # noqa: TID251  # which Envoy is the caller's choice
    binaries = sorted(named.parents[1].glob("lib/python3.*/site-packages/envoy/_bin/envoy")) or [named]
    if not binaries[0].is_file():
        pytest.fail(f"there is no Envoy at {named}: run `make setup`", pytrace=False)
    return binaries[0]


def _admin(bootstrap: Mapping[str, Any]) -> Address:
    """Where the admin interface is; protobuf takes both ways of writing a field's name."""
    address = bootstrap["admin"]["address"]
    socket = address.get("socketAddress") or address["socket_address"]
    return Address(socket["address"], socket.get("portValue") or socket["port_value"])


class Envoy:
    """An Envoy with its admin interface. Leaving the context ends it."""

    def __init__(
        self,
        bootstrap: Mapping[str, Any],
        folder: Path,
        flags: Sequence[str] = FLAGS,
        prefix: Sequence[str] = (),
        binary: Path | None = None,
    ) -> None:
        node = bootstrap.get("node", {}).get("id", "envoy")
        self.admin = _admin(bootstrap)
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / f"{node}.json"
        config.write_text(json.dumps(bootstrap, indent=1))
        self.process = Running([*prefix, binary or envoy_binary(), "-c", config, *flags], folder / f"{node}.log")
        self._client = httpx.Client(base_url=self.admin.url, timeout=5)

    def ready(self, within: float = 15) -> Self:
        """Wait until it has all that it waits for itself: clusters, listeners, routes."""

        def is_live() -> bool:
            self.process.check()
            return self._client.get("/ready").status_code == httpx.codes.OK

        eventually(is_live, within)
        return self

    def get(self, path: str, **parameters: str) -> Any:
        """What an admin path answers, as plain data."""
        return self._client.get(path, params=parameters).raise_for_status().json()

    def stats(self, pattern: str) -> dict[str, int]:
        """Counters and gauges whose names match a regular expression."""
        stats = self.get("/stats", format="json", filter=pattern)["stats"]
        return {stat["name"]: stat["value"] for stat in stats if "value" in stat}

    def stat(self, name: str) -> int:
        """One counter or gauge; 0 while nothing has touched it."""
        return self.stats(f"^{re.escape(name)}$").get(name, 0)

    def config(self, section: str) -> list[dict[str, Any]]:
        """Every entry of one section of the configuration dump, such as `dynamic_route_configs`."""
        configs: list[dict[str, Any]] = self.get("/config_dump", resource=section).get("configs", [])
        return configs

    def hang(self) -> None:
        """Stop it from doing anything, without ending it."""
        self.process.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send(signal.SIGCONT)

    def stop(self) -> int:
        self._client.close()
        return self.process.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
