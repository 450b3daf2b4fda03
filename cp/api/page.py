"""The page for browsers at `/gui`: files that were built from `gui/`, which read this API as any other client does.

The files are for everybody, as nothing of the mesh is in them. What they ask for takes the rights of who looks at them
(record 0089).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cp.api.errors import NOT_FOUND, ApiError

BUILT: Final = Path(__file__).resolve().parents[1] / "gui"
"""Where the page stands once it was built: beside this package, in a wheel too."""

PAGE: Final = "/gui"

_INDEX: Final = "index.html"
_PACKED: Final = ".gz"
_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        ".css": "text/css; charset=utf-8",
        ".html": "text/html; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".svg": "image/svg+xml",
    }
)
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Nothing comes from elsewhere and nothing goes elsewhere, no text becomes a script, and nobody frames the page."""

_GUARDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "content-security-policy": _POLICY,
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "vary": "Accept-Encoding",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
    }
)
_FOR_EVER: Final = "public, max-age=31536000, immutable"
"""The name of a file says what is in it."""

_ASKED_EACH_TIME: Final = "no-cache"
_NOT_MODIFIED: Final = 304


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file of the page, as it is and compressed."""

    body: bytes
    packed: bytes
    media_type: str
    tag: str

    @classmethod
    def read(cls, path: Path) -> PageFile:
        body, packed = path.read_bytes(), path.with_name(path.name + _PACKED).read_bytes()
        return cls(body, packed, _TYPES[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:16]}"')


@dataclass(frozen=True, slots=True)
class PageFiles:
    """The files of the page, or why there are none."""

    index: PageFile | None
    assets: Mapping[str, PageFile]
    absence: str = ""

    @classmethod
    def read(cls, folder: Path = BUILT, *, is_on: bool = True) -> PageFiles:
        if not is_on:
            return cls(None, {}, "the page is switched off (KUMA_API_SERVER_GUI_ENABLED)")
        if not (folder / _INDEX).is_file():
            hint = "build it with `make page`, which needs node and npm"
            return cls(None, {}, f"this control plane was installed without its page; {hint}")
        assets = {path.name: PageFile.read(path) for path in (folder / "assets").iterdir() if path.suffix != _PACKED}
        return cls(PageFile.read(folder / _INDEX), assets)

    @property
    def address(self) -> str:
        """Where the page is; empty where there is none."""
        return "" if self.index is None else PAGE


NO_PAGE: Final = PageFiles(None, {}, "nobody has read its files")


class PageHandler:
    """The handler. Every address below `/gui` is answered with the same document, which finds its view by itself."""

    def __init__(self, files: PageFiles) -> None:
        self._files = files

    @property
    def routes(self) -> Iterator[Route]:
        yield Route(PAGE, self.document)
        yield Route(f"{PAGE}/assets/{{name}}", self.asset)
        yield Route(f"{PAGE}/{{path:path}}", self.document)

    async def document(self, request: Request) -> Response:
        if self._files.index is None:
            raise ApiError(NOT_FOUND, "There is no page", self._files.absence)
        return _answer(request, self._files.index, _ASKED_EACH_TIME)

    async def asset(self, request: Request) -> Response:
        """A file that only pages of another version refer to is answered with 404, and not with the document."""
        asset = self._files.assets.get(request.path_params["name"])
        if asset is None:
            detail = self._files.absence or "this version of the page has no such file; load the page again"
            raise ApiError(NOT_FOUND, "No such file", detail)
        return _answer(request, asset, _FOR_EVER)


def _answer(request: Request, file: PageFile, caching: str) -> Response:
    headers = {**_GUARDS, "cache-control": caching, "etag": file.tag}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=_NOT_MODIFIED, headers=headers)
    if not _takes_gzip(request.headers.get("accept-encoding", "")):
        return Response(file.body, media_type=file.media_type, headers=headers)
    return Response(file.packed, media_type=file.media_type, headers={**headers, "content-encoding": "gzip"})


def _takes_gzip(accepted: str) -> bool:
    """Whether a client takes compressed answers (RFC 9110, section 12.5.3)."""
    codings = (coding.partition(";") for coding in accepted.lower().split(","))
    weights = {name.strip(): weight.replace(" ", "") for name, _, weight in codings}
    return "gzip" in weights and weights["gzip"] not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
