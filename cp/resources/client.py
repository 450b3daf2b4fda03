"""Dataplanes without a proxy: a gRPC library in the workload speaks xDS itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from cp.model.paths import entry
from cp.model.violation import Violation
from cp.resources.resource import Resource

CLIENT_LABEL: Final = "koguma.io/client"
GRPC: Final = "grpc"


def is_grpc_client(dataplane: Resource) -> bool:
    """Whether it calls others without an Envoy beside it."""
    return dataplane.labels.get(CLIENT_LABEL) == GRPC


def client_label(labels: Mapping[str, str]) -> Iterator[Violation]:
    """A misspelt label would make an Envoy of what is none."""
    client = labels.get(CLIENT_LABEL, GRPC)
    if client != GRPC:
        hint = f"write `{GRPC}`, or remove the label where there is an Envoy"
        yield Violation("labels" + entry(CLIENT_LABEL), f"`{client}` is no kind of client", hint)
