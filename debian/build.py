"""Builds the Debian packages `koguma` and `koguma-cp` from this environment: `make deb`.

The first has what a machine with a proxy needs, the second adds the control plane (record 0081). Both are for the
interpreter of one Debian release, since the libraries in them are compiled for one version of Python.
"""

from __future__ import annotations

import argparse
import getpass
import gzip
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Final

from debian.installation import KOGUMA, PYTHON, ROOT, interpreter, lay_out, needed, wheel
from debian.sbom import document
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

_RESTART: Final = """\
if [ -n "$2" ]; then
      rights=$(koguma access check --strict --config /etc/koguma/koguma.yaml 2>/dev/null) || [ -z "$rights" ] || {
        echo "koguma-cp: some rights cover less in this version than in earlier ones:" >&2
        echo "$rights" >&2
      }
      systemctl try-restart koguma.service
    fi"""
"""The rights are checked before the restart, so that nobody loses one without a word."""

_REMOVE: Final = """\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
  systemctl stop {units}
fi
"""
_PURGE: Final = """\
#!/bin/sh
set -e
if [ "$1" = purge ]; then
  # What `systemctl enable` linked leads nowhere now.
  if [ -d "$DPKG_ROOT/etc/systemd/system" ]; then
    find "$DPKG_ROOT/etc/systemd/system" -type l -name {units} -delete
  fi
  if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
  fi
fi
"""
_COPYRIGHT: Final = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Koguma

Files: *
Copyright: The Koguma authors
License: Apache-2.0
 On Debian systems, the full text of the Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.
Comment:
 The packages below usr/lib/koguma have licenses of their own, in their folders *.dist-info.
"""
_CHANGELOG: Final = """\
{name} ({version}) unstable; urgency=medium

  * Version {version}. /usr/share/doc/koguma/changelog.gz says what changed.

 -- {maintainer}  {date}
"""


@dataclass(frozen=True, slots=True)
class Build:
    """What both packages of one build have in common."""

    version: str
    maintainer: str
    moment: int
    """Seconds since 1970: the date of all files, so that the same sources make the same packages."""


@dataclass(frozen=True, slots=True)
class DebianPackage:
    """What is different between the packages."""

    name: str
    summary: str
    description: str
    users: str
    units: str
    depends: str
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
    depends=f"{PYTHON}, libc6, libstdc++6, procps, systemd | systemd-sysusers",
)
CONTROL_PLANE: Final = DebianPackage(
    "koguma-cp",
    "control plane for Envoy that explains itself",
    "The control plane as a service, and all that its commands need.",
    users="koguma",
    units="koguma.service",
    depends="koguma (= {version})",
    restart=_RESTART,
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
        "preflight.conf": f"{HOME}/preflight.conf",
    },
}


def build(target: Path, version: str = FIRST_REVISION, python: Path | None = None, maintainer: str = "") -> list[Path]:
    """Build both packages into a folder. Returns their files."""
    of_both = Build(version, maintainer or _builder(), _source_date())
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="koguma-deb-") as work:
        trees = {package: Path(work, package.name) for package in (AGENT, CONTROL_PLANE)}
        _fill(trees, python or Path("/usr/bin", PYTHON), Path(work))
        for package, tree in trees.items():
            _finish(package, tree, of_both)
        return [_packed(package, tree, target, of_both) for package, tree in trees.items()]


def _builder() -> str:
    """The maintainer, from the variables of Debian's tools; else the user who builds."""
    environment = os.environ  # noqa: TID251  # as Debian's own tools do
    user = getpass.getuser()
    name = environment.get("DEBFULLNAME") or user
    return f"{name} <{environment.get('DEBEMAIL') or f'{user}@{socket.getfqdn()}'}>"


def _source_date() -> int:
    """SOURCE_DATE_EPOCH, else the date of the last commit, else that of the newest source."""
    given = os.environ.get("SOURCE_DATE_EPOCH")  # noqa: TID251  # as Debian's own tools do
    if given:
        return int(given)
    asked = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=False, capture_output=True, text=True
    ).stdout.strip()
    return int(asked) if asked else int(max(path.stat().st_mtime for path in ROOT.glob("*.*")))


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


