"""What the page says where it knows only a part, or nothing: not more than it knows."""

from __future__ import annotations

import json
import re
import socketserver
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pytest
from playwright.sync_api import Route, expect

from tests.page.test_mesh_and_changes import fulfilled
from tests.page.test_views import CALL, PROXY
from tests.support.browser import Visit

pytestmark = pytest.mark.long

BROKEN: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n3\r\n:\n\n\r\n"
)
HOSTILE: Final = "a<b>"
PROBLEM: Final = {"status": 503, "title": "Too busy", "detail": "the control plane has too much to do"}


def changed(change: Callable[[Any], Any]) -> Callable[[Route], None]:
    """Answers of the API in which something is different."""

    def answer(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, body=json.dumps(change(response.json())))

    return answer


# --- the feed --------------------------------------------------------------------------------------------------------


class _Breaking(socketserver.BaseRequestHandler):
    """A feed that says something, and breaks off before its end."""

    def handle(self) -> None:
        self.request.recv(65536)
        self.request.sendall(BROKEN)


@pytest.fixture
def breaking() -> Iterator[str]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Breaking) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/_feed"
        server.shutdown()
        thread.join()


def test_a_feed_that_breaks_off_was_not_silent(window: Visit, breaking: str) -> None:
    window.page.route("**/_feed", lambda route: route.continue_(url=breaking))
    page = window.open("/gui/fleet")

    expect(page.locator("main")).to_contain_text("Lost contact since")
    expect(page.locator("main")).to_contain_text("the connection broke off")
    window.requests.clear()  # the feed was asked for elsewhere, here alone
    window.faults.clear()  # Chromium notes it


def test_what_the_page_cannot_read_is_a_fault_of_the_page(window: Visit) -> None:
    body = "event: world\ndata: {no JSON\n\n"
    window.page.route("**/_feed", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    page = window.open("/gui/fleet")

    expect(page.locator("main")).to_contain_text("the page has a fault: SyntaxError")


def test_a_feed_that_ends_where_nothing_happened_was_not_lost(window: Visit) -> None:
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) > 2:
            route.continue_()
        else:
            route.fulfill(body="retry: 2000\n\n:\n\n", content_type="text/event-stream")

    window.page.add_init_script(
        "new MutationObserver(() => { window.lost ||= document.body?.textContent.includes('Lost contact'); })"
        ".observe(document, {subtree: true, childList: true, characterData: true})"
    )
    window.page.route("**/_feed", answer)
    page = window.open("/gui/fleet")

    with page.expect_request(lambda _: len(asked) > 2):
        pass
    expect(page.locator("header")).to_contain_text("live")
    assert not page.evaluate("window.lost")


def test_a_control_plane_that_tells_no_more_readers_is_not_lost(window: Visit) -> None:
    problem = {"status": 429, "title": "Too many feeds", "detail": "20 feeds are open for the same caller"}
    window.page.route("**/_feed", lambda route: route.fulfill(status=429, json=problem))
    page = window.open("/gui/fleet")

    expect(page.locator("main")).to_contain_text("does not update by itself: 20 feeds are open for the same caller")
    window.faults.clear()


def test_a_control_plane_without_its_store_is_told(window: Visit) -> None:
    def answer(route: Route) -> None:
        route.fulfill(body=f"event: contact\ndata: {json.dumps(told)}\n\n", content_type="text/event-stream")

    told = {"follows": False, "writes": False, "silent": 0}
    window.page.route("**/_feed", answer)
    page = window.open("/gui/fleet")

    expect(page.locator("main")).to_contain_text("The control plane cannot read its store.")
    assert not window.violations()
    told["follows"] = True
    expect(page.locator("main")).not_to_contain_text("cannot read its store")


# --- the fleet and a proxy -------------------------------------------------------------------------------------------


def test_control_planes_that_do_not_answer_are_counted(window: Visit) -> None:
    contact = json.dumps({"follows": True, "writes": True, "silent": 2})
    body = f"event: contact\ndata: {contact}\n\n"
    window.page.route("**/_feed", lambda route: route.fulfill(body=body, content_type="text/event-stream"))

    page = window.open("/gui/proxies")

    expect(page.locator("main")).to_contain_text("2 control planes do not answer")


