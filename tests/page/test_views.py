"""Each view of the page, in a real browser on a real mesh."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, expect

from tests.page.conftest import POLICIES, Open
from tests.support.browser import Visit, visit
from tests.support.control_plane import ControlPlane
from tests.support.loopback import Address
from tests.support.mesh import MESH, bare_dataplane
from tests.support.playground import Playground

CALL: Final = "/gui/explain?mesh=default&proxy=frontend-1&call=GET+http://backend/slow/a"
PROXY: Final = "/gui/proxies/default/frontend-1"
VIEWS: Final[dict[str, tuple[str, str]]] = {
    "fleet": ("/gui/fleet", "in sync"),
    "fleet by service": ("/gui/fleet?by=service", "backend"),
    "proxies": ("/gui/proxies", "frontend-1"),
    "values": (PROXY, "for-backend to[0]"),
    "live": (f"{PROXY}?tab=live", "Ask its Envoy"),
    "delivery": (f"{PROXY}?tab=delivery", "listeners"),
    "envoy": (f"{PROXY}?tab=envoy", "RouteConfiguration"),
    "policies of a proxy": (f"{PROXY}?tab=policies", "for-backend"),
    "document": (f"{PROXY}?tab=document", "networking"),
    "offline": ("/gui/proxies/default/absent-1?tab=delivery", "has not connected"),
    "explain": (CALL, "reached first"),
    "mesh": ("/gui/mesh?mesh=default", "in sync"),
    "policies": ("/gui/policies?mesh=default", "for-backend"),
    "policy": ("/gui/policies/default/meshtimeouts/for-all", "in force"),
    "changes": ("/gui/changes", "Revision"),
    "change": ("/gui/changes/2", "What is different"),
    "question": ("/gui/explain", "Name a proxy"),
    "nothing": ("/gui/nowhere", "Nothing here"),
}
SHORT: Final = {"fleet", "values", "explain"}
"""Those that are looked at each time."""


@pytest.mark.parametrize(
    "view", [pytest.param(view, marks=() if view in SHORT else pytest.mark.long) for view in VIEWS]
)
def test_a_view_is_for_everybody_in_light_and_dark(view: str, window: Visit) -> None:
    address, shown = VIEWS[view]
    page = window.open(address)
    expect(page.locator("main")).to_contain_text(shown)

    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert not window.violations(), scheme


def test_the_address_alone_leads_to_the_fleet(window: Visit) -> None:
    page = window.open("/gui")

    expect(page).to_have_url(re.compile("/gui/fleet$"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Fleet")


def test_every_proxy_is_a_cell_with_its_state(window: Visit) -> None:
    page = window.open("/gui/fleet")

    expect(page.get_by_role("link", name="default/frontend-1: in sync")).to_be_visible()
    expect(page.get_by_role("link", name="default/absent-1: offline")).to_be_visible()


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("frontend", ["frontend-1"]),
        ("state:offline", ["absent-1"]),
        ("state:online -service:frontend", ["backend-1"]),
        ("state:in-sync -service:frontend", ["backend-1"]),
        ("tag:version=v1", ["backend-1"]),
        ("nobody", []),
    ],
)
def test_words_say_which_proxies_are_shown(words: str, names: list[str], window: Visit) -> None:
    page = window.open("/gui/proxies")
    expect(page.get_by_role("rowheader")).to_have_count(3)

    page.get_by_role("searchbox").fill(words)

    expect(page.get_by_role("rowheader")).to_have_text(names)


def test_a_filter_is_in_the_address(window: Visit) -> None:
    page = window.open("/gui/fleet?q=backend&state=online")

    expect(page.get_by_role("searchbox")).to_have_value("backend")
    expect(page.locator("a.cell")).to_have_count(1)


def test_arrow_keys_lead_from_cell_to_cell_and_enter_opens_one(window: Visit) -> None:
    page = window.open("/gui/fleet")
    cells = page.locator("a.cell")
    expect(cells).to_have_count(3)

    cells.first.focus()
    page.keyboard.press("End")
    expect(cells.last).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(cells.nth(1)).to_be_focused()
    expect(page.locator(".looked")).to_contain_text("default/backend-1")
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", level=1)).to_contain_text("default/backend-1")


def test_a_table_is_sorted_by_its_heads(window: Visit) -> None:
    page = window.open("/gui/proxies")

    page.get_by_role("button", name="Name").click()

    expect(page.get_by_role("rowheader")).to_have_text(["frontend-1", "backend-1", "absent-1"])


def test_each_value_of_a_call_has_its_origin_and_what_it_overrides(window: Visit) -> None:
    page = window.open(CALL)
    row = page.get_by_role("row", name=re.compile("^http.requestTimeout"))

    expect(row).to_contain_text("for-backend to[0]")
    expect(row).to_contain_text("mesh/timeouts.yaml:23")
    expect(page.get_by_role("row", name=re.compile("instead of 9s"))).to_contain_text("mesh/timeouts.yaml:10")
    expect(page.get_by_role("row", name=re.compile("slow-ones"))).to_contain_text("mesh/timeouts.yaml:35")


def test_a_call_that_means_nothing_is_answered_in_words(window: Visit) -> None:
    page = window.open("/gui/explain")

    page.get_by_label("Proxy in mesh").fill("frontend-1")
    page.get_by_role("textbox", name="Call").fill("http://nobody/")
    page.get_by_role("button", name="Explain").click()

    expect(page.get_by_role("alert")).to_contain_text("has no outbound for `nobody`; there is `backend:80`")
    assert window.faults.pop().startswith("Failed to load resource")  # so Chromium notes each answer of 400


def test_a_link_has_all_that_was_asked(window: Visit) -> None:
    page = window.open("/gui/explain?mesh=default")
    page.get_by_label("Proxy in mesh").fill("frontend-1")
    page.get_by_role("textbox", name="Call").fill("POST http://backend/slow?a=b&c=d#e")
    page.get_by_label("Headers").fill("x-version: 2\nx-user: ü")
    page.get_by_role("button", name="Explain").click()
    expect(page.locator("main")).to_contain_text("slow-ones")

    page.goto(page.url)

    expect(page.get_by_role("textbox", name="Call")).to_have_value("POST http://backend/slow?a=b&c=d#e")
    expect(page.get_by_label("Headers")).to_have_value("x-version: 2\nx-user: ü")
    expect(page.locator("main")).to_contain_text("slow-ones")


def test_the_page_says_when_it_lost_contact_and_finds_it_again(window: Visit, mesh: Playground) -> None:
    page = window.open("/gui/fleet")
    expect(page.locator("header")).to_contain_text("live")

    page.context.set_offline(True)
    page.evaluate("dispatchEvent(new Event('offline'))")  # Chromium sends none on a machine that has no network anyway
    expect(page.locator("main")).to_contain_text("Lost contact since")
    page.context.set_offline(False)

    expect(page.locator("header")).to_contain_text("live", timeout=20_000)
    expect(page.locator("main")).not_to_contain_text("Lost contact")
    window.faults.clear()


def test_values_of_a_proxy_stand_beside_the_envoy_resources_that_were_built_with_them(window: Visit) -> None:
    page = window.open(PROXY)
    outbound = page.locator("details.part", has_text="backend:80").first
    row = outbound.get_by_role("row", name=re.compile("^http.requestTimeout")).first
    expect(row).to_contain_text("for-backend to[0]")
    expect(row).to_contain_text("mesh/timeouts.yaml:23")

    outbound.get_by_text("Envoy resources").click()

    expect(outbound.locator(".json").first).to_contain_text("http_connection_manager")


def test_an_envoy_is_asked_on_demand(window: Visit) -> None:
    page = window.open(f"{PROXY}?tab=live")
    assert not [request for request in window.requests if "/_envoy/" in request.url]

    page.get_by_role("button", name="Ask").click()

    expect(page.get_by_role("row", name=re.compile("kri_msvc_default___backend_main"))).to_contain_text("healthy")


def test_a_proxy_is_compared_with_its_envoy_and_says_at_which_level_it_logs(window: Visit, mesh: Playground) -> None:
    page = window.open(f"{PROXY}?tab=live")
    subject = page.get_by_label("Ask its Envoy for")
    subject.select_option("What is not as it should be")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("tabpanel")).to_contain_text("Envoy has what it should have: ")

    with mesh.having(PATCH):
        page.get_by_role("button", name="Ask").click()
        expect(page.get_by_role("heading", name="clusters kri_msvc_default___backend_main")).to_be_visible()
        expect(page.get_by_role("row", name="connectTimeout 0s")).to_contain_text("2s")
        expect(page.get_by_role("tabpanel")).to_contain_text("Envoy says: ")
        assert not window.violations()
    subject.select_option("The level of its log")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("tabpanel")).to_contain_text("It logs at level warning.")


def test_where_no_envoy_can_be_asked_the_page_says_why(window: Visit) -> None:
    page = window.open("/gui/proxies/default/backend-1?tab=live")

    page.get_by_role("button", name="Ask").click()

    expect(page.get_by_role("alert")).to_contain_text("agent")
    window.faults.clear()  # Chromium notes each answer of 409


def test_what_comes_and_goes_is_seen_without_loading_anything_anew(window: Visit, mesh: Playground) -> None:
    page = window.open("/gui/fleet")
    cells = page.locator("a.cell")
    expect(cells).to_have_count(3)
    newcomer = bare_dataplane("newcomer-1", "newcomer", Address("10.0.0.2", 80))

    mesh.control_plane.apply(newcomer)
    expect(page.get_by_role("link", name="default/newcomer-1: offline")).to_be_visible()
    mesh.control_plane.delete(newcomer)
    expect(cells).to_have_count(3)


def test_a_value_that_is_changed_is_shown_as_it_is_now(window: Visit, mesh: Playground) -> None:
    page = window.open(CALL)
    row = page.get_by_role("row", name=re.compile("^http.requestTimeout"))
    expect(row).to_contain_text("3s")

    with mesh.having(POLICIES.split("---\n")[1].replace("requestTimeout: 3s", "requestTimeout: 4s")):
        expect(row).to_contain_text("4s")


def test_who_is_not_known_is_asked_for_a_token_which_is_kept_for_this_tab(open_page: Open, mesh: Playground) -> None:
    asked = b'{"name": "anna", "groups": ["mesh-system:admin"], "validFor": "1h"}'
    answer = mesh.control_plane.request("POST", "/tokens/user", asked, **{"content-type": "application/json"})
    with open_page(extra_http_headers={"x-forwarded-for": "192.0.2.1"}) as window:
        page = window.open("/gui/fleet")
        expect(page.get_by_role("dialog")).to_contain_text("may not read")
        assert not window.violations()

        page.get_by_label("User token").fill("no token")
        page.get_by_role("button", name="Go on").click()
        expect(page.get_by_role("dialog")).to_contain_text("the token is not accepted")
        page.get_by_label("User token").fill(answer.text)
        page.get_by_role("button", name="Go on").click()
        expect(page.locator("a.cell")).to_have_count(3)
        page.reload()
        expect(page.locator("a.cell")).to_have_count(3)
        assert page.evaluate("document.cookie + JSON.stringify(localStorage)") == "{}"

        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        expect(page.locator("a.cell")).to_have_count(0)


def test_keys_lead_through_the_page(window: Visit) -> None:
    page = window.open("/gui/fleet")
    expect(page.locator("a.cell")).to_have_count(3)

    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Skip to the content")).to_be_focused()
    page.keyboard.press("g")
    page.keyboard.press("p")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    expect(page.get_by_role("heading", level=1)).to_have_text("Proxies")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("Escape")
    page.get_by_role("heading", level=1).focus()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("go to Explain")
    assert not window.violations()


def test_tabs_are_changed_with_arrow_keys(window: Visit) -> None:
    page = window.open(f"{PROXY}?tab=delivery")
    page.get_by_role("tab", name="Delivery").focus()

    page.keyboard.press("ArrowRight")

    expect(page.get_by_role("tab", name="Envoy resources")).to_be_focused()
    expect(page.get_by_role("tabpanel")).to_contain_text("RouteConfiguration")


def test_the_switch_keeps_a_theme(window: Visit) -> None:
    page = window.open("/gui/fleet")
    page.emulate_media(color_scheme="light")
    switch = page.get_by_role("button", name="Theme")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)

    switch.click()
    switch.click()
    expect(switch).to_have_text("Theme: dark")
    page.reload()

    expect(switch).to_have_text("Theme: dark")
    assert page.evaluate(ground) != light


@pytest.mark.long
def test_the_page_outlives_its_control_plane(browser: Browser, tmp_path: Path) -> None:
    with ControlPlane(tmp_path, f"sqlite:///{tmp_path}/koguma.db") as control_plane:
        control_plane.apply(MESH, bare_dataplane("first-1", "first", Address("10.0.0.1", 80)))
        with visit(browser, control_plane.api.url) as window:
            page = window.open("/gui/fleet")
            expect(page.locator("a.cell")).to_have_count(1)

            control_plane.kill()
            expect(page.locator("main")).to_contain_text("Lost contact since")
            expect(page.locator("a.cell")).to_have_count(1)
            control_plane.start().ready().apply(bare_dataplane("second-1", "second", Address("10.0.0.2", 80)))

            expect(page.locator("a.cell")).to_have_count(2, timeout=40_000)
            expect(page.locator("header")).to_contain_text("live")


PATCH: Final = """\
type: MeshProxyPatch
mesh: default
name: too-clever
spec:
  targetRef: {kind: Dataplane, name: frontend-1}
  default:
    appendModifications:
    - cluster:
        operation: Patch
        match: {name: kri_msvc_default___backend_main}
        value: |
          connect_timeout: 0s
"""


def test_what_a_proxy_refuses_is_seen_and_said_with_the_policy_behind_it(window: Visit, mesh: Playground) -> None:
    page = window.open("/gui/fleet")
    expect(page.get_by_role("link", name="default/frontend-1: in sync")).to_be_visible()

    with mesh.having(PATCH):
        expect(page.get_by_role("link", name="default/frontend-1: refusing")).to_be_visible()
        expect(page.locator("[aria-live=polite]")).to_have_text("1 proxy is refusing or failed")
        page = window.open(f"{PROXY}?tab=delivery")
        expect(page.locator("main")).to_contain_text("ConnectTimeout: value must be greater than 0s")
        expect(page.locator("main")).to_contain_text("made with MeshProxyPatch too-clever")
        assert not window.violations()
    expect(page.locator(".standing")).to_contain_text("in sync")
