"""Between bytes on a stream and the values that sessions work with.

A response is never built as a protobuf message: it is a few header fields with resources behind them that were
serialised and framed once, whoever they are sent to. A request's names are read once, however often they are repeated.
"""

from __future__ import annotations

import re
from typing import Any, Final

from envoy.config.core.v3.base_pb2 import Node as NodeMessage
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DiscoveryRequest
from google.protobuf.json_format import MessageToDict

from cp.ads.messages import DeltaRequest, Node, Request, Response
from cp.ads.names import Names
from cp.snapshot import SECRET, bytes_field, text_field

_BRACES: Final = re.compile(r"\{.*\}", re.DOTALL)

_BEFORE_NAMES: Final = (0x0A, 0x12)
"""The tags of a request's version and node."""

_TYPE_URL: Final = b"type.googleapis.com/"
_LONG: Final = 1024
"""So many bytes of names are worth the effort."""


def decoded(data: bytes, known: Names) -> Request:
    message, names = _parted(data, known)
    return Request(
        type_url=message.type_url,
        names=names,
        nonce=message.response_nonce,
        version=message.version_info,
        error=_error(message),
    )


def decoded_delta(data: bytes, known: Names) -> DeltaRequest:
    message = DeltaDiscoveryRequest.FromString(data)
    return DeltaRequest(
        type_url=message.type_url,
        subscribe=known.shared(frozenset(message.resource_names_subscribe)),
        unsubscribe=frozenset(message.resource_names_unsubscribe),
        held=dict(message.initial_resource_versions),
        nonce=message.response_nonce,
        error=_error(message),
    )


def node_of(data: bytes) -> Node | None:
    """Who sends a request; only the first on a stream has to say."""
    return _node(DiscoveryRequest.FromString(data))


def node_of_delta(data: bytes) -> Node | None:
    return _node(DeltaDiscoveryRequest.FromString(data))


def encoded(response: Response) -> bytes:
    """A DiscoveryResponse. Streams that say the same get the same bytes, not a copy of them."""
    header = text_field(1, response.version) + text_field(4, response.type_url) + text_field(5, response.nonce)
    return _joined(header, response, delta=False)


def encoded_delta(response: Response) -> bytes:
    """A DeltaDiscoveryResponse, likewise."""
    header = text_field(1, response.version) + text_field(4, response.type_url) + text_field(5, response.nonce)
    removed = b"".join(bytes_field(6, name.encode()) for name in response.removed)
    return _joined(header + removed, response, delta=True)


def _joined(header: bytes, response: Response, *, delta: bool) -> bytes:
    if len(response.batches) == 1:
        return response.batches[0].message(header, delta=delta)
    return b"".join((header, *(batch.body(delta=delta) for batch in response.batches)))


def _parted(data: bytes, known: Names) -> tuple[DiscoveryRequest, frozenset[str]]:
    """A request, and the names in it. If they are known it is read without them.

    It does not matter to this how well the run of names is found: bytes are only remembered if they are nothing else.
    """
    begin, end = _run_of_names(data)
    run = memoryview(data)[begin:end]
    names = known.said_in(run) if len(run) >= _LONG else None
    if names is not None:
        return DiscoveryRequest.FromString(data[:begin] + data[end:]), names
    message = DiscoveryRequest.FromString(data)
    names = known.shared(frozenset(message.resource_names))
    if len(run) >= _LONG and DiscoveryRequest(resource_names=message.resource_names).SerializeToString() == run:
        known.remember(run, names)
    return message, names


def _run_of_names(data: bytes) -> tuple[int, int]:
    """Where the names begin and end, as long as the fields are in the order in which protobuf writes them."""
    begin = 0
    while begin < len(data) and data[begin] in _BEFORE_NAMES:
        size, begin = _varint(data, begin + 1)
        begin += size
    return begin, max(begin, data.rfind(_TYPE_URL) - 2)  # its tag and its size, of one byte each


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and what comes after it; anything at all if there is none."""
    number = shift = 0
    while at < len(data):
        byte, at = data[at], at + 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004  the highest bit says that there is more
            break
    return number, at


def _error(message: DiscoveryRequest | DeltaDiscoveryRequest) -> str | None:
    """What the client says is wrong. It may repeat what it was sent, and nobody needs to read a key."""
    if not message.HasField("error_detail"):
        return None
    text: str = message.error_detail.message
    return _BRACES.sub("{…}", text) if message.type_url == SECRET else text


def _node(message: DiscoveryRequest | DeltaDiscoveryRequest) -> Node | None:
    if not message.HasField("node"):
        return None
    node = message.node
    metadata: dict[str, Any] = MessageToDict(node.metadata)
    return Node(id=node.id, cluster=node.cluster, version=_version(node), metadata=metadata)


def _version(node: NodeMessage) -> str:
    version = node.user_agent_build_version.version
    return f"{version.major_number}.{version.minor_number}.{version.patch}"
