"""A rollout on its way is seen on the page: at the changes, and at the proxy that is served it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.browser import Visit
from tests.support.mesh import Document, policy, service_item
from tests.support.playground import Playground
from tests.support.waiting import eventually

pytestmark = [pytest.mark.envoy, pytest.mark.long]


@pytest.fixture
def held(mesh: Playground) -> Iterator[int]:
    """A rollout to one proxy that nothing ends, and its number."""
    order = {"steps": "1,100%", "hold": "10m"}
    body = {"resources": [{"text": json.dumps(patience())}], "rollout": order}
    content, kind = json.dumps(body).encode(), {"content-type": "application/json"}
    mesh.control_plane.request("POST", "/_apply", content, **kind).raise_for_status()
    eventually(lambda: rollout(mesh)["state"] == "Holding", within=30)
    yield rollout(mesh)["number"]
    if rollout(mesh)["underWay"]:
        command(mesh, "abort")


def patience() -> Document:
    item = service_item("backend", {"http": {"requestTimeout": "77s"}})
    return policy("MeshTimeout", "patience", item, target={"kind": "Dataplane", "name": "frontend-1"})


def rollout(mesh: Playground) -> Any:
    return mesh.control_plane.request("GET", "/meshes/default/_rollout").json()


def command(mesh: Playground, action: str) -> None:
    content, kind = json.dumps({"action": action}).encode(), {"content-type": "application/json"}
    mesh.control_plane.request("POST", "/meshes/default/_rollout", content, **kind).raise_for_status()


def test_a_rollout_is_seen_until_its_end_without_a_reload(window: Visit, mesh: Playground, held: int) -> None:
    page = window.open("/gui/changes?mesh=default")
    section = page.locator("section").filter(has=page.get_by_role("heading", name="Rollouts"))
    expect(section).to_contain_text("Holding in mesh default: step 1 of 2 (1), 1 of 1 proxies, holding")
    expect(section).to_contain_text("patience")
    assert not window.violations()

    command(mesh, "pause")
    expect(section).to_contain_text("Paused in mesh default: step 1 of 2 (1), 1 of 1 proxies, paused")
    command(mesh, "abort")
    expect(section).to_contain_text("Aborted in mesh default: aborted")
    assert rollout(mesh)["number"] == held


def test_a_rollout_is_paused_continued_and_taken_back_on_the_page(window: Visit, mesh: Playground, held: int) -> None:
    page = window.open("/gui/changes?mesh=default")
    section = page.locator("section").filter(has=page.get_by_role("heading", name="Rollouts"))

    section.get_by_role("button", name="Pause").click()
    expect(section).to_contain_text("Paused in mesh default")
    section.get_by_role("button", name="Continue").click()
    expect(section.get_by_role("button", name="Pause")).to_be_visible()
    section.get_by_role("button", name="Take it back …").click()
    assert not window.violations()
    section.get_by_role("button", name="No", exact=True).click()
    assert rollout(mesh)["underWay"]
    section.get_by_role("button", name="Take it back …").click()
    section.get_by_role("button", name="Yes, take it back").click()

    expect(section).to_contain_text("Aborted in mesh default: aborted")
    expect(section.get_by_role("button")).to_have_count(0)
    assert (rollout(mesh)["number"], rollout(mesh)["state"]) == (held, "Aborted")


def test_who_may_not_write_what_is_rolled_out_cannot_take_it_back(window: Visit, mesh: Playground, held: int) -> None:
    body = {"status": 403, "title": "Access denied", "detail": "jane may not write MeshTimeout in mesh `default`"}
    window.page.route("**/_rollout", lambda route: route.fulfill(status=403, json=body))
    page = window.open("/gui/changes?mesh=default")
    section = page.locator("section").filter(has=page.get_by_role("heading", name="Rollouts"))

    section.get_by_role("button", name="Pause").click()

    expect(section.get_by_role("alert")).to_contain_text("jane may not write MeshTimeout")
    assert (rollout(mesh)["number"], rollout(mesh)["state"]) == (held, "Holding")
    window.faults.clear()  # so Chromium notes each answer of 403


def test_a_proxy_tells_that_it_is_served_what_is_not_stored(window: Visit, held: int) -> None:
    page = window.open("/gui/proxies/default/frontend-1")

    expect(page.locator("main")).to_contain_text(f"rollout {held} is under way")
    expect(page.locator("main")).to_contain_text("this proxy is served what it proposes")
    expect(page.locator("main")).to_contain_text("77s")
    assert not window.violations()


@pytest.mark.long
@pytest.mark.parametrize("view", ["mesh", "policies"])
def test_what_is_stored_is_said_to_be_that_while_a_rollout_is_under_way(
    view: str, window: Visit, mesh: Playground, held: int
) -> None:
    page = window.open(f"/gui/{view}?mesh=default")
    note = page.locator(".note", has_text=f"rollout {held} of mesh default is under way: step 1 of 2")
    expect(note).to_contain_text("here is what is stored")
    expect(note.get_by_role("link", name="See the rollout")).to_be_visible()

    command(mesh, "abort")

    expect(note).to_have_count(0, timeout=20_000)
