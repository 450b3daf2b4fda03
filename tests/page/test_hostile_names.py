"""Whatever stands in a name, in a file's place or in what an Envoy says: the page shows it as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import pytest
from playwright.sync_api import Route, expect

from tests.page.conftest import POLICIES, Open, write
from tests.page.test_views import VIEWS
from tests.support.browser import Visit
from tests.support.playground import Playground

pytestmark = pytest.mark.long

MARKUP: Final = "<script>window.hostile=1</script><img src=/x onerror=window.hostile=1><b>&lt;"
HOSTILE: Final = {
    "markup": (MARKUP, MARKUP),
    "marks of direction": ("\u202edesrever\u2066\u200b\u0000", "⟨U+202E⟩desrever⟨U+2066⟩⟨U+200B⟩⟨U+0000⟩"),
    "a thousand characters": ("x" * 1000, "x" * 1000),
    "a scheme": ("javascript:window.hostile=1//", "javascript:window.hostile=1//"),
}
SHORT: Final = {("explain", "markup"), ("proxies", "marks of direction"), ("values", "a thousand characters")}
"""Those that are looked at each time."""

NAMES: Final = re.compile("frontend-1|backend-1|absent-1|for-backend|for-all|slow-ones")
OF_A_PROXY: Final = ("values", "delivery", "envoy", "policies of a proxy", "document")
OF_A_MESH: Final = ("fleet", "proxies", "explain", "mesh", "policies", "policy", "changes")


def told_as(name: str) -> Callable[[Route], Any]:
    """Answers of the API in which other names stand. To the API they are what they were."""

    def answer(route: Route) -> None:
        url = route.request.url.replace(quote(name, safe=""), "frontend-1")
        if "/gui" in url or "/_feed" in url:
            route.continue_()
            return
        response = route.fetch(url=url)
        escaped = json.dumps(name)[1:-1].replace("\\", "\\\\")
        route.fulfill(response=response, body=NAMES.sub(escaped, response.text()))

    return answer


def assert_harmless(window: Visit) -> None:
    page = window.page
    assert page.evaluate("window.hostile") is None
    assert page.locator("main script, main img, main b b, [onerror]").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert not window.elsewhere
    assert not window.faults


@pytest.mark.parametrize(
    ("view", "hostile"),
    [
        pytest.param(view, hostile, marks=() if (view, hostile) in SHORT else pytest.mark.long)
        for view in (*OF_A_MESH, *OF_A_PROXY)
        for hostile in HOSTILE
    ],
)
def test_a_hostile_name_is_text_in_every_view(view: str, hostile: str, window: Visit) -> None:
    name, seen = HOSTILE[hostile]
    address, _ = VIEWS[view]
    window.page.route("**/*", told_as(name))
    page = window.open(address.replace("frontend-1", quote(name, safe="")))

    if view == "fleet":
        page.locator("a.cell").first.focus()
    expect(page.locator("main")).to_contain_text(seen)
    assert_harmless(window)
    window.page.goto("about:blank")  # what is under way is answered by nobody any more
    window.page.unroute_all(behavior="wait")


@pytest.mark.long
def test_a_hostile_place_of_a_document_is_text(open_page: Open, mesh: Playground) -> None:
    write(mesh, POLICIES, "</td><script>alert(1)</script>/mesh.yaml")
    try:
        with open_page() as window:
            page = window.open(VIEWS["explain"][0])
            expect(page.locator("main")).to_contain_text("</td><script>alert(1)</script>/")
            assert_harmless(window)
    finally:
        write(mesh, POLICIES, "mesh/timeouts.yaml")
