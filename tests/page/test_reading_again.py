"""What the page reads again, when, and what it says until it has."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from playwright.sync_api import Page, Route, expect

from tests.page.test_views import PROXY
from tests.page.test_what_is_not_known import PROBLEM
from tests.support.browser import Visit

pytestmark = pytest.mark.long

COLUMNS: Final = ["name", "state", "since", "kind", "zone", "instance", "envoy", "findings", "tags"]


class Feed:
    """A feed that tells what a test says. It ends each time, as where nothing happens, and the page comes again."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._untold = [_event("world", {"revision": 1})]
        page.route("**/_feed", self._answer)

    def tell(self, name: str, data: Any) -> None:
        self._untold.append(_event(name, data))

    def tell_fleet(self, *rows: list[Any]) -> None:
        self.tell("fleet", {"silent": 0, "meshes": {"default": rows}})

    def heard(self) -> None:
        """Return once the page has read all that was told, and comes again."""
        with self._page.expect_request(lambda request: request.url.endswith("/_feed") and not self._untold):
            pass

    def _answer(self, route: Route) -> None:
        body, self._untold = "".join(self._untold) or ":\n\n", []
        route.fulfill(body=body, content_type="text/event-stream")


class Questions:
    """Questions of one kind that wait for their answer."""

    def __init__(self, page: Page, pattern: str) -> None:
        self._page = page
        self.asked: list[Route] = []
        page.route(pattern, self._hold)

    def next(self) -> Route:
        """The first of which no test has heard, once it is there."""
        if not self.asked:
            with self._page.expect_request(lambda _: bool(self.asked)):
                pass
        return self.asked.pop(0)

    def _hold(self, route: Route) -> None:
        self.asked.append(route)


def _event(name: str, data: Any) -> str:
    return f"id: here\nevent: {name}\ndata: {json.dumps(data)}\n\n"


def row(name: str, state: str = "Online") -> list[Any]:
    return [name, state, None, "Sidecar", "", "", "", 0, ["kuma.io/service=all"]]


def fleet(*rows: list[Any], silent: int = 0) -> dict[str, Any]:
    return {"id": "here", "revision": 1, "silent": silent, "columns": COLUMNS, "meshes": {"default": rows}}


@pytest.fixture
def feed(window: Visit) -> Feed:
    return Feed(window.page)


# --- the fleet -------------------------------------------------------------------------------------------------------


def test_a_fleet_that_could_not_be_read_again_is_not_taken_for_known(window: Visit, feed: Feed) -> None:
    known: list[Any] = [fleet(row("web-1"), row("web-2"))]

    def answer(route: Route) -> None:
        if known:
            route.fulfill(json=known[0])
        else:
            route.fulfill(status=503, json=PROBLEM)

    window.page.route("**/_fleet", answer)
    page = window.open("/gui/proxies")
    expect(page.get_by_role("rowheader")).to_have_text(["web-1", "web-2"])

    known.clear()
    feed.tell("reload", {"reason": "what has happened since is not remembered"})
    feed.tell_fleet(row("web-2", "Offline"))

    expect(page.get_by_role("row", name="web-2")).to_contain_text("offline")
    expect(page.get_by_role("alert")).to_contain_text("Too busy")
    known.append(fleet(row("web-1", "Refused"), row("web-2", "Offline")))
    expect(page.get_by_role("row", name="web-1")).to_contain_text("refusing")
    expect(page.get_by_role("alert")).to_have_count(0)
    window.faults.clear()  # Chromium notes each answer of 503


def test_a_fleet_that_could_not_be_read_at_all_is_read_when_somebody_says_so(window: Visit, feed: Feed) -> None:
    questions = Questions(window.page, "**/_fleet")
    page = window.open("/gui/proxies")
    questions.next().fulfill(status=503, json=PROBLEM)

    expect(page.get_by_role("alert")).to_contain_text("Too busy")
    expect(page.locator("main")).not_to_contain_text("Loading")
    page.get_by_role("button", name="Ask again").click()
    questions.next().fulfill(json=fleet(row("one")))

    expect(page.get_by_role("rowheader")).to_have_text(["one"])
    expect(page.get_by_role("alert")).to_have_count(0)
    window.faults.clear()


@pytest.mark.parametrize(
    "answer", [{"json": fleet(row("one"))}, {"status": 403, "json": PROBLEM | {"status": 403}}], ids=["read", "closed"]
)
def test_that_the_fleet_is_wrong_again_while_it_is_read_has_it_read_once_more(
    answer: dict[str, Any], window: Visit, feed: Feed
) -> None:
    questions = Questions(window.page, "**/_fleet")
    feed.tell("reload", {"reason": "other things may be read now"})
    page = window.open("/gui/proxies")
    first = questions.next()
    feed.heard()

    first.fulfill(**answer)
    questions.next().fulfill(json=fleet(row("one"), row("two")))

    expect(page.get_by_role("rowheader")).to_have_text(["one", "two"])
    window.faults.clear()  # Chromium notes an answer of 403


