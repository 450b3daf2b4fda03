"""What an Envoy says of itself, without keys and tokens: as lines of text where it is, and as data where it is shown.

Envoy leaves out private keys itself. Headers that its configuration adds to requests, and tokens in its bootstrap
configuration, it does not.

See record 0085.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

REDACTED: Final = "[redacted]"

_FIELDS: Final = (
    *("private_key", "private_key_provider", "password", "session_ticket_keys", "generic_secret", "config_yaml"),
    *("client_secret", "api_key", "hmac_secret", "auth_password", "downstream_auth_password", "pkcs12"),
    *("downstream_auth_passwords", "secret_access_key", "session_token", "access_token", "refresh_token"),
)
_PLAIN: Final = frozenset(name.replace("_", "") for name in _FIELDS)
_SECRET_HEADER: Final = re.compile(
    r"(proxy-)?authorization|(set-)?cookie2?|x-api-key|.*(token|secret|password|api-?key)", re.IGNORECASE
)
_TOKEN: Final = re.compile(
    r"eyJ[A-Za-z0-9_-]{5,}+(?:\.[A-Za-z0-9_-]{5,}+(?P<signature>\.[A-Za-z0-9_-]*+)?+)?+"
    r"|(?i:(?<=bearer )|(?<=basic ))[^\s\"\\]++"
)
"""What begins like a token and is none is passed over in one piece: whoever writes the text must not cost us time."""

_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL)

_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_IS_SECRET: Final = rf'"(?:{"|".join(_FIELDS)})"\s*:\s*'
_SECRET_LINE: Final = re.compile(rf"({_IS_SECRET})({_STRING}|\{{[^{{}}]*\}}|\[[^\[\]]*\])")
_SECRET_BLOCK: Final = re.compile(rf"(\s*){_IS_SECRET}[\[{{]\s*$")
_HEADER_LINE: Final = re.compile(rf'(\s*)"(?:key|name)"\s*:\s*"(?:{_SECRET_HEADER.pattern})",?\s*$', re.IGNORECASE)
_OF_HEADER: Final = re.compile(r'\s*"(?:value|raw_value|\w+_match)"\s*:\s*')
_HEADER_BLOCK: Final = re.compile(r'(\s*)"\w+_match"\s*:\s*\{\s*$')
_VALUE: Final = re.compile(rf"(:\s*|^\s*){_STRING}(,?\s*)$")
_BLANK_VALUE: Final = rf'\1"{REDACTED}"\2'
_BLANK_FIELD: Final = rf'\1"{REDACTED}"'
_MAY_BE_SECRET: Final = re.compile(
    rf'{_IS_SECRET}|"(?:key|name)"\s*:\s*"(?:{_SECRET_HEADER.pattern})"|eyJ|bearer |basic |-----BEGIN', re.IGNORECASE
)
"""Most lines are not looked at any further."""


def redacted(data: Any) -> Any:
    """Data without what is secret in it. Fields may be named as in JSON or as in Envoy's messages."""
    if isinstance(data, str):
        return _without_secrets(data)
    if isinstance(data, Mapping):
        is_header = any(_is_secret_header(data.get(name)) for name in ("key", "name"))
        return {
            name: _blank(value) if _is_secret(name) or (is_header and _is_of_header(name)) else redacted(value)
            for name, value in data.items()
        }
    return [redacted(item) for item in data] if isinstance(data, list) else data


def without_secret_fields(data: Any) -> Any:
    """Data without the fields that `redacted` empties because of their names: one side may have emptied them before."""
    if isinstance(data, Mapping):
        return {name: without_secret_fields(value) for name, value in data.items() if not _is_secret(name)}
    return [without_secret_fields(item) for item in data] if isinstance(data, list) else data


def _without_secrets(text: str) -> str:
    return _KEY.sub(REDACTED, _TOKEN.sub(_without_token, text)) if len(text) > len(REDACTED) else text


def _without_token(match: re.Match[str]) -> str:
    is_beginning = match[0].startswith("eyJ") and match["signature"] is None
    return match[0] if is_beginning else REDACTED


def _is_secret_header(value: Any) -> bool:
    return isinstance(value, str) and _SECRET_HEADER.fullmatch(value) is not None


def _is_of_header(name: str) -> bool:
    return name in {"value", "raw_value", "rawValue"} or name.endswith(("_match", "Match"))


def _is_secret(name: str) -> bool:
    return name.replace("_", "").lower() in _PLAIN


def _blank(value: Any) -> Any:
    """The same structure, with no text in it."""
    if isinstance(value, Mapping):
        return {name: _blank(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_blank(item) for item in value]
    return REDACTED if isinstance(value, str) else value


def redacted_lines(lines: Iterable[str]) -> Iterator[str]:
    """Lines without what is secret in them: of JSON as Envoy prints it, with a field on each, or of any other text.

    What ends an object is known by its indentation, so nothing but the line at hand is in memory.
    """
    blank: int | None = None
    header: int | None = None
    for line in lines:
        if blank is None and header is None and _MAY_BE_SECRET.search(line) is None:
            yield line
            continue
        blank = None if blank is not None and _ends(line, blank) else blank
        header = None if header is not None and _ends(line, header) else header
        if blank is not None:
            yield _VALUE.sub(_BLANK_VALUE, line)
            continue
        block = _SECRET_BLOCK.match(line) or (_HEADER_BLOCK.match(line) if header is not None else None)
        blank = None if block is None else len(block[1])
        if named := _HEADER_LINE.match(line):
            header = len(named[1]) - 1
        is_of_header = header is not None and _OF_HEADER.match(line) is not None
        yield _without_secrets(_SECRET_LINE.sub(_BLANK_FIELD, _VALUE.sub(_BLANK_VALUE, line) if is_of_header else line))


def _ends(line: str, indentation: int) -> bool:
    """Whether a line ends the object or list whose end has at most this indentation."""
    end = line.lstrip()
    return end[:1] in {"}", "]"} and len(line) - len(end) <= indentation
