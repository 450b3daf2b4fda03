"""The worst allowed document of each kind beside another mesh: what that mesh, memory and health notice of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.isolation.stand import Isolation, measure
from bench.isolation.worst import SHAPES, Shape

DELIVERY, MEMORY, HEALTH = 1.0, 1.5, 0.2
_P99: Final = 0.99

QUICK: Final = ("MeshTimeout", "MeshService")
"""Some kinds, to see that all of it runs."""


@dataclass(frozen=True, slots=True)
class Options:
    kinds: tuple[str, ...] = ()
    """The kinds that are measured; all if none is named."""

    edits: int = 6


def run(options: Options) -> dict[str, Any]:
    console = Console()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for number, shape in enumerate(chosen(options.kinds)):
            results.append(measure(shape, Path(folder) / str(number), options.edits))
            console.print(*_row(results[-1]))
    console.print(_table(results))
    return {"held": all(map(is_held, results)), "shapes": [asdict(result) for result in results]}


def chosen(kinds: Sequence[str]) -> Iterator[Shape]:
    return (shape for shape in SHAPES if not kinds or shape.kind in kinds)


def is_held(result: Isolation) -> bool:
    return p99(result.delivery) < DELIVERY and result.memory < MEMORY and p99(result.health) < HEALTH


def p99(seconds: Iterable[float]) -> float:
    ordered = sorted(seconds)
    return ordered[min(int(len(ordered) * _P99), len(ordered) - 1)] if ordered else 0.0


def _table(results: Iterable[Isolation]) -> Table:
    title = f"p99 below {DELIVERY:g} s, memory below {MEMORY:g} x, health below {HEALTH * 1000:g} ms"
    table = Table(title=title, title_justify="left")
    for column in ("kind", "what grows", "size", "p99 s", "p99 CPU s", "memory", "health ms", "CPU s", "held"):
        table.add_column(column, justify="left" if column in {"kind", "what grows"} else "right")
    for result in results:
        table.add_row(*_row(result))
    return table


def _row(result: Isolation) -> tuple[str, ...]:
    return (
        result.kind,
        result.grows,
        f"{result.size}",
        f"{p99(result.delivery):.2f}",
        f"{p99(result.delivery_cpu):.2f}",
        f"{result.memory:.2f}",
        f"{p99(result.health) * 1000:.0f}",
        f"{result.cpu:.1f}",
        "yes" if is_held(result) else "no",
    )
