"""The guide "Run it on several machines", word by word: two control planes that stand in for each other.

A folder takes the place of each machine, and an address on loopback that of its name.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.support.control_plane import KOGUMA
from tests.support.envoy import ROOT, envoy_binary
from tests.support.loopback import new_host
from tests.support.postgres import shared_postgres
from tests.support.processes import Running
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

GUIDE: Final = ROOT / "docs/guides/several-machines.md"
MACHINES: Final = {"cp-1": "10.0.0.10", "cp-2": "10.0.0.11", "orders-1": "10.0.0.21"}
FOLDERS: Final = ("/etc/koguma", "/var/lib/koguma", "/var/log/koguma")
DATABASE: Final = "db.example:5432/mesh"
UNREACHED: Final = {
    "KUMA_API_SERVER_HTTPS_ENABLED": "true",
    "KOGUMA_DP_SERVER_TLS": "on",
    "KUMA_DP_SERVER_AUTHN_DP_PROXY_TYPE": "dpToken",
}
"""What is so by itself beyond loopback."""

_BLOCK: Final = re.compile(
    r"<!-- (?P<kind>\w+)(: (?P<machine>\S+)( (?P<file>\S+))?)? -->\n```\w+\n(?P<text>.*?)```", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Step:
    kind: str
    machine: str
    text: str
    file: str = ""


def steps(page: str) -> Iterator[Step]:
    for found in _BLOCK.finditer(page):
        yield Step(found["kind"], found["machine"] or "", found["text"], found["file"] or "")


@dataclass(slots=True)
class Reader:
    """Who follows the guide."""

    folder: Path
    stack: ExitStack
    hosts: dict[str, str] = field(default_factory=lambda: {name: new_host() for name in MACHINES})
    database: str = ""
    running: dict[str, Running] = field(default_factory=dict)

    def __post_init__(self) -> None:
        server = shared_postgres()
        self.database = f"{server.address}/{server.new_database()}"
        for name in MACHINES:
            for path in (*FOLDERS[::2], "/etc/koguma/proxies", "/bin"):  # the package and the unit make these
                Path(f"{self.folder}/{name}{path}").mkdir(parents=True, exist_ok=True)
            self._write_scp(name)

    def follow(self, step: Step) -> None:
        text = self.here(step.text, step.machine)
        match step.kind:
            case "file":
                Path(self.here(step.file, step.machine)).write_text(text)
            case "starts":
                Path(self.here("/var/lib/koguma", step.machine)).mkdir(
                    0o700, parents=True, exist_ok=True
                )  # as the unit
                config = self.here("/etc/koguma/koguma.yaml", step.machine)
                self._start(step.machine, KOGUMA, "run", "--config", config)
            case "stays":
                self._start(step.machine, KOGUMA, *shlex.split(text)[1:])
            case "run":
                eventually(lambda: self.runs(text, step.machine), within=60, pause=0.5)

    def here(self, text: str, machine: str) -> str:
        """A text of the guide, for what takes the place of a machine."""
        for name, address in MACHINES.items():
            text = text.replace(f"{name}.example", self.hosts[name]).replace(address, self.hosts[name])
        for path in FOLDERS:
            text = text.replace(path, f"{self.folder}/{machine}{path}")
        user, group = os.getuid(), os.getgid()
        text = text.replace("-o koguma -g koguma", f"-o {user} -g {group}").replace("koguma:koguma", f"{user}:{group}")
        return text.replace(DATABASE, self.database)

    def runs(self, commands: str, machine: str) -> str:
        """What commands print. What they wait for may not be there yet."""
        for running in self.running.values():
            running.check()
        ran = subprocess.run(
            ["bash", "-e", "-c", commands],
            cwd=self.folder / machine,
            env=self.environment(machine),
            input="the password\n",
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert ran.returncode == 0, f"{commands}\n{ran.stdout}{ran.stderr}"
        return ran.stdout or "done"

    def environment(self, machine: str) -> dict[str, str]:
        programs = f"{self.folder}/{machine}/bin:{KOGUMA.parent}"
        return {
            **os.environ,  # noqa: TID251  # the commands need what any shell has
            **UNREACHED,
            "PATH": f"{programs}:{os.environ['PATH']}",  # noqa: TID251  # as above
            "KOGUMA_ADDRESS": f"http://{self.hosts[machine]}:5681",
            "KOGUMA_ENVOY": str(envoy_binary()),
            "KUMA_BOOTSTRAP_SERVER_PARAMS_ADMIN_ADDRESS": self.hosts["orders-1"],
            "COLUMNS": "200",
        }

    def _start(self, machine: str, *command: str | Path) -> None:
        log = self.folder / f"{machine}.log"
        running = Running([*map(str, command)], log, self.environment(machine), cwd=self.folder / machine)
        self.running[machine] = self.stack.enter_context(running)

    def _write_scp(self, machine: str) -> None:
        """A command that copies between the folders."""
        folders = {host: f"{self.folder}/{name}" for name, host in self.hosts.items()}
        script = Path(f"{self.folder}/{machine}/bin/scp")
        script.write_text(_SCP.format(python=sys.executable, folders=folders, own=f"{self.folder}/{machine}"))
        script.chmod(0o755)


_SCP: Final = """\
#!{python}
import shutil, sys
folders, own = {folders!r}, {own!r}
*sources, target = (word for word in sys.argv[1:] if not word.startswith("-"))
for source in sources:
    host, _, path = source.partition(":")
    there = folders[host]
    shutil.copy(path.replace(own, there, 1) if path.startswith(own) else there + "/" + path, target)
