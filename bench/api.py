"""The HTTP API: how fast one client is answered on a kept connection, beside 100, 1,000 and 10,000 resources.

And how late the event loop of the control plane is while others ask for what takes longest, beside 1,000 at the most.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from bench.rules import documents
from bench.serving.processes import ControlPlane
from cp.store.open import open_store
from cp.store.port import Put

TIMED: Final = 500
IN_A_ROW: Final = 2000
AT_ONCE: Final = 8
MEDIAN, ROW, LATE = 0.003, 5.0, 0.05
MOST_ASKED: Final = 1000
"""Resources beside which what takes longest is asked. Beside more, eight at once are longer than their budget."""

QUESTIONS: Final = (
    "/_lint",
    "/dataplanes?size=1000",
    "/dataplanes/_overview?size=1000",
    "/meshes/default/dataplanes/dp1/_config",
    "/meshes/default/dataplanes/dp1/_rules",
    "/meshes/default/meshtimeouts/p1/_resources/dataplanes?size=1000",
)


@dataclass(frozen=True, slots=True)
class Times:
    """The times of requests of one kind in seconds, the shortest first."""

    seconds: Sequence[float]

    def at(self, share: float) -> float:
        return self.seconds[min(int(len(self.seconds) * share), len(self.seconds) - 1)]

    def as_data(self) -> dict[str, float]:
        return {"p50": self.at(0.5), "p99": self.at(0.99), "sum": sum(self.seconds)}


class Client:
    """A client with one kept connection and little overhead."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=120)

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        headers = {"content-type": "application/json"} if body is not None else {}
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        data = answer.read()
        assert answer.status < 300, (answer.status, data[:500])  # it went well
        return data

    def timed(self, asks: Iterator[tuple[str, str, bytes | None]]) -> Times:
        return Times(sorted(_seconds(lambda ask=ask: self.ask(*ask)) for ask in asks))  # type: ignore[misc]


def run(sizes: Sequence[int]) -> dict[str, Any]:
    console, results = Console(), {}
    for size in sizes:
        results[size] = measure(size)
        _show(console, size, results[size])
    held = all(_held(result) for result in results.values())
    console.print(f"promised: medians within {MEDIAN * 1000:g} ms, {IN_A_ROW} writes in {ROW:g} s: {held}")
    return {"held": held, "sizes": results}


def measure(resources: int) -> dict[str, Any]:
    """Measure one size: two in five resources are Dataplanes, two services, one a policy."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/koguma.db"
        asyncio.run(_fill(store, resources * 2 // 5))
        with ControlPlane(store, Path(folder) / "log") as control_plane:
            client = Client(control_plane.api)
            client.ask(*_put(0))
            gets = client.timed(("GET", _path(0), None) for _ in range(TIMED))
            puts = client.timed(_put(number) for number in range(IN_A_ROW))
            late = {}
            for path in QUESTIONS if resources <= MOST_ASKED else ():
                sleeper = Sleeper()
                late[path] = {"loop": _late(control_plane, path), "machine": sleeper.late()}
    return {"get": gets.as_data(), "put": puts.as_data(), "late": late}


async def _fill(url: str, size: int) -> None:
    async with open_store(url) as store:
        await store.write(*map(Put, documents(size)))


def _path(number: int) -> str:
    return f"/meshes/default/meshtimeouts/timed-{number % 100}"


def _put(number: int) -> tuple[str, str, bytes]:
    spec = {"to": [{"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": f"{number + 1}s"}}]}
    data = {"type": "MeshTimeout", "mesh": "default", "name": f"timed-{number % 100}", "spec": spec}
    return "PUT", _path(number), json.dumps(data).encode()


class Sleeper:
    """A process that only sleeps. How late it wakes up is due to the machine, not to the control plane."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", _SLEEPER]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def late(self) -> float:
        """End the process. Returns by how many seconds it was late at the most."""
        return float(self._process.communicate(b"end")[0])


_SLEEPER: Final = """
import select, sys, time
print(flush=True)
worst = 0.0
while True:
    began = time.perf_counter()
    if select.select([sys.stdin], [], [], 0.02)[0]:
        break
    worst = max(worst, time.perf_counter() - began - 0.02)
print(worst)
"""


def _late(control_plane: ControlPlane, path: str) -> float:
    """How late the event loop was during several equal requests at once, by the control plane's histogram."""
    lag_before = control_plane.lag()
    asking = [threading.Thread(target=Client(control_plane.api).ask, args=("GET", path)) for _ in range(AT_ONCE)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    return max((bound for bound, count in control_plane.lag().items() if count > lag_before.get(bound, 0)), default=0.0)


def _seconds(act: Callable[[], Any]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _held(result: dict[str, Any]) -> bool:
    medians = max(result["get"]["p50"], result["put"]["p50"])
    return bool(medians <= MEDIAN and result["put"]["sum"] <= ROW)


def _show(console: Console, size: int, result: dict[str, Any]) -> None:
    table = Table(title=f"beside {size} resources, one kept connection", title_justify="left")
    for column in ("", "p50 ms", "p99 ms", f"{IN_A_ROW} in a row, s"):
        table.add_column(column, justify="right" if column else "left")
    for name in ("get", "put"):
        of = result[name]
        row = f"{of['sum']:.2f}" if name == "put" else ""
        table.add_row(name.upper(), f"{of['p50'] * 1000:.2f}", f"{of['p99'] * 1000:.2f}", row)
    console.print(table)
    if result["late"]:
        _show_late(console, result["late"])


def _show_late(console: Console, result: dict[str, Any]) -> None:
    late = Table(title=f"how late the event loop is while {AT_ONCE} ask at once, at the most, ms", title_justify="left")
    for column in ("", "ms", "a process that sleeps, ms"):
        late.add_column(column, justify="right" if column else "left")
    for path, seconds in result.items():
        late.add_row(path, *(f"{seconds[of] * 1000:.3g}" for of in ("loop", "machine")))
    console.print(late)
