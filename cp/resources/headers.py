"""Headers of requests and responses: their matches and their changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sized
from typing import Final, Literal

from cp.model.violation import Violation
from cp.resources.checks import must_be_set, printable, regex_of_route
from cp.resources.schema import Schema, SensitiveText

_NAME: Final = re.compile(r"[a-z0-9!#$%&'*+\-.^_`|~]+")
_LONGEST_NAME: Final = 256
_LONGEST_VALUE: Final = 16384
_MOST: Final = 500
MOST_IN_ANSWER: Final = 10
"""Envoy accepts no more headers than these for one answer of its own."""

HOST: Final = "host"
"""The header that Envoy lets no route change by these means."""


class HeaderMatch(Schema, frozen=True):
    """A header that must have, or must not have, a value."""

    type: Literal["Exact", "Present", "RegularExpression", "Absent", "Prefix"] | None = None
    name: str = ""
    value: SensitiveText | None = None


class Header(Schema, frozen=True):
    name: str = ""
    value: SensitiveText = ""


class HeaderChanges(Schema, frozen=True):
    """Headers to overwrite, and headers to add to those that are there."""

    set: list[Header] | None = None
    add: list[Header] | None = None


def header_match(match: HeaderMatch) -> Iterator[Violation]:
    """The faults of one header to match."""
    yield from header_name("name", match.name)
    if match.type in {"Present", "Absent"} and match.value:
        yield Violation("value", f"has no meaning with the type {match.type}", "remove it, or write `type: Exact`")
    if match.type == "RegularExpression":
        yield from must_be_set("value", match.value)
        yield from regex_of_route("value", match.value)


def header_changes(changes: HeaderChanges) -> Iterator[Violation]:
    """The faults of headers to set and to add."""
    for name, headers in (("set", changes.set), ("add", changes.add)):
        for index, header in enumerate(headers or ()):
            yield from header_name(f"{name}[{index}].name", header.name)
            yield from header_value(f"{name}[{index}].value", header.value)
            if header.name == HOST:
                yield Violation(f"{name}[{index}].name", f"`{HOST}` cannot be changed")
        if len(headers or ()) > _MOST:
            yield Violation(name, f"has more than {_MOST} headers")


def changed_header(name_path: str, name: str, value_path: str, value: str) -> Iterator[Violation]:
    """The faults of one header to set or to add, as legacy policies write it: its name is in any case."""
    yield from header_name(name_path, name.lower())
    yield from header_value(value_path, value)
    if name.lower() == HOST:
        yield Violation(name_path, f"`{name}` cannot be changed")


def most_changed(path: str, headers: Sized) -> Iterator[Violation]:
    """For one list of headers to set and to add."""
    if len(headers) > 2 * _MOST:
        yield Violation(path, f"has more than {2 * _MOST} headers")


def most_in_answer(path: str, count: int) -> Iterator[Violation]:
    """For the headers of an answer that Envoy gives by itself."""
    if count > MOST_IN_ANSWER:
        yield Violation(path, f"are more than {MOST_IN_ANSWER}, and Envoy takes no more in one answer")


def header_value(path: str, value: str) -> Iterator[Violation]:
    yield from printable(path, value)
    if len(value.encode()) > _LONGEST_VALUE:
        yield Violation(path, f"is longer than {_LONGEST_VALUE} bytes")


def header_name(path: str, name: str) -> Iterator[Violation]:
    yield from must_be_set(path, name)
    if name and (_NAME.fullmatch(name) is None or len(name) > _LONGEST_NAME):
        lower = name.lower()
        hint = f"write `{lower}`" if _NAME.fullmatch(lower) else ""
        yield Violation(path, f"`{name}` is not the name of a header: lower case letters, digits and `-`", hint)
