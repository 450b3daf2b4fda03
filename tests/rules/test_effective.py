"""What holds for a destination and for the routes to it, field by field over all levels."""

from __future__ import annotations

from typing import Any, Final

import pytest

from cp.model.names import Destination, Identity
from cp.rules import at_gateway, effective, matches_hash
from cp.rules.gateways import routes_by_host
from cp.rules.merging import NOTHING, MergedConf
from cp.rules.routes import routes_of
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
    subset,
    text,
    timeout,
)
from tests.rules.worlds import rules_of, to_service, to_tag, world_of
from tests.rules.worlds import service as identity

BACKEND, ROUTE = to_service("backend"), identity("r", kind="MeshHTTPRoute")
TAGGED = to_tag("backend")
MATCHES = matches_hash([{"path": {"type": "PathPrefix", "value": "/v1"}}])


def of(*some: Data, destination: Destination = BACKEND, kind: str = "MeshTimeout", **call: Any) -> MergedConf:
    world = world_of(text(MESH, proxy(), service("backend"), route("r"), *some))
    return effective(rules_of(world, kind), destination, **call)


def http(**timeouts: str) -> Data:
    return {"http": timeouts}


def levels(conf: MergedConf, path: str) -> list[tuple[str, Any]]:
    field = conf.fields[path]
    return [(one.origin.level, one.value) for one in (field.winner, *field.losers)]


def test_without_items_there_is_no_conf() -> None:
    assert of() is NOTHING


def test_a_route_takes_from_its_service_what_it_leaves_out() -> None:
    """Field by field, and not the whole conf (record 0007)."""
    some = timeout(
        "t", [(ms("backend"), http(requestTimeout="1s", streamIdleTimeout="2s")), (hr("r"), http(requestTimeout="3s"))]
    )

    assert of(some, via=(ROUTE,)).value == http(requestTimeout="3s", streamIdleTimeout="2s")
    assert of(some).value == http(requestTimeout="1s", streamIdleTimeout="2s")


def test_the_settings_of_every_level_are_in_order_the_strongest_first() -> None:
    items = [(WHOLE_MESH, 1), (ms("backend"), 2), (ms("backend", sectionName="http"), 3)]
    some = timeout("t", [*items, (hr("r"), http(requestTimeout="4s"))])

    assert levels(of(some, via=(ROUTE,)), "http.requestTimeout") == [
        ("route", "4s"),
        ("section", "3s"),
        ("service", "2s"),
        ("mesh", "1s"),
    ]


def test_zero_of_a_route_is_a_value_and_switches_off() -> None:
    """A difference from Kuma (record 0024)."""
    some = timeout("t", [(ms("backend"), http(requestTimeout="1s")), (hr("r"), http(requestTimeout="0s"))])

    assert of(some, via=(ROUTE,)).value == http(requestTimeout="0s")


def test_no_retries_of_a_route_are_a_value_too() -> None:
    items = [(ms("backend"), {"http": {"numRetries": 5}}), (hr("r"), {"http": {"numRetries": 0}})]
    found = [{"targetRef": target, "default": conf} for target, conf in items]

    assert of(policy("MeshRetry", "t", to=found), kind="MeshRetry", via=(ROUTE,)).value == {"http": {"numRetries": 0}}


NULL: Final = {"http": {"requestTimeout": None}}
SECTION: Final = ms("backend", sectionName="http")
LEVELS: Final = ("mesh", "service", "section", "route")
TARGET_OF: Final = dict(zip(LEVELS, (WHOLE_MESH, ms("backend"), SECTION, hr("r")), strict=True))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("removes", [True, False])
def test_a_null_uncovers_what_the_next_wider_level_says(level: str, removes: bool) -> None:  # a table
    """A level that a null empties leaves the field out (docs/concepts/matching-and-merging.md#what-fills-the-gaps)."""
    said = [TARGET_OF[one] for one in LEVELS[: LEVELS.index(level) + int(removes)]]
    values = [timeout(f"z-{index}", target, http(requestTimeout=f"{index}s")) for index, target in enumerate(said)]
    conf = of(*values, timeout("a", TARGET_OF[level], NULL), via=(ROUTE,) if level == "route" else ())
    wider = LEVELS.index(level) - 1

    assert (conf.value.get("http") or {}).get("requestTimeout") == (f"{wider}s" if wider >= 0 else None)


