"""The processes of a run: the control plane under test, and workers that take commands as lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self

import httpx

_KOGUMA: Final = Path(sys.executable).with_name("koguma")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_WITHIN: Final = 120.0

# glibc gives large blocks back to the kernel at once, and faulting them in anew costs more than filling them.
_MALLOC: Final = {"MALLOC_MMAP_THRESHOLD_": "134217728", "MALLOC_TRIM_THRESHOLD_": "536870912"}


class Worker:
    """A process that carries out commands and answers each."""

    def __init__(self, module: str, *arguments: str, log: Path) -> None:
        self._log = log.open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **_MALLOC},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def cpu(self) -> float:
        """Seconds of processor time so far."""
        return _cpu(self.pid)

    def tell(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self.hear()

    def hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line == "":
            raise RuntimeError(f"{self._process.args!r} ended:\n{Path(self._log.name).read_text()[-4000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def do(self, command: str, **arguments: Any) -> dict[str, Any]:
        return self.tell(json.dumps({"do": command, **arguments}))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for end in (self._process.stdin, self._process.stdout, self._log):
            if end is not None:
                end.close()


class ControlPlane:
    """`koguma run` on a store in a file, and its HTTP API."""

    def __init__(self, store: str, log: Path, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        self._store = store
        self._settings = {**_SETTINGS, **settings}
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.started = 0.0  # how many seconds it took to be ready

    def start(self) -> Self:
        began = time.monotonic()
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [_KOGUMA, "run", "--store", self._store],
                stdout=log,
                stderr=log,
                env={**os.environ, **_MALLOC, **self._settings},
            )
        ready = self._until_ready(began + _WITHIN)
        self.ads_port = int(ready["ads"].rpartition(":")[2])
        self.api = ready["http"]
        self._client = httpx.Client(base_url=self.api, timeout=_WITHIN)
        self.diagnostics = ready["diagnostics"]
        while not httpx.get(f"{self.diagnostics}/ready").is_success:
            time.sleep(0.01)
        self.started = time.monotonic() - began
        return self

    def _until_ready(self, deadline: float) -> dict[str, str]:
        assert self._process is not None
        while time.monotonic() < deadline and self._process.poll() is None:
            for line in self._log.read_text().splitlines():
                if '"control_plane.ready"' in line:
                    ready: dict[str, str] = json.loads(line)
                    return ready
            time.sleep(0.01)
        raise RuntimeError(f"the control plane did not get ready:\n{self._log.read_text()[-4000:]}")

    def stop(self) -> None:
        if self._process is not None:
            self._client.close()
            self._process.terminate()
            self._process.wait(_WITHIN)
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._client.close()
            self._process.kill()
            self._process.wait()

    # --- edits ---

    def put(self, path: str, document: Mapping[str, Any]) -> None:
        self._client.put(path, json=document).raise_for_status()

    def apply(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Write many documents in one request."""
        self.post("/_apply", {"resources": [{"text": json.dumps(document)} for document in documents]})

    def delete(self, path: str) -> None:
        self._client.delete(path).raise_for_status()

    def post(self, path: str, document: Mapping[str, Any]) -> str:
        return self._client.post(path, json=document).raise_for_status().text

    # --- what it takes ---

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def cpu(self) -> float:
        """Seconds of processor time so far."""
        return _cpu(self.pid)

    @property
    def peak(self) -> float:
        """The peak of memory in MiB since `forget_peak`."""
        return _status(self.pid, "VmHWM") / 1024

    @property
    def memory(self) -> float:
        """The memory that it takes now, in MiB."""
        return _status(self.pid, "VmRSS") / 1024

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def metrics(self) -> Mapping[str, float]:
        """Every series of every metric."""
        lines = httpx.get(f"{self.diagnostics}/metrics").text.splitlines()
        series = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in series}

    def lag(self) -> Mapping[float, float]:
        """How often the event loop was late, by the upper bounds of the histogram."""
        prefix, counts, count_below = 'koguma_event_loop_lag_seconds_bucket{le="', {}, 0.0
        for name, count in self.metrics().items():
            if name.startswith(prefix):
                counts[float(name.removeprefix(prefix).removesuffix('"}'))] = count - count_below
                count_below = count
        return counts

    def until_idle(self, quiet: float = 0.3, within: float = _WITHIN) -> float:
        """Wait until the control plane is idle. Returns when it last was busy."""
        deadline = time.monotonic() + within
        spent, busy = self.cpu, time.monotonic()
        while (now := time.monotonic()) - busy < quiet:
            if now > deadline:
                raise RuntimeError("the control plane does not come to rest")
            time.sleep(0.02)
            if (spent_now := self.cpu) > spent:
                spent, busy = spent_now, time.monotonic()
        return busy


_SETTINGS: Final = {
    "KUMA_DP_SERVER_PORT": "0",
    "KUMA_API_SERVER_HTTP_PORT": "0",
    "KUMA_DIAGNOSTICS_SERVER_PORT": "0",
    "KUMA_DEFAULTS_SKIP_MESH_CREATION": "true",
    "KOGUMA_LOG_FORMAT": "json",
}


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(name)
