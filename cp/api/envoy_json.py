"""A snapshot as JSON, in the words of Envoy's own configuration."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from google.protobuf import json_format, symbol_database
from google.protobuf.message import Message

from cp.model.checkpoint import Checkpoint, checked, never_stopped, pass_checkpoint
from cp.model.secret_data import redacted
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, RUNTIME, SECRET, SHORT, TYPES, PackedResource
from cp.translate.snapshot import Snapshot
from generators.envoy.every_message import import_every_message

_MODULES: Final = MappingProxyType(
    {
        CLUSTER: "envoy.config.cluster.v3.cluster_pb2",
        ENDPOINTS: "envoy.config.endpoint.v3.endpoint_pb2",
        LISTENER: "envoy.config.listener.v3.listener_pb2",
        ROUTES: "envoy.config.route.v3.route_pb2",
        SECRET: "envoy.extensions.transport_sockets.tls.v3.secret_pb2",
        RUNTIME: "envoy.service.runtime.v3.rtds_pb2",
    }
)
_MAPS: Final = frozenset(
    {
        "filterMetadata",
        "jsonFormat",
        "layer",
        "policies",
        "typedExtensionProtocolOptions",
        "typedFilterMetadata",
        "typedPerFilterConfig",
    }
)
_MANY: Final = ("virtual_hosts", "routes")
"""The fields with which route tables grow."""


def as_data(
    snapshot: Snapshot, type_urls: Iterable[str] = TYPES, checkpoint: Checkpoint = never_stopped
) -> dict[str, dict[str, Any]]:
    """Every resource by its type and name, without what is secret in it."""
    return {type_url: dict(checked(_of_type(snapshot, type_url), checkpoint)) for type_url in type_urls}


def short_names(data: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The same with `clusters` for a cluster's type URL, and so on; types of which there is nothing are left out."""
    return {SHORT[type_url]: resources for type_url, resources in data.items() if resources}


def decoded(packed: PackedResource) -> dict[str, Any]:
    importlib.import_module(_MODULES[packed.type_url])
    message = symbol_database.Default().GetSymbol(packed.type_url.rpartition("/")[2])()
    message.ParseFromString(packed.body)
    try:
        data = _in_pieces(message)
    except TypeError:  # an Any of a type that nothing has imported so far
        import_every_message()
        data = _in_pieces(message)
    shown: dict[str, Any] = _in_order(redacted(data))
    return shown


def _in_pieces(message: Message) -> dict[str, Any]:
    """A message as plain data: the routes of a table one by one, since there may be many."""
    fields = message.DESCRIPTOR.fields_by_name
    name = next((name for name in _MANY if name in fields), None)
    if name is None:
        pass_checkpoint()
        whole: dict[str, Any] = json_format.MessageToDict(message)
        return whole
    items = list(map(_in_pieces, getattr(message, name)))
    shell = type(message)()
    shell.CopyFrom(message)
    shell.ClearField(name)
    data = json_format.MessageToDict(shell) | ({fields[name].json_name: items} if items else {})
    in_order = (fields[key].json_name for key in sorted(fields, key=lambda key: fields[key].number))
    return {key: data[key] for key in in_order if key in data}


def message_of(type_url: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """A resource as an Envoy tells it, in the form of `decoded`. Raises what `json_format` does for what is none."""
    try:
        return _message_of(type_url, data)
    except (json_format.ParseError, TypeError):  # perhaps an Any of a type that nothing has imported so far
        import_every_message()
        return _message_of(type_url, data)


def _message_of(type_url: str, data: Mapping[str, Any]) -> dict[str, Any]:
    importlib.import_module(_MODULES[type_url])
    message = symbol_database.Default().GetSymbol(type_url.rpartition("/")[2])()
    json_format.ParseDict(dict(data), message, ignore_unknown_fields=True)
    shown: dict[str, Any] = _in_order(json_format.MessageToDict(message))
    return shown


def _of_type(snapshot: Snapshot, type_url: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for packed in sorted(snapshot.of(type_url), key=lambda packed: packed.name):
        yield packed.name, decoded(packed)


def _in_order(data: Any, *, in_map: bool = False) -> Any:
    """Fields stay in the order of Envoy's API; the entries of maps, which have none, are sorted by their names."""
    if isinstance(data, list):
        return [_in_order(item) for item in data]
    if not isinstance(data, dict):
        return data
    entries = sorted(data.items()) if in_map else data.items()
    return {name: _in_order(value, in_map=in_map or name in _MAPS) for name, value in entries}
