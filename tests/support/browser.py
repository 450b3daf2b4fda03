"""A real browser under test: the Chromium of this machine, which answers to Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

ROOT: Final = Path(__file__).resolve().parents[2]
AXE: Final = ROOT / "gui/node_modules/axe-core/axe.min.js"
BUILT: Final = ROOT / "cp/gui/index.html"
NAMES: Final = ("chromium", "chromium-browser", "google-chrome")

_SANDBOX: Final = [] if os.geteuid() != 0 else ["--no-sandbox"]  # Chromium has none for root
_WITHIN: Final = 30_000  # milliseconds
expect.set_options(timeout=_WITHIN)


@cache
def missing() -> str:
    """Why no browser can look at the page here; empty where one can."""
    if next(filter(None, map(shutil.which, NAMES)), None) is None:
        return "there is no Chromium here (Debian: apt install chromium)"
    return "" if BUILT.is_file() and AXE.is_file() else "the page is not built (make page, which needs node and npm)"


@contextmanager
def chromium() -> Iterator[Browser]:
    if reason := missing():
        pytest.skip(reason)
    executable = next(filter(None, map(shutil.which, NAMES)))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=_SANDBOX)
        try:
            yield browser
        finally:
            browser.close()


@dataclass(slots=True)
class Visit:
    """A window in which the page is open, and all that happened there."""

    page: Page
    origin: str
    requests: list[Request] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """What the page wrote to the console, and what it did not catch."""

    def open(self, address: str) -> Page:
        self.page.goto(self.origin + address)
        return self.page

    @property
    def elsewhere(self) -> list[str]:
        """The requests to any other host."""
        urls = (request.url for request in self.requests)
        return [url for url in urls if not url.startswith((f"{self.origin}/", "data:"))]

    def violations(self) -> list[str]:
        """What axe finds wrong for those who do not see the page, or see little of it."""
        if not self.page.evaluate("typeof axe !== 'undefined'"):
            self.page.evaluate(AXE.read_text())
        answer: dict[str, Any] = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{violation['id']}: {node['html'][:200]} ({node['failureSummary']})"
            for violation in answer["violations"]
            for node in violation["nodes"]
        ]


@contextmanager
def visit(browser: Browser, origin: str, **options: Any) -> Iterator[Visit]:
    """A new window without anything that another one has kept."""
    context = browser.new_context(**options)
    context.set_default_timeout(_WITHIN)
    page = context.new_page()
    visited = Visit(page, origin)
    page.on("request", lambda request: visited.requests.append(request))  # noqa: PLW0108  # it cannot mark a builtin
    page.on("console", lambda message: visited.faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: visited.faults.append(str(error)))
    try:
        yield visited
    finally:
        page.unroute_all(behavior="ignoreErrors")  # what is on its way as a test ends is no fault of the next one
        context.close()
