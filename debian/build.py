"""Builds the Debian packages `koguma` and `koguma-cp` from this environment: `make deb`.

The first has what a machine with a proxy needs, the second adds the control plane (record 0081). Both are for the
interpreter of one Debian release, since the libraries in them are compiled for one version of Python.
"""

from __future__ import annotations

import argparse
import compileall
import gzip
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from debian.installation import KOGUMA, PYTHON, ROOT, interpreter, lay_out, needed, wheel
from docs.manual import manual_pages

HERE: Final = Path(__file__).resolve().parent
HOME: Final = Path("usr/lib/koguma")
FIRST_REVISION: Final = f"{version(KOGUMA)}-1"
_FILE: Final = 0o644
_PROGRAM: Final = 0o755
_PRIVATE: Final = {"etc/koguma/koguma.yaml": 0o640}
"""What not everybody may read."""

_START: Final = """\
#!/bin/sh
# -P: nothing is imported from the folder in which it is started.
exec "$(dirname "$(readlink -f "$0")")/../lib/koguma/bin/python3" -P -m cp "$@"
"""
_CONFIGURE: Final = """\
#!/bin/sh
set -e
if [ "$1" = configure ]; then
  if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers ${{DPKG_ROOT:+--root="$DPKG_ROOT"}} {users}.conf
  else
    echo "{name}: there is no systemd-sysusers: make the user {users} yourself, as the services run as it" >&2
  fi
{configure}  if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    {restart}
  fi
fi
"""
_GROUP_READS: Final = """\
  file="$DPKG_ROOT/etc/koguma/koguma.yaml"
  group=$(sed -n 's/^koguma:[^:]*:\\([0-9]*\\):.*/\\1/p' "$DPKG_ROOT/etc/group")
  if [ -n "$group" ] && [ -e "$file" ] && [ "$(stat -c %g "$file")" = 0 ]; then
    chgrp "$group" "$file" || true
  fi
"""
"""There may be a key in the settings, so only root and the control plane read them."""

_REMOVE: Final = """\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
  systemctl stop {units}
fi
"""


@dataclass(frozen=True, slots=True)
class DebianPackage:
    """What is different between the packages."""

    name: str
    summary: str
    description: str
    users: str
    units: str
    depends: str = ""
    restart: str = ":"
    """What is done after an upgrade."""

    configure: str = ""
    """What is done when there are users."""


AGENT: Final = DebianPackage(
    "koguma",
    "proxies of a service mesh, beside workloads",
    "The command koguma, and a unit that runs Envoy as the proxy of a workload. Envoy itself is not in it.",
    users="koguma-dp",
    units="'koguma-dp@*.service'",
)
CONTROL_PLANE: Final = DebianPackage(
    "koguma-cp",
    "control plane for Envoy that explains itself",
    "The control plane as a service, and all that its commands need.",
    users="koguma",
    units="koguma.service",
    depends="koguma (= {version}), ",
    restart='[ -z "$2" ] || systemctl try-restart koguma.service',
    configure=_GROUP_READS,
)

_INSTALLED: Final = {
    AGENT: {
        "koguma-dp@.service": "usr/lib/systemd/system/koguma-dp@.service",
        "koguma-dp.default": "etc/default/koguma-dp",
        "koguma-dp.sysusers": "usr/lib/sysusers.d/koguma-dp.conf",
    },
    CONTROL_PLANE: {
        "koguma.service": "usr/lib/systemd/system/koguma.service",
        "koguma.yaml": "etc/koguma/koguma.yaml",
        "koguma.logrotate": "etc/logrotate.d/koguma",
        "koguma.sysusers": "usr/lib/sysusers.d/koguma.conf",
    },
}