def test_a_proxy_with_several_services_has_all_of_them(window: Visit) -> None:
    def widened(fleet: Any) -> Any:
        place = fleet["columns"].index("tags")
        for row in fleet["meshes"]["default"]:
            row[place] = ["kuma.io/service=one", "kuma.io/service=two", "version=v1"]
        return fleet

    window.page.route("**/_fleet", changed(widened))

    page = window.open("/gui/proxies?q=service:two")

    expect(page.get_by_role("rowheader")).to_have_count(3)
    expect(page.get_by_role("row", name=re.compile("frontend-1"))).to_contain_text("one, two")


def test_of_a_proxy_whose_control_plane_is_silent_nothing_is_said_for_sure(window: Visit) -> None:
    unknown: dict[str, Any] = {"status": "Unknown", "streams": [], "lastConnection": None, "since": None}
    window.page.route("**/_delivery", changed(lambda delivery: delivery | unknown))

    page = window.open(f"{PROXY}?tab=delivery")

    expect(page.locator(".standing")).to_contain_text("a control plane that may serve it does not answer")
    expect(page.locator("main")).to_contain_text("Whether it is connected is not known")


@pytest.mark.parametrize("tab", ["values", "envoy", "policies"])
def test_what_a_rollout_means_for_a_proxy_is_said_whatever_is_looked_at(tab: str, window: Visit) -> None:
    note = "rollout 7 is under way (step 1 of 2): this proxy is served what is stored"
    window.page.route("**/_delivery", changed(lambda delivery: delivery | {"rollout": note}))

    page = window.open(f"{PROXY}?tab={tab}")

    expect(page.locator(".note", has_text=note)).to_have_count(1)


def test_an_explanation_is_of_what_a_proxy_should_do(window: Visit) -> None:
    def offline(fleet: Any) -> Any:
        return json.loads(json.dumps(fleet).replace('"Online"', '"Offline"'))

    window.page.route("**/_fleet", changed(offline))

    page = window.open(CALL)

    expect(page.locator("main")).to_contain_text("it is not connected. Here is what it should do")


def test_a_cluster_without_endpoints_is_listed(window: Visit) -> None:
    window.page.route("**/_envoy/clusters", partial(fulfilled, {"cluster_statuses": [{"name": "empty"}]}))
    page = window.open(f"{PROXY}?tab=live")

    page.get_by_role("button", name="Ask").click()

    expect(page.get_by_role("row", name="empty")).to_contain_text("no endpoint")


# --- the graph -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "words"),
    [(1, "What 1 proxy may call is not known, as its configuration"), (22, "What 22 proxies may call is not known")],
)
def test_proxies_of_which_nobody_knows_what_they_call_are_named_above_the_graph(
    count: int, words: str, window: Visit
) -> None:
    names = [HOSTILE, *(f"web-{number}" for number in range(1, count))]
    window.page.route("**/_graph*", changed(lambda graph: graph | {"failed": names}))

    page = window.open("/gui/mesh?mesh=default")

    note = page.get_by_role("status").filter(has_text="Not all calls are here.")
    expect(note).to_contain_text(words)
    expect(note.get_by_role("link")).to_have_count(min(count, 20))
    expect(note.get_by_role("link").first).to_have_attribute("href", "/gui/proxies/default/a%3Cb%3E?mesh=default")
    assert ("and 2 more" in note.inner_text()) == (count == 22)
    assert not window.violations()


def test_a_graph_with_all_calls_says_nothing_of_missing_ones(window: Visit) -> None:
    page = window.open("/gui/mesh?mesh=default")

    expect(page.get_by_role("table")).to_contain_text("backend")
    expect(page.locator("main")).not_to_contain_text("Not all calls")


# --- policies and changes --------------------------------------------------------------------------------------------


def test_without_lint_nobody_says_that_there_are_no_findings(window: Visit) -> None:
    window.page.route("**/_lint", lambda route: route.fulfill(status=503, json=PROBLEM))

    page = window.open("/gui/policies?mesh=default")

    expect(page.get_by_role("alert")).to_contain_text("Too busy")
    expect(page.get_by_role("row", name=re.compile("for-all"))).to_contain_text("not known")
    window.faults.clear()


