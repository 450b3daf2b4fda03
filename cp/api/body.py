"""A request's body to documents: as large as allowed, in YAML or JSON, with the place where each line was written."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request

from cp.api.body_room import take_room
from cp.api.errors import TOO_LARGE, ApiError, bad_request, invalid
from cp.api.guard import JSON, content_type
from cp.api.numbers import natural
from cp.api.work import WorkQueue, encoded, is_small_text
from cp.model.checkpoint import pass_checkpoint
from cp.model.document import Document, Source
from cp.model.lines import Lines
from cp.model.source import (
    LARGEST,
    FileReading,
    creation_time,
    excess,
    field_beside_kind,
    key_of,
    misplaced,
    read_documents,
    universal,
)
from cp.model.yaml import MAX_DEPTH, MAX_DIGITS, MAX_KEY, TOO_DEEP, height, key_too_long

T = TypeVar("T")

SOURCE_HEADER: Final = "koguma-source"
"""`file:line`: where the body begins in a file, so that what is stored can be traced to it."""

_TITLE: Final = "Could not process a resource"
_SHOWN: Final = 30
_SETTING: Final = "send each resource by itself, or raise KOGUMA_BODY_LIMIT"
_LESS: Final = "send less: this request has that at the most, whatever KOGUMA_BODY_LIMIT is"
_DIVIDE: Final = "divide it, and send each resource by itself"
_LAST_LINE: Final = 2**31
"""No file has more. What stands below is counted from there, and told to other processes as a number of 64 bits."""

_PATIENCE: Final = 4
"""So many times the limit is read and dropped: who is cut off while sending loses the answer that says why."""


@dataclass(frozen=True, slots=True)
class BodyOrigin:
    """The file that a body came from, and its first line there."""

    file: str = ""
    line: int = 1


async def text_of(request: Request, setting: int, most: int = sys.maxsize) -> str:
    """The body as text. Nothing is kept beyond the limit, whatever the headers promise.

    The limit is the setting, or the most that this kind of request has, which no setting raises.
    """
    limit = min(setting, most)
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limit:
            take_room(request.scope, len(chunk))
            chunks.append(chunk)
        elif size > limit * _PATIENCE:
            break
    if size > limit:
        raise _too_large(limit, _LESS if most < setting else _SETTING)
    try:
        return b"".join(chunks).decode()
    except UnicodeDecodeError as error:
        raise bad_request("", f"the body is not UTF-8: byte {error.start} is part of no character") from None


def decoded(text: str, schema: type[T]) -> T:
    """A body of JSON that is no resource. Raises `ValueError` with what is wrong with it."""
    try:
        return msgspec.json.decode(text, type=schema)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


async def reading_of(request: Request, work: WorkQueue, limit: int, most: int = LARGEST) -> FileReading:
    """The documents in a body."""
    text = await text_of(request, limit, most)
    kind, place = content_type(request.headers), place_of(request.headers.get(SOURCE_HEADER, ""))
    return await work.do(request, lambda _: _reading(text, kind, place), is_small=is_small_text(text))


async def document_of(request: Request, work: WorkQueue, limit: int, most: int = LARGEST) -> Document:
    """The one document in a body."""
    reading = await reading_of(request, work, limit, most)
    if reading.findings:
        raise invalid(_TITLE, reading.findings)
    if len(reading.documents) != 1:
        count = len(reading.documents)
        raise bad_request("", f"the body must be one resource, it has {count or 'none'}", title=_TITLE)
    return reading.documents[0]


def must_be_small(text: str, field: str = "") -> None:
    """Raise `ApiError` if a document would take too long to read, before it is read."""
    if reason := excess(text):
        raise bad_request(field, f"the {'resource' if field else 'body'} {reason}", _DIVIDE, _TITLE)


def _reading(text: str, kind: str, place: BodyOrigin) -> FileReading:
    must_be_small(text)
    if kind in JSON:
        return _from_json(text, place)
    return read_documents(text, place.file, first_line=place.line)


def _from_json(text: str, place: BodyOrigin) -> FileReading:
    """Strict JSON is not always YAML (a tab, an escaped surrogate), so it has its own reader."""
    data = _decoded(text)
    if not isinstance(data, dict):
        raise bad_request("", "the body must be a resource: an object", title=_TITLE)
    kubernetes = "apiVersion" in data
    if not kubernetes and "type" not in data and "kind" in data:
        field, hint = field_beside_kind(data)
        raise bad_request(field, "must be set", hint, title=_TITLE)
    _must_be_text(data, "kind" if kubernetes else "type")
    resource = universal(data)
    _must_be_text(resource, "name", "metadata.name" if kubernetes else "name")
    if kubernetes and (fault := misplaced(data)):
        raise bad_request("spec", fault, title=_TITLE)
    source = Source(place.file, Lines(place.line if place.file else 0), creation_time(data))
    return FileReading((Document(key_of(resource), resource, source),))


def _must_be_text(data: Mapping[str, Any], field: str, shown: str = "") -> None:
    if not isinstance(data.get(field), str) or not data[field]:
        raise bad_request(shown or field, "must be set", title=_TITLE)


def _decoded(text: str) -> Any:
    try:
        data = json.loads(
            text, object_pairs_hook=_unique, parse_int=_integer, parse_float=_float, parse_constant=_no_number
        )
        _must_be_flat(data)
        encoded(data)  # it may have half of a character in it
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        reason = f"the body is not JSON: {error.msg} on line {error.lineno}, column {error.colno}"
        raise bad_request("", reason, title=_TITLE) from None
    except UnicodeEncodeError:
        raise bad_request("", "the body has half of a character in it: a lone surrogate", title=_TITLE) from None
    return data


def _must_be_flat(data: Any) -> None:
    if height(data) > MAX_DEPTH:
        raise _too_deep()


def _too_deep() -> ApiError:
    return bad_request("", f"the body is {TOO_DEEP}", title=_TITLE)


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise bad_request("", f"the body has a number of {len(text)} digits", title=_TITLE)
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise bad_request("", f"the body has `{text[:_SHOWN]}` in it, which is larger than any number", title=_TITLE)
    return number


def _no_number(name: str) -> float:
    raise bad_request("", f"the body has {name} in it, which is not JSON", title=_TITLE)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    pass_checkpoint()
    entries: dict[str, Any] = {}
    for name, value in pairs:
        if name in entries:
            raise bad_request(name, "stands in one object twice", title=_TITLE)
        if len(name) > MAX_KEY:
            raise bad_request("", key_too_long(name), title=_TITLE)
        entries[name] = value
    return entries


def place_of(given: str) -> BodyOrigin:
    """`file:line`, or a file without a line."""
    file, _, line = given.rpartition(":")
    if not given:
        return BodyOrigin()
    number = natural(line)
    return BodyOrigin(file, number) if file and number and number <= _LAST_LINE else BodyOrigin(given)


def _too_large(limit: int, hint: str) -> ApiError:
    size = f"{limit // (1024 * 1024)} MiB" if limit >= 1024 * 1024 else f"{limit} bytes"
    detail = f"the body is larger than {size}; {hint}"
    return ApiError(TOO_LARGE, "Request too large", detail, headers={"connection": "close"})
