"""A control plane with two meshes while the holder of one proxy's token attacks it, and what others notice."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
from envoy.config.listener.v3.listener_pb2 import Listener

from cp.translate.packing import LISTENER
from tests.access import forge
from tests.ads.proxy import Proxy
from tests.hostile.attacks import Target
from tests.support.control_plane import ControlPlane
from tests.support.memory import resident
from tests.support.processes import Running
from tests.support.waiting import eventually

SETTINGS: Final = {"KOGUMA_DP_SERVER_TLS": "on", "KUMA_DP_SERVER_AUTHN_DP_PROXY_TYPE": "dpToken"}
PEOPLE: Final = 20
"""Writes of people before the attack, in each mesh."""

_EVERY: Final = 0.05


_EDITS: Final = 0.1
"""Seconds between the writes in another mesh."""


@dataclass(slots=True)
class Observation:
    """What others notice of an attack."""

    idle: int
    """Bytes of memory before it."""

    seconds: float = 0.0
    quiet: Observation | None = None
    """The same without an attack, in the same run: times depend on the machine."""

    memory: list[int] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)
    deliveries: list[float] = field(default_factory=list)
    """Seconds from a write in another mesh until its proxy has it."""

    busy: float = 0.0
    """Seconds of processor time that the control plane took."""

    busy_attacker: float = 0.0
    tries: Mapping[str, int] = field(default_factory=dict)
    history: tuple[Sequence[int], Sequence[int]] = ((), ())
    """The revisions that people wrote, as the history has them before the attack and after it."""

    rollback: int = 0
    """The status of a rollback to the first revision."""

    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def growth(self) -> float:
        return max(self.memory) / self.idle

    @property
    def caused(self) -> float:
        """Seconds of processor time of the control plane that the attack caused."""
        assert self.quiet is not None
        return self.busy - self.quiet.busy / self.quiet.seconds * self.seconds

    def met(self, limit: str) -> float:
        return self.metrics.get(sample(limit), 0.0)


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0.0


def sample(limit: str) -> str:
    """The metric that counts how often a limit was met."""
    if limit in {"registrations", "requests of a proxy", "waiting requests"}:
        return f'koguma_api_limited_total{{limit="{limit}"}}'
    return f'koguma_ads_streams_refused_total{{reason="{limit}"}}'


def token(mesh: str, name: str, key: int) -> str:
    now = int(time.time())
    claims = {**forge.DATAPLANE, "Mesh": mesh, "Name": name, "jti": f"of-{mesh}-{name}", "iat": now, "nbf": now - 5}
    return forge.token({**claims, "exp": now + 3600}, key=forge.private_key(key))


def dataplane(mesh: str, name: str, port: int = 8080) -> dict[str, Any]:
    inbound = [{"port": port, "tags": {"kuma.io/service": name}}]
    return {"type": "Dataplane", "mesh": mesh, "name": name, "networking": {"address": "192.0.2.7", "inbound": inbound}}


async def _others_ended() -> None:
    """Wait until the other tasks of the event loop have ended."""
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)


class Campaign:
    """One control plane, attacked for a while."""

    def __init__(self, folder: Path, **settings: str) -> None:
        store = f"sqlite:///{folder / 'koguma.db'}"
        self._folder, self._idle = folder, threading.Event()
        self.control_plane = ControlPlane(folder, store, **{"KOGUMA_LOG_LEVEL": "warning", **SETTINGS, **settings})

    def run(self, seconds: float, names: Sequence[str] = ()) -> Observation:
        with self.targets() as targets:
            target = targets("web")
            process = psutil.Process(self.control_plane.process.pid)
            with self._victim(target.authority) as delivered:
                for _ in range(20):
                    delivered(self._edit())
                observation = Observation(resident(process.pid))
                observation.quiet = self._observe_quiet(seconds / 4, process, delivered)
                before, began, since = self._history(), _busy(process), time.monotonic()
                with self._watched(observation, process), self.attacker(target, seconds, names) as attacker:
                    while attacker.code is None:
                        observation.deliveries.append(delivered(self._edit()))
                        self._idle.wait(_EDITS)
                        with suppress(psutil.Error):
                            observation.busy_attacker = _busy(psutil.Process(attacker.pid))
                observation.busy, observation.seconds = _busy(process) - began, time.monotonic() - since
                self._conclude(observation, before)
        return observation

    @contextmanager
    def targets(self) -> Iterator[Callable[[str], Target]]:
        """Yields a function that returns the target that a proxy of its own is to the holder of its token."""
        with self.control_plane as control_plane:
            self._write_as_people()
            authority = (self._folder / "work" / "koguma-cp-ca.crt").read_text()
            address = f"{control_plane.ads.host}:{control_plane.ads.port}"

            def target(name: str) -> Target:
                control_plane.apply(dataplane("default", name))
                return Target(address, control_plane.api.url, authority, token("default", name, 1), "default", name)

            yield target

    def _observe_quiet(self, seconds: float, process: psutil.Process, delivered: Callable[[int], float]) -> Observation:
        quiet = Observation(resident(process.pid), seconds=seconds)
        began, until = _busy(process), time.monotonic() + seconds
        with self._watched(quiet, process):
            while time.monotonic() < until:
                quiet.deliveries.append(delivered(self._edit()))
                self._idle.wait(_EDITS)
        quiet.busy = _busy(process) - began
        return quiet

    def _conclude(self, observation: Observation, before: Sequence[int]) -> None:
        observation.history = before, self._history()
        answer = self.control_plane.request(
            "POST", "/_rollback?dryRun=true", json.dumps({"revision": before[-1], "mesh": "other"}).encode()
        )
        observation.rollback = answer.status_code
        observation.metrics = self.control_plane.metrics()
        observation.tries = json.loads((self._folder / "attacker.log").read_text().splitlines()[-1])

    def _write_as_people(self) -> None:
        self.control_plane.apply(*({"type": "Mesh", "name": mesh} for mesh in ("default", "other")))
        self.control_plane.apply(*(dict(document.data) for document in forge.signing_keys()))
        for mesh in ("default", "other"):
            self.control_plane.apply(*(dataplane(mesh, "db", 9000 + number) for number in range(PEOPLE)))
            self.control_plane.apply(dataplane(mesh, "web"))
        self._port = 10_000

    def _edit(self) -> int:
        """Write the Dataplane of the victim. Returns its new port."""
        self._port += 1
        self.control_plane.apply(dataplane("other", "web", self._port))
        return self._port

    def _history(self) -> Sequence[int]:
        """The revisions that people wrote, of the Dataplanes `db`."""
        return [
            change["revision"]
            for mesh in ("default", "other")
            for change in self.control_plane.get("/_history", type="Dataplane", mesh=mesh, name="db", size="1000")[
                "items"
            ]
        ]

    @contextmanager
    def _victim(self, authority: str) -> Iterator[Callable[[int], float]]:
        """The proxy of another mesh. Yields a function that waits until it has a port, and returns the seconds."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        moments: dict[int, float] = {}
        ads = self.control_plane.ads

        async def follow() -> None:
            metadata = [("authorization", token("other", "web", 2))]
            async with Proxy(ads.port, "other.web", metadata, trusted=authority, host=ads.host) as proxy:
                await proxy.ask(LISTENER)
                while True:
                    response = await proxy.hear(3600)
                    for resource in response.resources:
                        address = Listener.FromString(resource.value).address.socket_address
                        moments.setdefault(address.port_value, time.monotonic())
                    await proxy.answer(response)

        following = asyncio.run_coroutine_threadsafe(follow(), loop)

        def delivered(port: int) -> float:
            began = time.monotonic()
            eventually(lambda: port in moments or following.done(), 60)
            assert not following.done(), following.exception()
            return max(0.0, moments[port] - began)

        try:
            yield delivered
        finally:
            following.cancel()
            asyncio.run_coroutine_threadsafe(_others_ended(), loop).result(60)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(60)
            loop.close()
            thread.join(10)

    @contextmanager
    def attacker(self, target: Target, seconds: float, names: Sequence[str]) -> Iterator[Running]:
        command = [sys.executable, "-m", "tests.hostile.attacks", str(target), str(seconds), *names]
        running = Running(command, self._folder / "attacker.log")
        try:
            yield running
        finally:
            running.stop()

    @contextmanager
    def _watched(self, observation: Observation, process: psutil.Process) -> Iterator[None]:
        is_over = threading.Event()
        health, api = f"{self.control_plane.diagnostics.url}/ready", f"{self.control_plane.api.url}/meshes/other"

        def watch() -> None:
            with httpx.Client(timeout=60) as client:
                while not is_over.wait(_EVERY):
                    observation.memory.append(resident(process.pid))
                    for url, seconds in ((health, observation.health), (api, observation.requests)):
                        began = time.monotonic()
                        client.get(url).raise_for_status()
                        seconds.append(time.monotonic() - began)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join(60)


def _busy(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
