"""A real Envoy takes what it is served, and goes on serving traffic whatever happens to the control plane."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from cp.ads.session.messages import Nack
from cp.translate.packing import PackedResource
from tests.ads.resources import cluster, endpoints, listener, routes, stuck_cluster, wrong_regex
from tests.ads.serving import Sent, Serving
from tests.support.bootstraps import socket_address
from tests.support.client import Traffic, call
from tests.support.envoy import Envoy
from tests.support.loopback import Address, new_address
from tests.support.services import HttpService
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

PROXY = "default.web-1"
WARM_UP_TIMEOUT: Final = 5
KINDS = {"sotw": "GRPC", "delta": "DELTA_GRPC"}


def over_ads(kind: str, admin: Address, ads: Address) -> dict[str, Any]:
    """A bootstrap that asks a control plane for everything else."""
    http2 = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    options = {
        http2: {
            "@type": f"type.googleapis.com/{http2}",
            "explicit_http_config": {"http2_protocol_options": {}},
        }
    }
    retry = {"retry_back_off": {"base_interval": "0.05s", "max_interval": "0.1s"}}
    endpoint = {"endpoint": {"address": socket_address(ads)}}
    cluster = {
        "name": "ads",
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": options,
        "load_assignment": {"cluster_name": "ads", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    source = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "15s"}
    return {
        "node": {"id": PROXY, "cluster": "web", "metadata": {"dataplane.resource": "{}"}},
        "admin": {"address": socket_address(admin)},
        "dynamic_resources": {
            "ads_config": {
                "api_type": KINDS[kind],
                "transport_api_version": "V3",
                "set_node_on_first_message_only": True,
                "grpc_services": [{"envoy_grpc": {"cluster_name": "ads", "retry_policy": retry}}],
            },
            "cds_config": source,
            "lds_config": source,
        },
        "static_resources": {"clusters": [cluster]},
    }


class Rig:
    """An Envoy with a listener in front of a service, and the control plane that it is served by."""

    def __init__(self, kind: str, folder: Path, stack: ExitStack) -> None:
        self.ads, self.listener = new_address(), new_address()
        self._stack = stack
        self.service = stack.enter_context(HttpService("backend"))
        self.other = stack.enter_context(HttpService("other"))
        self.serve()
        self.publish(routes("outbound", to="backend"))
        self.envoy = stack.enter_context(Envoy(over_ads(kind, new_address(), self.ads), folder)).ready()
        self.settled()

    def serve(self) -> None:
        """Start a control plane where the Envoy looks for it."""
        self.serving = self._stack.enter_context(Serving(self.ads, patience=1.0))

    def publish(self, *more: PackedResource, without: str = "") -> None:
        basis = (
            cluster("backend"),
            endpoints("backend", self.service.address),
            listener("outbound", self.listener, routes="outbound"),
        )
        changed = {(packed.type_url, packed.name) for packed in more}
        stay = (p for p in basis if (p.type_url, p.name) not in changed and p.name != without)
        self.serving.publish(PROXY, *stay, *more)

    def settled(self) -> None:
        self.serving.in_sync(PROXY)

    def standing_nack(self) -> Nack:
        """What the Envoy refused, once it did."""

        def refused() -> Nack:
            standing_nacks = self.serving.seat(PROXY).nacks
            assert len(standing_nacks) == 1
            return standing_nacks[0]

        return eventually(refused)


@pytest.fixture(params=KINDS)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    with ExitStack() as stack:
        yield Rig(request.param, tmp_path, stack)


def difference(before: Mapping[str, Sent], after: Mapping[str, Sent]) -> dict[str, Sent]:
    """Messages and resources that were sent in between, for each type that any were sent of."""
    nothing = (0, 0)
    return {
        kind: (messages - before.get(kind, nothing)[0], resources - before.get(kind, nothing)[1])
        for kind, (messages, resources) in after.items()
        if (messages, resources) != before.get(kind, nothing)
    }


def test_it_gets_ready_and_serves(rig: Rig) -> None:
    assert call(rig.listener).service == "backend"


def test_a_changed_route_sends_one_table_and_nothing_else(rig: Rig) -> None:
    before = rig.serving.sent(PROXY)

    rig.publish(routes("outbound", to="backend", prefix="/only"))
    rig.settled()

    assert difference(before, rig.serving.sent(PROXY)) == {"RouteConfiguration": (1, 1)}
    assert (call(rig.listener, "/only").status, call(rig.listener, "/other").status) == (200, 404)


def test_a_changed_cluster_is_in_force_at_once_because_its_endpoints_come_again(rig: Rig) -> None:
    before, begun = rig.serving.sent(PROXY), time.monotonic()

    rig.publish(cluster("backend", connect_timeout=2), routes("outbound", to="backend"))
    rig.settled()

    assert time.monotonic() - begun < WARM_UP_TIMEOUT / 2
    assert difference(before, rig.serving.sent(PROXY)) == {"Cluster": (1, 1), "ClusterLoadAssignment": (1, 1)}


def test_a_changed_listener_is_in_force_at_once_without_its_routes_coming_again(rig: Rig) -> None:
    before, begun, elsewhere = rig.serving.sent(PROXY), time.monotonic(), new_address()

    rig.publish(listener("outbound", elsewhere, routes="outbound"), routes("outbound", to="backend"))
    rig.settled()

    eventually(lambda: call(elsewhere).service == "backend")
    assert time.monotonic() - begun < WARM_UP_TIMEOUT / 2
    assert difference(before, rig.serving.sent(PROXY)) == {"Listener": (1, 1)}


def test_taking_the_endpoints_away_takes_an_empty_assignment(rig: Rig) -> None:
    rig.publish(endpoints("backend"), routes("outbound", to="backend"))
    rig.settled()

    assert call(rig.listener).status == 503


def test_a_restarted_control_plane_sends_nothing_that_is_there(rig: Rig) -> None:
    with Traffic(rig.listener) as traffic:
        rig.serving.stop()
        rig.serve()
        rig.publish(routes("outbound", to="backend"))
        eventually(lambda: "RouteConfiguration" in rig.serving.sent(PROXY))
        rig.settled()

    assert rig.serving.sent(PROXY) == {
        "Cluster": (0, 0),
        "ClusterLoadAssignment": (0, 0),
        "Listener": (0, 0),
        "RouteConfiguration": (0, 0),
    }
    assert traffic.outcomes
    assert not traffic.failures


def test_what_changed_while_the_control_plane_was_away_is_made_up_for(rig: Rig) -> None:
    rig.serving.stop()
    rig.serve()
    rig.publish(
        cluster("other"),
        endpoints("other", rig.other.address),
        routes("outbound", to="other"),
        without="backend",
    )
    rig.settled()

    assert call(rig.listener).service == "other"
    assert not [one for one in rig.envoy.config("dynamic_active_clusters") if one["cluster"]["name"] == "backend"]


def test_a_refused_cluster_is_reported_while_traffic_goes_on(rig: Rig) -> None:
    with Traffic(rig.listener) as traffic:
        rig.publish(cluster("bad", broken=True), endpoints("bad"), routes("outbound", to="backend"))
        standing_nack = rig.standing_nack()
        count = len(traffic.outcomes)
        eventually(lambda: len(traffic.outcomes) > count + 5)

    assert standing_nack.names == ("bad",)
    assert "ConnectTimeout" in standing_nack.text
    assert not traffic.failures


def test_what_comes_with_a_refused_cluster_is_in_force_all_the_same(rig: Rig) -> None:
    rig.publish(
        cluster("bad", broken=True),
        cluster("other"),
        endpoints("other", rig.other.address),
        routes("outbound", to="other"),
    )

    eventually(lambda: call(rig.listener).service == "other")
    assert rig.standing_nack().names == ("bad",)


def test_a_refused_table_leaves_the_one_before_in_force(rig: Rig) -> None:
    rig.publish(routes("outbound", to="backend", broken=True))

    assert rig.standing_nack().names == ("outbound",)
    assert call(rig.listener).status == 200


def test_a_refused_table_does_not_hold_back_the_one_that_came_with_it(rig: Rig) -> None:
    second = new_address()
    more = (listener("second", second, routes="second"), routes("second", to="backend", prefix="/old"))
    rig.publish(routes("outbound", to="backend"), *more)
    rig.settled()

    rig.publish(routes("outbound", to="backend", broken=True), more[0], routes("second", to="backend", prefix="/new"))

    assert rig.standing_nack().names == ("outbound",)
    eventually(lambda: call(second, "/new").status == 200)
    assert call(rig.listener).status == 200


def test_a_table_that_is_refused_without_being_named_does_not_hold_back_the_others(rig: Rig) -> None:
    """What Envoy says of a wrong regular expression is where it is wrong, not whose it is."""
    addresses = [new_address() for _ in range(4)]
    more = [listener(f"in-{number}", address, routes=f"in-{number}") for number, address in enumerate(addresses)]
    tables = [routes(f"in-{number}", to="backend", prefix="/new") for number in range(4)]
    rig.publish(*more, wrong_regex("outbound"), *tables)

    for address in addresses:
        eventually(lambda address=address: call(address, "/new").status == 200)  # type: ignore[misc]
    eventually(lambda: rig.standing_nack().names == ("outbound",))
    assert call(rig.listener).status == 200


def test_what_was_refused_is_forgotten_once_it_is_right(rig: Rig) -> None:
    rig.publish(cluster("bad", broken=True), endpoints("bad"), routes("outbound", to="backend"))
    rig.standing_nack()

    rig.publish(cluster("bad"), endpoints("bad"), routes("outbound", to="backend"))
    rig.settled()

    assert not rig.serving.seat(PROXY).nacks


def test_moving_to_a_new_cluster_and_removing_the_old_one_costs_no_request(rig: Rig) -> None:
    with Traffic(rig.listener, per_second=500) as traffic:
        for turn in range(20):
            name = f"turn-{turn}"
            rig.publish(
                cluster(name),
                endpoints(name, rig.service.address),
                routes("outbound", to=name),
                without="backend",
            )
            rig.settled()

    assert not traffic.failures
    names = {one["cluster"]["name"] for one in rig.envoy.config("dynamic_active_clusters")}
    assert names == {"turn-19"}


def test_clusters_that_get_stuck_hold_up_the_routes_no_longer_than_the_deadline(rig: Rig) -> None:
    """With a new cluster beside it, one whose load balancer is refused late is neither accepted nor refused."""
    new = (cluster("other"), endpoints("other", rig.other.address))
    rig.publish(stuck_cluster("stuck"), endpoints("stuck"), *new, routes("outbound", to="other"))

    eventually(lambda: call(rig.listener).service == "other")

    rig.publish(*new, routes("outbound", to="other"))
    rig.settled()
    assert not rig.serving.seat(PROXY).nacks