@pytest.mark.parametrize(
    ("target", "effective_value"),
    [
        (ms("web", sectionName="81"), "60s"),
        (ms("web_ns-a_svc_81"), "60s"),
        (ms("web_ns-a_svc_80"), None),  # the service has no port 80, so this means the whole service
        (ms("web_ns-a_svc"), None),
    ],
)
def test_null_for_port_keeps_value_of_service(target: Data, effective_value: str | None) -> None:
    labels = {"kuma.io/display-name": "web", "k8s.kuma.io/namespace": "ns-a"}
    everything = {"kind": "MeshService", "labels": {"kuma.io/display-name": "web"}}
    items = [(everything, {"connectionTimeout": "60s"}), (target, {"connectionTimeout": None})]
    named = labels if "sectionName" in target else {}
    world = world_of(
        text(MESH, proxy(), service("web.ns-a", (81, ""), labels=labels), timeout("t", items, labels=named))
    )
    destination = Destination("web", Identity("MeshService", "default", "web", namespace="ns-a", section="81"))

    field = effective(rules_of(world, "MeshTimeout"), destination).fields.get("connectionTimeout")

    assert (None if field is None else field.value) == effective_value


def test_a_null_for_the_mesh_in_a_policy_for_fewer_proxies_removes_values_for_services() -> None:
    """The target at the top counts before that of an item."""
    weak = timeout("t", ms("backend"), http(requestTimeout="1s"))
    strong = timeout("u", WHOLE_MESH, NULL, top=subset(**{"kuma.io/service": "web"}))

    assert of(weak, strong).value.get("http") == {}


def test_a_null_for_a_tagged_service_uncovers_the_value_for_the_mesh() -> None:
    some = timeout("t", [(WHOLE_MESH, http(requestTimeout="1s")), (ms("backend"), http(requestTimeout="2s"))])

    assert of(some, timeout("a", ms("backend"), NULL), destination=TAGGED).value == http(requestTimeout="1s")


def test_a_null_for_a_route_at_the_top_uncovers_the_value_for_the_service() -> None:
    some = timeout("t", ms("backend"), http(requestTimeout="2s"))
    old = [
        timeout(name, WHOLE_MESH, conf, top=hr("r")) for name, conf in (("z", http(requestTimeout="3s")), ("a", NULL))
    ]

    assert of(some, *old, via=(ROUTE,)).value == http(requestTimeout="2s")
    assert of(some, *old, destination=TAGGED, matches=MATCHES).value == http(requestTimeout="2s")


def test_retries_are_not_switched_on_by_a_null() -> None:
    to = [{"targetRef": ms("backend"), "default": {"http": {"retryOn": None}}}]

    assert of(policy("MeshRetry", "r", to=to), kind="MeshRetry").value == {}


OTHER: Final = identity("s", kind="MeshHTTPRoute")


def test_of_two_routes_that_contribute_the_stronger_counts_field_by_field_and_then_the_service() -> None:
    some = [
        timeout("of-service", ms("backend"), http(requestTimeout="1s", streamIdleTimeout="1s", maxStreamDuration="1s")),
        timeout("of-weak", hr("r"), http(requestTimeout="2s", streamIdleTimeout="2s")),
        timeout("of-strong", hr("s"), http(requestTimeout="3s")),
    ]
    conf = of(route("s"), *some, via=(OTHER, ROUTE))

    assert conf.value == http(requestTimeout="3s", streamIdleTimeout="2s", maxStreamDuration="1s")
    assert [one.origin.policy.name for one in conf.fields["http.requestTimeout"].losers] == ["of-weak", "of-service"]


def test_a_null_for_the_stronger_route_uncovers_the_value_for_the_weaker() -> None:
    some = [timeout("of-weak", hr("r"), http(requestTimeout="2s")), timeout("of-strong", hr("s"), NULL)]

    assert of(route("s"), *some, via=(OTHER, ROUTE)).value == http(requestTimeout="2s")


def test_a_policy_of_another_route_does_not_count() -> None:
    some = timeout("t", hr("other"), http(requestTimeout="1s"))

    assert of(route("other"), some, via=(ROUTE,)) is NOTHING


