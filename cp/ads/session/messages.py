"""What a proxy asks and what it is told, without protobuf around it, and what is known of where it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cp.translate.packing import PackedResource, ResourceBatch

WILDCARD = "*"


class ProtocolViolation(Exception):
    """The client broke the protocol."""


@dataclass(frozen=True, slots=True)
class Node:
    """Who a proxy says that it is."""

    id: str
    cluster: str = ""
    version: str = ""
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SotwRequest:
    """A state-of-the-world request: everything of a type that the client wants, and what it says to a response."""

    type_url: str
    names: frozenset[str] = frozenset()
    nonce: str = ""
    version: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class DeltaRequest:
    """An incremental request: what the client wants from now on, and what it says to a response."""

    type_url: str
    subscribe: frozenset[str] = frozenset()
    unsubscribe: frozenset[str] = frozenset()
    held: Mapping[str, str] = field(default_factory=dict)  # initial_resource_versions
    nonce: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """What is sent next. `batches` are shared between streams, so their bytes are too (cp.ads.session.wire)."""

    type_url: str
    version: str
    nonce: str
    batches: tuple[ResourceBatch, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def resources(self) -> Iterator[PackedResource]:
        for batch in self.batches:
            yield from batch

    @property
    def size(self) -> int:
        """Bytes of the resources; the few of the header are left out."""
        return sum(batch.size for batch in self.batches)


@dataclass(frozen=True, slots=True)
class Nack:
    """A proxy's refusal: what it said, of which version, and which resources it is about as far as it says."""

    version: str
    text: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NackedResource:
    """A resource that a client refused, which is not sent again until it changes."""

    name: str
    version: str
    in_force: str  # the version that the client has instead; empty if it has none


@dataclass(frozen=True, slots=True)
class ResponseCounts:
    """How many responses of one type a client was sent, and how it answered them."""

    type_url: str
    sent: int
    accepted: int
    rejected: int


@dataclass(frozen=True, slots=True)
class TypeStatus:
    """Where a client stands with one type of resources."""

    type_url: str
    sent: str  # the version that it was told last
    acked: str  # the version that it has in force, as far as it said
    refused: tuple[Nack, ...]  # what it refused, as long as that is still wanted
    in_sync: bool  # it has confirmed everything that is wanted
    messages: int
    resources: int
    size: int
    held: tuple[NackedResource, ...] = ()
    unanswered: int = 0  # responses
