"""What an Envoy does with a service that it calls: how it chooses, and whom."""

import http.client
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.support.client import Answer, call
from tests.support.envoy import Envoy
from tests.support.loopback import Address


def upstream(envoy: Envoy, service: str) -> dict[str, Any]:
    """The cluster of a MeshService as an Envoy uses it now."""
    active = [entry["cluster"] for entry in envoy.config("dynamic_active_clusters")]
    (cluster,) = [cluster for cluster in active if cluster["name"] == f"kri_msvc_default___{service}_main"]
    return dict(cluster)


def healthy(envoy: Envoy, service: str) -> int:
    """How many endpoints of a MeshService an Envoy holds for healthy now."""
    return int(envoy.stat(f"cluster.kri_msvc_default___{service}_main.membership_healthy"))


def http_options(envoy: Envoy, service: str) -> dict[str, Any]:
    """How an Envoy treats connections and streams to a MeshService of HTTP, whatever the version."""
    (options,) = upstream(envoy, service)["typed_extension_protocol_options"].values()
    return dict(options.get("common_http_protocol_options", {}))


def listening(envoy: Envoy, address: Address) -> dict[str, Any]:
    """What an Envoy does with connections to an address of its: its filter of TCP, or its manager of HTTP."""
    active = [entry["active_state"]["listener"] for entry in envoy.config("dynamic_listeners")]
    (listener,) = [
        listener for listener in active if listener["address"]["socket_address"]["port_value"] == address.port
    ]
    return dict(listener["filter_chains"][0]["filters"][-1]["typed_config"])


def answering(address: Address, times: int, path: str = "/", **headers: str) -> list[str]:
    """Who answers so many requests, one after the other; empty where an Envoy does."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return [call(address, path, headers=named).service for _ in range(times)]


def called_from(source: str, address: Address, path: str = "/") -> str:
    """Who answers a request from an address of the caller's choice."""
    connection = http.client.HTTPConnection(*address, timeout=10, source_address=(source, 0))
    try:
        connection.request("GET", path)
        return connection.getresponse().headers["x-service"]
    finally:
        connection.close()


def at_once(address: Address, times: int, path: str, headers: Mapping[str, str] | None = None) -> list[Answer]:
    """The answers to requests that are sent at the same moment."""
    with ThreadPoolExecutor(times) as pool:
        return list(pool.map(lambda _: call(address, path, headers=headers), range(times)))
