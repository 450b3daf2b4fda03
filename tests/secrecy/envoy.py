"""Secret fields of Envoy's messages, found in their descriptors, and patches with markers in them."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from udpa.annotations import sensitive_pb2

from cp.model.secret_texts import is_secret_field, is_secret_name
from generators.envoy.every_message import import_every_message
from tests.secrecy.markers import Markers

_OLD: Final = ("envoy.api.", "envoy.service.", "envoy.admin.", "envoy.data.")
_TYPE: Final = "type.googleapis.com/"
_MESSAGES: Final = FieldDescriptor.TYPE_MESSAGE
_NAMES_OF_COOKIES: Final = "CookieNames"
_DEEPEST: Final = 4
_PARTS: Final = frozenset({"GenericSecret", "TlsSessionTicketKeys", "PrivateKeyProvider"})
"""Messages that stand in a field with a name of their own, by which an operation of a JSON Patch is known."""


@dataclass(frozen=True)
class SecretField:
    """A field that Envoy's API marks as sensitive, or whose name says that it is secret."""

    message: Descriptor
    field: FieldDescriptor
    is_marked: bool

    def __str__(self) -> str:
        return f"{self.message.full_name}.{self.field.name}"

    def data(self, markers: Markers, *, in_json: bool) -> dict[str, Any]:
        """The message with markers in this field, with names as in JSON or as in the descriptor."""
        return {_name(self.field, in_json=in_json): _field(self.field, markers, in_json=in_json)}

    def any_message(self, markers: Markers, *, in_json: bool) -> dict[str, Any]:
        return {"@type": f"{_TYPE}{self.message.full_name}", **self.data(markers, in_json=in_json)}

    def filter_texts(self, markers: Markers) -> Iterator[str]:
        """HTTP filters with this field in their configurations, as operators may write them."""
        for in_json in (True, False):
            name = "typedConfig" if in_json else "typed_config"
            data = {"name": "planted", name: self.any_message(markers, in_json=in_json)}
            yield yaml.safe_dump(data) if in_json else json.dumps(data)

    def json_patches(self, markers: Markers) -> list[dict[str, Any]]:
        """Operations of a JSON Patch that write this field: its message, the field, and each text in it."""
        if self.message.name in _PARTS:
            return [{"op": "add", "path": "/typedConfig", "value": self.any_message(markers, in_json=True)}]
        path = f"/typedConfig/{self.field.json_name}"
        whole = [
            {"op": "add", "path": "/typedConfig", "value": self.any_message(markers, in_json=True)},
            {"op": "add", "path": path, "value": _field(self.field, markers, in_json=True)},
        ]
        texts = _leaves(path, _field(self.field, markers, in_json=True))
        return whole + [{"op": "replace", "path": place, "value": text} for place, text in texts]


def secret_fields() -> Iterator[SecretField]:
    """All of them, in every message that a patch can carry."""
    for message in _messages():
        for field in message.fields:
            options = field.GetOptions()
            is_marked = options.HasExtension(sensitive_pb2.sensitive) and options.Extensions[sensitive_pb2.sensitive]
            if is_marked or _is_named_secret(message, field):
                yield SecretField(message, field, is_marked)


def shown_texts() -> Iterator[str]:
    """The fields for texts and bytes that are not secret by themselves."""
    secret = {str(field) for field in secret_fields()}
    for message in _messages():
        for field in message.fields:
            name = f"{message.full_name}.{field.name}"
            if field.type in {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES} and name not in secret:
                yield name


def _messages() -> Iterator[Descriptor]:
    import_every_message()
    known: dict[str, Descriptor] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("envoy.") and name.endswith("_pb2"):
            for message in module.DESCRIPTOR.message_types_by_name.values():
                known |= {inner.full_name: inner for inner in _with_nested(message)}
    for name in sorted(known):
        if not name.startswith(_OLD) and ".v2" not in name and not known[name].GetOptions().map_entry:
            yield known[name]


def _with_nested(message: Descriptor) -> Iterator[Descriptor]:
    yield message
    for nested in message.nested_types:
        yield from _with_nested(nested)


def _is_named_secret(message: Descriptor, field: FieldDescriptor) -> bool:
    is_text = field.type in {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES} or (
        field.type == _MESSAGES and _message_type(field).name == "DataSource"
    )
    is_name = message.name == _NAMES_OF_COOKIES or field.name == "cookie"
    return is_text and not is_name and (is_secret_field(field.name) or is_secret_name(field.name))


def _message_type(field: FieldDescriptor) -> Descriptor:
    assert field.message_type is not None
    return field.message_type


def _name(field: FieldDescriptor, *, in_json: bool) -> str:
    return field.json_name if in_json else field.name


def _field(field: FieldDescriptor, markers: Markers, *, in_json: bool, depth: int = 0) -> Any:
    if field.type == _MESSAGES and _message_type(field).GetOptions().map_entry:
        value = _message_type(field).fields_by_name["value"]
        return {"entry": _single(value, markers, in_json=in_json, depth=depth)}
    single = _single(field, markers, in_json=in_json, depth=depth)
    return [single] if field.is_repeated else single


def _single(field: FieldDescriptor, markers: Markers, *, in_json: bool, depth: int) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return markers.new()
    if field.type == FieldDescriptor.TYPE_BYTES:
        return base64.b64encode(markers.new().encode()).decode()
    return _message(_message_type(field), markers, in_json=in_json, depth=depth)


def _message(message: Descriptor, markers: Markers, *, in_json: bool, depth: int) -> Any:
    if message.full_name == "google.protobuf.Any":
        return {"@type": f"{_TYPE}google.protobuf.StringValue", "value": markers.new()}
    if message.full_name == "google.protobuf.Struct":
        return {"password": markers.new()}
    if message.name == "DataSource":
        is_text = depth % 2 == 0
        field = message.fields_by_name["inline_string" if is_text else "inline_bytes"]
        return {_name(field, in_json=in_json): _single(field, markers, in_json=in_json, depth=depth)}
    kinds = {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, _MESSAGES}
    fields = [field for field in message.fields if field.type in kinds and depth < _DEEPEST and field.name != "client"]
    data = {_name(field, in_json=in_json): _field(field, markers, in_json=in_json, depth=depth + 1) for field in fields}
    return data | ({"client": "shop"} if "client" in message.fields_by_name else {})


def _leaves(path: str, data: Any) -> Iterator[tuple[str, str]]:
    if isinstance(data, dict):
        for name, value in data.items():
            yield from _leaves(f"{path}/{name}", value) if name not in {"@type", "client"} else ()
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _leaves(f"{path}/{index}", value)
    else:
        yield path, data
