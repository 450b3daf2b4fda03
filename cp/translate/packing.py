"""Packing: Envoy's resources as bytes that are hashed and framed once, whoever they are sent to.

A version is made of the content, and nothing else (record 0012).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from cp.model.remembered import remembered

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ENDPOINTS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
LISTENER = "type.googleapis.com/envoy.config.listener.v3.Listener"
ROUTES = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
SECRET = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105  # a type, not a secret
RUNTIME = "type.googleapis.com/envoy.service.runtime.v3.Runtime"

# The order in which a change is sent, so that nothing refers to a resource that is not there yet (make before break):
# https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#eventual-consistency-considerations
TYPES = (CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET, RUNTIME)
SHORT = MappingProxyType(
    {
        CLUSTER: "clusters",
        ENDPOINTS: "endpoints",
        LISTENER: "listeners",
        ROUTES: "routes",
        SECRET: "secrets",
        RUNTIME: "runtime",
    }
)

_DIGEST_BITS: Final = 128
_LOW_BITS: Final = 0x7F
_MANY: Final = 32


@dataclass(frozen=True, slots=True)
class PackedResource:
    """One Envoy resource, serialised and hashed once, whoever it is sent to."""

    type_url: str
    name: str
    body: bytes = field(repr=False)
    version: str
    digest: int = field(repr=False, compare=False)

    @classmethod
    def of(cls, type_url: str, name: str, body: bytes) -> PackedResource:
        version = hashlib.sha256(body).hexdigest()[:16]
        return cls(
            type_url=type_url,
            name=name,
            body=body,
            version=version,
            digest=digest_of(f"{type_url}\0{name}\0{version}"),
        )

    @property
    def head(self) -> bytes:
        """The bytes that stand before the body in a state-of-the-world response.

        The heads are larger than many bodies, and batches keep their messages, so they are not kept.
        """
        any_head = text_field(1, self.type_url) + _head(2, len(self.body))
        return _head(2, len(any_head) + len(self.body)) + any_head

    @property
    def delta_head(self) -> bytes:
        """The same in a delta response."""
        resource_head = text_field(1, self.version) + text_field(3, self.name) + self.head
        return _head(2, len(resource_head) + len(self.body)) + resource_head

    @property
    def frame(self) -> bytes:
        """The resource as it stands in a state-of-the-world response."""
        return self.head + self.body


class ResourceBatch:
    """Resources of one type that are sent together; every stream that sends the same ones shares one batch."""

    def __init__(self, resources: Iterable[PackedResource] = ()) -> None:
        self.resources = tuple(resources)
        self._messages: dict[bool, tuple[bytes, bytes]] = {}
        self._bodies: dict[bool, bytes] = {}

    @remembered
    def names(self) -> frozenset[str]:
        return frozenset(packed.name for packed in self.resources)

    @remembered
    def digest(self) -> int:
        return sum(packed.digest for packed in self.resources)

    @remembered
    def size(self) -> int:
        return sum(len(packed.head) + len(packed.body) for packed in self.resources)

    def frames(self, *, delta: bool) -> Iterator[bytes]:
        """The resources as they stand in a response: of each its head and its body."""
        for packed in self.resources:
            yield packed.delta_head if delta else packed.head
            yield packed.body

    def message(self, header: bytes, *, delta: bool) -> bytes:
        """The resources behind a header: the very same object for everyone who asks with the same header."""
        kept = self._messages.get(delta)
        if kept is None or kept[0] != header:
            kept = self._messages[delta] = (header, b"".join((header, *self.frames(delta=delta))))
        return kept[1]

    def body(self, *, delta: bool) -> bytes:
        """The resources for a message in which there are others too. Many are put together once."""
        if len(self.resources) < _MANY:
            return b"".join(self.frames(delta=delta))
        if delta not in self._bodies:
            self._bodies[delta] = b"".join(self.frames(delta=delta))
        return self._bodies[delta]

    def __len__(self) -> int:
        return len(self.resources)

    def __iter__(self) -> Iterator[PackedResource]:
        return iter(self.resources)

    def __eq__(self, other: object) -> bool:
        return self.resources == other.resources if isinstance(other, ResourceBatch) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Batch({[packed.name for packed in self.resources]})"


def version_of(digest: int) -> str:
    """A digest as the text that is sent for a version."""
    return f"{digest % (1 << 64):016x}"


def digest_of(content: str) -> int:
    """A number for a text. Those of several resources are added up, so that their order does not matter."""
    return int.from_bytes(hashlib.sha256(content.encode()).digest()[: _DIGEST_BITS // 8])


def _varint(number: int) -> bytes:
    """A number in protobuf's encoding: seven bits in each byte, the lowest first, with a mark where more follow.

    https://protobuf.dev/programming-guides/encoding/#varints
    """
    out = bytearray()
    while number > _LOW_BITS:
        out.append((number & _LOW_BITS) | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def bytes_field(field_number: int, value: bytes) -> bytes:
    """A length-delimited protobuf field.

    Concatenated fields are a message (https://protobuf.dev/programming-guides/encoding/#last-one-wins), so a response
    is a header with framed resources behind it.
    """
    return _head(field_number, len(value)) + value


def _head(field_number: int, size: int) -> bytes:
    """The bytes before the value of a length-delimited protobuf field."""
    return _varint(field_number << 3 | 2) + _varint(size)


def text_field(field_number: int, value: str) -> bytes:
    """A protobuf field with a text."""
    return bytes_field(field_number, value.encode())
