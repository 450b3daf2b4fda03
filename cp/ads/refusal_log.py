"""`RefusalLog`: what is told of streams that are refused. A proxy that is refused comes again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import structlog

_WINDOW: Final = 10.0
"""Seconds."""

_MOST: Final = 10
"""Lines in a window of each sort. With the next line stands how many were left out."""


class RefusalLog:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._log = structlog.get_logger("cp.ads")
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
            self._log.warning("proxy.refused", reason=reason, **facts)
