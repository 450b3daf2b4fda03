"""The views Mesh, Policies and Changes, in a real browser on a real mesh."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import pytest
from playwright.sync_api import Locator, Page, expect
from playwright.sync_api import Route as PlaywrightRoute

from tests.page.conftest import write
from tests.support.browser import Visit
from tests.support.playground import Playground

pytestmark = pytest.mark.long

HOSTILE: Final = "<script>alert(1)</script>\u202e" + "x" * 1000

SPLIT: Final = """\
type: MeshService
mesh: default
name: backend-next
labels:
  kuma.io/display-name: backend-next
spec:
  selector:
    dataplaneTags:
      kuma.io/service: nothing
  ports:
  - name: main
    port: 80
    targetPort: 8080
    appProtocol: http
---
type: MeshHTTPRoute
mesh: default
name: some-to-next
spec:
  to:
  - targetRef:
      kind: MeshService
      name: backend
    rules:
    - matches:
      - path:
          type: PathPrefix
          value: /next
      default:
        backendRefs:
        - kind: MeshService
          name: backend
          port: 80
          weight: 3
        - kind: MeshService
          name: backend-next
          port: 80
          weight: 1
"""


def timeout(name: str, seconds: int) -> str:
    return (
        f"type: MeshTimeout\nmesh: default\nname: {name}\nspec:\n  to:\n  - targetRef:\n      kind: Mesh\n"
        f"    default:\n      idleTimeout: {seconds}s\n"
    )


def written(mesh: Playground, text: str) -> int:
    """The revision of the write."""
    name = re.search("name: (.*)", text)
    assert name is not None
    answer = mesh.control_plane.request("PUT", f"/meshes/default/meshtimeouts/{name[1]}", text.encode())
    return int(answer.raise_for_status().headers["koguma-revision"])


@pytest.fixture
def split(mesh: Playground) -> Iterator[None]:
    write(mesh, SPLIT, "mesh/split.yaml")
    mesh.control_plane.in_force()
    yield
    for path in ("meshhttproutes/some-to-next", "meshservices/backend-next"):
        mesh.control_plane.request("DELETE", f"/meshes/default/{path}").raise_for_status()


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name, exact=True))


# --- Mesh ------------------------------------------------------------------------------------------------------------


def test_services_are_drawn_with_their_health_and_their_shares(window: Visit, split: None) -> None:
    page = window.open("/gui/mesh?mesh=default")

    expect(page.get_by_role("link", name=re.compile(r"^backend\b.* 1 of 1 in sync"))).to_be_visible()
    expect(page.locator("svg")).to_contain_text("75\N{EN DASH}100 %")
    expect(page.locator("svg")).to_contain_text("25 %")
    expect(page.locator("svg path.split")).to_have_count(2)


def test_the_table_says_what_the_drawing_does(window: Visit, split: None) -> None:
    page = window.open("/gui/mesh?mesh=default")
    of_caller = row(page, "frontend-1")

    expect(of_caller).to_contain_text("backend 75\N{EN DASH}100 %")
    expect(of_caller).to_contain_text("backend-next 25 %")
    expect(row(page, "backend")).to_contain_text("http")


@pytest.mark.long
def test_a_filter_keeps_the_neighbours(window: Visit) -> None:
    page = window.open("/gui/mesh?mesh=default&q=frontend")

    expect(row(page, "backend")).to_be_visible()
    expect(page.get_by_role("rowheader", name="absent")).to_have_count(0)


def test_services_are_reached_with_the_keyboard(window: Visit) -> None:
    page = window.open("/gui/mesh?mesh=default")
    page.get_by_role("link", name=re.compile(r"^backend\b")).focus()
    expect(row(page, "backend")).to_have_class("taken")

    page.keyboard.press("Enter")

    expect(page.get_by_role("searchbox")).to_have_value("backend")


# --- Policies --------------------------------------------------------------------------------------------------------


def test_each_policy_says_whom_it_selects_and_leads_to_what_survives(window: Visit) -> None:
    page = window.open("/gui/policies?mesh=default&q=timeout")
    expect(row(page, "for-all")).to_contain_text("3 proxies")
    expect(row(page, "for-all")).to_contain_text("mesh/timeouts.yaml:1")

    page.get_by_role("link", name="for-all").click()

    expect(page.get_by_role("heading", level=1)).to_contain_text("for-all")
    overridden = page.get_by_role("row", name=re.compile("^overridden")).first
    expect(overridden).to_contain_text("MeshTimeout for-backend says 3s")


def test_a_finding_comes_with_what_would_be_right(window: Visit, mesh: Playground) -> None:
    text = timeout("for-nobody", 9).replace("spec:\n", "spec:\n  targetRef: {kind: Dataplane, name: nobody}\n")
    write(mesh, text, "mesh/nobody.yaml")

    page = window.open("/gui/policies/default/meshtimeouts/for-nobody")

    expect(page.locator("main")).to_contain_text("To mend it")
    expect(page.locator("main")).to_contain_text("It selects 0 proxies")


# --- Changes ---------------------------------------------------------------------------------------------------------


def test_a_change_comes_by_itself_with_whom_it_reached(window: Visit, mesh: Playground) -> None:
    page = window.open("/gui/changes")
    expect(page.locator("ol.timeline > li").first).to_contain_text("Revision")

    revision = written(mesh, timeout("written-now", 7))

    entry = page.locator("ol.timeline > li").first
    expect(entry).to_contain_text(f"Revision {revision}")
    expect(entry).to_contain_text("Created MeshTimeout default/written-now")
    expect(entry).to_contain_text("1 of 1 proxy took it, in force after")


def test_a_change_shows_what_is_different_and_is_taken_back_after_a_preview(window: Visit, mesh: Playground) -> None:
    written(mesh, timeout("taken-back", 5))
    revision = written(mesh, timeout("taken-back", 6))
    page = window.open(f"/gui/changes/{revision}")
    expect(page.locator(".difference .removed")).to_contain_text('"idleTimeout": "5s"')
    expect(page.locator(".difference .added")).to_contain_text('"idleTimeout": "6s"')

    page.get_by_role("button", name="Show what would go back").click()
    expect(page.get_by_role("list", name="What goes back")).to_contain_text("Updated MeshTimeout default/taken-back")
    assert idle_timeout(mesh) == "6s", "the preview writes nothing"
    page.get_by_role("button", name=re.compile("^Take back 1 resource")).click()
    assert not window.violations()
    page.get_by_role("button", name="Yes, take back 1 resource").click()

    expect(page.get_by_role("status").filter(has_text="It has gone back")).to_be_visible()
    assert idle_timeout(mesh) == "5s"


@pytest.mark.long
def test_a_rollback_that_is_another_one_by_now_is_shown_anew(window: Visit, mesh: Playground) -> None:
    written(mesh, timeout("overtaken", 5))
    revision = written(mesh, timeout("overtaken", 6))
    page = window.open(f"/gui/changes/{revision}")
    page.get_by_role("button", name="Show what would go back").click()
    page.get_by_role("button", name=re.compile("^Take back 1 resource")).click()
    written(mesh, timeout("overtaken", 7))

    page.get_by_role("button", name="Yes, take back 1 resource").click()

    expect(page.get_by_role("alert")).to_contain_text("what would go back has changed since it was looked at")
    assert idle_timeout(mesh, "overtaken") == "7s"
    page.get_by_role("button", name=re.compile("^Take back 1 resource")).click()
    page.get_by_role("button", name="Yes, take back 1 resource").click()
    expect(page.get_by_role("status").filter(has_text="It has gone back")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    assert idle_timeout(mesh, "overtaken") == "5s"
    window.faults.clear()  # Chromium notes the answer of 412


@pytest.mark.long
def test_a_rollback_that_is_not_confirmed_writes_nothing(window: Visit, mesh: Playground) -> None:
    written(mesh, timeout("kept", 5))
    revision = written(mesh, timeout("kept", 6))
    page = window.open(f"/gui/changes/{revision}")

    page.get_by_role("button", name="Show what would go back").click()
    page.get_by_role("button", name=re.compile("^Take back")).click()
    page.get_by_role("button", name="No", exact=True).click()

    expect(page.get_by_role("button", name=re.compile("^Take back"))).to_be_visible()
    assert mesh.control_plane.get("/_history?size=1")["items"][0]["revision"] == revision


def test_who_may_not_write_is_told_so_and_nothing_is_written(window: Visit, mesh: Playground) -> None:
    revision = written(mesh, timeout("not-mine", 6))
    body = {"status": 403, "title": "Access denied", "detail": "jane may not write MeshTimeout in mesh `default`"}
    window.page.route("**/_rollback*", lambda route: route.fulfill(status=403, json=body))
    page = window.open(f"/gui/changes/{revision}")

    page.get_by_role("button", name="Show what would go back").click()

    expect(page.get_by_role("alert")).to_contain_text("jane may not write MeshTimeout in mesh `default`")
    expect(page.get_by_role("button", name=re.compile("^Take back"))).to_have_count(0)
    window.faults.clear()  # so Chromium notes each answer of 403


def idle_timeout(mesh: Playground, name: str = "taken-back") -> str:
    document = mesh.control_plane.get(f"/meshes/default/meshtimeouts/{name}")
    idle: str = document["spec"]["to"][0]["default"]["idleTimeout"]
    return idle


def fulfilled(answer: Any, route: PlaywrightRoute) -> None:
    route.fulfill(json=answer)


@pytest.mark.long
def test_what_others_wrote_is_shown_as_text(window: Visit) -> None:
    write_ = {
        "revision": 7,
        "time": "2026-01-01T00:00:00Z",
        "author": HOSTILE,
        "origin": HOSTILE,
        "resources": [{"type": "MeshTimeout", "mesh": "default", "name": HOSTILE, "change": "Created"}],
        "more": 0,
        "reach": None,
    }
    service: dict[str, Any] = {"kind": "kuma.io/service", "name": HOSTILE, "protocols": [HOSTILE]}
    service |= {"outside": False, "proxies": {"Refused": 1}, "refusing": [HOSTILE], "failed": []}
    call = {
        "to": 0,
        "section": "",
        "protocol": HOSTILE,
        "routes": [{"owner": "", "path": "/", "splits": [], "reason": HOSTILE}],
    }
    answers = {
        "**/_changes?*": {"items": [write_], "newest": 7, "oldest": 0, "next": None},
        "**/_graph": {
            "mesh": "default",
            "revision": 7,
            "services": [service],
            "groups": [{"callers": [0], "proxies": 1, "calls": [call]}],
        },
        "**/_policies": {
            "items": [
                {
                    "type": "MeshTimeout",
                    "plural": "meshtimeouts",
                    "mesh": "default",
                    "name": HOSTILE,
                    "targetRef": {"kind": HOSTILE},
                    "proxies": 0,
                    "file": HOSTILE,
                    "line": 1,
                }
            ]
        },
    }
    for pattern, answer in answers.items():
        window.page.route(pattern, partial(fulfilled, answer))
    for address in ("/gui/changes", "/gui/mesh?mesh=default", "/gui/policies?mesh=default"):
        page = window.open(address)
        expect(page.locator("main")).to_contain_text("<script>alert(1)</script>⟨U+202E⟩")
        assert page.locator("script").count() == 1
        assert not page.evaluate("document.body.scrollWidth > innerWidth")


@pytest.mark.long
def test_edges_say_what_some_envoys_have_counted(window: Visit) -> None:
    def answer(route: PlaywrightRoute) -> None:
        is_asked = "traffic=true" in route.request.url
        split = {"to": 0, "section": "", "weight": 1, **({"requests": 4200} if is_asked else {})}
        call = {"to": 0, "section": "", "protocol": "http", "routes": [{"owner": "", "path": "/", "splits": [split]}]}
        services = [
            {"kind": "MeshService", "name": name, "protocols": ["http"], "proxies": {"Online": 1}}
            for name in ("cart", "shop")
        ]
        traffic = {"traffic": {"at": 1763560000.0, "asked": 3, "answered": 2}} if is_asked else {}
        group = {"callers": [1], "proxies": 3, "calls": [call]}
        route.fulfill(json={"mesh": "default", "revision": 7, "services": services, "groups": [group], **traffic})

    window.page.route("**/_graph*", answer)
    page = window.open("/gui/mesh?mesh=default")
    expect(page.locator("main")).to_contain_text("whether it is called is not asked")
    expect(page.locator("svg path.busy")).to_have_count(0)

    page.get_by_label("Traffic").check()

    expect(page.locator("main")).to_contain_text("2 of 3 Envoys that were asked said")
    expect(page.locator("svg path.busy")).to_have_count(1)
    expect(row(page, "shop")).to_contain_text("cart 4,200 sent")


@pytest.mark.long
def test_a_rollout_is_seen_beside_the_changes(window: Visit) -> None:
    rollout = {
        "mesh": "default",
        "number": 3,
        "author": HOSTILE,
        "begun": "2026-01-01T00:00:00Z",
        "state": "RolledBack",
        "underWay": False,
        "course": "rolled back at step 1 of 3",
        "reason": "default.web-1 refuses it",
        "resources": [{"type": "MeshTimeout", "mesh": "default", "name": "slow", "change": "Updated"}],
    }
    window.page.route("**/_rollouts", partial(fulfilled, {"items": [rollout]}))
    page = window.open("/gui/changes?mesh=default")

    section = page.locator("section").filter(has=page.get_by_role("heading", name="Rollouts"))
    expect(section).to_contain_text("RolledBack in mesh default: rolled back at step 1 of 3")
    expect(section).to_contain_text("default.web-1 refuses it")
    assert not window.violations()
