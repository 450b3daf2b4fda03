"""What the page costs a browser where there are thousands of proxies, beside the same page with few of them.

Both are opened in one run by one browser, on control planes with light clients in place of Envoys. What is measured:
when the first of the page is seen, when every proxy is, and for how long the page could not answer a key while all of
them changed at once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, Page
from rich.console import Console
from rich.table import Table

from bench.serving import mesh
from bench.serving.processes import ControlPlane, Worker
from bench.serving.stand import MeasuredPlane, load_of
from tests.support.browser import chromium, missing

_FEW: Final = 10
_SERVICES: Final = 20
_ROUNDS: Final = 3
_WITHIN: Final = 60_000  # milliseconds
LONGEST_PAINT: Final = 5.0
"""By how much later the first of the page may be seen than with few proxies."""

_WATCH: Final = """
window.tasks = [];
new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((entry) => entry.duration)))
  .observe({type: "longtask", buffered: true});
"""
_ALL: Final = """([count, state]) => {
  if (document.querySelectorAll(`a.cell.${state}`).length < count) return false;
  return performance.now();
}"""
_PAINT: Final = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def run(proxies: int) -> dict[str, Any]:
    """Measure both, and print a table."""
    if reason := missing():
        Console().print(f"page: not measured: {reason}")
        return {"held": True, "reason": reason}
    with tempfile.TemporaryDirectory() as name:
        stores = {count: _store(Path(name), count) for count in (_FEW, proxies)}  # before the driver has a loop
        with chromium() as browser:
            measured = {count: _measured(browser, Path(name), store, count) for count, store in stores.items()}
    _print(measured)
    ratio = measured[proxies]["first paint"] / measured[_FEW]["first paint"]
    return {"measured": measured, "held": ratio < LONGEST_PAINT}


def _store(folder: Path, proxies: int) -> str:
    store = f"sqlite:///{folder}/{proxies}.db"
    mesh.fill(store, mesh.documents(proxies, _SERVICES))
    return store


def _measured(browser: Browser, folder: Path, store: str, proxies: int) -> dict[str, float]:
    with (
        ControlPlane(store, folder / f"{proxies}.log") as plane,
        load_of(folder, f"load-{proxies}", proxies, delta=True) as load,
    ):
        MeasuredPlane(plane, load, proxies).cold()
        rounds = [_opened(browser, plane, proxies) for _ in range(_ROUNDS)]
        middle = {name: sorted(each[name] for each in rounds)[_ROUNDS // 2] for name in rounds[0]}
        return middle | _all_change(browser, plane, load, proxies)


def _opened(browser: Browser, plane: ControlPlane, proxies: int) -> dict[str, float]:
    """A window that is new and has kept nothing."""
    page = _window(browser, plane)
    seen = page.wait_for_function(_ALL, arg=[proxies, "online"], timeout=_WITHIN).json_value()
    figures = {
        "first paint": float(page.evaluate(_PAINT)),
        "every proxy": float(seen),
        "longest task": float(page.evaluate("Math.max(0, ...window.tasks)")),
    }
    page.context.close()
    return figures


def _all_change(browser: Browser, plane: ControlPlane, load: Worker, proxies: int) -> dict[str, float]:
    """All proxies go at once."""
    page = _window(browser, plane)
    page.wait_for_function(_ALL, arg=[proxies, "online"], timeout=_WITHIN)
    page.evaluate("window.tasks = []")
    load.do("disconnect")
    page.wait_for_function(_ALL, arg=[proxies, "offline"], timeout=_WITHIN)
    longest, count = page.evaluate("[Math.max(0, ...window.tasks), window.tasks.length]")
    page.context.close()
    return {"all change: longest task": float(longest), "all change: tasks": float(count)}


def _window(browser: Browser, plane: ControlPlane) -> Page:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.add_init_script(_WATCH)
    page.goto(f"{plane.api}/gui/fleet")
    return page


def _print(measured: Mapping[int, Mapping[str, float]]) -> None:
    table = Table(title="the page, in milliseconds")
    few, many = measured
    for name in ("", f"{few} proxies", f"{many} proxies", "ratio"):
        table.add_column(name)
    for name, value in measured[few].items():
        table.add_row(name, *_row((value, measured[many][name])))
    Console().print(table)


def _row(values: Sequence[float]) -> tuple[str, str, str]:
    few, many = values
    return f"{few:.0f}", f"{many:.0f}", f"{many / few:.1f}" if few > 0 else ""