def test_a_proxy_that_comes_as_another_one_goes_stands_in_its_place(window: Visit, feed: Feed) -> None:
    window.page.route("**/_fleet", lambda route: route.fulfill(json=fleet(row("a"), row("m"), row("z"))))
    page = window.open("/gui/fleet")
    expect(page.locator("a.cell")).to_have_count(3)

    feed.tell_fleet(["m", None], row("b"))

    expect(page.get_by_role("link", name="default/b: in sync")).to_be_visible()
    names = [cell.get_attribute("aria-label") for cell in page.locator("a.cell").all()]
    assert names == [f"default/{name}: in sync" for name in "abz"]


def test_control_planes_that_answer_again_are_not_counted_any_more(window: Visit, feed: Feed) -> None:
    window.page.route("**/_fleet", lambda route: route.fulfill(json=fleet(row("one"), silent=1)))
    page = window.open("/gui/proxies")
    expect(page.locator("main")).to_contain_text("1 control plane does not answer")

    feed.tell("contact", {"follows": True, "writes": True, "silent": 0})

    expect(page.locator("main")).not_to_contain_text("not answer")


def test_a_store_that_refuses_writes_is_told(window: Visit, feed: Feed) -> None:
    feed.tell("contact", {"follows": True, "writes": False, "silent": 0})
    page = window.open("/gui/fleet")

    expect(page.locator("main")).to_contain_text("The store refuses writes")
    assert not window.violations()
    feed.tell("contact", {"follows": True, "writes": True, "silent": 0})
    expect(page.locator("main")).not_to_contain_text("refuses writes")


# --- questions -------------------------------------------------------------------------------------------------------


def test_a_question_that_takes_longer_than_the_next_write_is_answered(window: Visit, feed: Feed) -> None:
    lint = Questions(window.page, "**/_lint")
    failed: list[str] = []
    window.page.on("requestfailed", lambda request: failed.append(request.url))
    window.open("/gui/policies?mesh=default")
    first = lint.next()

    for revision in (2, 3):
        feed.tell("world", {"revision": revision})
        feed.heard()

    assert (lint.asked, failed) == ([], [])
    first.fulfill(json={"findings": []})
    second = lint.next()  # once more, for the last of them
    second.fulfill(json={"findings": []})
    feed.heard()
    assert lint.asked == []


def test_a_question_that_nobody_answers_ends(window: Visit) -> None:
    window.page.add_init_script(
        "const limit = AbortSignal.timeout; AbortSignal.timeout = () => limit.call(AbortSignal, 100)"
    )
    Questions(window.page, "**/_lint")

    page = window.open("/gui/policies?mesh=default")

    expect(page.get_by_role("alert").filter(has_text="it cannot be reached, or takes too long").first).to_be_visible()
    window.faults.clear()


def test_an_envoy_is_asked_once_each_time_that_somebody_says_so(window: Visit, feed: Feed) -> None:
    clusters = Questions(window.page, "**/_envoy/clusters")
    page = window.open(f"{PROXY}?tab=live")
    page.get_by_role("button", name="Ask").click()
    clusters.next().fulfill(json={"cluster_statuses": [{"name": "empty"}]})
    expect(page.get_by_role("row", name="empty")).to_be_visible()

    feed.tell("reload", {"reason": "what has happened since is not remembered"})
    with page.expect_response("**/_delivery"):
        feed.heard()

    expect(page.get_by_role("row", name="empty")).to_be_visible()
    assert clusters.asked == []


def test_what_an_envoy_said_goes_with_the_right_to_ask_it(window: Visit, feed: Feed) -> None:
    clusters = Questions(window.page, "**/_envoy/clusters")
    page = window.open(f"{PROXY}?tab=live")
    page.get_by_role("button", name="Ask").click()
    clusters.next().fulfill(json={"cluster_statuses": [{"name": "empty"}]})
    expect(page.get_by_role("row", name="empty")).to_be_visible()

    denied = {"status": 403, "title": "Access denied", "detail": "jane may not read it"}
    page.route("**/_delivery", lambda route: route.fulfill(status=403, json=denied))
    feed.tell("reload", {"reason": "other things may be read now"})

    expect(page.get_by_role("alert").filter(has_text="Access denied")).to_be_visible()
    expect(page.get_by_role("row", name="empty")).to_have_count(0)
    window.faults.clear()
