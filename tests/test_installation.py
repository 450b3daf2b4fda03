"""What `pip install koguma` puts on a machine with a proxy suffices there, and says what else needs more.

See record 0081.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from debian.installation import ROOT, interpreter, lay_out, needed, wheel
from debian.lock import BUILD_FILE, FILE
from tests.api.samples import dataplane
from tests.support.control_plane import ControlPlane
from tests.support.loopback import new_host
from tests.support.mesh import MESH

OF_SERVERS = {"cryptography", "envoy-data-plane", "grpcio", "protobuf", "starlette", "uvicorn", "xds-protos"}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has what Koguma needs without extras, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    lay_out(folder, needed().values(), wheel(folder))
    interpreter(folder, Path(sys.executable).resolve())
    return folder / "bin" / "python3"


def koguma(base: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [base, "-I", "-m", "cp", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_a_machine_with_a_proxy_needs_nothing_of_a_server() -> None:
    assert not OF_SERVERS & set(needed())
    assert set(needed(["cp"])) >= OF_SERVERS


def test_the_extra_for_the_control_plane_has_the_others_in_it() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert extras["cp"][0] == f"koguma[{','.join(sorted(set(extras) - {'cp'}))}]"


def test_what_is_tested_is_what_is_locked() -> None:
    locked = dict(locks(FILE))

    assert {name: found.version for name, found in needed(["cp"]).items()}.items() <= locked.items(), "run: make lock"


@pytest.mark.parametrize("file", [FILE, BUILD_FILE], ids=lambda file: file.name)
def test_locks_have_hashes_and_no_addresses(file: Path) -> None:
    assert dict(locks(file))
    assert "://" not in file.read_text()


def locks(file: Path) -> Iterator[tuple[str, str]]:
    """The names and versions of a lock, each of which has a hash."""
    joined = file.read_text().replace("\\\n", "")
    for line in (line for line in joined.splitlines() if not line.startswith("#")):
        match = re.fullmatch(r"([a-z0-9-]+)==([0-9][0-9a-z.+]*)( ; [^;]+?)?(\s+--hash=sha256:[0-9a-f]{64})+", line)
        assert match is not None, line
        yield match[1], match[2]


def test_lock_of_the_page_has_hashes_and_no_addresses() -> None:
    packages = json.loads((ROOT / "gui/package-lock.json").read_text())["packages"]

    assert all("resolved" not in package for package in packages.values())
    assert all("integrity" in package for name, package in packages.items() if name)


def test_bill_of_materials_is_valid_and_complete() -> None:
    made = subprocess.run([sys.executable, ROOT / "debian/sbom.py"], check=True, capture_output=True, text=True).stdout

    names = {component["name"] for component in json.loads(made)["components"]}
    # Importing it takes a second, which every worker would spend.
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(made) is None
    assert set(needed(["cp"])) <= names


def test_it_tells_its_version_and_helps(base: Path) -> None:
    assert koguma(base, "version").stdout.startswith("koguma ")
    assert "--dataplane-file" in koguma(base, "dp", "run", "--help").stdout


def test_it_runs_a_proxy(base: Path, tmp_path: Path) -> None:
    (envoy := tmp_path / "envoy").write_text("#!/bin/sh\nexit 7\n")
    envoy.chmod(0o755)
    (file := tmp_path / "web.yaml").write_text(yaml.safe_dump(dataplane(address=new_host())))
    with ControlPlane(tmp_path / "cp") as control_plane:
        control_plane.apply(MESH)
        address = control_plane.api.url
        ended = koguma(base, "dp", "run", "-d", file, "--envoy-path", envoy, "--cp-address", address)

    assert "registered Dataplane default/web-1" in ended.stderr
    assert ended.returncode == 7


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("run", "--store", "memory:"), "cp"),
        (("apply", "-f", str(ROOT / "examples/quickstart.yaml")), "cp"),
        (("lint", "-f", str(ROOT / "examples/quickstart.yaml")), "cp"),
        (("dp", "certificates", "web", "--dir", "/nowhere"), "certificates"),
    ],
)
def test_what_it_has_not_says_how_to_get_it(base: Path, arguments: tuple[str, ...], extra: str) -> None:
    ended = koguma(base, *arguments)

    assert ended.returncode == 1
    assert ended.stderr.startswith("Error: this needs the librar")
    assert "envoy" not in ended.stderr
    assert f"pip install 'koguma[{extra}]'" in ended.stderr
