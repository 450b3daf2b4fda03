"""What the HTTP API answers when it refuses: Kuma's error body, with what would be right and where it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from starlette.responses import JSONResponse

from cp.model.violation import Finding

CHALLENGE: Final = MappingProxyType({"www-authenticate": 'Bearer realm="koguma"'})
"""What a 401 has to come with (RFC 6750, section 3)."""

BAD_REQUEST: Final = 400
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
METHOD_NOT_ALLOWED: Final = 405
CONFLICT: Final = 409
PRECONDITION_FAILED: Final = 412
TOO_LARGE: Final = 413
UNSUPPORTED: Final = 415
MISDIRECTED: Final = 421
UNPROCESSABLE: Final = 422
TOO_MANY: Final = 429
BROKEN: Final = 500
UNAVAILABLE: Final = 503


STOPPING: Final = "the control plane is being stopped"
TOLD: Final = 100
"""Faults that an answer tells; of the others it tells how many they are."""


@dataclass(frozen=True, slots=True)
class RequestFault:
    """One thing that is wrong with a request, at a field of its body or at a parameter."""

    field: str
    reason: str
    hint: str = ""
    file: str = ""
    line: int = 0

    @classmethod
    def of(cls, finding: Finding) -> RequestFault:
        return cls(finding.path, finding.message, finding.hint, finding.file, finding.line)

    def as_data(self) -> dict[str, Any]:
        more = {"hint": self.hint, "file": self.file, "line": self.line}
        return {"field": self.field, "reason": self.reason} | {name: value for name, value in more.items() if value}


@dataclass(eq=False)
class ApiError(Exception):
    """A request that is answered with an error."""

    status: int
    title: str
    detail: str
    faults: tuple[RequestFault, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.detail

    def response(self) -> JSONResponse:
        return JSONResponse(self.body(), self.status, headers=dict(self.headers))

    def body(self) -> dict[str, Any]:
        """`details` and `causes` repeat the rest in the words of older clients."""
        body: dict[str, Any] = {
            "type": "/std-errors",
            "status": self.status,
            "title": self.title,
            "detail": self.detail,
            "details": self.detail,
        }
        if self.faults:
            body["invalid_parameters"] = [fault.as_data() for fault in self.faults]
            body["causes"] = [{"field": fault.field, "message": fault.reason} for fault in self.faults]
        return body


def invalid(title: str, findings: Iterable[Finding]) -> ApiError:
    """A document with something wrong in it."""
    all_findings = tuple(findings)
    more = len(all_findings) - TOLD
    detail = (
        f"Resource is not valid; these are {TOLD} faults, and there are at least {more} more"
        if more > 0
        else "Resource is not valid"
    )
    return ApiError(BAD_REQUEST, title, detail, tuple(map(RequestFault.of, all_findings[:TOLD])))


def stopping() -> ApiError:
    """A control plane that ends lets its proxies go, and so no longer knows how they are."""
    return ApiError(UNAVAILABLE, "Stopping", STOPPING, headers={"retry-after": "1"})


def bad_request(field_name: str, reason: str, hint: str = "", title: str = "Bad Request") -> ApiError:
    """A request with one thing wrong."""
    detail = f"{field_name}: {reason}" if field_name else reason
    return ApiError(
        BAD_REQUEST, title, f"{detail}; {hint}" if hint else detail, (RequestFault(field_name, reason, hint),)
    )
