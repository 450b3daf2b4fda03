"""What an installation consists of: the distributions that Koguma needs, and a folder with them and an interpreter.

They are taken from the environment in which this runs, so what is packed is what was tested.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Collection, Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path, PurePosixPath
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parents[1]
PYTHON: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
KOGUMA: Final = "koguma"
_ABOUT_ORIGIN: Final = frozenset({"direct_url.json", "INSTALLER", "REQUESTED"})


def needed(extras: Collection[str] = ()) -> dict[str, Distribution]:
    """The distributions that `koguma[extras]` needs, by name, and those that they need themselves."""
    closure: dict[str, Distribution] = {}
    open_names = [(KOGUMA, frozenset(extras))]
    seen = set(open_names)
    while open_names:
        name, of_name = open_names.pop()
        found = distribution(name)
        closure[name] = found
        following = {(canonicalize_name(need.name), frozenset(need.extras)) for need in _needs(found, of_name)}
        open_names += following - seen
        seen |= following
    del closure[KOGUMA]
    return dict(sorted(closure.items()))


def _needs(of: Distribution, extras: Collection[str]) -> Iterator[Requirement]:
    for text in of.requires or ():
        need = Requirement(text)
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield need


def wheel(folder: Path) -> Path:
    """Koguma itself as a wheel, built with what is installed here."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, f"--wheel-dir={folder}", ROOT], check=True, stdout=subprocess.DEVNULL)
    (built,) = folder.glob(f"{KOGUMA}-*.whl")
    return built


def lay_out(folder: Path, distributions: Iterable[Distribution], of_koguma: Path | None = None) -> Path:
    """Put distributions into a folder as `pip install` would, and Koguma from its wheel. Returns their folder."""
    packages = folder / "lib" / PYTHON / "site-packages"
    packages.mkdir(parents=True, exist_ok=True)
    for each in distributions:
        _copy(each, packages)
    if of_koguma is not None:
        with zipfile.ZipFile(of_koguma) as archive:
            archive.extractall(packages)
    return packages


def interpreter(folder: Path, python: Path) -> None:
    """Make a folder the home of an interpreter that sees what is in it and nothing else."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "bin" / "python3").symlink_to(python)
    (folder / "pyvenv.cfg").write_text(f"home = {python.parent}\ninclude-system-site-packages = false\n")


def _copy(of: Distribution, packages: Path) -> None:
    for file in of.files or ():
        if ".." not in file.parts and not _is_left_out(file):
            target = packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.locate(), target)


def _is_left_out(file: PurePosixPath) -> bool:
    """Compiled anew, or about the installation that it is taken from: its tool, and where it came from."""
    is_about_origin = file.parts[0].endswith(".dist-info") and file.name in {
        "direct_url.json",
        "INSTALLER",
        "REQUESTED",
    }
    return "__pycache__" in file.parts or is_about_origin
