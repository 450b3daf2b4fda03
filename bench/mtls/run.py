"""The whole run: both kinds of streams, and what is promised of each."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.mtls.promises import promises
from bench.mtls.stand import Pair, Size, Stand
from bench.serving import report
from bench.serving.promises import Promise
from bench.serving.stand import Measurement

_FOLDER: Final = Path(".bench")
_WIDTH: Final = 150
_CAPTION: Final = (
    "Of several measurements the middle one; of ratios the middle one of those of each round. "
    "Late is the latest of all, by the clock and by the processor time of the loop's own callbacks."
)


@dataclass(frozen=True, slots=True)
class Options:
    size: Size = field(default_factory=Size)
    parts: tuple[str, ...] = ("delta", "sotw")


def run(options: Options) -> dict[str, Any]:
    console = Console()
    console = console if console.is_terminal else Console(width=_WIDTH)
    kept: list[Promise] = []
    pairs: list[Pair] = []
    for part in ("delta", "sotw"):
        if part in options.parts:
            with tempfile.TemporaryDirectory(prefix="koguma-bench-") as folder, console.status(part) as status:
                stand = Stand(Path(folder), options.size, delta=part == "delta", step=status.update)
                found = stand.run()
            _show(console, found.pairs, f"{options.size.proxies} proxies x {options.size.services} services, {part}")
            pairs += found.pairs
            kept += promises(found, options.size)
    report.show_promises(console, kept)
    return _written(console, options, pairs, kept)


def _show(console: Console, pairs: list[Pair], title: str) -> None:
    table = Table(title=title, caption=_CAPTION)
    table.add_column("scenario", no_wrap=True)
    table.add_column("mTLS")
    for name in (
        "last ms",
        "ratio",
        "cpu s",
        "ratio",
        "messages",
        "KiB",
        "built",
        "MiB",
        "late ms",
        "own ms",
        "issued",
    ):
        table.add_column(name, justify="right")
    for pair in pairs:
        if pair.plain:
            table.add_row(pair.scenario, "off", *_cells(pair, pair.plain))
        table.add_row(pair.scenario, "on", *_cells(pair, pair.secured))
    console.print(table)


def _cells(pair: Pair, measured: list[Measurement]) -> Iterator[str]:
    is_secured = measured is pair.secured
    middle = sorted(measured, key=lambda one: one.took)[len(measured) // 2]
    yield f"{middle.took * 1000:,.0f}"
    yield _ratio(pair.time_ratio) if is_secured else ""
    yield f"{_middle_cpu(measured):.2f}"
    yield _ratio(pair.cpu_ratio) if is_secured else ""
    yield f"{sum(middle.messages.values()):,}"
    yield f"{middle.size / 1024:,.0f}"
    yield f"{middle.fragments or 0:.0f}"
    yield f"{max(one.peak for one in measured):.0f}"
    yield f"{max(one.lag for one in measured) * 1000:g}"
    yield f"{max(one.own_lag for one in measured) * 1000:g}"
    yield f"{pair.issued[-1]:g}" if is_secured and pair.issued else ""


def _middle_cpu(measured: list[Measurement]) -> float:
    return sorted(one.cpu for one in measured)[len(measured) // 2]


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _written(console: Console, options: Options, pairs: list[Pair], kept: list[Promise]) -> dict[str, Any]:
    data = {
        "proxies": options.size.proxies,
        "services": options.size.services,
        "scenarios": [
            {
                "scenario": pair.scenario,
                "stream": "delta" if pair.delta else "sotw",
                "time_ratio": pair.time_ratio,
                "cpu_ratio": pair.cpu_ratio,
                "issued": pair.issued,
                "plain": list(map(report.each_as_data, pair.plain)),
                "secured": list(map(report.each_as_data, pair.secured)),
            }
            for pair in pairs
        ],
        "promises": [{"says": one.says, "found": one.measured, "held": one.held} for one in kept],
        "held": all(one.held for one in kept),
    }
    _FOLDER.mkdir(exist_ok=True)
    path = _FOLDER / f"mtls-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps(data, indent=1))
    console.print(f"Written to {path}")
    return data
