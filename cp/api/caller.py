"""What the log says of a write: who asked for it, and what it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request

_LISTED: Final = 10


def caller_of(request: Request) -> str:
    """The address that a request came from, as far as it is known."""
    return f"{request.client.host}:{request.client.port}" if request.client else ""


def few(names: Sequence[object]) -> list[str]:
    """Names for a line of the log: all, or the first ones with how many more there are."""
    more = len(names) - _LISTED
    shown = list(map(str, names[:_LISTED]))
    return [*shown, f"and {more} more"] if more > 0 else shown