def test_a_route_that_is_named_at_the_top_counts_for_real_services_too() -> None:
    """See docs/concepts/matching-and-merging.md#the-old-way-to-name-a-route."""
    old = timeout("t", WHOLE_MESH, http(requestTimeout="1s"), top=hr("r"))

    assert of(old, via=(ROUTE,)).value == http(requestTimeout="1s")
    assert of(old) is NOTHING


def test_the_new_way_of_naming_a_route_takes_precedence() -> None:
    """Whatever the names of the policies are (docs/concepts/matching-and-merging.md#the-old-way-to-name-a-route)."""
    old = timeout("a", WHOLE_MESH, http(requestTimeout="1s", streamIdleTimeout="2s"), top=hr("r"))
    new = timeout("z", hr("r"), http(requestTimeout="3s"))

    assert of(old, new, via=(ROUTE,)).value == http(requestTimeout="3s", streamIdleTimeout="2s")


def test_a_destination_by_tags_has_the_rules_by_tags() -> None:
    assert of(timeout("t", ms("backend"), 1), destination=TAGGED).value["http"]["requestTimeout"] == "1s"


def test_over_them_lies_the_rule_of_the_route() -> None:
    some = [
        timeout("t", ms("backend"), http(requestTimeout="1s", streamIdleTimeout="2s")),
        timeout("u", hr("r"), http(requestTimeout="3s")),
    ]

    assert of(*some, destination=TAGGED, via=(ROUTE,)).value == http(requestTimeout="3s", streamIdleTimeout="2s")


def test_a_route_at_the_top_is_found_by_its_matches() -> None:
    old = timeout("t", WHOLE_MESH, http(requestTimeout="1s"), top=hr("r"))

    assert of(old, destination=TAGGED, via=(ROUTE,), matches=MATCHES).value == http(requestTimeout="1s")
    assert of(old, destination=TAGGED, via=(ROUTE,), matches="others") is NOTHING


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

    assert effective(rules, BACKEND, (ROUTE,)) is effective(rules, BACKEND, (ROUTE,))


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

    ((host, combined),) = routes_by_host(table.at_listeners([0])).items()
    (rule,) = routes_of(combined.conf)
    assert (host, rule.owner, routes_by_host(table.at_listeners([1]))) == ("*", ROUTE, {})
    assert at_gateway(timeouts.at_listeners([0]), (rule.owner,) if on_route else ()).value == http(
        requestTimeout=expected
    )


def test_on_a_gateway_a_policy_for_a_route_at_the_top_is_for_no_route_with_the_same_matches() -> None:
    default = {"backendRefs": [{"kind": "MeshService", "name": "backend"}]}
    rules = [{"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "default": default}]
    top = {"kind": "MeshGateway", "name": "edge"}
    routes = [policy("MeshHTTPRoute", name, top=top, to=[{"targetRef": WHOLE_MESH, "rules": rules}]) for name in "rs"]
    old = timeout("t", WHOLE_MESH, http(requestTimeout="1s"), top=hr("r"))
    world = world_of(text(MESH, gateway(), mesh_gateway("edge", {"port": 80, "protocol": "HTTP"}), *routes, old))
    timeouts = rules_of(world, "MeshTimeout", "edge")

    assert at_gateway(timeouts, (ROUTE,)).value == http(requestTimeout="1s")
    assert at_gateway(timeouts, (ROUTE,), TAGGED).value == http(requestTimeout="1s")
    assert at_gateway(timeouts, (OTHER,)) is NOTHING
    assert at_gateway(timeouts, (OTHER,), TAGGED) is NOTHING


def test_on_a_gateway_what_is_said_of_the_mesh_beside_a_route_holds_for_a_destination_by_tags_too() -> None:
    both = timeout("t", [(WHOLE_MESH, http(requestTimeout="1s")), (hr("r"), http(requestTimeout="2s"))])
    timeouts = rules_of(world_of(text(MESH, proxy(), route("r"), both)), "MeshTimeout")

    assert at_gateway(timeouts, (), TAGGED).value == http(requestTimeout="1s")
    assert at_gateway(timeouts, (ROUTE,), TAGGED).value == http(requestTimeout="2s")
