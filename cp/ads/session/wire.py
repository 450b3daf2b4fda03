"""Between the bytes on a stream and the values that sessions work with.

A response is never built as a protobuf message. It is a few header fields, and behind them resources that were
serialised and framed once for all proxies (record docs/adr/0009). Protobuf allows that: fields may be concatenated, see
https://protobuf.dev/programming-guides/encoding/#last-one-wins
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from envoy.config.core.v3.base_pb2 import Node as NodeMessage
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DiscoveryRequest
from google.protobuf.json_format import MessageToDict

from cp.ads.session.messages import (
    MOST_CHARACTERS,
    DeltaRequest,
    Node,
    ProtocolViolation,
    Response,
    SotwRequest,
    check_names,
)
from cp.ads.session.name_sets import NameSets
from cp.model.envoy_dumps import redacted_error
from cp.model.registration import CERTIFICATES, DRAIN_TIME, OWNER, RESOURCE
from cp.model.yaml import height
from cp.translate.packing import SECRET, bytes_field, text_field

_LONGEST_NAME: Final = 1024
"""Characters of the name of a proxy or of its cluster: a mesh and a Dataplane have 253 each."""

_USED_METADATA: Final = {"version": 2048, OWNER: 256, CERTIFICATES: 256, DRAIN_TIME: 64, RESOURCE: 64 * 1024}
"""The fields of a node's metadata that are used, and how many bytes each may have."""

MOST_LEVELS: Final = 16
"""Of lists and mappings in one of these fields. Protobuf reads 100 messages within each other, a frame between our
processes has some around a node, and what it could not read would end that link (record 0031)."""

_LONGEST_ERROR: Final = 8192
_LONGEST_DUMP: Final = 65536
"""Characters of an error in which a dump of the resource is examined. In a longer one it is left out."""

_BEFORE_NAMES: Final = (b"\x0a", b"\x12")
"""The tags of the fields that stand before a request's names: version and node, or node and type."""

_MORE: Final = 0x80
"""The bit of a byte of a number that says that there is another."""


def decoded(data: bytes, name_sets: NameSets) -> SotwRequest:
    message = DiscoveryRequest.FromString(data)
    check_names(message.type_url, len(message.resource_names))
    # The type follows the names, behind a tag and a size of one byte each. It is looked for from the end, because a
    # name may contain it.
    end = data.rfind(message.type_url.encode()) - 2
    return SotwRequest(
        type_url=message.type_url,
        names=name_sets.read(message.resource_names, _names_bytes(data, end)),
        nonce=message.response_nonce,
        version=message.version_info[:MOST_CHARACTERS],
        error=_error(message),
        node_id=message.node.id,
    )


def decoded_delta(data: bytes, name_sets: NameSets) -> DeltaRequest:
    message = DeltaDiscoveryRequest.FromString(data)
    check_names(message.type_url, len(message.resource_names_subscribe) + len(message.resource_names_unsubscribe))
    check_names(message.type_url, len(message.initial_resource_versions))
    initial_versions = dict(message.initial_resource_versions.items())
    # Nothing else stands beside names here, or what does makes the names hard to tell apart.
    end = 0 if initial_versions else len(data)
    return DeltaRequest(
        type_url=message.type_url,
        subscribe=name_sets.read(message.resource_names_subscribe, _names_bytes(data, end)),
        unsubscribe=frozenset(message.resource_names_unsubscribe),
        initial_versions=initial_versions,
        nonce=message.response_nonce,
        error=_error(message),
        node_id=message.node.id,
    )


def encoded_names(names: Sequence[str]) -> bytes:
    """Names as they stand in a request: in either variant they are field 3."""
    return DiscoveryRequest(resource_names=names).SerializeToString()


def node_of(data: bytes) -> Node | None:
    """Who sends a request. Only the first request on a stream has to tell."""
    return _node(DiscoveryRequest.FromString(data))


def node_of_delta(data: bytes) -> Node | None:
    return _node(DeltaDiscoveryRequest.FromString(data))


