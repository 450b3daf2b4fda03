"""Converts what two processes of one control plane tell each other to messages of `koguma.v1`, and back.

A message that stands for a dataclass has its name and its fields, so one pair of functions converts all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial
from types import UnionType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from cp.model.names import Key
from cp.serving.delivery import ChangeReach, FleetDelta, NackReport, Presence
from cp.settings import Settings, is_secret
from koguma.v1 import workers_pb2 as pb

T = TypeVar("T")

_LONGEST_ERROR: Final = 8192


class RemoteError(Exception):
    """The other process met an error while it answered a request."""

    def __init__(self, type_: str, text: str) -> None:
        self.type, self.text = type_, text
        super().__init__(f"{type_}: {text}")


# --- dataclasses ---


def to_message(value: Any) -> Any:
    """The message that has the name of the value's class."""
    message = getattr(pb, type(value).__name__)()
    _fill(message, value)
    return message


def _fill(message: Message, value: Any) -> None:
    message.SetInParent()  # an optional message counts as given even if all of its fields have their defaults
    class_: Any = type(value)
    for name, _ in _fields(class_):
        _set(message, name, getattr(value, name))


def _set(message: Message, name: str, content: Any) -> None:
    if isinstance(content, str | int | float):
        setattr(message, name, content)
    elif isinstance(content, tuple):
        _extend(getattr(message, name), content)
    elif isinstance(content, Mapping):
        getattr(message, name).update(content)
    elif content is not None:
        _fill(getattr(message, name), content)


def _extend(repeated: Any, elements: tuple[Any, ...]) -> None:
    for element in elements:
        if is_dataclass(element):
            _fill(repeated.add(), element)
        else:
            repeated.append(element)


def from_message(message: Message, class_: Callable[..., T]) -> T:
    """The value of a dataclass. Raises `ValueError` if a text is none of those that an enumeration has."""
    return class_(**{name: read(message) for name, read in _readers(class_)})


@cache
def _readers(class_: Any) -> tuple[tuple[str, Callable[[Message], Any]], ...]:
    """For each field of a dataclass what reads it from a message. Looked up once, as thousands of proxies are sent."""
    return tuple((name, _reader(name, hint)) for name, hint in _fields(class_))


def _reader(name: str, hint: Any) -> Callable[[Message], Any]:
    arguments = get_args(hint)
    if get_origin(hint) is UnionType:  # all that are used are `X | None`
        read = _reader(name, arguments[0])
        return lambda message: read(message) if message.HasField(name) else None
    if get_origin(hint) is tuple:
        convert = _converter(arguments[0])
        return lambda message: tuple(map(convert, getattr(message, name)))
    convert = _converter(hint)
    return lambda message: convert(getattr(message, name))


def _converter(hint: Any) -> Callable[[Any], Any]:
    """A class of numbers, texts or of an enumeration converts by itself."""
    class_: Any = MessageToDict if get_origin(hint) is Mapping else hint
    return partial(from_message, class_=class_) if is_dataclass(hint) else class_


@cache
def _fields(class_: Any) -> tuple[tuple[str, Any], ...]:
    """The fields of a dataclass and their types."""
    hints = get_type_hints(class_, localns={"Key": Key})  # `Finding` imports it for type checkers alone
    return tuple((field.name, hints[field.name]) for field in fields(class_))


# --- what is no dataclass ---


def settings_message(settings: Settings) -> pb.Settings:
    data = settings.model_dump(mode="json", exclude_none=True)
    secrets = {name: getattr(settings, name).get_secret_value() for name in data if is_secret(name)}
    return pb.Settings(**data | secrets)


def settings_of(message: pb.Settings) -> Settings:
    """Validated like any other settings: raises pydantic's `ValidationError`."""
    given = {field.name: value for field, value in message.ListFields()}
    always = {name: getattr(message, name) for name in Settings.model_fields if not _can_be_left_out(name)}
    return Settings(**always | given)


def _can_be_left_out(name: str) -> bool:
    return pb.Settings.DESCRIPTOR.fields_by_name[name].has_presence


def keys_message(keys: Iterable[Key]) -> pb.Keys:
    return pb.Keys(keys=map(to_message, keys))


def keys_of(messages: Iterable[pb.Key]) -> list[Key]:
    return [from_message(message, Key) for message in messages]


def presences_message(presences: Mapping[Key, Presence]) -> pb.Presences:
    entries = (
        pb.Presences.Entry(dataplane=to_message(dataplane), presence=to_message(presence))
        for dataplane, presence in presences.items()
    )
    return pb.Presences(entries=entries)


def presences_of(message: pb.Presences) -> dict[Key, Presence]:
    return {from_message(entry.dataplane, Key): from_message(entry.presence, Presence) for entry in message.entries}


def owners_message(owners: Mapping[str, frozenset[str]]) -> pb.Owners:
    entries = (pb.Owners.Entry(proxy=proxy, owners=sorted(of_proxy)) for proxy, of_proxy in owners.items())
    return pb.Owners(entries=entries)


def owners_of(message: pb.Owners) -> dict[str, frozenset[str]]:
    return {entry.proxy: frozenset(entry.owners) for entry in message.entries}


def nack_reports_message(reports: Iterable[NackReport]) -> pb.NackReports:
    return pb.NackReports(reports=map(to_message, reports))


def nack_reports_of(message: pb.NackReports) -> list[NackReport]:
    return [from_message(report, NackReport) for report in message.reports]


def versions_message(versions: Mapping[str, int]) -> pb.FleetVersions:
    return pb.FleetVersions(versions=versions)


def deltas_message(deltas: Iterable[FleetDelta]) -> pb.FleetDeltas:
    return pb.FleetDeltas(deltas=map(to_message, deltas))


def deltas_of(message: pb.FleetDeltas) -> list[FleetDelta]:
    return [from_message(delta, FleetDelta) for delta in message.deltas]


def reaches_message(of_processes: Iterable[Iterable[ChangeReach]]) -> pb.ChangeReaches:
    processes = (pb.ReachesOfProcess(reaches=map(to_message, reaches)) for reaches in of_processes)
    return pb.ChangeReaches(processes=processes)


def reaches_of(message: pb.ChangeReaches) -> list[Sequence[ChangeReach]]:
    return [[from_message(reach, ChangeReach) for reach in process.reaches] for process in message.processes]


def error_message(error: Exception) -> pb.Error:
    """A text of any length, with any characters."""
    text = str(error)[:_LONGEST_ERROR].encode(errors="backslashreplace").decode()
    return pb.Error(type=type(error).__name__, text=text)


def error_of(message: pb.Error) -> RemoteError:
    return RemoteError(message.type, message.text)
