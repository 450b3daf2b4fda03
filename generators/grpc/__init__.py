"""Resources for gRPC clients without a proxy, reduced from those for an Envoy.

Such a client rejects a whole resource for one field that it does not know, and a client without a route table can call
no service. So each resource is written anew with the fields that gRPC understands, and without all others. This is the
last step of a build: builders and policies do not know for which client they write.

See record 0036.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from generators.drafts import finished
from generators.grpc.clusters import grpc_cluster
from generators.grpc.endpoints import grpc_endpoints
from generators.grpc.listeners import api_listeners
from generators.grpc.routes import grpc_route_table

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from generators.drafts import Finished


def for_grpc(names: Sequence[str], resources: Iterable[Finished]) -> Iterator[Finished]:
    """The resources for a gRPC client that calls the destination by these names."""
    return (finished(reduced) for _, message in resources for reduced in _reduced(names, message))


def _reduced(names: Sequence[str], message: Message) -> Iterator[Message]:
    if isinstance(message, Listener):
        yield from api_listeners(names, message)
    elif isinstance(message, RouteConfiguration) and names:
        yield from grpc_route_table(message)
    elif isinstance(message, Cluster):
        yield from grpc_cluster(message)
    elif isinstance(message, ClusterLoadAssignment):
        yield grpc_endpoints(message)