def encoded(response: Response) -> bytes:
    """A DiscoveryResponse. Streams that send the same content send the same bytes, not a copy of them."""
    return _joined(_header(response.version, response.type_url, response.nonce), response, delta=False)


def encoded_delta(response: Response) -> bytes:
    """A DeltaDiscoveryResponse, likewise."""
    header = _header(response.version, response.type_url, response.nonce)
    if response.removed:
        header += b"".join(bytes_field(6, name.encode()) for name in response.removed)  # removed_resources
    return _joined(header, response, delta=True)


@lru_cache(maxsize=256)
def _header(version: str, type_url: str, nonce: str) -> bytes:
    """The fields before the resources. Version, type and nonce have the same numbers in both variants."""
    return text_field(1, version) + text_field(4, type_url) + text_field(5, nonce)


def _joined(header: bytes, response: Response, *, delta: bool) -> bytes:
    if len(response.batches) == 1:
        return response.batches[0].message(header, delta=delta)
    return b"".join((header, *(batch.body(delta=delta) for batch in response.batches)))


def _names_bytes(data: bytes, end: int) -> memoryview:
    """The bytes where the names of a message probably are: before `end`, and behind the fields that come first.

    Writers may order fields as they like, so this is a guess, which `NameSets` checks.
    """
    begin = 0
    for tag in _BEFORE_NAMES:
        if data.startswith(tag, begin):
            size, begin = _varint(data, begin + 1)
            begin += size
    return memoryview(data)[begin : max(begin, end)]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint of a message that protobuf has accepted, and where it ends.

    https://protobuf.dev/programming-guides/encoding/#varints
    """
    number = shift = 0
    while data[at] & _MORE:
        number |= (data[at] ^ _MORE) << shift
        at, shift = at + 1, shift + 7
    return number | data[at] << shift, at + 1


def _error(message: DiscoveryRequest | DeltaDiscoveryRequest) -> str | None:
    """What the client says is wrong. A NACK may repeat the resource that it is about, and a secret holds a key."""
    if not message.HasField("error_detail"):
        return None
    text: str = message.error_detail.message
    is_bare = message.type_url == SECRET or len(text) > _LONGEST_DUMP
    return shortened(_without_braces(text) if is_bare else redacted_error(text))


def _without_braces(text: str) -> str:
    """A text without the resource that stands in braces. A brace that is not closed was cut off with all behind it."""
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0:
        return text
    return f"{text[:begin]}{{…}}{text[end + 1 :] if end > begin else ''}"


def shortened(text: str) -> str:
    """The beginning and the end of an error, which are the parts that matter."""
    half = _LONGEST_ERROR // 2
    return text if len(text) <= _LONGEST_ERROR else f"{text[:half]} … {text[-half:]}"


def _node(message: DiscoveryRequest | DeltaDiscoveryRequest) -> Node | None:
    if not message.HasField("node"):
        return None
    node = message.node
    if len(node.id) > _LONGEST_NAME:
        raise ProtocolViolation(f"node.id has {len(node.id)} characters: {_LONGEST_NAME} are the most")
    return Node(
        id=node.id,
        cluster=node.cluster[:_LONGEST_NAME],
        version=_version(node),
        metadata=_metadata(node),
        user_agent=node.user_agent_name[:_LONGEST_NAME],
    )


def _metadata(node: NodeMessage) -> dict[str, Any]:
    """The metadata that is used. All of it can be as large as a request, and is kept as long as the stream lasts."""
    fields = node.metadata.fields
    used = [name for name, most in _USED_METADATA.items() if name in fields and fields[name].ByteSize() <= most]
    try:
        metadata = {name: MessageToDict(fields[name]) for name in used}
    except ValueError:  # a number that JSON does not have: no client writes that
        return {}
    return {name: data for name, data in metadata.items() if height(data) <= MOST_LEVELS}


def _version(node: NodeMessage) -> str:
    version = node.user_agent_build_version.version
    return f"{version.major_number}.{version.minor_number}.{version.patch}"
