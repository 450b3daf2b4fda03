"""What commands cost that people type often, as multiples of an interpreter that does nothing.

What is measured is processor time, which on a quiet machine is how long it takes. Each round starts every command
once, so that all of them meet the same machine. No control plane answers: `get` ends where it would wait for one.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.progress import track
from rich.table import Table

_NOBODY: Final = "http://127.0.0.1:9"
_FLOOR: Final = ("-c", "pass")
_KOGUMA: Final = ("-m", "cp")
COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "koguma version": ("version",),
    "koguma --help": ("--help",),
    "koguma get --help": ("get", "--help"),
    "koguma get meshes": ("get", "meshes", "--address", _NOBODY),
}
LARGEST_RATIO: Final = 20.0
"""Where an interpreter that does nothing takes 10 ms, this is 0.2 s."""


def run(rounds: int) -> dict[str, Any]:
    """Measure every command so many times, and print a table."""
    times: dict[str, list[float]] = {name: [] for name in ("python -c pass", *COMMANDS)}
    for _ in track(range(rounds), description="cli: starts of commands, in turns"):
        times["python -c pass"].append(_seconds(_FLOOR))
        for name, words in COMMANDS.items():
            times[name].append(_seconds((*_KOGUMA, *words)))
    medians = {name: median(seconds) for name, seconds in times.items()}
    ratios = {name: medians[name] / medians["python -c pass"] for name in COMMANDS}
    _print(medians, ratios)
    return {"seconds": medians, "ratios": ratios, "held": all(ratio < LARGEST_RATIO for ratio in ratios.values())}


def _seconds(arguments: Sequence[str]) -> float:
    before = _used()
    subprocess.run([sys.executable, *arguments], check=False, capture_output=True)
    return _used() - before


def _used() -> float:
    """The processor time of all processes that were started and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _print(medians: Mapping[str, float], ratios: Mapping[str, float]) -> None:
    table = Table(title="starts of the command line")
    for name in ("command", "median", "ratio"):
        table.add_column(name, justify="left" if name == "command" else "right")
    for name, seconds in medians.items():
        table.add_row(name, f"{seconds * 1000:.0f} ms", f"{ratios[name]:.1f}" if name in ratios else "1")
    console = Console()
    console.print(table)
    console.print(f"Each costs less than {LARGEST_RATIO:.0f} times what an interpreter that does nothing costs.")
