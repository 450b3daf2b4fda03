"""Changing Envoy's messages: one merged over another, or patched in its form as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

from google.protobuf import json_format, message_factory
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import DecodeError, Message

from cp.policies.mesh_proxy_patch.json_patch import DoesNotApply, patched
from cp.policies.mesh_proxy_patch.native import NotNative, native, parsed
from cp.policies.mesh_proxy_patch.schema import JsonPatch
from generators.envoy.edit import pack

M = TypeVar("M", bound=Message)

_WELL_KNOWN: Final = "google.protobuf."
_STRUCT: Final = "google.protobuf.Struct"


def written(text: str, kind: type[M]) -> M:
    """What an operator wrote, as a message that nobody may change."""
    of_kind: Any = kind
    message: M = _written(text, of_kind)
    return message


@lru_cache(maxsize=1024)
def _written(text: str, kind: Any) -> Any:
    try:
        return native(text, kind)
    except NotNative as error:
        raise DoesNotApply(f"is no {kind.__name__} of Envoy's: {error.reason}") from error


def with_patches(message: M, patches: Sequence[JsonPatch]) -> M:
    """A message after operations on its form as JSON, with field names in camel case."""
    try:
        data = patched(json_format.MessageToDict(message), patches)
    except TypeError as error:
        raise DoesNotApply(f"holds a message that cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise DoesNotApply("what comes out is not an object")
    try:
        return parsed(data, type(message))
    except NotNative as error:
        raise DoesNotApply(f"what comes out is no {type(message).__name__} of Envoy's: {error.reason}") from error


def merged(message: M, change: Message) -> M:
    """A message with the fields of another written over it; lists grow."""
    copy = type(message)()
    copy.CopyFrom(message)
    _merge(copy, change)
    return copy


def unpacked(packed: AnyMessage) -> Message:
    """What an Any holds."""
    try:
        kind = message_factory.GetMessageClass(Default().FindMessageTypeByName(packed.TypeName()))
        return kind.FromString(packed.value)
    except (KeyError, DecodeError) as error:
        raise DoesNotApply(f"`{packed.TypeName()}` cannot be read") from error


def _merge(target: Message, change: Message) -> None:
    for field, value in change.ListFields():
        if field.message_type is None:
            _merge_plain(target, field, value)
        elif field.message_type.GetOptions().map_entry:
            _merge_map(getattr(target, field.name), value, of_messages=_is_message(field.message_type))
        elif field.is_repeated:
            getattr(target, field.name).extend(value)
        else:
            _merge_message(getattr(target, field.name), value)


def _merge_plain(target: Message, field: FieldDescriptor, value: Any) -> None:
    if field.is_repeated:
        getattr(target, field.name).extend(value)
    else:
        setattr(target, field.name, value)


def _merge_map(target: Any, change: Any, *, of_messages: bool) -> None:
    for key, value in change.items():
        if not of_messages:
            target[key] = value
        elif key in target:
            _merge_message(target[key], value)
        else:
            target[key].CopyFrom(value)


def _merge_message(target: Message, change: Message) -> None:
    """Well-known types, such as a duration or a number that can be absent, are single values: they are replaced."""
    target.SetInParent()
    if isinstance(target, AnyMessage) and isinstance(change, AnyMessage):
        target.CopyFrom(merged_any(target, change))
    elif target.DESCRIPTOR.full_name.startswith(_WELL_KNOWN) and target.DESCRIPTOR.full_name != _STRUCT:
        target.CopyFrom(change)
    else:
        _merge(target, change)


def merged_any(target: AnyMessage, change: AnyMessage) -> AnyMessage:
    if not target.type_url:
        return change
    if target.TypeName() != change.TypeName():
        raise DoesNotApply(f"holds a `{target.TypeName()}`, over which no `{change.TypeName()}` can be written")
    return pack(merged(unpacked(target), unpacked(change)))


def _is_message(entry: Any) -> bool:
    return entry.fields_by_name["value"].message_type is not None
