"""Checks that several kinds share. Each yields the faults of one value; `None` is a value that was left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Final

from cp.model import regex as expressions
from cp.model.duration import Duration
from cp.model.hosts import is_ip
from cp.model.violation import Violation, ViolationSort
from cp.resources.schema import near

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_LONGEST_DOMAIN: Final = 253
_LAST_PORT: Final = 65535
_FILE_PATH: Final = re.compile(r"(/[^/\x00]*)+|[a-zA-Z]:\\.+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_LONGEST_NUMBER: Final = 100
_ZERO: Final = Duration()


def must_be_set(path: str, value: object, hint: str = "") -> Iterator[Violation]:
    """For a text, list or object that may be neither left out nor empty."""
    if value is None or value in ("", [], {}):
        yield absent(path, "must be set", hint)


def absent(path: str, message: str, hint: str = "") -> Violation:
    """A missing value. It is no fault where one was written that is faulty, nor where a null was."""
    return Violation(path, message, hint, sort=ViolationSort.MISSING)


def incomplete(path: str, message: str = "must be set", hint: str = "") -> Violation:
    """A missing value that is reported only where the document has no other fault."""
    return Violation(path, message, hint, sort=ViolationSort.INCOMPLETE)


def unwanted(path: str, message: str, hint: str = "") -> Violation:
    """A value that must not be there, whatever it is."""
    return Violation(path, message, hint, sort=ViolationSort.UNWANTED)


def printable(path: str, value: str | None) -> Iterator[Violation]:
    """For a text that becomes a header. Envoy NACKs line breaks and other control characters in one."""
    if value is not None and _CONTROL.search(value):
        yield Violation(path, "must not have control characters in it, such as line breaks")


def file_path(path: str, value: str | None) -> Iterator[Violation]:
    """For the path of a file on the machine of whoever reads it, the proxy or the control plane."""
    if value is not None and _FILE_PATH.fullmatch(value) is None:
        hint = "write it from the root, for example `/var/log/access.log`"
        yield Violation(path, f"`{value}` is not the path of a file" if value else "must be set", hint)


def status_code(path: str, value: int | None) -> Iterator[Violation]:
    return within(path, value, 100, 599)


FIRST_ERROR: Final = 400
ERRORS: Final = frozenset({*range(400, 418), *range(421, 425), 426, 428, 429, 431, *range(500, 509), 510, 511})
"""The statuses of errors with which Envoy answers by itself."""


def status_of_answer(path: str, value: int | None) -> Iterator[Violation]:
    """For the status with which Envoy answers those whom it turns away. One that is no error is not taken over."""
    yield from above_zero(path, value, "leave it out for 429")
    if value is not None and value >= FIRST_ERROR and value not in ERRORS:
        yield Violation(path, f"`{value}` is no status that Envoy answers with", "write for example 429")


def one_of(path: str, value: object, allowed: Iterable[str]) -> Iterator[Violation]:
    """For a choice that the schema leaves open. A missing value is a fault."""
    choices = tuple(allowed)
    if value is None or value == "":
        yield absent(path, "must be set", f"one of {', '.join(choices)}")
    elif value not in choices:
        hint = near(str(value), choices)
        yield Violation(path, f"`{value}` is not one of {', '.join(choices)}", hint)


def above_zero(path: str, value: Duration | int | None, hint: str = "") -> Iterator[Violation]:
    if value is not None and value <= (_ZERO if isinstance(value, Duration) else 0):  # type: ignore[operator]
        yield Violation(path, f"must be above zero, not `{value}`", hint)


def not_negative(path: str, value: Duration | int | None) -> Iterator[Violation]:
    if value is not None and value < (_ZERO if isinstance(value, Duration) else 0):  # type: ignore[operator]
        yield Violation(path, f"must not be negative, not `{value}`", "`0s` switches it off" if value else "")


def within(path: str, value: int | None, least: int, most: int) -> Iterator[Violation]:
    if value is not None and not least <= value <= most:
        yield Violation(path, f"must be {least} to {most}, not `{value}`")


def port(path: str, value: int | None) -> Iterator[Violation]:
    return within(path, value, 1, _LAST_PORT)


def usable_port(path: str, value: int | None) -> Iterator[Violation]:
    """Yield a fault for a port that there cannot be. A stored document with it stays in use (`ViolationSort.WRITE`)."""
    return (replace(fault, sort=ViolationSort.WRITE) for fault in port(path, value))


def port_in_text(path: str, text: str) -> Iterator[Violation]:
    """Yield the same for the port at the end of the host in a text such as `collector:4317` or a URL, if it has one."""
    host = _PATH_OF_URL.split(text.partition("://")[2] or text, maxsplit=1)[0]
    match = _PORT_OF_HOST.search(host)
    digits = "" if match is None else match[1]
    if digits and (len(digits) >= _LONGEST_PORT or not 0 < int(digits) <= _LAST_PORT):
        message = f"the port must be 1 to {_LAST_PORT}, not `{digits[:_LONGEST_PORT]}`"
        yield Violation(path, message, sort=ViolationSort.WRITE)


_PATH_OF_URL: Final = re.compile(r"[/?#]")
_PORT_OF_HOST: Final = re.compile(r":([0-9]+)$", re.ASCII)
_LONGEST_PORT: Final = 6
"""Digits of a port that are shown, one more than a port has."""


def number(value: float | str) -> Decimal | None:
    """A number of a document: written as one, or as a text so that no digit is lost."""
    text = str(value)
    try:
        decimal = Decimal(text[: _LONGEST_NUMBER + 1])
    except InvalidOperation:
        return None
    is_near = decimal.is_finite() and abs(decimal.adjusted()) <= _LONGEST_NUMBER  # `1e999999999` has as many digits
    return decimal if is_near and len(text) <= _LONGEST_NUMBER else None


def percentage(path: str, value: float | str | None, *, allow_zero: bool = True) -> Iterator[Violation]:
    if value is None:
        return
    percent = number(value)
    if percent is None:
        yield Violation(path, f"`{value}` is not a number", 'write for example `50` or `"0.5"`')
    elif not 0 <= percent <= 100:  # noqa: PLR2004  # a percentage
        yield Violation(path, f"must be 0 to 100 percent, not `{value}`")
    elif not allow_zero and percent == 0:
        yield Violation(path, "must be above zero")


def is_domain(text: str) -> bool:
    return len(text) <= _LONGEST_DOMAIN and _DOMAIN.fullmatch(text) is not None


def hostname(path: str, value: str | None) -> Iterator[Violation]:
    """For the name of a host; an IP address is a fault."""
    if value is None:
        return
    if is_ip(value):
        yield Violation(path, f"must be the name of a host, not the address `{value}`")
    elif not is_domain(value):
        yield Violation(path, f"`{value}` is not the name of a host", "use lower case letters, digits, `-` and `.`")


def repeated(values: Iterable[object]) -> Iterator[int]:
    """The indexes of values that occurred before."""
    seen: set[object] = set()
    for index, value in enumerate(values):
        if value in seen:
            yield index
        seen.add(value)


_LONGEST_REGEX: Final = 4096


def regex(path: str, value: str | None) -> Iterator[Violation]:
    """For a regular expression. Envoy and the control plane both read it with RE2."""
    if value is None:
        return
    if len(value) > _LONGEST_REGEX:
        yield Violation(path, f"is longer than {_LONGEST_REGEX} characters")
    elif fault := expressions.fault(value):
        yield Violation(path, f"`{value}` is not a regular expression of RE2: {fault}", _regex_hint(value))


def regex_of_route(path: str, value: str | None) -> Iterator[Violation]:
    """For a regular expression that Envoy compares requests with. Envoy limits the size of those."""
    faults = list(regex(path, value))
    yield from faults
    if value is not None and not faults and (excess := expressions.excess(value)):
        yield Violation(path, f"`{value}` is too large: {excess}", "repeat less, or divide it into several matches")


def _regex_hint(value: str) -> str:
    return "RE2 has no lookaround, no references back and no possessive repeats" if _NOT_RE2.search(value) else ""


_NOT_RE2: Final = re.compile(r"\(\?(=|!|<=|<!|>|\()|\(\?P=|(?<!\\)(\\\\)*\\[1-9]|[*+?}]\+")


def host_and_port(path: str, value: object) -> Iterator[Violation]:
    if value is None or value == "":
        yield absent(path, "must be set", "write for example `collector:4317`")
        return
    host, _, number = str(value).rpartition(":")
    if not host or not number.isascii() or not number.isdigit():
        yield Violation(path, f"`{value}` is not a host with a port", "write for example `collector:4317`")


def is_address(text: str) -> bool:
    """An IP address, or the name of a host, which may be in upper case and have underscores."""
    return is_ip(text) or (len(text) <= _LONGEST_DOMAIN and _LOOSE_DOMAIN.fullmatch(text) is not None)


def address(path: str, value: str | None) -> Iterator[Violation]:
    if not value:
        yield absent(path, "must be set", "the IP address or name of a host")
    elif not is_address(value):
        yield Violation(path, f"`{value}` is neither an IP address nor the name of a host")


_LOOSE_DOMAIN: Final = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9_-]{0,62}(\.[a-zA-Z0-9_][a-zA-Z0-9_-]{0,62})*\.?")


LONGEST_NAME: Final = 253


def longest_name(name: str, most: int) -> Iterator[Violation]:
    if len(name) > most:
        yield Violation("name", f"is {len(name)} characters long", f"{most} are what it may have")
