"""What is made for an Envoy, as a gRPC client without a proxy takes it.

Such a client refuses a whole resource for one field that it does not know, and a client that refuses its route table
calls nobody. So its resources are written anew with what it understands, and nothing else is carried over. It is the
last step of a build: neither builders nor policies know whom they write for.

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
    """The resources that a gRPC client is given, which calls the destination by these names."""
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
