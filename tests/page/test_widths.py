"""The page on narrow and wide screens, in light and dark: nothing is cut off, and pictures of it are taken.

`pytest tests/page/test_widths.py -m long --pictures FOLDER` leaves the pictures in a folder, for people to look at.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.page.test_views import VIEWS
from tests.support.browser import Visit

WIDTHS: Final = {"phone": 390, "tablet": 820, "screen": 1440}
HEIGHT: Final = 900
SHORT: Final = {("mesh", "phone"), ("values", "phone")}
"""Those that are looked at each time."""

CUT_OFF: Final = """() => {
  const scrolls = (element) => {
    for (let each = element; each !== null && each !== document.body; each = each.parentElement) {
      if (["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(each).overflowX)) return true;
    }
    return false;
  };
  return [...document.querySelectorAll("main *, header *, nav *")]
    .filter((each) => each.getBoundingClientRect().right > innerWidth + 1 && !scrolls(each))
    .map((each) => each.outerHTML.slice(0, 120));
}"""
"""What is beyond the right edge, with nothing around it that scrolls."""


@pytest.fixture
def pictures(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where pictures are left."""
    folder = request.config.getoption("--pictures") or tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    return Path(folder)


@pytest.mark.parametrize(
    ("view", "screen"),
    [
        pytest.param(view, screen, marks=() if (view, screen) in SHORT else pytest.mark.long)
        for view in VIEWS
        for screen in WIDTHS
    ],
)
def test_a_view_fits_into_the_window_in_light_and_dark(view: str, screen: str, window: Visit, pictures: Path) -> None:
    address, shown = VIEWS[view]
    width, taken = WIDTHS[screen], []
    window.page.set_viewport_size({"width": width, "height": HEIGHT})
    page = window.open(address)
    expect(page.locator("main")).to_contain_text(shown)

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not page.evaluate(CUT_OFF)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        taken.append(page.screenshot(path=pictures / f"{view.replace(' ', '-')}-{screen}-{scheme}.png"))
    assert taken[0] != taken[1]
    assert not window.violations()
