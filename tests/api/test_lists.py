"""Lists of resources: which, and a page at a time."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.requests import Request

from cp.access.rights import LOCAL_ADMIN
from cp.api.caller import ApiCaller, enter
from cp.api.resource_reader import page_of
from cp.api.work import WorkQueue, WorkQueues
from cp.api.work_budget import WorkBudget
from cp.model.checkpoint import Stopped
from tests.api.conftest import RIGHTS, Api, Unit
from tests.api.samples import dataplane, timeout

DATAPLANES = "/meshes/default/dataplanes"
TIMEOUTS = "/meshes/default/meshtimeouts"


def names(answer: httpx.Response) -> list[str]:
    return [item["name"] for item in answer.raise_for_status().json()["items"]]


@pytest.fixture
def timeouts(api: Api) -> Api:
    for number in range(5):
        api.put(f"{TIMEOUTS}/t{number}", timeout(f"t{number}"))
    return api


def test_a_list_has_its_total_its_items_and_nothing_further(timeouts: Api) -> None:
    answer = timeouts.get(TIMEOUTS).json()

    assert (answer["total"], len(answer["items"]), answer["next"]) == (5, 5, None)


def test_an_empty_list_is_a_list(api: Api) -> None:
    assert api.get(TIMEOUTS).json() == {"total": 0, "items": [], "next": None}


def test_pages_that_follow_each_other_are_the_whole_list(timeouts: Api) -> None:
    first = timeouts.get(TIMEOUTS, params={"size": 2})
    second = timeouts.get(first.json()["next"])
    third = timeouts.get(second.json()["next"])

    assert names(first) + names(second) + names(third) == ["t0", "t1", "t2", "t3", "t4"]
    assert third.json()["next"] is None


def test_the_next_page_misses_nothing_when_an_earlier_resource_is_deleted_meanwhile(timeouts: Api) -> None:
    first = timeouts.get(TIMEOUTS, params={"size": 2})
    timeouts.delete(f"{TIMEOUTS}/t0")

    assert names(timeouts.get(first.json()["next"])) == ["t2", "t3"]


def test_the_link_to_the_next_page_keeps_the_filters(timeouts: Api) -> None:
    first = timeouts.get(TIMEOUTS, params={"size": 2, "name": "t"}).json()

    assert httpx.URL(first["next"]).params["name"] == "t"


@pytest.mark.parametrize("size", ["0", "-1", "1001", "many", "²"])
def test_a_page_of_a_size_that_cannot_be_is_refused(api: Api, size: str) -> None:
    answer = api.get(TIMEOUTS, params={"size": size})

    assert (answer.status_code, answer.json()["invalid_parameters"][0]["field"]) == (400, "size")


def test_an_offset_that_nobody_gave_out_is_refused(api: Api) -> None:
    answer = api.get(TIMEOUTS, params={"offset": "-7"})

    assert answer.json()["detail"] == "offset: `-7` is no offset; take the one that stands in `next`, or a number"


@pytest.mark.parametrize(
    ("offset", "rest"),
    [("0", ["t0", "t1"]), ("3", ["t3", "t4"]), ("4", ["t4"]), ("5", []), ("9" * 5000, [])],
)
def test_a_number_as_offset_counts_resources_as_kumactl_does(timeouts: Api, offset: str, rest: list[str]) -> None:
    assert names(timeouts.get(TIMEOUTS, params={"offset": offset, "size": 2})) == rest


def test_pages_that_begin_with_a_number_go_on_to_the_end(timeouts: Api) -> None:
    first = timeouts.get(TIMEOUTS, params={"offset": "1", "size": 2})
    second = timeouts.get(first.json()["next"])

    assert names(first) + names(second) == ["t1", "t2", "t3", "t4"]


@pytest.mark.parametrize(
    "path",
    [
        "/zones",
        "/zones/_overview",
        "/zoneingresses+insights",
        "/meshes/default/meshzoneaddresses",
        "/meshes/default/workloads/_overview",
        "/meshes/default/traffic-routes?offset=0",
    ],
)
def test_a_list_of_a_type_that_kuma_alone_has_is_empty(api: Api, path: str) -> None:
    answer = api.get(path)

    assert (answer.status_code, answer.json()) == (200, {"total": 0, "items": [], "next": None})


def test_one_resource_of_a_type_that_kuma_alone_has_is_not_there(api: Api) -> None:
    answer = api.get("/zones/east")

    assert answer.status_code == 404
    assert answer.json()["detail"] == "there is no Zone `east`; Koguma does not have this type of Kuma's"


def test_a_type_that_kuma_alone_has_cannot_be_written(api: Api) -> None:
    answer = api.put("/meshes/default/workloads/mine", {"type": "Workload", "mesh": "default", "name": "mine"})

    assert answer.status_code == 404
    assert answer.json()["detail"] == "there is no type of resource `workloads`; Koguma does not have Kuma's Workload"


def test_a_list_of_a_type_that_kuma_alone_has_is_of_a_mesh_that_is_there(api: Api) -> None:
    assert api.get("/meshes/nowhere/workloads").status_code == 404


def test_a_type_is_listed_over_all_meshes(api: Api) -> None:
    api.with_mesh("other")
    api.put(f"{TIMEOUTS}/b", timeout("b"))
    api.put("/meshes/other/meshtimeouts/a", timeout("a", mesh="other"))

    assert names(api.get("/meshtimeouts")) == ["b", "a"]


def test_resources_are_found_by_a_part_of_their_name(timeouts: Api) -> None:
    assert names(timeouts.get(TIMEOUTS, params={"name": "3"})) == ["t3"]


def test_resources_are_found_by_their_labels(api: Api) -> None:
    for team in ("a", "b"):
        api.put(f"{TIMEOUTS}/{team}", timeout(team) | {"labels": {"example.com/team": team}})

    assert names(api.get(TIMEOUTS, params={"filter[labels.example.com/team]": "b"})) == ["b"]


def test_a_filter_on_anything_but_labels_is_refused(api: Api) -> None:
    answer = api.get(TIMEOUTS, params={"filter[spec]": "x"})

    assert (answer.status_code, answer.json()["invalid_parameters"][0]["hint"]) == (
        400,
        "write filter[labels.NAME]=VALUE",
    )


def test_dataplanes_are_found_by_their_tags(api: Api) -> None:
    for service in ("web", "backend"):
        api.put(f"{DATAPLANES}/{service}-1", dataplane(f"{service}-1", service=service))

    assert names(api.get(DATAPLANES, params={"tag": "kuma.io/service:backend"})) == ["backend-1"]


def test_two_tags_must_both_be_there(api: Api) -> None:
    api.put(f"{DATAPLANES}/web-1", dataplane())
    tags = ["kuma.io/service:web", "kuma.io/protocol:tcp"]

    assert names(api.get(DATAPLANES, params={"tag": tags})) == []


@pytest.mark.parametrize(
    ("gateway", "found"), [("true", ["edge"]), ("false", ["web-1"]), ("delegated", ["edge"]), ("builtin", [])]
)
def test_gateways_are_found_by_their_kind(api: Api, gateway: str, found: list[str]) -> None:
    networking: dict[str, Any] = {"address": "127.0.0.1", "gateway": {"tags": {"kuma.io/service": "edge"}}}
    edge = {"type": "Dataplane", "mesh": "default", "name": "edge", "networking": networking}
    api.put(f"{DATAPLANES}/edge", edge).raise_for_status()
    api.put(f"{DATAPLANES}/web-1", dataplane()).raise_for_status()

    assert names(api.get(DATAPLANES, params={"gateway": gateway})) == found


def test_a_sort_of_gateway_that_does_not_exist_is_refused(api: Api) -> None:
    assert api.get(DATAPLANES, params={"gateway": "big"}).status_code == 400


@pytest.mark.parametrize("path", [TIMEOUTS, "/dataplanes", "/dataplanes/_overview"])
def test_who_needs_all_that_is_stored_waits_among_so_many_and_no_more(api: Api, start: Unit, path: str) -> None:
    works = WorkQueues(resources=WorkQueue("resources", WorkBudget(at_once=1, waiting=-1)))
    busy = start(store=api.store, works=works)
    body = {"resources": [{"text": "type: Mesh\nname: another\n"}]}

    assert busy.get(path).status_code == 503
    assert busy.post("/_apply", json=body).status_code == 503


def test_a_list_that_nobody_waits_for_is_not_gone_through(timeouts: Api) -> None:
    contents = timeouts._runner.run(timeouts.store.read())
    kind = timeouts.collaborators.kinds["MeshTimeout"]
    request = Request({"type": "http", "query_string": b"", "headers": []})
    enter(request.scope, ApiCaller(LOCAL_ADMIN, "", RIGHTS))

    def stop() -> None:
        raise Stopped

    with pytest.raises(Stopped):
        page_of(contents, kind, "default", request, stop)
