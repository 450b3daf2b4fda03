"""Requests are counted by their routes, and nothing that clients choose is a label."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.api.conftest import Api, Unit


def requests(api: Api) -> dict[tuple[str, str, str], float]:
    families = text_string_to_metric_families(api.collaborators.metrics.text().decode())
    samples = (sample for family in families for sample in family.samples)
    return {
        (sample.labels["method"], sample.labels["route"], sample.labels["status"]): sample.value
        for sample in samples
        if sample.name == "koguma_api_requests_total"
    }


def test_requests_for_many_resources_are_counted_under_one_route(api: Api) -> None:
    for name in ("one", "two"):
        api.get(f"/meshes/default/meshtimeouts/{name}")
    api.get("/meshes/default")

    counted = requests(api)
    assert counted["GET", "/meshes/{mesh}/{plural}/{name}", "4xx"] == 2
    assert counted["GET", "/{plural}/{name}", "2xx"] == 1
    assert counted["PUT", "/{plural}/{name}", "2xx"] == 1, "the Mesh of the fixture"


def test_what_strangers_send_makes_no_new_series(api: Api) -> None:
    before = requests(api).keys()
    for number in range(5):
        api.request(f"METHOD{number}", f"/nowhere/{number}/at/all/{number}")
        api.get("/", headers={"host": f"host-{number}.example"})

    assert requests(api).keys() - before == {("other", "none", "4xx"), ("GET", "none", "4xx")}


def test_a_request_that_is_refused_for_want_of_a_right_is_counted_where_it_led(start: Unit) -> None:
    api = start()

    assert api.get("/config", peer="192.0.2.7").status_code == 401
    assert requests(api)["GET", "/config", "4xx"] == 1


def test_it_is_measured_how_long_an_answer_is_waited_for(api: Api) -> None:
    api.get("/who-am-i")

    text = api.collaborators.metrics.text().decode()
    assert 'koguma_api_request_seconds_count{method="GET",route="/who-am-i"} 1.0' in text
