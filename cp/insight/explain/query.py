"""A call as an operator writes it: `GET http://backend:80/slow-endpoint`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_URL: Final = re.compile(
    r"(?:(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*)://)?(?P<host>\[[^\]]*\]|[^:/?#]*)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[^?#]*)?(?P<query>\?[^#]*)?(?:#.*)?"
)
_NOT_IN_A_URL: Final = re.compile(r"[^\x21-\x7e]")
_MOST: Final = 65_535
_HTTP: Final = "http"
_ENCRYPTED: Final = frozenset({"https", "tls"})
_CONNECTIONS: Final = frozenset({"tcp", "tls"})
_LONGEST_QUOTE: Final = 200


class AmbiguousCall(Exception):
    """A call that cannot be read, or that means no outbound or several: what is wrong, and what could be asked."""

    def __init__(self, message: str, hint: str = "") -> None:
        self.message, self.hint = message, hint
        super().__init__(f"{message}; {hint}" if hint else message)


@dataclass(frozen=True, slots=True)
class CallQuery:
    """A call to explain."""

    method: str
    host: str
    """Empty if the call names no host."""

    port: int | None
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    scheme: str = _HTTP
    """What is written before `://`. It tells a gateway how its client speaks."""

    @property
    def is_over_tls(self) -> bool:
        return self.scheme in _ENCRYPTED

    @property
    def is_connection(self) -> bool:
        """Whether it is a connection without requests."""
        return self.scheme in _CONNECTIONS

    @property
    def authority(self) -> str:
        """The host as a client sends it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    def __str__(self) -> str:
        if self.is_connection:
            return f"{self.scheme}://{self.authority}"
        return f"{self.method} {self.scheme}://{self.authority}{self.path}"


def parse_call(call: str, headers: tuple[str, ...] = ()) -> CallQuery:
    """Read a call, and headers such as `x-version: 2`. Without a method it is GET, without a path `/`."""
    words = call.split(maxsplit=1)
    if not words:
        raise AmbiguousCall("there is no call to explain", "write for example `GET http://backend:80/path`")
    has_method = len(words) > 1 and words[0].isascii() and words[0].isalpha()
    method, url = (words[0].upper(), words[1].rstrip()) if has_method else ("GET", call.strip())
    if " " in url:
        hint = "write for example `GET http://backend:80/path`, with `%20` for a space"
        raise AmbiguousCall(f"`{_quoted(call)}` is no call", hint)
    scheme, host, port, path = _url(url)
    return CallQuery(method, host, port, path, tuple(map(_header, headers)), scheme)


def _url(url: str) -> tuple[str, str, int | None, str]:
    match = _URL.fullmatch(url)
    if match is None or (match["port"] and not 0 < int(match["port"]) <= _MOST):
        raise AmbiguousCall(f"`{_quoted(url)}` is no URL", "write for example `http://backend:80/path`")
    target = (match["path"] or "/") + (match["query"] or "")
    port = int(match["port"]) if match["port"] else None
    scheme = (match["scheme"] or _HTTP).lower()
    return scheme, match["host"].strip("[]").lower(), port, _NOT_IN_A_URL.sub(_escaped, target)


def _quoted(text: str) -> str:
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"


def _escaped(match: re.Match[str]) -> str:
    """A character that no URL may contain, percent-encoded as UTF-8 (RFC 3986, section 2.1), as browsers send it."""
    return "".join(f"%{byte:02X}" for byte in match[0].encode())


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise AmbiguousCall(f"`{_quoted(text)}` is no header", "write for example `-H 'x-version: 2'`")
    if name.strip().lower() == "host":
        raise AmbiguousCall("the host of a call is that of its URL", "write it there, and not as a header")
    return name.strip(), value.strip()
