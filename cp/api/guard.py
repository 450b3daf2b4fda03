"""`BrowserGuard`: no website that somebody opens speaks to the control plane through that person's browser.

A page of anybody's can send requests to every address that its reader's machine reaches. A browser says where they
come from (`Origin`, `Sec-Fetch-Site`), asks first before it sends what no form can send (CORS, which nobody is granted
here), and names the host it was told (`Host`), also where an attacker's name was made to lead here (DNS rebinding).

See record 0048.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from cp.api.errors import FORBIDDEN, MISDIRECTED, UNSUPPORTED, ApiError
from cp.model.hosts import is_ip

JSON: Final = frozenset({"application/json", "text/json"})
YAML: Final = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})
PROTOBUF: Final = frozenset({"application/x-protobuf"})
"""What control planes send each other. No form of a website can."""

ANY_HOST: Final = "*"

_ALWAYS: Final = frozenset({"localhost"})
_WITH_BODY: Final = frozenset({"POST", "PUT"})
_ELSEWHERE: Final = frozenset({"cross-site", "same-site"})
_SHOWN: Final = 100
_HOST: Final = re.compile(r"(\[[^\[\]@]*\]|[^:\[\]@]*)(?::\d{0,5})?")


class BrowserGuard:
    """Stands before an application. `hosts` are the names by which it may be called, beside addresses."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = frozenset(name.lower() for name in hosts) | _ALWAYS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refused(scope["method"], Headers(scope=scope)) if scope["type"] == "http" else None
        if refused is None:
            await self._app(scope, receive, send)
        else:
            await refused.response()(scope, receive, send)

    def _refused(self, method: str, headers: Headers) -> ApiError | None:
        host = headers.get("host", "")
        if not self._is_ours(host):
            hint = "call it by an address, or add the name to KOGUMA_API_HOSTS"
            return ApiError(MISDIRECTED, "Misdirected request", f"`{host[:_SHOWN]}` is no name of this server; {hint}")
        if not _is_from_here(headers, host):
            detail = "a page of another website may not call this server"
            return ApiError(FORBIDDEN, "Forbidden", detail)
        if method in _WITH_BODY and content_type(headers) not in JSON | YAML | PROTOBUF:
            kind = content_type(headers) or "nothing"
            detail = f"the body is said to be {kind[:_SHOWN]}; send application/json or application/yaml"
            return ApiError(UNSUPPORTED, "Unsupported media type", detail)
        return None

    def _is_ours(self, host: str) -> bool:
        """Whether a host is one of ours. An address cannot be made to lead elsewhere; clients of HTTP/1.0 name none."""
        name = _name(host)
        return not host or name in self._hosts or ANY_HOST in self._hosts or is_ip(name.strip("[]"))


def content_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_from_here(headers: Headers, host: str) -> bool:
    """Browsers say it; what says nothing is no browser, or a link that somebody follows."""
    origin = headers.get("origin")
    if origin is not None:
        return origin.lower() in {f"http://{host.lower()}", f"https://{host.lower()}"}
    return headers.get("sec-fetch-site") not in _ELSEWHERE or headers.get("sec-fetch-mode") == "navigate"


def _name(host: str) -> str:
    """A host without its port; empty for what is no host with a port, which others would read as another name."""
    match = _HOST.fullmatch(host)
    return match[1].lower().rstrip(".") if match else ""
