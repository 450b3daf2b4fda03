"""Distributions: a wheel that is built from the source distribution is as complete as one built from the tree."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from cp.api.page import BUILT

ROOT = Path(__file__).resolve().parent.parent


def build(source: Path, target: str, folder: Path) -> Path:
    """As `python -m build` does it, with what is installed here."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (built,) = folder.glob("koguma-*.whl" if target == "wheel" else "koguma-*.tar.gz")
    return built


def test_wheel_from_source_distribution_has_the_page(tmp_path: Path) -> None:
    with tarfile.open(build(ROOT, "sdist", tmp_path)) as sources:
        sources.extractall(tmp_path, filter="data")
    (source,) = (folder for folder in tmp_path.iterdir() if folder.is_dir())

    with zipfile.ZipFile(build(source, "wheel", tmp_path)) as built:
        names = set(built.namelist())

    assert {"cp/settings.py", "koguma/v1/workers_pb2.py"} <= names
    pages = {f"cp/gui/{file.relative_to(BUILT)}" for file in BUILT.rglob("*") if file.is_file()}
    assert pages <= names, "the page, where it was built"
