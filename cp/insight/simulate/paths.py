"""The path of a request as route tables see it: the result of Envoy's `normalize_path`, byte for byte.

RFC 3986, section 6.2.2, says what is normalised, and Envoy leaves the work to Chromium's URL library. This follows that
library in its oddities too: `%2e` counts as a dot, a backslash as a slash, and a `%` whose digits only come about by
decoding other escapes is escaped itself.
https://www.envoyproxy.io/docs/envoy/latest/api-v3/extensions/filters/network/http_connection_manager/v3/http_connection_manager.proto
"""

from __future__ import annotations

import re
from typing import Final

_HEX: Final = frozenset("0123456789abcdefABCDEF")
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")
"""The unreserved characters (RFC 3986, section 2.3): escapes of these are decoded."""

_ESCAPED: Final = frozenset('"<>^`{|}')
"""The characters that are always escaped."""

_NOT_IN_A_URL: Final = re.compile(r"[^\x21-\x7e]|#")
_DOT: Final = re.compile(r"\.|%2[eE]")
_SPECIAL: Final = re.compile(r"[\\%.\"<>^`{|}]")
_ESCAPED_SLASH: Final = re.compile("%2[fF]|%5[cC]")
_TWO_DIGITS: Final = 3


class InvalidRequest(Exception):
    """A method or path that Envoy answers with 400 before it tries any route."""


class RedirectedPath(Exception):
    """A path with escaped slashes, which Envoy answers with a redirect to the path without them."""

    @property
    def location(self) -> str:
        return str(self.args[0])


def split(target: str) -> tuple[str, str]:
    """The path without its query, and the query with its question mark."""
    path, mark, query = target.partition("?")
    return path, mark + query


def normalized_target(target: str) -> str:
    """The path as routes see it, with its unchanged query. Raises `InvalidRequest`."""
    if not target.startswith("/") or _NOT_IN_A_URL.search(target):
        raise InvalidRequest(f"`{target}` cannot be asked for over HTTP")
    written, query = split(target)
    path = _without_parameters_of_dots(written)
    if "%00" in path:
        raise InvalidRequest(f"`{path}` has an escaped NUL in it")
    return _CanonicalPath(path).text + query


def unescaped(target: str) -> str:
    """The path with its escaped slashes and backslashes as such."""
    path, query = split(target)
    return _ESCAPED_SLASH.sub(lambda escape: "/" if escape[0][1] == "2" else "\\", path) + query


def with_merged_slashes(target: str) -> str:
    """The path with one slash where there are several in a row. A path of slashes alone keeps two, as in Envoy."""
    path, query = split(target)
    if "//" not in path:
        return target
    segments = "/".join(filter(None, path.split("/")))
    return f"/{segments}{'/' if path.endswith('/') else ''}{query}"


def _without_parameters_of_dots(path: str) -> str:
    """The path with `/..;x` as `/..`, as Envoy reads it since 1.39."""
    if ";" not in path:
        return path
    named = (segment.partition(";") for segment in path.split("/"))
    return "/".join(name if name in {".", ".."} else f"{name}{mark}{parameters}" for name, mark, parameters in named)


class _CanonicalPath:
    """The normal form of one path, which is read once from left to right."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._output: list[str] = []
        self._position = 0
        self._stray_percent = -_TWO_DIGITS
        """The index in the output of the last `%` that begins no escape; far enough to the left if there is none."""

        while self._position < len(path):
            self._next()

    @property
    def text(self) -> str:
        return "".join(self._output)

    def _next(self) -> None:
        character = self._path[self._position]
        if not _SPECIAL.match(character):
            self._output.append(character)
        elif dot := _DOT.match(self._path, self._position):
            self._dot(dot.end())
            return
        elif character == "%":
            self._escape()
            return
        else:
            self._output.extend("/" if character == "\\" else f"%{ord(character):02X}")
        self._position += 1

    def _dot(self, dot_end: int) -> None:
        """Remove dot segments (RFC 3986, section 5.2.4): `/.` is the same folder, `/..` the one above."""
        self._position = dot_end
        if not self._output or self._output[-1] != "/":
            self._output.append(".")
            return
        second = _DOT.match(self._path, dot_end)
        if self._ends_segment(dot_end):
            self._position = dot_end + 1
        elif second and self._ends_segment(second.end()):
            self._position = second.end() + 1
            self._go_up()
        else:
            self._output.append(".")

    def _ends_segment(self, at: int) -> bool:
        return at >= len(self._path) or self._path[at] in "/\\"

    def _go_up(self) -> None:
        if len(self._output) > 1:
            above = len(self._output) - 2
            while self._output[above] != "/" and above > 0:
                above -= 1
            del self._output[above + 1 :]
        if self._stray_percent >= len(self._output):
            self._stray_percent = -_TWO_DIGITS

    def _escape(self) -> None:
        digits = self._path[self._position + 1 : self._position + _TWO_DIGITS]
        if not _are_hex(digits):
            self._stray_percent = len(self._output)
            self._output.append("%")
            self._position += 1
            return
        character = chr(int(digits, 16))
        self._position += _TWO_DIGITS
        if character not in _PLAIN:
            self._output.extend(f"%{digits}")
            return
        self._output.append(character)
        # The decoded character is the first or the second one behind the stray `%`: it may have become a digit of it.
        if self._stray_percent >= len(self._output) - _TWO_DIGITS:
            self._keep_stray(character)

    def _keep_stray(self, character: str) -> None:
        """Escape a stray `%` that a decoded character would turn into an escape: `%%341` is `%2541` and not `%41`."""
        digits = self._output[self._stray_percent + 1 :]
        is_first = len(digits) == 1
        following = self._path[self._position : self._position + 1] if is_first else ""
        if _are_hex("".join(digits) + following):
            self._output[self._stray_percent + 1 :] = ["2", "5", *([] if is_first else digits[:1]), character]


def _are_hex(digits: str) -> bool:
    return len(digits) == _TWO_DIGITS - 1 and set(digits) <= _HEX
