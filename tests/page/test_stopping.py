"""What the page says while its control plane is being stopped: not that the proxies have gone."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import visit
from tests.support.playground import Playground, playground

pytestmark = pytest.mark.long

WATCH = (
    "new MutationObserver(() => { window.saidOffline ||= [...document.querySelectorAll('main td')]"
    ".some((cell) => cell.textContent.includes('offline')); })"
    ".observe(document, {subtree: true, childList: true, characterData: true})"
)


@pytest.fixture
def draining(tmp_path: Path) -> Iterator[Playground]:
    """Some Envoys of a control plane that takes its time to end their streams, one after the other."""
    with playground(tmp_path, KOGUMA_DRAIN="5") as mesh:
        for number in range(4):
            mesh.client(f"web-{number}")
        mesh.ready()
        mesh.control_plane.in_force()
        yield mesh


def test_proxies_are_not_shown_as_gone_while_a_control_plane_lets_them_go(
    browser: Browser, draining: Playground
) -> None:
    with visit(browser, draining.control_plane.api.url) as window:
        window.page.add_init_script(WATCH)
        page = window.open("/gui/proxies")
        rows = page.get_by_role("row", name=re.compile("web-[0-9]"))
        expect(rows.filter(has_text="in sync")).to_have_count(4)

        draining.control_plane.process.send(signal.SIGTERM)
        expect(page.locator("main")).to_contain_text("Lost contact since")
        expect(page.locator("main")).to_contain_text("the control plane is being stopped")
        draining.control_plane.process.wait()

        expect(rows.filter(has_text="in sync")).to_have_count(4)
        expect(page.locator("header")).to_contain_text("lost contact")
        assert not page.evaluate("window.saidOffline")
