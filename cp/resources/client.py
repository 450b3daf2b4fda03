"""gRPC clients: dataplanes without a proxy, whose workload speaks xDS itself by its gRPC library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from cp.model.names import Key
from cp.model.paths import entry
from cp.model.violation import Violation
from cp.resources.resource import Resource

if TYPE_CHECKING:
    from cp.resources.world import Table

CLIENT_LABEL: Final = "koguma.io/client"
GRPC: Final = "grpc"


def is_grpc_client(dataplane: Resource) -> bool:
    """Whether a dataplane has no Envoy, and its workload speaks xDS itself."""
    return dataplane.labels.get(CLIENT_LABEL) == GRPC


def grpc_clients(dataplanes: Table) -> tuple[Key, ...]:
    """The Dataplanes that are gRPC clients without a proxy. Use it as `table.derived(...)`."""
    return tuple(dataplane.key for dataplane in dataplanes if is_grpc_client(dataplane))


def client_label(labels: Mapping[str, str]) -> Iterator[Violation]:
    """The fault of an unknown client label. With a misspelt one, a gRPC client would be served as an Envoy."""
    client = labels.get(CLIENT_LABEL, GRPC)
    if client != GRPC:
        hint = f"write `{GRPC}`, or remove the label where there is an Envoy"
        yield Violation("labels" + entry(CLIENT_LABEL), f"`{client}` is no kind of client", hint)
