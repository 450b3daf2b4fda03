"""`make fuzz`: every target for its part of the time. Ends with 1 if an input hung, or raised what it should not."""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fuzz.one import HANGS_AFTER
from tests.fuzz.targets import TARGETS

_UNITS: Final = re.compile(r"stat::number_of_executed_units:\s+(\d+)")
_DONE: Final = re.compile(r"^#(\d+)\s", re.MULTILINE)
_GRACE: Final = 120
"""Seconds to start, and to instrument what is imported."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one target."""

    target: str
    inputs: int
    hangs: int
    tracebacks: int
    output: str

    @property
    def is_good(self) -> bool:
        return not self.hangs and not self.tracebacks

    def __str__(self) -> str:
        return f"{self.target:12} {self.inputs:>10} {self.hangs:>6} {self.tracebacks:>11}"


def main() -> int:
    given = _given()
    folder = Path(tempfile.mkdtemp(prefix="koguma-fuzz-"))
    seconds = max(1, given.seconds // len(given.targets))
    sys.stdout.write(f"{'TARGET':12} {'INPUTS':>10} {'HANGS':>6} {'TRACEBACKS':>11}\n")
    outcomes = []
    for target in given.targets:
        outcomes.append(_tried(target, seconds, folder))
        sys.stdout.write(f"{outcomes[-1]}\n")
        sys.stdout.flush()
    failed = [outcome for outcome in outcomes if not outcome.is_good]
    for outcome in failed:
        sys.stdout.write(
            f"\n--- {outcome.target}: its input is in {folder / outcome.target}\n{outcome.output[-4000:]}\n"
        )
    return 1 if failed else 0


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=130, help="altogether; each target has its part")
    parser.add_argument("targets", nargs="*", default=list(TARGETS), help=f"of {', '.join(TARGETS)}")
    return parser.parse_args()


def _tried(target: str, seconds: int, folder: Path) -> Outcome:
    place = folder / target
    place.mkdir()
    command = [sys.executable, "-m", "tests.fuzz.one", target, str(seconds), str(place)]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=seconds + _GRACE)
        output, failed = (done.stdout + done.stderr).decode(errors="replace"), done.returncode != 0
    except subprocess.TimeoutExpired as error:
        output, failed = (error.stderr or b"").decode(errors="replace"), True
    if failed and _was_kept_waiting(target, place):
        failed = False
    hung = failed and (
        "libFuzzer: timeout" in output or f"Timeout (0:00:0{HANGS_AFTER}" in output or "Traceback" not in output
    )
    counts = _UNITS.findall(output) or _DONE.findall(output) or ["0"]
    return Outcome(target, int(counts[-1]), int(hung), int(failed and not hung), output)


def _was_kept_waiting(target: str, place: Path) -> bool:
    """Whether what seemed to hang was the machine: the watch goes by the clock, and the input takes no time alone."""
    slow = sorted(place.glob("timeout-*"))
    return bool(slow) and all(_ends(target, path) for path in slow)


def _ends(target: str, path: Path) -> bool:
    replay = f"from tests.fuzz.targets import TARGETS; TARGETS[{target!r}](open({str(path)!r}, 'rb').read())"
    began = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    try:
        done = subprocess.run([sys.executable, "-c", replay], capture_output=True, check=False, timeout=_GRACE)
    except subprocess.TimeoutExpired:
        return False
    computed = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - began
    return done.returncode == 0 and computed < HANGS_AFTER


if __name__ == "__main__":
    raise SystemExit(main())
