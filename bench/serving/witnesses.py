"""Witnesses: a few real Envoys, which must end up with the same resources as the load's proxies."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from bench.serving import mesh
from bench.serving.processes import ControlPlane, Worker

_ROOT: Final = Path(__file__).resolve().parents[2]
_WITHIN: Final = 60.0
_PATIENCE: Final = 10.0
_DUMPS: Final = {
    "clusters": ("dynamic_active_clusters", "cluster", "name"),
    "endpoints": ("dynamic_endpoint_configs", "endpoint_config", "cluster_name"),
    "routes": ("dynamic_route_configs", "route_config", "name"),
}

Held = Mapping[str, Mapping[str, str]]


def binary() -> Path | None:
    """The Envoy of `make setup`, or the one that KOGUMA_ENVOY names; None if there is none."""
    named = Path(os.environ.get("KOGUMA_ENVOY", _ROOT / ".envoy/bin/envoy"))
    binaries = sorted(named.parents[1].glob("lib/python3.*/site-packages/envoy/_bin/envoy")) or [named]
    return binaries[0] if binaries[0].is_file() else None


@dataclass(frozen=True, slots=True)
class Witnesses:
    """A number of Envoys, on one kind of stream."""

    envoy: Path
    count: int
    delta: bool

    def disagreements(self, plane: ControlPlane, load: Worker, folder: Path) -> list[str]:
        """The differences from the load's proxies of the same names, at first and after an edit."""
        with ExitStack() as running:
            names = [mesh.proxy_name(number) for number in range(self.count)]
            started = (running_envoy(self.envoy, plane, name, folder, delta=self.delta) for name in names)
            envoys = [running.enter_context(envoy) for envoy in started]
            differences = self._differing(load, envoys, "at first")
            edited = mesh.route_timeout("77s")
            plane.put(mesh.path_of(edited), edited)
            return differences + self._differing(load, envoys, "after an edit")

    def _differing(self, load: Worker, envoys: Sequence[httpx.Client], when: str) -> list[str]:
        load.do("settle", wants="ready", least=0, quiet=0.5, within=_WITHIN)
        differences: list[str] = []
        for number, admin in enumerate(envoys):
            name = f"{mesh.MESH}.{mesh.proxy_name(number)}"
            expected = load.do("held", name=name)
            differences += [f"{name}, {when}: {kind}" for kind in self._differences(expected, admin)]
        return differences

    def _differences(self, expected: Held, admin: httpx.Client) -> list[str]:
        """The types of resources that still differ after some seconds."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            has = _dumped(admin)
            kinds = [kind for kind in has if self._shown(has, kind) != self._shown(expected, kind)]
            if not kinds or time.monotonic() > deadline:
                return kinds
            time.sleep(0.1)

    def _shown(self, held: Held, kind: str) -> Any:
        """What can be compared: Envoy shows no versions of endpoints, and over SotW none of single resources."""
        return dict(held[kind]) if self.delta and kind != "endpoints" else sorted(held[kind])


def _dumped(admin: httpx.Client) -> dict[str, dict[str, str]]:
    versions: dict[str, dict[str, str]] = {kind: {} for kind in (*_DUMPS, "listeners")}
    asking: set[str] = set()
    for dump in admin.get("/config_dump?include_eds").json()["configs"]:
        for kind, (group, inner, name) in _DUMPS.items():
            for entry in dump.get(group, ()):
                versions[kind][entry[inner][name]] = entry.get("version_info", "")
        for entry in dump.get("dynamic_listeners", ()):
            if "active_state" in entry:
                versions["listeners"][entry["name"]] = entry["active_state"].get("version_info", "")
        asking |= {
            entry["cluster"]["name"] for entry in dump.get("dynamic_active_clusters", ()) if _asks(entry["cluster"])
        }
    versions["endpoints"] = {name: "" for name in versions["endpoints"] if name in asking}
    return versions


def _asks(cluster: Mapping[str, Any]) -> bool:
    """Whether a cluster gets its endpoints over EDS. The dump also lists endpoints that stand in clusters."""
    return cluster.get("type") == "EDS"


@contextmanager
def running_envoy(  # noqa: PLR0913  # all that differs between Envoys
    envoy: Path, plane: ControlPlane, name: str, folder: Path, *, delta: bool, ads_port: int | None = None
) -> Iterator[httpx.Client]:
    """An Envoy that is ready, as the proxy of this name. `ads_port`: where it finds the control plane, if elsewhere."""
    bootstrap = json.loads(plane.post("/bootstrap", {"mesh": mesh.MESH, "name": name}))
    bootstrap["dynamicResources"]["adsConfig"]["apiType"] = "DELTA_GRPC" if delta else "GRPC"
    port = free_port()
    bootstrap["admin"]["address"]["socketAddress"]["portValue"] = port
    if ads_port is not None:
        ads = bootstrap["staticResources"]["clusters"][0]["loadAssignment"]["endpoints"][0]["lbEndpoints"][0]
        ads["endpoint"]["address"]["socketAddress"]["portValue"] = ads_port
    config = folder / f"envoy-{name}.json"
    config.write_text(json.dumps(bootstrap))
    flags = ("--log-level", "warning", "--concurrency", "1", "--disable-hot-restart")
    with (folder / f"envoy-{name}.log").open("w") as log:
        process = subprocess.Popen([envoy, "-c", config, *flags], stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as admin:
            _until_live(process, admin)
            yield admin
    finally:
        process.kill()
        process.wait()


def _until_live(process: subprocess.Popen[bytes], admin: httpx.Client) -> None:
    deadline = time.monotonic() + _WITHIN
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if admin.get("/ready").is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise RuntimeError("a witness did not get ready")


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