def _finish(package: DebianPackage, tree: Path, of_both: Build) -> None:
    for name, path in _INSTALLED[package].items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(HERE / package.name / name, tree / path)
    # Nobody could compile it later: the folder is not the user's. A process of its own forks, as it has no threads.
    compile_all = [sys.executable, "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([*compile_all, "-s", str(tree), str(tree / HOME)], check=True)
    _write_documentation(package, tree, of_both)
    _write_control(package, tree, of_both)
    for file in tree.rglob("*"):
        if not file.is_symlink():
            file.chmod(_PROGRAM if file.is_dir() or file.parent.name == "bin" or _is_script(file) else _FILE)
    for path, permissions in _PRIVATE.items():
        if (tree / path).exists():
            (tree / path).chmod(permissions)
    tree.chmod(_PROGRAM)
    for file in [*tree.rglob("*"), tree]:
        os.utime(file, (of_both.moment, of_both.moment), follow_symlinks=False)


def _is_script(path: Path) -> bool:
    return path.parent.name == "DEBIAN" and path.name in {"postinst", "prerm", "postrm"}


def _write_documentation(package: DebianPackage, tree: Path, of_both: Build) -> None:
    folder = tree / "usr/share/doc" / package.name
    folder.mkdir(parents=True)
    (folder / "copyright").write_text(_COPYRIGHT)
    date = format_datetime(datetime.fromtimestamp(of_both.moment, UTC))
    entry = _CHANGELOG.format(name=package.name, version=of_both.version, maintainer=of_both.maintainer, date=date)
    (folder / "changelog.Debian.gz").write_bytes(gzip.compress(entry.encode(), mtime=0))
    installed = needed() if package is AGENT else needed(["cp"])
    bill = document([distribution(KOGUMA), *installed.values()])
    (folder / "sbom.cdx.json").write_text(json.dumps(bill, indent=2))
    if package is AGENT:
        (folder / "changelog.gz").write_bytes(gzip.compress((ROOT / "CHANGELOG.md").read_bytes(), mtime=0))


def _write_control(package: DebianPackage, tree: Path, of_both: Build) -> None:
    control = tree / "DEBIAN"
    size = sum(path.lstat().st_size for path in tree.rglob("*")) >> 10
    control.mkdir()
    (control / "control").write_text("".join(f"{line}\n" for line in _fields(package, of_both, size)))
    (control / "conffiles").write_text("".join(f"/{path}\n" for path in _settings(package)))
    (control / "postinst").write_text(_CONFIGURE.format(**asdict(package)))
    (control / "prerm").write_text(_REMOVE.format(units=package.units))
    (control / "postrm").write_text(_PURGE.format(units=package.units))


def _settings(package: DebianPackage) -> Iterator[str]:
    """Files that belong to who edits them: an upgrade asks before it changes one."""
    return (path for path in _INSTALLED[package].values() if path.startswith("etc/"))


def _fields(package: DebianPackage, of_both: Build, size: int) -> Iterator[str]:
    architecture = subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True).stdout
    yield f"Package: {package.name}"
    yield f"Version: {of_both.version}"
    yield f"Architecture: {architecture.strip()}"
    yield "Section: net"
    yield "Priority: optional"
    yield f"Maintainer: {of_both.maintainer}"
    yield f"Installed-Size: {size}"
    yield f"Depends: {package.depends.format(version=of_both.version)}"
    yield f"Description: {package.summary}"
    yield f" {package.description}"


def _packed(package: DebianPackage, tree: Path, target: Path, of_both: Build) -> Path:
    file = target / f"{package.name}_{of_both.version}.deb"
    pack: Sequence[str | Path] = ["dpkg-deb", "--root-owner-group", "--build", "-Zxz", "-z1", tree, file]
    epoch = {"SOURCE_DATE_EPOCH": str(of_both.moment)}
    subprocess.run(pack, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **epoch})  # noqa: TID251  # dpkg-deb inherits ours
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the Debian packages.")
    parser.add_argument("--output", type=Path, default=Path("dist"), help="the folder for the packages")
    parser.add_argument("--revision", default=FIRST_REVISION, help="the version of the packages")
    parser.add_argument("--maintainer", default="", help="NAME <ADDRESS>; otherwise DEBFULLNAME and DEBEMAIL, or you")
    parser.add_argument("--without-page", action="store_true", help="even if the page for browsers was not built")
    options = parser.parse_args()
    if not (options.without_page or (ROOT / "cp/gui/index.html").is_file()):
        parser.error(
            "the page for browsers was not built: run `make page`, which needs node and npm (or --without-page)"
        )
    for file in build(options.output, options.revision, maintainer=options.maintainer):
        sys.stdout.write(f"{file}\n")


if __name__ == "__main__":
    main()
