"""A real Envoy takes what it is served, and goes on serving traffic whatever happens to the control plane."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.ads import resources
from tests.ads.serving import Serving
from tests.support.bootstraps import socket_address
from tests.support.client import Traffic, call
from tests.support.envoy import Envoy
from tests.support.loopback import Address, new_address
from tests.support.services import HttpService
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

PROXY = "default.web-1"
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


@dataclass
class Rig:
    """An Envoy with a listener in front of a service, and the control plane that it is served by."""

    serving: Serving
    envoy: Envoy
    service: HttpService
    listener: Address
    ads: Address

    @property
    def basis(self) -> tuple[resources.Packed, ...]:
        return (
            resources.cluster("backend"),
            resources.endpoints("backend", self.service.address),
            resources.listener("outbound", self.listener, routes="outbound"),
        )

    def publish(self, *more: resources.Packed) -> None:
        self.serving.publish(PROXY, *self.basis, *more)


@pytest.fixture(params=KINDS)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    ads = new_address()
    bootstrap = over_ads(request.param, new_address(), ads)
    with Serving(ads) as serving, HttpService("backend") as service, Envoy(bootstrap, tmp_path) as envoy:
        rig = Rig(serving, envoy, service, new_address(), ads)
        rig.publish(resources.routes("outbound", to="backend"))
        envoy.ready()
        serving.in_sync(PROXY)
        yield rig


def test_it_gets_ready_and_serves(rig: Rig) -> None:
    assert call(rig.listener).service == "backend"


def test_a_changed_route_alone_sends_one_table(rig: Rig) -> None:
    before = rig.serving.sent(PROXY)

    rig.publish(resources.routes("outbound", to="backend", prefix="/only"))
    rig.serving.in_sync(PROXY)

    after = rig.serving.sent(PROXY)
    assert {t: (m - before[t][0], r - before[t][1]) for t, (m, r) in after.items() if (m, r) != before[t]} == {
        "RouteConfiguration": (1, 1)
    }
    assert (call(rig.listener, "/only").status, call(rig.listener, "/other").status) == (200, 404)
