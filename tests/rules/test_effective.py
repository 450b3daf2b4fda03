"""What holds for a destination and for the routes to it, field by field over all levels."""

from __future__ import annotations

from typing import Any

import pytest

from cp.merging import NOTHING, Merged
from cp.model.names import Destination
from cp.rules import at_gateway, effective, gateway_routes, matches_hash
from tests.rules.texts import (
    MESH,
    WHOLE_MESH,
    Data,
    gateway,
    hr,
    mesh_gateway,
    ms,
    policy,
    proxy,
    route,
    service,
    text,
    timeout,
)
from tests.rules.worlds import rules_of, to_service, to_tag, world_of
from tests.rules.worlds import service as identity

BACKEND, ROUTE = to_service("backend"), identity("r", kind="MeshHTTPRoute")
MATCHES = matches_hash([{"path": {"type": "PathPrefix", "value": "/v1"}}])


def of(*some: Data, destination: Destination = BACKEND, kind: str = "MeshTimeout", **call: Any) -> Merged:
    world = world_of(text(MESH, proxy(), service("backend"), route("r"), *some))
    return effective(rules_of(world, kind), destination, **call)


def http(**timeouts: str) -> Data:
    return {"http": timeouts}


def levels(conf: Merged, path: str) -> list[tuple[str, Any]]:
    field = conf.fields[path]
    return [(one.origin.level, one.value) for one in (field.winner, *field.losers)]


def test_nothing_said_is_nothing() -> None:
    assert of() is NOTHING


def test_a_route_takes_from_its_service_what_it_leaves_out() -> None:
    """Decision 2: field by field, and not the whole conf."""
    some = timeout(
        "t", [(ms("backend"), http(requestTimeout="1s", streamIdleTimeout="2s")), (hr("r"), http(requestTimeout="3s"))]
    )

    assert of(some, route=ROUTE).value == http(requestTimeout="3s", streamIdleTimeout="2s")
    assert of(some).value == http(requestTimeout="1s", streamIdleTimeout="2s")


def test_every_level_is_told_the_strongest_first() -> None:
    items = [(WHOLE_MESH, 1), (ms("backend"), 2), (ms("backend", sectionName="http"), 3)]
    some = timeout("t", [*items, (hr("r"), http(requestTimeout="4s"))])

    assert levels(of(some, route=ROUTE), "http.requestTimeout") == [
        ("route", "4s"),
        ("section", "3s"),
        ("service", "2s"),
        ("mesh", "1s"),
    ]


def test_zero_of_a_route_is_a_value_and_switches_off() -> None:
    """Decision 3."""
    some = timeout("t", [(ms("backend"), http(requestTimeout="1s")), (hr("r"), http(requestTimeout="0s"))])

    assert of(some, route=ROUTE).value == http(requestTimeout="0s")


def test_no_retries_of_a_route_are_a_value_too() -> None:
    items = [(ms("backend"), {"http": {"numRetries": 5}}), (hr("r"), {"http": {"numRetries": 0}})]
    found = [{"targetRef": target, "default": conf} for target, conf in items]

    assert of(policy("MeshRetry", "t", to=found), kind="MeshRetry", route=ROUTE).value == {"http": {"numRetries": 0}}


def test_a_null_of_a_service_takes_away_what_the_mesh_says() -> None:
    """Decision 7. The service's rule has the items of the mesh in it, so the null reaches them."""
    some = timeout("t", [(WHOLE_MESH, http(requestTimeout="1s", streamIdleTimeout="2s"))])
    null = timeout("u", ms("backend"), {"http": {"requestTimeout": None, "streamIdleTimeout": "3s"}})

    assert of(some, null).value == http(streamIdleTimeout="3s")


def test_a_policy_of_another_route_does_not_count() -> None:
    some = timeout("t", hr("other"), http(requestTimeout="1s"))

    assert of(route("other"), some, route=ROUTE) is NOTHING


def test_a_route_that_is_named_at_the_top_counts_for_real_services_too() -> None:
    """Decision 6."""
    old = timeout("t", WHOLE_MESH, http(requestTimeout="1s"), top=hr("r"))

    assert of(old, route=ROUTE).value == http(requestTimeout="1s")
    assert of(old) is NOTHING


def test_the_new_way_of_naming_a_route_takes_precedence() -> None:
    """Decision 6, whatever the names."""
    old = timeout("a", WHOLE_MESH, http(requestTimeout="1s", streamIdleTimeout="2s"), top=hr("r"))
    new = timeout("z", hr("r"), http(requestTimeout="3s"))

    assert of(old, new, route=ROUTE).value == http(requestTimeout="3s", streamIdleTimeout="2s")


TAGGED = to_tag("backend")


def test_a_destination_by_tags_has_the_rules_by_tags() -> None:
    assert of(timeout("t", ms("backend"), 1), destination=TAGGED).value["http"]["requestTimeout"] == "1s"


def test_over_them_lies_the_rule_of_the_route() -> None:
    some = [
        timeout("t", ms("backend"), http(requestTimeout="1s", streamIdleTimeout="2s")),
        timeout("u", hr("r"), http(requestTimeout="3s")),
    ]

    assert of(*some, destination=TAGGED, route=ROUTE).value == http(requestTimeout="3s", streamIdleTimeout="2s")


def test_a_route_at_the_top_is_found_by_its_matches() -> None:
    old = timeout("t", WHOLE_MESH, http(requestTimeout="1s"), top=hr("r"))

    assert of(old, destination=TAGGED, route=ROUTE, matches=MATCHES).value == http(requestTimeout="1s")
    assert of(old, destination=TAGGED, route=ROUTE, matches="others") is NOTHING


def test_equal_questions_have_the_same_answer() -> None:
    world = world_of(
        text(
            MESH,
            proxy(),
            service("backend"),
            route("r"),
            timeout("t", [(WHOLE_MESH, 1)]),
            timeout("u", hr("r"), http(requestTimeout="2s")),
        )
    )
    rules = rules_of(world, "MeshTimeout")

    assert effective(rules, BACKEND, ROUTE) is effective(rules, BACKEND, ROUTE)


@pytest.mark.parametrize(("on_route", "expected"), [(True, "2s"), (False, "1s")])
def test_a_gateway_has_the_conf_of_its_listener_and_over_it_that_of_the_route(on_route: bool, expected: str) -> None:
    listeners = [{"port": 80, "protocol": "HTTP", "tags": {"x": "1"}}, {"port": 81, "protocol": "HTTP"}]
    top = {"kind": "MeshGateway", "name": "edge"}
    rules = [
        {
            "matches": [{"path": {"type": "PathPrefix", "value": "/v1"}}],
            "default": {"backendRefs": [{"kind": "MeshService", "name": "backend"}]},
        }
    ]
    of_gateway = policy(
        "MeshHTTPRoute", "r", top=top | {"tags": {"x": "1"}}, to=[{"targetRef": WHOLE_MESH, "rules": rules}]
    )
    some = [timeout("t", WHOLE_MESH, http(requestTimeout="1s")), timeout("u", hr("r"), http(requestTimeout="2s"))]
    world = world_of(text(MESH, gateway(), mesh_gateway("edge", *listeners), of_gateway, *some))
    timeouts, table = rules_of(world, "MeshTimeout", "edge"), rules_of(world, "MeshHTTPRoute", "edge")

    ((host, found),) = gateway_routes(table.at_listeners([0]))
    assert (host, found.owner, gateway_routes(table.at_listeners([1]))) == ("", ROUTE, ())
    assert at_gateway(timeouts.at_listeners([0]), found.owner if on_route else None).value == http(
        requestTimeout=expected
    )
