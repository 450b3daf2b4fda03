"""Redaction of Envoy's log and errors, which repeat the resource that Envoy rejects.

Envoy prints a message in protobuf's text format, over many lines, or as JSON. A secret is known by the name of its
field, or by the name of the header or entry next to it. The names of open blocks are all that is kept between lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cp.model.secret_texts import (
    NAME_HINTS,
    REDACTED,
    is_harmless,
    is_secret_entry,
    is_secret_field,
    is_secret_header,
    plain_name,
    without_secrets,
)

_ENTRY: Final = re.compile(r"\[\d{4}-\d\d-\d\d ")
"""The beginning of a message of the log, which ends a dump that was cut off."""

_QUOTED: Final = r'\\"(?:[^"\\]|\\\\(?:\\")?|\\[^"\\])*+(?:\\"|\\?$)'
"""A string of a message that is quoted itself."""

_STRING: Final = rf'(?:"(?:[^"\\]|\\.)*+(?:"|\\?$)|{_QUOTED})'
_TOKEN: Final = re.compile(
    r'(?P<name>\\?"[\w.@/-]{1,256}\\?"|\[[\w./-]{1,256}\]|(?<![\w.-])[A-Za-z_][\w.-]{0,255}+)\s{0,8}(?P<colon>:?)\s{0,8}'
    rf"(?:(?P<text>{_STRING})|(?P<number>(?<=[:\s])[-+]?\d[\w.+-]*)|(?P<open>[{{<\[]))"
    rf"|(?P<item>{_STRING})|(?P<close>[}}>\]])",
    re.DOTALL,
)
_LOGGED_HEADER: Final = re.compile(r"^'([^'\s]{1,256})', '(.*)'$")
"""A header of a request or an answer, as Envoy logs it at level debug."""

_MAY_BE_SECRET: Final = re.compile(
    rf"{NAME_HINTS}|inline_?(?:string|bytes)|raw_?value|eyJ|basic|-----BEGIN|://|@|[?&;#][\w.-]{{1,64}}=|\\[\"xu]",
    re.IGNORECASE,
)
_NAMING: Final = frozenset({"name", "key", "header", "headername"})
_ALWAYS: Final = frozenset({"inlinestring", "inlinebytes", "rawvalue"})
_VALUES: Final = frozenset({"value", "rawvalue", "literal", "default", "defaultvalue"})
_MOST_LEVELS: Final = 200
_MOST_QUOTES: Final = 3
_UNESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "\\": "\\"}
_ESCAPED: Final = {ord("\n"): r"\n", ord("\t"): r"\t", ord("\r"): r"\r", ord('"'): r"\"", ord("\\"): r"\\"}


@dataclass(slots=True)
class _Block:
    """An open message or list."""

    is_secret: bool = False
    header: str = ""
    """The name of the header or entry with a secret that the message is about."""


def redacted_error(text: str) -> str:
    """An error of Envoy's without the secrets of the resource that it repeats."""
    return "\n".join(map(DumpRedactor().line, text.split("\n")))


class DumpRedactor:
    """Redacts lines one after the other. Everything else stays as it is."""

    def __init__(self, quotes: int = 0) -> None:
        self._quotes = quotes
        self._blocks = [_Block()]
        self._too_deep = 0

    def line(self, text: str) -> str:
        """A line without its secrets. It takes time in proportion to its length."""
        if _ENTRY.match(text) is not None:
            self._blocks, self._too_deep = [_Block()], 0
        is_outside = len(self._blocks) == 1 and not self._blocks[0].header
        if is_outside and _MAY_BE_SECRET.search(text) is None:
            return text
        logged = _LOGGED_HEADER.match(text)
        if logged is not None and is_secret_header(logged[1]):
            return f"'{logged[1]}', '{REDACTED}'"
        return without_secrets(_TOKEN.sub(self._token, text))

    def _token(self, match: re.Match[str]) -> str:
        if match["close"]:
            self._close()
            return match[0]
        name = (match["name"] or "").strip('\\"')
        if match["open"]:
            self._open(name)
            return match[0]
        part = "text" if match["text"] else "item" if match["item"] else "number"
        shown = self._shown(name, match[part])
        return match[0][: match.start(part) - match.start()] + shown

    def _open(self, name: str) -> None:
        if len(self._blocks) >= _MOST_LEVELS:
            self._too_deep += 1
            return
        self._blocks.append(_Block(self._is_blank(name) or is_secret_field(name)))

    def _close(self) -> None:
        if self._too_deep:
            self._too_deep -= 1
        elif len(self._blocks) > 1:
            self._blocks.pop()
        else:
            self._blocks[0].header = ""

    def _is_blank(self, name: str) -> bool:
        """True if the value of a field is secret because of what is around it."""
        block = self._blocks[-1]
        is_value = plain_name(name) in _VALUES or name.endswith(("_match", "Match"))
        return block.is_secret or self._too_deep > 0 or (bool(block.header) and is_value)

    def _shown(self, name: str, value: str) -> str:
        """The value of a field, with its quotes."""
        quote = '\\"' if value.startswith("\\") else '"'
        text = value.removeprefix(quote).removesuffix(quote)
        if name and plain_name(name) in _NAMING and not self._blocks[-1].is_secret and is_secret_header(text):
            self._blocks[-1].header = text
            return value
        if self._is_secret(name, text) and not is_harmless(self._blocks[-1].header or name, text):
            return f"{quote}{REDACTED}{quote}"
        return self._without_dumps(value) if '\\"' in text and quote == '"' else value

    def _is_secret(self, name: str, text: str) -> bool:
        is_named = plain_name(name) in _ALWAYS or is_secret_field(name) or is_secret_entry(name)
        return bool(text) and (self._is_blank(name) or (is_named and not text.isdigit()))

    def _without_dumps(self, value: str) -> str:
        """A text without the secrets of a message that is quoted in it."""
        if self._quotes >= _MOST_QUOTES:
            return f'"{REDACTED}"'
        quoted = re.sub(r"\\(.)", lambda match: _UNESCAPED.get(match[1], match[0]), value[1:], flags=re.DOTALL)
        redactor = DumpRedactor(self._quotes + 1)
        shown = "\n".join(map(redactor.line, quoted.removesuffix('"').split("\n")))
        return value if shown == quoted.removesuffix('"') else f'"{shown.translate(_ESCAPED)}"'
