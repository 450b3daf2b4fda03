"""`DataSource`: where a certificate, key or other secret comes from; and `Redacted`, which keeps it out of outputs."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from cp.model.violation import Violation
from cp.resources.checks import absent
from cp.resources.schema import Schema


class Redacted:
    """A text that is never printed. Only `reveal` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @classmethod
    def parse(cls, text: str) -> Redacted:
        return cls(text)

    def reveal(self) -> str:
        return self._text

    def __eq__(self, value: object) -> bool:
        return isinstance(value, Redacted) and self._text == value._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "[redacted]"


class DataSource(Schema, frozen=True):
    """One of: the name of a Secret, a file on the machine that needs it, base64, plain text."""

    secret: str | None = None
    file: str | None = None
    inline: Redacted | None = None
    inline_string: Redacted | None = None


def data_source(path: str, source: DataSource | None) -> Iterator[Violation]:
    """The faults of a source, if one is set."""
    if source is None:
        return
    blank = source.wire() and not (source.secret or source.file or source.inline or source.inline_string)
    if blank or not source.wire():
        yield absent(path, "does not say where it comes from", "give it `secret`, `file`, `inline` or `inlineString`")
    elif len(source.wire()) > 1:
        names = " and ".join(f"`{name}`" for name in source.wire())
        yield Violation(path, f"cannot come from {names}", "choose one")
    elif source.inline is not None and decoded(source.inline) is None:
        hint = "`base64 -w0 FILE` makes it, and `inlineString` takes plain text"
        yield Violation(f"{path}.inline", "is not base64", hint)


def decoded(text: Redacted) -> bytes | None:
    """The bytes that base64 stands for; None if the text is no base64."""
    try:
        return base64.b64decode(text.reveal(), validate=True)
    except (binascii.Error, ValueError):
        return None
