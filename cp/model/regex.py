"""Regular expressions as Envoy reads them: RE2, against the whole text, byte by byte.

RE2 itself is used and not Python's `re`: that differs in what `$`, `.` and `\\w` mean, and some patterns make it
run for years.

See record 0027.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import re2  # type: ignore[import-untyped]

_MOST_STEPS: Final = 100
"""`re2.max_program_size.error_level`, Envoy's default."""

_MOST_MEMORY: Final = 256 * 1024
"""Bytes of an expression. RE2 would take 8 MiB: making one then takes 50 ms, and those that are kept take gigabytes."""

_GROUP: Final = re.compile(rb"\\([0-9\\])")


def fault(pattern: str) -> str:
    """What is wrong with an expression; empty if it is valid."""
    expression = _compiled(pattern)
    return expression if isinstance(expression, str) else ""


def excess(pattern: str) -> str:
    """Why a valid expression is too large for a route; empty if it is not. Envoy would NACK the whole route table."""
    expression = _compiled(pattern)
    steps = 0 if isinstance(expression, str) else int(expression.programsize)
    return f"RE2 makes {steps} steps of it, and Envoy takes {_MOST_STEPS}" if steps > _MOST_STEPS else ""


def matches(pattern: str, text: str) -> bool:
    """Whether an expression matches a text as a whole. An invalid one matches nothing: Envoy NACKs it."""
    expression = _compiled(pattern)
    return not isinstance(expression, str) and expression.fullmatch(text.encode()) is not None


def occurs(pattern: str, text: str) -> bool:
    """Whether an expression matches some part of a text."""
    expression = _compiled(pattern)
    return not isinstance(expression, str) and expression.search(text.encode()) is not None


def replaced(pattern: str, substitution: str, text: str) -> str:
    """A text with every match of an expression replaced; `\\1` stands for its first group."""
    expression = _compiled(pattern)
    if isinstance(expression, str):
        return text
    return b"".join(_pieces(expression, substitution.encode(), text.encode())).decode(errors="replace")


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    """An expression, or what is wrong with it."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MOST_MEMORY
    options.encoding = re2.Options.Encoding.LATIN1  # since Envoy 1.39; for ASCII it is all the same
    try:
        return re2.compile(pattern.encode(), options)
    except re2.error as error:
        (message,) = error.args
        return message.decode(errors="replace") if isinstance(message, bytes) else str(message)


def _pieces(expression: Any, substitution: bytes, text: bytes) -> Iterator[bytes]:
    at, last = 0, -1
    while at <= len(text) and (match := expression.search(text, at)) is not None:
        begin, end = match.span()
        yield text[at:begin]
        if begin == end == last:
            yield text[at : at + 1]
            at += 1
        else:
            yield _GROUP.sub(lambda group: _meant(match, group[1]), substitution)
            at = last = end
    yield text[at:]


def _meant(match: Any, name: bytes) -> bytes:
    taken: bytes | None = b"\\" if name == b"\\" else match.group(int(name))
    return taken or b""
