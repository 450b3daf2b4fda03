"""The view of a mesh whose services are too many to be drawn one by one, and what its numbers mean."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect
from playwright.sync_api import Route as PlaywrightRoute

from tests.page.test_mesh_and_changes import fulfilled, row
from tests.support.browser import Visit

pytestmark = pytest.mark.long

MANY: Final = 500
NOTED: Final = "rollout 7 of mesh default is under way: step 1 of 2 (1), 1 of 2 proxies, holding"


def service(name: str, **more: Any) -> dict[str, Any]:
    known = {"kind": "MeshService", "name": name, "outside": False, "protocols": ["http"], "proxies": {"Online": 2}}
    return {**known, "refusing": [], "failed": [], **more}


def split(to: int | None, weight: int = 1, **more: Any) -> dict[str, Any]:
    return {"to": to, "section": "", "weight": weight, **more}


def call(to: int, *splits: dict[str, Any], reason: str = "") -> dict[str, Any]:
    """A call with one route, which leads to a service itself unless something else is said."""
    reasons = {"reason": reason} if reason else {}
    route = {"owner": "", "path": "/", "splits": list(splits or [split(to)]), **reasons}
    return {"to": to, "section": "", "protocol": "http", "routes": [route]}


def group(callers: list[int], *calls: dict[str, Any]) -> dict[str, Any]:
    return {"callers": callers, "proxies": len(callers), "calls": list(calls)}


def open_graph(window: Visit, services: list[dict[str, Any]], *groups: dict[str, Any], **more: Any) -> Page:
    graph = {"mesh": "default", "revision": 7, "services": services, "groups": list(groups), **more}
    window.page.route("**/_graph*", partial(fulfilled, graph))
    return window.open("/gui/mesh?mesh=default")


def test_where_everybody_may_call_everybody_one_box_says_so_and_the_list_has_every_call(window: Visit) -> None:
    everybody = list(range(MANY))
    services = [service(f"service-{number:03}") for number in everybody]
    page = open_graph(window, services, group(everybody, *map(call, everybody)))

    expect(page.locator("svg a")).to_have_count(1)
    expect(page.locator("svg a")).to_contain_text(f"service-000 and {MANY - 1} more {MANY} services")
    expect(page.locator("main")).to_contain_text("They or their calls are too many to be drawn one by one")
    expect(row(page, "service-007")).to_contain_text("service-011")
    row(page, "service-007").get_by_role("button", name="488 more").click()
    for name in ("service-012", "service-499"):
        expect(row(page, "service-007")).to_contain_text(name)


def test_few_services_that_may_all_call_each_other_are_one_box_until_it_is_opened(window: Visit) -> None:
    everybody = list(range(20))
    services = [service(f"service-{number:02}") for number in everybody]
    page = open_graph(window, services, group(everybody, *map(call, everybody)))

    expect(page.locator("svg a")).to_have_count(1)
    expect(page.locator("svg a")).to_contain_text("service-00 and 19 more 20 services")
    page.locator("svg a").click()
    expect(page.locator("svg a")).to_have_count(20)
    page.get_by_role("link", name="All services").click()
    expect(page.locator("svg a")).to_have_count(1)


def test_services_that_differ_in_their_calls_are_drawn_however_many_calls_there_are(window: Visit) -> None:
    """Each calls those that come after it: 190 calls of 20 services, of which no two are alike."""
    services = [service(f"service-{number:02}") for number in range(20)]
    groups = (group([each], *map(call, range(each + 1, 20))) for each in range(19))
    page = open_graph(window, services, *groups)

    expect(page.locator("svg a")).to_have_count(20)


def test_around_a_service_that_is_asked_for_all_others_are_groups(window: Visit) -> None:
    everybody = list(range(MANY))
    services = [service(f"service-{number:03}") for number in everybody]
    page = open_graph(window, services, group(everybody, *map(call, everybody)))

    page.get_by_role("searchbox").fill("service-499")

    expect(page.locator("svg a")).to_have_count(2)
    expect(page.get_by_role("link", name=re.compile("^service-499: 2 of 2 in sync, http"))).to_be_visible()
    expect(page.locator("main")).to_contain_text("Drawn are the calls from and to 1 service that you asked for")
    expect(page.locator("main")).to_contain_text("The others are too many to be drawn one by one")
    expect(page.get_by_role("rowheader").first).to_have_text("service-499")
    expect(row(page, "service-499")).to_contain_text("service-000")


def test_services_that_differ_in_their_calls_are_grouped_by_how_their_names_begin(window: Visit) -> None:
    """Each calls only the next one, so no two of them are alike."""
    names = [f"{team}-{number:03}" for team in ("bank", "post", "shop", "town") for number in range(125)]
    services = [service(name) for name in [*names, "alone"]]
    services[3] |= {"proxies": {"Refused": 1}, "refusing": ["bank-003-1"]}
    page = open_graph(window, services, *(group([each], call(each + 1)) for each in range(len(names))))

    expect(page.locator("svg a")).to_have_count(5)
    expect(page.get_by_role("link", name="bank-…: 125 services, 1 refusing")).to_be_visible()
    expect(page.locator("main")).to_contain_text("those whose names begin alike are one box")
    page.get_by_role("link", name=re.compile("^post-…")).click()

    expect(page.locator("main")).to_contain_text("125 services that you asked for")
    expect(page.get_by_role("link", name=re.compile(r"^post-000\b"))).to_be_visible()
    expect(row(page, "bank-124")).to_be_visible()  # it calls the first of them
    expect(row(page, "bank-123")).to_have_count(0)
    page.get_by_role("link", name="All services").click()
    expect(page.locator("svg a")).to_have_count(5)


def test_most_calls_lead_to_the_right_where_some_go_back(window: Visit) -> None:
    """The shop stands first by its name, and is called by far more than it calls back."""
    services = [service(f"{team}-{number:03}") for team in ("shop", "web") for number in range(80)]
    there = [group([80 + number], call(number)) for number in range(80)]
    page = open_graph(window, services, *there, group([5], call(87)))

    left, right = (page.get_by_role("link", name=f"{team}-…: 80 services").bounding_box() for team in ("web", "shop"))

    assert left is not None
    assert right is not None
    assert left["x"] < right["x"]


def test_who_refuses_is_counted_among_all_and_who_failed_refuses_nothing(window: Visit) -> None:
    refusing = [f"shop-{number}" for number in range(20)]
    states = {"Refused": 30, "Failed": 2, "Online": 5}
    shop = service("shop", proxies=states, refusing=refusing, failed=["shop-40", "shop-41"])
    page = open_graph(window, [shop, service("with-a-name-that-is-longer-than-a-box-is-wide")])

    expect(page.get_by_role("link", name="shop: 30 refusing, 2 failed, 5 of 37 in sync, http")).to_be_visible()
    listed = row(page, "shop").get_by_role("cell").last
    expect(listed).to_contain_text(re.compile(r"refusing shop-0 .* and 10 more"))
    expect(listed).to_contain_text("failed shop-40 shop-41")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert not window.violations(), scheme


def test_a_service_without_proxies_is_outside_or_has_none(window: Visit) -> None:
    outside = service("bank", kind="kuma.io/service", outside=True, proxies={})
    page = open_graph(window, [outside, service("empty", proxies={})])

    expect(row(page, "bank")).to_contain_text("outside the mesh")
    expect(row(page, "empty")).to_contain_text("no proxy")


def test_what_callers_sent_together_is_not_said_of_each(window: Visit) -> None:
    services = [service("cart"), service("jobs"), service("shop")]
    counted = call(0, split(0, requests=42))
    page = open_graph(window, services, group([1, 2], counted), traffic={"at": 1763560000.0, "asked": 2, "answered": 2})

    expect(row(page, "shop")).to_contain_text("cart 42 sent by 2 services together")


def test_what_several_groups_and_sections_have_sent_is_added(window: Visit) -> None:
    services = [service("cart"), service("shop")]
    calls = [call(0, split(0, requests=5)), call(0, split(0, requests=2) | {"section": "admin"})]
    page = open_graph(window, services, group([1], *calls), group([1], call(0, split(0, requests=10))))

    expect(row(page, "shop")).to_contain_text("cart 17 sent")


def test_a_share_that_leads_nowhere_is_not_said_of_the_one_that_does(window: Visit) -> None:
    services = [service("cart"), service("cart-next"), service("shop")]
    broken = call(0, split(1, 3), split(None, 1), reason="there is no such service")
    page = open_graph(window, services, group([2], broken))

    expect(row(page, "shop")).to_contain_text("cart 25 % (there is no such service) cart-next 75 %")
    expect(page.locator("svg path.broken")).to_have_count(1)


def test_a_route_that_answers_by_itself_is_no_call(window: Visit) -> None:
    redirect = {**call(0), "routes": [{"owner": "away", "path": "/", "splits": []}]}
    page = open_graph(window, [service("cart"), service("shop")], group([1], redirect))

    expect(row(page, "shop")).to_be_visible()
    expect(page.locator("svg path")).to_have_count(0)


def under_way(route: PlaywrightRoute) -> None:
    rollout = {"mesh": "default", "number": 7, "underWay": True, "course": "step 1 of 2 (1), 1 of 2 proxies, holding"}
    more: dict[str, Any] = {
        "author": "anna",
        "begun": "2026-01-01T00:00:00Z",
        "state": "Holding",
        "reason": None,
        "resources": [],
    }
    route.fulfill(json={"items": [rollout | more]})


def test_a_rollout_that_is_under_way_is_said_where_only_what_is_stored_is_shown(window: Visit) -> None:
    window.page.route("**/_rollouts", under_way)
    page = open_graph(window, [service("cart")], rollout=NOTED)
    note = page.locator(".note", has_text=f"{NOTED}. Some proxies are served what it proposes; here is what is stored.")
    expect(note).to_be_visible()

    for address in ("/gui/policies?mesh=default", "/gui/policies/default/meshtimeouts/for-all"):
        page = window.open(address)
        expect(note).to_be_visible()
    assert not window.violations()
    note.get_by_role("link", name="See the rollout").click()

    expect(page.get_by_role("heading", name="Rollouts")).to_be_visible()
