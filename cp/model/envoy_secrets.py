"""The lines that an Envoy prints, without keys and tokens. An agent passes them on one by one.

Envoy leaves out private keys itself. Headers that its configuration adds to requests, and tokens in its bootstrap
configuration, it does not.

See record 0085.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from cp.model.envoy_dumps import redacted_error
from cp.model.secret_texts import (
    ENVOY_FIELDS,
    NAME_HINTS,
    REDACTED,
    is_secret_entry,
    is_secret_header,
    without_secrets,
)

_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_IS_SECRET: Final = rf'"(?:{"|".join(ENVOY_FIELDS)})"\s*:\s*'
_SECRET_LINE: Final = re.compile(rf"({_IS_SECRET})({_STRING}|\{{[^{{}}]*\}}|\[[^\[\]]*\])")
_SECRET_BLOCK: Final = re.compile(rf"(\s*){_IS_SECRET}[\[{{]\s*$")
_ERROR: Final = re.compile(r'\s*"details"\s*:\s*"')
"""Of a rejected resource, in the dump of a configuration."""

_WHOLE_ERROR: Final = re.compile(rf'(\s*"details"\s*:\s*)({_STRING})(,?\s*)')
_NAMED_TEXT: Final = re.compile(rf'"([\w.-]{{1,64}})"(\s*:\s*){_STRING}')
_HEADER_LINE: Final = re.compile(r'(\s*)"(?:key|name)"\s*:\s*"([\w.-]{1,256})",?\s*$')
_OF_HEADER: Final = re.compile(r'\s*"(?:value|raw_value|\w+_match)"\s*:\s*')
_HEADER_BLOCK: Final = re.compile(r'(\s*)"\w+_match"\s*:\s*\{\s*$')
_VALUE: Final = re.compile(rf"(:\s*|^\s*){_STRING}(,?\s*)$")
_BLANK_VALUE: Final = rf'\1"{REDACTED}"\2'
_BLANK_FIELD: Final = rf'\1"{REDACTED}"'
_MAY_BE_SECRET: Final = re.compile(
    rf"{_IS_SECRET}|{NAME_HINTS}|eyJ|-----BEGIN"
    r"|basic|@|[?&;#][\w.-]{1,64}=",
    re.IGNORECASE,
)
"""Most lines have none of these, and are not examined any further."""


def redacted_lines(lines: Iterable[str]) -> Iterator[str]:
    """Lines without what is secret in them: of JSON as Envoy prints it, with a field on each, or of any other text.

    What ends an object is known by its indentation, so nothing but the line at hand is in memory.
    """
    blank: int | None = None
    header: int | None = None
    is_cut_off = False
    for line in lines:
        if is_cut_off or _ERROR.match(line) is not None:
            yield _redacted_error_line(line, is_cut_off=is_cut_off)
            is_cut_off = not line.endswith("\n")
            continue
        if blank is None and header is None and _MAY_BE_SECRET.search(line) is None:
            yield line
            continue
        blank = None if blank is not None and _ends(line, blank) else blank
        header = None if header is not None and _ends(line, header) else header
        if blank is not None:
            yield _VALUE.sub(_BLANK_VALUE, line)
            continue
        is_beside = header is not None and len(line) - len(line.lstrip()) == header + 1
        block = _SECRET_BLOCK.match(line) or (_HEADER_BLOCK.match(line) if is_beside else None)
        blank = None if block is None else len(block[1])
        named = _HEADER_LINE.match(line)
        if named is not None and is_secret_header(named[2]):
            header = len(named[1]) - 1
        is_of_header = is_beside and _OF_HEADER.match(line) is not None
        blanked = _SECRET_LINE.sub(_BLANK_FIELD, _VALUE.sub(_BLANK_VALUE, line) if is_of_header else line)
        yield without_secrets(_NAMED_TEXT.sub(_without_text, blanked))


def _redacted_error_line(line: str, *, is_cut_off: bool) -> str:
    """A line with the error of a rejected resource, or a piece of a line that is too long to be read as one."""
    end = "\n" if line.endswith("\n") else ""
    match = None if is_cut_off else _WHOLE_ERROR.fullmatch(line)
    with suppress(ValueError):  # it is no JSON
        if match is not None:
            return f"{match[1]}{json.dumps(redacted_error(json.loads(match[2], strict=False)))}{match[3]}"
    tail = "," if end and line.rstrip().endswith(",") else ""
    return f"{tail}{end}" if is_cut_off else f'{line[: line.index(":")]}: "{REDACTED}"{tail}{end}'


def _without_text(match: re.Match[str]) -> str:
    """A field with a text, without the text if the name of the field says that it is secret."""
    return f'"{match[1]}"{match[2]}"{REDACTED}"' if is_secret_entry(match[1]) else match[0]


def _ends(line: str, indentation: int) -> bool:
    """Whether a line ends the object or list whose end has at most this indentation."""
    end = line.lstrip()
    return end[:1] in {"}", "]"} and len(line) - len(end) <= indentation
