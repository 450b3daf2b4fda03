"""Writes the locks: exact versions with hashes, of what Koguma needs and of what builds its wheel (`make lock`).

They are for every Python and platform that Koguma supports. Addresses of registries are left out: where packages come
from is the business of those who install them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from debian.installation import ROOT

FILE: Final = ROOT / "constraints.txt"
BUILD_FILE: Final = ROOT / "constraints-build.txt"
_HEAD: Final = "# {contents}: the versions and hashes with which this revision was tested. `make lock` writes it.\n"


def _compile(source: Path, target: Path, contents: str, options: Sequence[str | Path]) -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=")
    command = [sys.executable, "-m", "uv", "pip", "compile", source, "--universal", "--python-version", oldest]
    plain = ["--generate-hashes", "--no-header", "--no-annotate", "--no-config", "--quiet"]
    compiled = subprocess.run(
        [*command, *plain, "--upgrade", *options], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    target.write_text(_HEAD.format(contents=contents) + compiled.stdout)


def main() -> None:
    """Lock the newest versions that pyproject.toml allows."""
    project_file = ROOT / "pyproject.toml"
    _compile(project_file, FILE, "What Koguma needs", ["--extra", "cp"])
    with tempfile.NamedTemporaryFile("w", suffix=".in") as requirements:
        requirements.write("\n".join(tomllib.loads(project_file.read_text())["build-system"]["requires"]))
        requirements.flush()
        _compile(Path(requirements.name), BUILD_FILE, "What builds Koguma's wheel", ["--constraint", FILE])


if __name__ == "__main__":
    main()
