"""The Dockerfile, as far as it can be judged without an engine: what it copies exists, suffices, and starts."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from cp.api.page import BUILT
from cp.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def instructions(text: str) -> list[tuple[str, str]]:
    """Each instruction with its argument, comments gone and continued lines joined."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


DOCKERFILE = instructions((ROOT / "Dockerfile").read_text())
COPIES = [rest for word, rest in DOCKERFILE if word == "COPY" and not rest.startswith("--from=")]
COPIED = sorted({source for rest in COPIES for source in rest.split()[:-1]})


def arguments(instruction: str) -> list[str]:
    return [rest for word, rest in DOCKERFILE if word == instruction]


@pytest.mark.parametrize("source", COPIED)
def test_what_is_copied_is_there_and_not_ignored(source: str) -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}

    assert (ROOT / source).exists()
    assert source.rstrip("/") in kept


def test_the_command_is_one_that_the_package_installs() -> None:
    (command,) = arguments("CMD")

    assert json.loads(command)[0] in PROJECT["scripts"]


def test_the_python_is_one_that_is_supported() -> None:
    versions = {match[1] for rest in arguments("FROM") if (match := re.match(r"python:([0-9.]+)-", rest))}

    assert len(versions) == 1
    assert f"Programming Language :: Python :: {versions.pop()}" in PROJECT["classifiers"]


def test_bases_are_named_by_digest() -> None:
    assert all(re.search(r"@sha256:[0-9a-f]{64}( |$)", rest) for rest in arguments("FROM"))


def test_packages_are_installed_with_hashes() -> None:
    commands = [part.strip() for rest in arguments("RUN") for part in rest.split("&&")]
    installs = [command for command in commands if "pip install" in command or "pip wheel" in command]

    assert installs
    assert all("--require-hashes" in command or "--no-deps" in command for command in installs)


def test_every_port_that_is_listened_on_is_exposed() -> None:
    (exposed,) = arguments("EXPOSE")
    defaults = [
        Settings.model_fields[name].default for name in ("ads_port", "http_port", "https_port", "diagnostics_port")
    ]

    assert sorted(map(int, exposed.split())) == sorted(defaults)


def test_every_variable_is_a_setting() -> None:
    known = {str(field.validation_alias) for field in Settings.model_fields.values()}
    given = {pair.partition("=")[0] for rest in arguments("ENV") for pair in rest.split()}

    assert {name for name in given if not name.startswith("PYTHON")} <= known


def test_it_does_not_run_as_root() -> None:
    assert arguments("USER") == ["koguma"]


def test_what_is_copied_suffices_for_the_wheel(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("generated", "__pycache__", "node_modules", "gui.new-*")
    for source in COPIED:
        target = tmp_path / "src" / source
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=ignored)
        else:
            target.parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / source, target)

    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, f"--wheel-dir={tmp_path}", tmp_path / "src"], check=True, capture_output=True)

    (wheel,) = tmp_path.glob("koguma-*.whl")
    with zipfile.ZipFile(wheel) as built:
        names = set(built.namelist())
    assert {"cp/settings.py", "koguma/v1/workers_pb2.py"} <= names
    assert ("cp/gui/index.html" in names) is (BUILT / "index.html").is_file(), "the page, where it was built"