def test_about_a_policy_that_cannot_be_read_nobody_says_that_there_are_no_findings(window: Visit) -> None:
    window.page.route(
        re.compile("/meshes/default/meshtimeouts/for-all$"), lambda route: route.fulfill(status=503, json=PROBLEM)
    )

    page = window.open("/gui/policies/default/meshtimeouts/for-all")

    expect(page.locator("main")).to_contain_text("It selects 3 proxies")
    expect(page.get_by_role("alert")).to_contain_text("Too busy")
    expect(page.locator("main")).not_to_contain_text("no findings")
    window.faults.clear()


def write(revision: int, mesh: str = "default", **more: Any) -> dict[str, Any]:
    resource = {"type": "MeshTimeout", "mesh": mesh, "name": "slow", "change": "Created"}
    known = {"revision": revision, "time": "2026-01-01T00:00:00Z", "author": "anna", "origin": "apply"}
    return {**known, "resources": [resource], "more": 0, "reach": None, **more}


def reach(**more: Any) -> dict[str, Any]:
    numbers = dict.fromkeys(("proxies", "have", "waiting", "gone", "refusals", "failed"), 0)
    moments = {"published": "2026-01-01T00:00:00Z", "inForce": "2026-01-01T00:00:01Z", "revisions": [7, 7]}
    return {**moments, **numbers, "refused": [], "complete": True, **more}


def test_a_page_of_changes_without_any_of_the_mesh_says_which_it_has(window: Visit) -> None:
    timeline = {"items": [write(9, "other"), write(8, "other")], "newest": 9, "oldest": 0, "next": 7}
    window.page.route("**/_changes*", partial(fulfilled, timeline))

    page = window.open("/gui/changes?mesh=default")

    expect(page.locator("main")).to_contain_text(
        "None of revisions 8 to 9 is of mesh default, as far as you may see; there are earlier ones."
    )


def test_a_write_of_which_not_all_is_told_may_be_of_the_mesh(window: Visit) -> None:
    timeline = {"items": [write(9, "other", more=50)], "newest": 9, "oldest": 0, "next": None}
    window.page.route("**/_changes*", partial(fulfilled, timeline))

    page = window.open("/gui/changes?mesh=default")

    expect(page.locator("ol.timeline > li")).to_contain_text("and 50 more")


def test_what_a_rollback_ends_is_said_before_it_is_made_and_one_of_nothing_has_not_gone_back(window: Visit) -> None:
    ending = "this ends rollout 7 of mesh default, which changes it too: what it proposes is taken back"
    resource = {"type": "MeshTimeout", "mesh": "default", "name": "slow", "outcome": "Deleted", "warnings": [ending]}

    def answer(route: Route) -> None:
        resources = [resource] if "dryRun" in route.request.url else []
        route.fulfill(json={"rolledBackTo": 1, "resources": resources, "leftOut": []})

    window.page.route("**/_rollback*", answer)
    page = window.open("/gui/changes/2")

    page.get_by_role("button", name="Show what would go back").click()
    expect(page.get_by_role("list", name="What goes back")).to_contain_text(ending)
    page.get_by_role("button", name=re.compile("^Take back")).click()
    page.get_by_role("button", name=re.compile("^Yes")).click()

    expect(page.locator(".rollback")).to_contain_text("Nothing was written.")
    expect(page.locator(".rollback")).not_to_contain_text("It has gone back")


@pytest.mark.parametrize(
    ("reached", "shown", "not_shown"),
    [
        (reach(), "It concerned no connected proxy", "In force"),
        (reach(proxies=9, have=1, refusals=8, inForce=None, refused=["default.a"]), "default/a and 7 more", "after"),
    ],
)
def test_a_change_says_of_its_reach_what_is_known(
    reached: dict[str, Any], shown: str, not_shown: str, window: Visit
) -> None:
    timeline = {"items": [write(2, reach=reached)], "newest": 2, "oldest": 0, "next": None}
    window.page.route("**/_changes*", partial(fulfilled, timeline))

    page = window.open("/gui/changes/2")

    facts = page.locator("dl.facts")
    expect(facts).to_contain_text(shown)
    expect(facts).not_to_contain_text(not_shown)
