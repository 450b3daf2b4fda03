"""Requests and responses without protobuf around them, and the status of a client that follows from them.

The fields are those of DiscoveryRequest, DeltaDiscoveryRequest and their responses:
https://www.envoyproxy.io/docs/envoy/latest/api-v3/service/discovery/v3/discovery.proto
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cp.translate.packing import SHORT, PackedResource, ResourceBatch

WILDCARD = "*"

MOST_NAMES: Final = 50_000
"""Of one type, in one request and on one stream: a client that reconnects requests all of them in one. It takes some
milliseconds to read so many, in which all other streams wait."""

MOST_BYTES: Final = 8 * 1024 * 1024
"""Of memory for the names of one type on one stream, without those that the client is sent. The names of all
that a proxy is served by default fit in: it names them too when it connects after its services were deleted."""

MOST_CHARACTERS: Final = 1024
"""Of a version, a nonce or a name that is to be compared with one of ours. Ours are shorter."""


class ProtocolViolation(Exception):
    """The client broke the protocol."""


class TooManyNames(ProtocolViolation):
    """The client asks for more than any proxy needs."""


def check_names(type_url: str, count: int, size: int = 0) -> None:
    """Check what a stream asks for of one type. Raises `TooManyNames`."""
    asked = f"the stream asks for {count} {SHORT.get(type_url, 'names')}"
    if count > MOST_NAMES:
        raise TooManyNames(f"{asked}: {MOST_NAMES} are the most")
    if size > MOST_BYTES:
        raise TooManyNames(f"{asked} with unknown names and versions of {size} bytes: {MOST_BYTES} are the most")


@dataclass(frozen=True, slots=True)
class Node:
    """The node by which a proxy identifies itself. Nothing in it is verified."""

    id: str
    cluster: str = ""
    version: str = ""
    metadata: Mapping[str, object] = field(default_factory=dict)
    user_agent: str = ""  # the name of the client's software

    @property
    def is_envoy(self) -> bool:
        return self.user_agent == "envoy"


@dataclass(frozen=True, slots=True)
class SotwRequest:
    """All that the client wants of a type, and its answer to the response with this nonce, if there is one."""

    type_url: str
    names: frozenset[str] = frozenset()
    nonce: str = ""
    version: str = ""  # that the client has in force, of this stream or an earlier one
    error: str | None = None  # if it is there, the answer is a NACK
    node_id: str = ""  # of the node, if the request names one again


@dataclass(frozen=True, slots=True)
class DeltaRequest:
    """What the client wants from now on, and no longer; and its answer to the response with this nonce."""

    type_url: str
    subscribe: frozenset[str] = frozenset()  # `*` among them: all
    unsubscribe: frozenset[str] = frozenset()
    # name -> the version that the client has of an earlier stream
    initial_versions: Mapping[str, str] = field(default_factory=dict)
    nonce: str = ""
    error: str | None = None
    node_id: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """A response of either variant. `batches` are shared between streams, and so are their bytes (`wire`)."""

    type_url: str
    version: str  # of what is in it, or of all that the client has with it: see `sotw` and `delta`
    nonce: str  # by which the client names this response in its answer
    batches: tuple[ResourceBatch, ...] = ()
    removed: tuple[str, ...] = ()  # delta: names that are gone, or were requested and are not there

    @property
    def resources(self) -> Iterator[PackedResource]:
        for batch in self.batches:
            yield from batch

    @property
    def size(self) -> int:
        """Bytes of the resources, without the few of the header."""
        return sum(batch.size for batch in self.batches)


@dataclass(frozen=True, slots=True)
class Nack:
    """Why a client rejected a response, and which resources are to blame: all that were new if the text names none."""

    version: str  # of the response
    text: str  # what the client says is wrong
    names: tuple[str, ...]  # of the resources to blame


Answer: TypeAlias = Nack | str
"""A client's answer to a response: a NACK, or the version that it ACKed."""


@dataclass(frozen=True, slots=True)
class NackedResource:
    """A resource that a client NACKed. It is held back, that is, not sent again, until it changes."""

    name: str
    version: str
    in_force: str  # the version that the client has instead; empty if it has none


@dataclass(frozen=True, slots=True)
class ResponseCounts:
    """How many responses of one type a client was sent, and how it answered them."""

    type_url: str
    sent: int
    accepted: int  # ACKed
    rejected: int  # NACKed


@dataclass(frozen=True, slots=True)
class TypeStatus:
    """Where a client stands with one type of resources."""

    type_url: str
    sent: str  # the version that was sent last
    acked: str  # the version that it has in force, as far as it has ACKed
    nacks: tuple[Nack, ...]  # those that stand: what they are about is still wanted
    in_sync: bool  # it has ACKed all that it should have
    messages: int  # responses that were sent on this stream
    resources: int  # in all of these
    size: int  # bytes of these resources
    held_back: tuple[NackedResource, ...] = ()  # what the client NACKed, and what it has instead
    unanswered: int = 0  # responses that await an answer