def build(target: Path, version: str = FIRST_REVISION, python: Path | None = None) -> list[Path]:
    """Build both packages into a folder. Returns their files."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="koguma-deb-") as work:
        trees = {package: Path(work, package.name) for package in (AGENT, CONTROL_PLANE)}
        _fill(trees, python or Path("/usr/bin", PYTHON), Path(work))
        for package, tree in trees.items():
            _finish(package, tree, version)
        return [_packed(package, tree, target, version) for package, tree in trees.items()]


def _fill(trees: dict[DebianPackage, Path], python: Path, work: Path) -> None:
    """All that is imported. What both packages need is in the first, on which the second depends."""
    of_agent, of_control_plane = needed(), needed(["cp"])
    agent = trees[AGENT]
    lay_out(agent / HOME, of_agent.values(), wheel(work))
    interpreter(agent / HOME, python)
    lay_out(trees[CONTROL_PLANE] / HOME, (each for name, each in of_control_plane.items() if name not in of_agent))
    (agent / "usr/bin").mkdir()
    (agent / "usr/bin/koguma").write_text(_START)
    (agent / "etc/koguma/proxies").mkdir(parents=True)
    _write_manual(agent / "usr/share/man/man1")


def _write_manual(folder: Path) -> None:
    """Manual pages of all commands. They are packed the same each time, whenever that is."""
    folder.mkdir(parents=True)
    for name, text in manual_pages(version(KOGUMA)).items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def _finish(package: DebianPackage, tree: Path, version: str) -> None:
    for name, path in _INSTALLED[package].items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(HERE / package.name / name, tree / path)
    # Nobody could compile it later: the folder is not the user's.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(tree / HOME, quiet=1, workers=0, invalidation_mode=mode, stripdir=str(tree))
    _write_control(package, tree, version)
    for file in tree.rglob("*"):
        if not file.is_symlink():
            file.chmod(_PROGRAM if file.is_dir() or file.parent.name == "bin" or _is_script(file) else _FILE)
    for path, permissions in _PRIVATE.items():
        if (tree / path).exists():
            (tree / path).chmod(permissions)
    tree.chmod(_PROGRAM)


def _is_script(path: Path) -> bool:
    return path.parent.name == "DEBIAN" and path.name in {"postinst", "prerm"}


def _write_control(package: DebianPackage, tree: Path, version: str) -> None:
    control = tree / "DEBIAN"
    size = sum(path.lstat().st_size for path in tree.rglob("*")) >> 10
    control.mkdir()
    (control / "control").write_text("".join(f"{line}\n" for line in _fields(package, version, size)))
    (control / "conffiles").write_text("".join(f"/{path}\n" for path in _settings(package)))
    (control / "postinst").write_text(_CONFIGURE.format(**asdict(package)))
    (control / "prerm").write_text(_REMOVE.format(units=package.units))


def _settings(package: DebianPackage) -> Iterator[str]:
    """Files that belong to who edits them: an upgrade asks before it changes one."""
    return (path for path in _INSTALLED[package].values() if path.startswith("etc/"))


def _fields(package: DebianPackage, version: str, size: int) -> Iterator[str]:
    architecture = subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True).stdout
    yield f"Package: {package.name}"
    yield f"Version: {version}"
    yield f"Architecture: {architecture.strip()}"
    yield "Section: net"
    yield "Priority: optional"
    yield "Maintainer: The Koguma authors <koguma@localhost>"
    yield f"Installed-Size: {size}"
    yield f"Depends: {package.depends.format(version=version)}{PYTHON}, libc6, libstdc++6"
    yield f"Description: {package.summary}"
    yield f" {package.description}"


def _packed(package: DebianPackage, tree: Path, target: Path, version: str) -> Path:
    file = target / f"{package.name}_{version}.deb"
    pack: Sequence[str | Path] = ["dpkg-deb", "--root-owner-group", "--build", "-Zxz", "-z1", tree, file]
    epoch = {"SOURCE_DATE_EPOCH": "0"}  # the same files make the same package
    subprocess.run(pack, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **epoch})  # noqa: TID251  # dpkg-deb inherits ours
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the Debian packages.")
    parser.add_argument("--output", type=Path, default=Path("dist"), help="the folder for the packages")
    parser.add_argument("--revision", default=FIRST_REVISION, help="the version of the packages")
    parser.add_argument("--without-page", action="store_true", help="even if the page for browsers was not built")
    options = parser.parse_args()
    if not (options.without_page or (ROOT / "cp/gui/index.html").is_file()):
        parser.error(
            "the page for browsers was not built: run `make page`, which needs node and npm (or --without-page)"
        )
    for file in build(options.output, options.revision):
        sys.stdout.write(f"{file}\n")


if __name__ == "__main__":
    main()
