"""Edits that several builders and policies need. Absent, zero and a value are distinguished here only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from envoy.config.core.v3.base_pb2 import HeaderValueOption
from envoy.config.core.v3.config_source_pb2 import ApiVersion
from envoy.type.v3.percent_pb2 import FractionalPercent
from google.protobuf.any_pb2 import Any as AnyMessage

if TYPE_CHECKING:
    from envoy.config.core.v3.address_pb2 import Address
    from envoy.config.core.v3.config_source_pb2 import ConfigSource
    from google.protobuf.duration_pb2 import Duration as DurationMessage
    from google.protobuf.message import Message
    from google.protobuf.wrappers_pb2 import UInt32Value, UInt64Value

_NANOSECONDS = 1_000_000_000
_MILLION = 1_000_000
_FIRST_FETCH_SECONDS = 15

ADD = HeaderValueOption.APPEND_IF_EXISTS_OR_ADD
OVERWRITE = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD


class Nanoseconds(Protocol):
    """A duration, of whatever type."""

    @property
    def nanoseconds(self) -> int: ...


def set_duration(field: DurationMessage, duration: Nanoseconds | None) -> None:
    """None keeps Envoy's default; zero is written, with the meaning that Envoy gives it."""
    if duration is not None:
        field.seconds, field.nanos = divmod(duration.nanoseconds, _NANOSECONDS)
        field.SetInParent()


def set_number(field: UInt32Value | UInt64Value, number: int | None) -> None:
    """None keeps Envoy's default; zero is written."""
    if number is not None:
        field.value = number
        field.SetInParent()


def set_percentage(field: FractionalPercent, percentage: float | str | None) -> None:
    """Set a percentage, rounded to four decimal places. None leaves the field alone, which means never."""
    if percentage is not None:
        field.denominator = FractionalPercent.MILLION
        field.numerator = round(float(percentage) * _MILLION / 100)


def pack(message: Message) -> AnyMessage:
    """A message as Any, byte for byte the same for equal messages."""
    packed = AnyMessage()
    packed.Pack(message, deterministic=True)
    return packed


def set_address(field: Address, address: str, port: int) -> None:
    field.socket_address.address = address
    field.socket_address.port_value = port


def over_ads(source: ConfigSource) -> None:
    """Make Envoy subscribe to the resource on the ADS stream."""
    source.ads.SetInParent()
    source.resource_api_version = ApiVersion.V3
    source.initial_fetch_timeout.seconds = _FIRST_FETCH_SECONDS


def literal(text: str) -> str:
    """A text with percent signs doubled, for fields in which Envoy reads `%NAME%` as a command."""
    return text.replace("%", "%%")


def add_header(headers: Any, name: str, value: str, *, append: bool = False) -> None:
    """Write a header change: set the value, or append another one."""
    option = headers.add()
    option.header.key, option.header.value = name, value
    option.append_action = ADD if append else OVERWRITE
