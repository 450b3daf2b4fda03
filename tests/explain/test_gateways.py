"""Calls that come in at a builtin gateway: which port each means, and that what is explained is what is served."""

from __future__ import annotations

import pytest
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from cp.insight.explain import AmbiguousCall, Explanation, explain, parse_call, proxy_of_gateway
from cp.insight.explain.model import BUILT_IN, ENVOY
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.packing import ROUTES
from tests.rules.edge import EDGE
from tests.rules.worlds import dataplane, world_of
from tests.snapshots import policies

OTHER_PORT = (
    "    - {port: 8080, protocol: HTTP, hostname: shop.other}\n    - {port: 9000, protocol: TCP, tags: {at: tcp}}"
)
TIMEOUT = """---
type: MeshTimeout
mesh: default
name: t
spec:
  targetRef: {kind: MeshGateway, name: edge}
  to: [{targetRef: {kind: MeshHTTPRoute, name: shop}, default: {http: {requestTimeout: 3s, streamIdleTimeout: 4s}}}]
"""


OF_CLIENTS = """\
  targetRef: {kind: Mesh, proxyTypes: [Gateway]}
  from: [{targetRef: {kind: Mesh}, default: {idleTimeout: 7s}}]
"""


def explained(call: str, text: str = EDGE) -> Explanation:
    world = world_of(text)
    return explain(Compiler(policies()), policies(), world, dataplane(world, "edge"), parse_call(call))


def problem(call: str, text: str = EDGE) -> AmbiguousCall:
    with pytest.raises(AmbiguousCall) as raised:
        explained(call, text)
    return raised.value


def port(call: str, text: str = EDGE) -> int:
    listener = explained(call, text).listener
    assert listener is not None
    return listener.port


def test_a_call_without_a_port_comes_in_at_the_usual_one() -> None:
    assert (
        port("http://shop.example/cart", EDGE.replace("    - {port: 9000, protocol: TCP, tags: {at: tcp}}", OTHER_PORT))
        == 80
    )


def test_without_the_usual_port_the_one_that_is_for_the_host_is_meant() -> None:
    elsewhere = EDGE.replace("port: 80, protocol", "port: 8081, protocol")
    elsewhere = elsewhere.replace("    - {port: 9000, protocol: TCP, tags: {at: tcp}}", OTHER_PORT)

    assert port("http://shop.example/cart", elsewhere) == 8081
    assert port("http://shop.other/cart", elsewhere) == 8080
    assert "several ports" in problem("http://nobody/cart", elsewhere).message


def test_a_connection_comes_in_where_no_http_is_spoken() -> None:
    assert port("tcp://edge") == 9000


def test_of_a_port_at_which_nothing_listens_the_ports_are_told() -> None:
    told = problem("http://shop.example:81/cart")

    assert "at no port of MeshGateway edge" in told.message
    assert told.hint == "its ports are 80 (HTTP), 9000 (TCP)"


def test_of_a_port_without_its_certificate_it_is_told_that_it_is_not_served() -> None:
    https = "{port: 443, protocol: HTTPS, tls: {mode: TERMINATE, certificates: [{secret: nowhere}]}}"
    told = problem("https://shop.example/", EDGE.replace("    - {port: 9000,", f"    - {https}\n    - {{port: 9000,"))

    assert "port 443 is not served" in told.message
    assert told.hint == "its ports are 80 (HTTP), 9000 (TCP)"


def test_of_a_request_that_is_answered_at_once_no_listener_is_said_to_be_missing() -> None:
    listener = explained("http://shop.example/a%2Fb").listener

    assert listener is not None
    assert listener.reason == "the answer comes before a listener is chosen"


def test_of_a_gateway_that_no_mesh_gateway_selects_it_is_told() -> None:
    assert (
        "no MeshGateway selects"
        in problem(
            "http://shop.example/",
            EDGE.replace(
                "selectors: [{match: {kuma.io/service: edge}}]", "selectors: [{match: {kuma.io/service: nobody}}]"
            ),
        ).message
    )


