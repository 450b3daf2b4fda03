"""Between bytes on a stream and the values that sessions work with.

A response is never built as a protobuf message: it is a few header fields with resources behind them that were
serialised and framed once, whoever they are sent to. A request's names are read once, however often they are repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from envoy.config.core.v3.base_pb2 import Node as NodeMessage
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DiscoveryRequest
from google.protobuf.json_format import MessageToDict

from cp.ads.session.messages import DeltaRequest, Node, ProtocolViolation, Response, SotwRequest
from cp.ads.session.name_sets import NameSets
from cp.model.registration import OWNER, RESOURCE
from cp.translate.packing import SECRET, bytes_field, text_field

MOST_NAMES: Final = 20_000
"""In one request. It takes some milliseconds to read so many, in which nobody else is heard."""

_LONGEST_NAME: Final = 1024
"""Characters of the name of a proxy or of its cluster: a mesh and a Dataplane have 253 each."""

_USED_METADATA: Final = {"version": 2048, OWNER: 256, RESOURCE: 64 * 1024}
"""The fields of a node's metadata that are used, and how many bytes each may have."""

_LONGEST_ERROR: Final = 8192

_BEFORE_NAMES: Final = (b"\x0a", b"\x12")
"""The tags of the fields that stand before a request's names: version and node, or node and type."""

_MORE: Final = 0x80
"""The bit of a byte of a number that says that there is another."""


def decoded(data: bytes, known: NameSets) -> SotwRequest:
    message = DiscoveryRequest.FromString(data)
    _must_be_few(len(message.resource_names))
    end = data.rfind(message.type_url.encode()) - 2  # its tag and its size, of one byte each
    return SotwRequest(
        type_url=message.type_url,
        names=known.read(message.resource_names, _run_of_names(data, end)),
        nonce=message.response_nonce,
        version=message.version_info,
        error=_error(message),
    )


def decoded_delta(data: bytes, known: NameSets) -> DeltaRequest:
    message = DeltaDiscoveryRequest.FromString(data)
    _must_be_few(len(message.resource_names_subscribe) + len(message.resource_names_unsubscribe))
    _must_be_few(len(message.initial_resource_versions))
    held = dict(message.initial_resource_versions.items())
    end = 0 if held else len(data)  # nothing else is said with names, or what it is makes them hard to tell apart
    return DeltaRequest(
        type_url=message.type_url,
        subscribe=known.read(message.resource_names_subscribe, _run_of_names(data, end)),
        unsubscribe=frozenset(message.resource_names_unsubscribe),
        held=held,
        nonce=message.response_nonce,
        error=_error(message),
    )


def said(names: Sequence[str]) -> bytes:
    """Names as they stand in a request of either kind."""
    return DiscoveryRequest(resource_names=names).SerializeToString()


def node_of(data: bytes) -> Node | None:
    """Who sends a request; only the first on a stream has to say."""
    return _node(DiscoveryRequest.FromString(data))


def node_of_delta(data: bytes) -> Node | None:
    return _node(DeltaDiscoveryRequest.FromString(data))


def encoded(response: Response) -> bytes:
    """A DiscoveryResponse. Streams that say the same get the same bytes, not a copy of them."""
    return _joined(_header(response.version, response.type_url, response.nonce), response, delta=False)


def encoded_delta(response: Response) -> bytes:
    """A DeltaDiscoveryResponse, likewise."""
    header = _header(response.version, response.type_url, response.nonce)
    if response.removed:
        header += b"".join(bytes_field(6, name.encode()) for name in response.removed)
    return _joined(header, response, delta=True)


@lru_cache(maxsize=256)
def _header(version: str, type_url: str, nonce: str) -> bytes:
    """The fields before the resources, in either kind of response; streams that say the same have the same."""
    return text_field(1, version) + text_field(4, type_url) + text_field(5, nonce)


def _joined(header: bytes, response: Response, *, delta: bool) -> bytes:
    if len(response.batches) == 1:
        return response.batches[0].message(header, delta=delta)
    return b"".join((header, *(batch.body(delta=delta) for batch in response.batches)))


def _run_of_names(data: bytes, end: int) -> memoryview:
    """Where the names of a message probably are: in front of this, and behind what protobuf writes before them."""
    begin = 0
    for tag in _BEFORE_NAMES:
        if data.startswith(tag, begin):
            size, begin = _varint(data, begin + 1)
            begin += size
    return memoryview(data)[begin : max(begin, end)]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in a message that could be read, and where it ends."""
    number = shift = 0
    while data[at] & _MORE:
        number |= (data[at] ^ _MORE) << shift
        at, shift = at + 1, shift + 7
    return number | data[at] << shift, at + 1


def _error(message: DiscoveryRequest | DeltaDiscoveryRequest) -> str | None:
    """What the client says is wrong. It may repeat what it was sent, and nobody needs to read a key."""
    if not message.HasField("error_detail"):
        return None
    text: str = message.error_detail.message
    return shortened(_without_braces(text) if message.type_url == SECRET else text)


def _without_braces(text: str) -> str:
    """A text without what is in braces, which is a resource. What is not closed may have been cut off there."""
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0:
        return text
    return f"{text[:begin]}{{…}}{text[end + 1 :] if end > begin else ''}"


def shortened(text: str) -> str:
    """What matters of an error stands at its beginning or at its end."""
    half = _LONGEST_ERROR // 2
    return text if len(text) <= _LONGEST_ERROR else f"{text[:half]} … {text[-half:]}"


def _must_be_few(names: int) -> None:
    if names > MOST_NAMES:
        raise ProtocolViolation(f"a request with {names} names is refused: {MOST_NAMES} are the most")


def _node(message: DiscoveryRequest | DeltaDiscoveryRequest) -> Node | None:
    if not message.HasField("node"):
        return None
    node = message.node
    if len(node.id) > _LONGEST_NAME:
        raise ProtocolViolation(f"node.id has {len(node.id)} characters: {_LONGEST_NAME} are the most")
    return Node(id=node.id, cluster=node.cluster[:_LONGEST_NAME], version=_version(node), metadata=_metadata(node))


def _metadata(node: NodeMessage) -> dict[str, Any]:
    """What is used of what a proxy says of itself: all of it can be as large as a request."""
    fields = node.metadata.fields
    used = (name for name, most in _USED_METADATA.items() if name in fields and fields[name].ByteSize() <= most)
    return {name: MessageToDict(fields[name]) for name in used}


def _version(node: NodeMessage) -> str:
    version = node.user_agent_build_version.version
    return f"{version.major_number}.{version.minor_number}.{version.patch}"
