"""Two inbounds may lead to one port of the workload, and each is served what holds for it."""

from __future__ import annotations

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy

from cp.translate.compiler import Compiler
from cp.translate.packing import CLUSTER
from tests.explain.served import DecodedSnapshot
from tests.rules.worlds import dataplane, world_of
from tests.snapshots import policies

WORKLOAD = """
type: Mesh
name: default
---
type: Dataplane
mesh: default
name: web
networking:
  address: 10.0.0.1
  inbound:
  - {port: 9000, servicePort: 8001, tags: {kuma.io/service: web, team: blue, kuma.io/protocol: http}}
  - {port: 9001, servicePort: 8001, tags: {kuma.io/service: raw, kuma.io/protocol: tcp}}
  - {port: 9002, servicePort: 8002, tags: {kuma.io/service: other, kuma.io/protocol: tcp}}
---
type: MeshTimeout
mesh: default
name: blue
spec:
  targetRef: {kind: MeshSubset, tags: {team: blue}}
  rules: [{default: {connectionTimeout: 3s}}]
"""
SHARED = "localhost:8001@10.0.0.1:9000", "localhost:8001@10.0.0.1:9001"


def test_each_of_two_inbounds_that_share_a_workload_has_a_cluster_with_its_own_values() -> None:
    world = world_of(WORKLOAD)
    snapshot = Compiler(policies()).snapshot(world, dataplane(world))
    packed = [snapshot.get(CLUSTER, name) for name in (*SHARED, "localhost:8002")]
    clusters = [Cluster.FromString(resource.body) for resource in packed if resource is not None]

    assert [cluster.connect_timeout.seconds for cluster in clusters] == [3, 10, 10]
    assert [bool(cluster.typed_extension_protocol_options) for cluster in clusters] == [True, False, False]


def test_a_connection_of_each_goes_to_its_own_cluster() -> None:
    world = world_of(WORKLOAD)
    served = DecodedSnapshot(Compiler(policies()).snapshot(world, dataplane(world)))
    (http, tcp) = (served.listener("10.0.0.1", port) for port in (9000, 9001))

    assert isinstance(http, HttpConnectionManager)
    assert isinstance(tcp, TcpProxy)
    assert (served.row(http, 0).route.cluster, tcp.cluster) == SHARED