def test_a_gateway_can_be_named_in_place_of_its_proxy() -> None:
    world = world_of(EDGE)
    proxy = proxy_of_gateway(world, "default", "edge")

    assert proxy is not None
    assert proxy.name == "edge"
    assert proxy_of_gateway(world, "default", "nobody") is None


def test_what_is_explained_is_what_is_served() -> None:
    world = world_of(EDGE + TIMEOUT)
    told = explained("http://shop.example/cart", EDGE + TIMEOUT)
    values = {value.path: value.winner.value for value in told.values if value.policy == "MeshTimeout"}

    assert (values["http.requestTimeout"], values["http.streamIdleTimeout"]) == ("3s", "4s")
    assert timeouts(world) == (3, 4)


POLICIES = """---
type: MeshTimeout
mesh: default
name: weak
spec:
  targetRef: {kind: MeshGateway, name: edge}
  to: [{targetRef: {kind: Mesh}, default: {http: {requestTimeout: 7s, streamIdleTimeout: 7s}}}]
---
type: MeshTimeout
mesh: default
name: strong
spec:
  targetRef: {kind: MeshGateway, name: edge, tags: {at: http}}
  to:
    - {targetRef: {kind: Mesh}, default: {http: {requestTimeout: 3s}}}
    - {targetRef: {kind: MeshHTTPRoute, name: another}, default: {http: {requestTimeout: 9s}}}
"""


@pytest.mark.parametrize("backend", ["name: web, port: 80", "name: web"], ids=["a real service", "one by its tag"])
def test_the_stronger_policy_holds_even_if_it_names_a_route_as_well(backend: str) -> None:
    text = (EDGE + POLICIES).replace("name: web, port: 80", backend)
    told = explained("http://shop.example/cart", text)
    values = {value.path: value for value in told.values if value.policy == "MeshTimeout"}

    assert timeouts(world_of(text)) == (3, 7)
    assert values["http.requestTimeout"].winner.value == "3s"
    assert [loser.value for loser in values["http.requestTimeout"].losers] == ["7s", "15s"]


NULL = """---
type: MeshRetry
mesh: default
name: weak
spec:
  to: [{targetRef: {kind: Mesh}, default: {http: {numRetries: 3, perTryTimeout: 1s, retryOn: [5xx]}}}]
---
type: MeshRetry
mesh: default
name: strong
spec:
  targetRef: {kind: MeshGateway, name: edge}
  to:
    - targetRef: {kind: Mesh}
      default: {http: {numRetries: null, perTryTimeout: null, retryOn: null, backOff: {maxInterval: 1s}}}
"""


def test_a_field_that_a_null_removed_has_the_value_that_holds_then() -> None:
    values = {value.path: value for value in explained("http://shop.example/cart", EDGE + NULL).values}
    conditions, retries, limit = (values[f"http.{name}"] for name in ("retryOn", "numRetries", "perTryTimeout"))

    assert (conditions.winner.value, conditions.winner.level) == (
        ["gateway-error", "connect-failure", "refused-stream"],
        BUILT_IN,
    )
    assert (retries.winner.value, retries.winner.level) == (1, ENVOY)
    assert (limit.winner.value, limit.note) == (None, "removed")
    assert [loser.value for value in (conditions, retries, limit) for loser in value.losers] == [["5xx"], 3, "1s"]


def timeouts(world: World) -> tuple[int, int]:
    """Those of the only route of `shop.example`, as they are served."""
    (packed,) = Compiler(policies()).snapshot(world, dataplane(world, "edge")).of(ROUTES)
    hosts = {host.name: host for host in RouteConfiguration.FromString(packed.body).virtual_hosts}
    action = hosts["shop.example"].routes[0].route
    return action.timeout.seconds, action.idle_timeout.seconds


def test_the_values_for_clients_are_those_of_the_listener_that_takes_them() -> None:
    rule = TIMEOUT.partition("  targetRef")[0] + OF_CLIENTS
    listener = explained("http://shop.example/cart", EDGE + rule).listener

    assert listener is not None
    (idle,) = (value for value in listener.clients if value.path == "idleTimeout")
    assert [idle.winner.value, *(loser.value for loser in idle.losers)] == ["7s", "5m"]