"""


@pytest.mark.long
def test_whoever_follows_the_guide_has_two_control_planes_that_stand_in_for_each_other(tmp_path: Path) -> None:
    guide = list(steps(GUIDE.read_text()))
    assert {step.kind for step in guide} == {"database", "file", "run", "starts", "stays"}

    with ExitStack() as stack:
        reader = Reader(tmp_path, stack)
        for step in guide:
            reader.follow(step)
        eventually(lambda: "Online" in reader.runs("koguma inspect dataplanes", "cp-1"), within=30)
        instances = reader.runs("koguma inspect instances", "cp-1")
        assert all(f"https://{reader.hosts[name]}:5682" in instances for name in ("cp-1", "cp-2"))
        assert instances.count("Online") == len(("cp-1", "cp-2"))

        first = reader.running.pop("cp-1")
        first.send(signal.SIGKILL)
        first.wait(10)

        eventually(lambda: "Online" in reader.runs("koguma inspect dataplanes", "cp-2"), within=60)
        tokens = f"--token-file {tmp_path}/cp-1/jane.token --ca-cert-file {tmp_path}/orders-1/etc/koguma/ca.crt"
        addresses = ",".join(f"https://{reader.hosts[name]}:5682" for name in ("cp-1", "cp-2"))
        assert "orders-1" in reader.runs(f"koguma get dataplanes {tokens} --address {addresses}", "orders-1")


def test_files_of_the_guide_belong_to_whom_the_service_runs_as() -> None:
    """What is written to /etc as root is root's: the unit's user could not read it."""
    commands = "".join(step.text for step in steps(GUIDE.read_text()) if step.kind == "run")

    for file in ("database-password", "secrets.keys"):
        assert re.search(rf"(-o koguma -g koguma|chown koguma:koguma) .*/etc/koguma/{re.escape(file)}", commands)
    unit = (ROOT / "debian/koguma-cp/koguma.service").read_text()
    assert "User=koguma\nGroup=koguma\nStateDirectory=koguma\n" in unit


def test_every_command_of_the_guide_is_run() -> None:
    text = GUIDE.read_text()

    assert sum(step.kind in {"database", "run", "starts", "stays"} for step in steps(text)) == text.count("```sh")
