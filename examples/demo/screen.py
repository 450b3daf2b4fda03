"""What the demo shows, on a terminal or in a log."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from math import isinf
from typing import Final, Self

from rich import box
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from examples.demo.edit import Seen
from examples.demo.plan import Plan
from examples.demo.story import Result, Row
from examples.demo.tries import Try

IN_A_LOG: Final = 120
"""Columns where there is no terminal to ask."""


def _console() -> Console:
    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=IN_A_LOG)


console: Final = _console()


@contextmanager
def step(text: str) -> Iterator[None]:
    """Say what is going on while it does, and afterwards how long it took."""
    begun = time.monotonic()
    with console.status(f"{text} …"):
        yield
    done(f"{text} [dim]{time.monotonic() - begun:.1f} s[/]")


def done(text: str) -> None:
    console.print(f"[green]✓[/] {text}")


def failed(text: str) -> None:
    console.print(f"[red]✗[/] {escape(text)}")


def moved(ports: dict[int, int]) -> None:
    if ports:
        pairs = ", ".join(f"{port} → {other}" for port, other in sorted(ports.items()))
        console.print(f"[yellow]![/] These ports are taken, so others are used: {pairs}")


class Board:
    """The table of requests, filled in as answers come."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._results: dict[Row, Result] = {}
        self._live = Live(self._table(), console=console, auto_refresh=False)

    def add(self, result: Result) -> None:
        self._results[result.row] = result
        self._live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
        for title in ("proxy", "request", "should get", "got", ""):
            table.add_column(title, no_wrap=True)
        table.add_column("decided by", overflow="fold")
        for row, following in zip_longest(self._rows, self._rows[1:]):
            is_last = following is None or following.proxy != row.proxy
            table.add_row(*_cells(row, self._results.get(row)), end_section=is_last)
        return table

    def __enter__(self) -> Self:
        console.line()
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        console.line(1 if console.is_terminal else 2)


def _cells(row: Row, result: Result | None) -> Iterable[str]:
    wanted = f"{row.status} in {row.seconds:.1f} s"
    rule = row.rule if isinf(row.limit) else f"{row.rule} ({row.limit:g}\N{NO-BREAK SPACE}s)"
    if result is None:
        return row.proxy, row.request, wanted, "[dim]…[/]", "", rule
    got = f"{result.status or result.error} in {result.seconds:.2f} s"
    mark = "[green]✓[/]" if result.held else "[red]✗[/]"
    decided = rule if result.rule == row.rule else f"[red]{result.rule}[/], not {rule}"
    return row.proxy, row.request, wanted, got, mark, decided


def edited(seen: Seen) -> None:
    if seen.first is None:
        failed(f"none of {seen.sent} requests saw the edit")
        return
    done(
        f"Live edit: the write was answered after [bold]{seen.answered * 1000:.0f} ms[/]; "
        f"the first request that saw it left [bold]{seen.first * 1000:.0f} ms[/] after the write began"
    )


def urls(plan: Plan) -> None:
    """Whole and on lines of their own, so that a terminal makes links of them."""
    console.print("\n[bold]All of it is still up:[/]\n")
    lines = [(sidecar.name, sidecar.url) for sidecar in plan.sidecars if sidecar.backend]
    lines += [("edge-1, from outside", plan.edge.url(scheme)) for scheme in ("http", "https")]
    lines.append(("the page, for a browser", f"{plan.api}/gui/"))
    lines.append(("the control plane's API", f"{plan.api}/meshes/default/meshtimeouts"))
    lines += [(f"the Envoy of {sidecar.name}", f"{sidecar.admin}/config_dump") for sidecar in plan.sidecars]
    lines.append(("the Envoy of edge-1", f"{plan.edge.admin}/config_dump"))
    for name, url in lines:
        console.print(f"    {name:24} [link={url}]{url}[/]", soft_wrap=True)


def to_try(tries: Sequence[Try]) -> None:
    """Commands stand on lines of their own, uncut, so that they can be copied."""
    console.print("\n[bold]Three things to try[/], in another terminal, in this folder:")
    for number, one in enumerate(tries, 1):
        console.print(f"\n{number}. {one.what}\n", soft_wrap=True)
        for command in one.commands:
            console.print(f"    {escape(command)}", style="cyan", soft_wrap=True)
    console.print("\nCtrl-C ends everything.")
