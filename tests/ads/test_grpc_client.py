"""gRPC's own xDS client, which names the listeners and clusters that it wants, finds a service through the server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import Locality
from envoy.config.core.v3.config_source_pb2 import AggregatedConfigSource, ApiVersion, ConfigSource
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.api_listener_pb2 import ApiListener
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.http.router.v3.router_pb2 import Router
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from google.protobuf.message import Message

from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, PackedResource
from tests.ads.resources import routes
from tests.ads.serving import Serving
from tests.support.loopback import Address, new_address

NODE = "default.client"
OVER_ADS = ConfigSource(ads=AggregatedConfigSource(), resource_api_version=ApiVersion.V3)
CALL = """
import grpc, sys
with grpc.insecure_channel("xds:///backend") as channel:
    answer = channel.unary_unary("/test.Echo/Say")(b"hello", timeout=20)
sys.stdout.write(answer.decode())
"""


def packed(type_url: str, name: str, message: Message) -> PackedResource:
    return PackedResource.of(type_url, name, message.SerializeToString(deterministic=True))


def resources(backend: Address) -> list[PackedResource]:
    manager = HttpConnectionManager()
    manager.rds.route_config_name = "table"
    manager.rds.config_source.CopyFrom(OVER_ADS)
    manager.http_filters.add(name="router").typed_config.Pack(Router())
    listener = Listener(name="backend", api_listener=ApiListener())
    listener.api_listener.api_listener.Pack(manager)
    cluster = Cluster(name="web", type=Cluster.EDS)
    cluster.eds_cluster_config.eds_config.CopyFrom(OVER_ADS)
    assignment = ClusterLoadAssignment(cluster_name="web")
    locality = assignment.endpoints.add(locality=Locality(region="here"))
    locality.load_balancing_weight.value = 1
    address = locality.lb_endpoints.add().endpoint.address.socket_address
    address.address, address.port_value = backend
    return [
        packed(LISTENER, "backend", listener),
        routes("table", to="web", prefix=""),
        packed(CLUSTER, "web", cluster),
        packed(ENDPOINTS, "web", assignment),
        packed(CLUSTER, "not asked for", Cluster(name="not asked for")),
    ]


@contextmanager
def echo() -> Iterator[Address]:
    """A gRPC service that answers with what it is told."""
    address = new_address()
    server = grpc.server(ThreadPoolExecutor(1))
    methods: dict[str, Any] = {"Say": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", methods),))
    server.add_insecure_port(str(address))
    server.start()
    try:
        yield address
    finally:
        server.stop(None)


def answer(said: bytes, _: object) -> bytes:
    return said + b" to you"


def test_a_grpc_client_reaches_a_service_by_its_name(tmp_path: Path) -> None:
    ads = new_address()
    bootstrap = {
        "xds_servers": [
            {
                "server_uri": str(ads),
                "channel_creds": [{"type": "insecure"}],
                "server_features": ["xds_v3"],
            }
        ],
        "node": {"id": NODE},
    }
    (tmp_path / "bootstrap.json").write_text(json.dumps(bootstrap))
    environment = {**os.environ, "GRPC_XDS_BOOTSTRAP": str(tmp_path / "bootstrap.json")}  # noqa: TID251  inherited

    with Serving(ads) as serving, echo() as backend:
        serving.publish(NODE, *resources(backend))
        client = subprocess.run(
            [sys.executable, "-c", CALL], env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    assert (client.stdout, client.returncode) == ("hello to you", 0), client.stderr
