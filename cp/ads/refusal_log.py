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
        began, told = self._windows.get(sort, (now, 0))
        left_out = max(0, told - _MOST)
        if now - began >= _WINDOW:
            began, told = now, 0
        else:
            left_out = 0
        self._windows[sort] = (began, told + 1)
        if told < _MOST:
            if left_out:
                facts["left_out"] = left_out
            self._log.warning("proxy.refused", reason=reason, **facts)
