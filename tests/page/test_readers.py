"""Two readers at one window, one after the other: what the first was shown is nothing to the second."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.support.browser import Visit, visit
from tests.support.control_plane import ControlPlane
from tests.support.loopback import Address
from tests.support.mesh import bare_dataplane
from tests.support.waiting import eventually

RIGHTS: Final = """\
administrators: {groups: [mesh-system:admin]}
rights:
- {groups: [first], may: [read], meshes: [firstmesh]}
- {groups: [second], may: [read], meshes: [secondmesh]}
"""
ELSEWHERE: Final = {"x-forwarded-for": "192.0.2.1"}
"""Of a request with it, nobody takes the sender for the administrator."""


@pytest.fixture(scope="module")
def rights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("readers") / "access.yaml"
    file.write_text(RIGHTS)
    return file


@pytest.fixture(scope="module")
def control_plane(rights: Path) -> Iterator[ControlPlane]:
    with ControlPlane(rights.parent, KOGUMA_ACCESS_FILE=str(rights)) as started:
        for name in ("first", "second"):
            started.apply({"type": "Mesh", "name": f"{name}mesh"})
            proxy = bare_dataplane(f"{name}-proxy", f"{name}-service", Address("10.0.0.1", 80))
            started.apply(proxy | {"mesh": f"{name}mesh"})
        yield started


@pytest.fixture
def window(browser: Browser, control_plane: ControlPlane) -> Iterator[Visit]:
    with visit(browser, control_plane.api.url, extra_http_headers=ELSEWHERE) as visited:
        yield visited
        assert not visited.elsewhere


def token_of(control_plane: ControlPlane, group: str) -> str:
    body = b'{"name": "%s-reader", "groups": ["%s"], "validFor": "1h"}' % (group.encode(), group.encode())
    answer = control_plane.request("POST", "/tokens/user", body, **{"content-type": "application/json"})
    return answer.raise_for_status().text


def sign_in(page: Page, control_plane: ControlPlane, group: str) -> None:
    page.get_by_label("User token").fill(token_of(control_plane, group))
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def sign_out(page: Page) -> None:
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("dialog")).to_be_visible()


def seen(page: Page) -> str:
    """All that is in the window, its title and its address."""
    return f"{page.content()} {page.title()} {page.url}"


def is_forgotten(page: Page) -> bool:
    """Whether nothing in the memory of the page has the name of the first reader's mesh or proxy."""
    held = heap(page)
    return "firstmesh" not in held and "first-proxy" not in held


def heap(page: Page) -> str:
    """Every text that the page holds in memory."""
    session = page.context.new_cdp_session(page)
    chunks: list[str] = []
    session.on("HeapProfiler.addHeapSnapshotChunk", lambda event: chunks.append(event["chunk"]))
    session.send("HeapProfiler.collectGarbage")
    session.send("HeapProfiler.takeHeapSnapshot", {"reportProgress": False})
    session.detach()
    return "".join(chunks)


@pytest.mark.long
@pytest.mark.parametrize(
    "address",
    [
        "/gui/proxies/firstmesh/first-proxy?tab=document",
        "/gui/mesh?mesh=firstmesh",
        pytest.param("/gui/fleet?q=first", marks=pytest.mark.long),
        pytest.param("/gui/proxies/firstmesh/first-proxy", marks=pytest.mark.long),
        pytest.param("/gui/policies?mesh=firstmesh", marks=pytest.mark.long),
        pytest.param("/gui/changes", marks=pytest.mark.long),
    ],
)
def test_after_signing_out_nothing_is_seen_or_held_of_what_was_shown(
    address: str, window: Visit, control_plane: ControlPlane
) -> None:
    page = window.open(address)
    sign_in(page, control_plane, "first")
    expect(page.locator("header select")).to_contain_text("firstmesh")
    expect(page.locator("main")).to_contain_text("first" if "fleet" not in address else "1 proxy of 1")

    sign_out(page)

    assert "first" not in seen(page).replace("first-child", "")
    eventually(lambda: is_forgotten(page), within=10)
    sign_in(page, control_plane, "second")
    expect(page.get_by_role("link", name="secondmesh/second-proxy: offline")).to_be_visible()
    assert "first" not in seen(page)


@pytest.mark.long
def test_what_may_not_be_read_any_more_is_not_shown_any_more(
    window: Visit, control_plane: ControlPlane, rights: Path
) -> None:
    page = window.open("/gui/mesh?mesh=firstmesh")
    sign_in(page, control_plane, "first")
    expect(page.locator("main")).to_contain_text("first-service")

    rights.write_text(RIGHTS.replace("meshes: [firstmesh]", "meshes: [firstmesh], kinds: [Mesh, Dataplane]"))
    try:
        expect(page.get_by_role("alert")).to_contain_text("first-reader")
        expect(page.locator("main")).not_to_contain_text("first-service")
    finally:
        rights.write_text(RIGHTS)


def test_with_a_token_that_is_not_taken_any_more_all_that_was_shown_is_gone(
    window: Visit, control_plane: ControlPlane
) -> None:
    page = window.open("/gui/changes")
    sign_in(page, control_plane, "first")
    expect(page.locator("main")).to_contain_text("firstmesh")

    expired = {"status": 401, "title": "Who are you?", "detail": "the token has expired"}
    page.route(re.compile("/(_|meshes)"), lambda route: route.fulfill(status=401, json=expired))
    page.get_by_role("link", name="Policies").click()

    expect(page.get_by_role("dialog")).to_contain_text("the token has expired")
    assert "first" not in seen(page)


@pytest.mark.long
def test_what_the_next_reader_waits_for_is_not_shown_as_the_last_one_knew_it(
    window: Visit, control_plane: ControlPlane
) -> None:
    page = window.open("/gui/changes")
    sign_in(page, control_plane, "first")
    expect(page.locator("main")).to_contain_text("firstmesh")
    sign_out(page)
    page.get_by_role("link", name="Changes").dispatch_event("click")
    waiting: list[Route] = []
    for pattern in ("**/_changes*", "**/meshes?*"):
        page.route(pattern, lambda route: waiting.append(route))  # noqa: PLW0108  # it cannot mark a builtin

    sign_in(page, control_plane, "second")
    expect(page.locator("main")).to_contain_text("Loading")

    assert "first" not in seen(page)
    for route in waiting:
        route.continue_()
    page.unroute_all()
    expect(page.locator("main")).to_contain_text("secondmesh")


@pytest.mark.long
def test_an_answer_that_comes_late_is_not_shown_to_the_next_reader(window: Visit, control_plane: ControlPlane) -> None:
    late: list[tuple[Route, Any]] = []
    page = window.open("/gui/fleet")

    def hold(route: Route) -> None:
        if late:
            route.continue_()
        else:
            late.append((route, route.fetch()))

    page.route("**/_fleet", hold)
    sign_in(page, control_plane, "first")
    expect(page.locator("header")).to_contain_text("live")
    eventually(lambda: page.evaluate("document.title") and len(late) > 0, within=10)
    sign_out(page)
    sign_in(page, control_plane, "second")
    expect(page.locator("a.cell")).to_have_count(1)

    for route, response in late:
        route.fulfill(response=response)

    page.get_by_role("link", name="Proxies").click()
    expect(page.get_by_role("rowheader")).to_have_text(["second-proxy"])
    assert late
    assert "first-proxy" not in seen(page)
    eventually(lambda: is_forgotten(page), within=10)
