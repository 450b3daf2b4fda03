"""`RefusalLog`: what is told of proxies that are refused. A proxy that is refused comes again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import structlog

_WINDOW: Final = 10.0
"""Seconds."""

_MOST: Final = 10
"""Lines in a window of each sort. With the next line stands how many were left out."""

_LONGEST: Final = 500
"""Characters of each fact. What a proxy says of itself before it is let in may be as long as a request."""


def _tell_of_stream(**facts: Any) -> None:
    structlog.get_logger("cp.ads").warning("proxy.refused", **facts)


class RefusalLog:
    """Lines of one kind, which `write` writes. The clock tells seconds, and never goes back."""

    def __init__(self, clock: Callable[[], float], write: Callable[..., None] = _tell_of_stream) -> None:
        self._clock = clock
        self._write = write
        self._windows: dict[str, tuple[float, int]] = {}

    def tell(self, sort: str, reason: str, **facts: Any) -> None:
        now = self._clock()
        began, lines = self._windows.get(sort, (now, 0))
        if now - began >= _WINDOW:
            if lines > _MOST:
                facts["left_out"] = lines - _MOST
            began, lines = now, 0
        self._windows[sort] = (began, lines + 1)
        if lines < _MOST:
            self._write(**_short({"reason": reason} | facts))


def _short(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: _shortened(value) if isinstance(value, str) else value for name, value in facts.items()}


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
