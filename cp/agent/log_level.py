"""`LogLevel`: another level of Envoy's log, for a time, after which it is as it was.

Who sets it back is the agent alone, so that it happens without a control plane too. An agent that is killed leaves no
Envoy behind (record 0051).

See record 0085.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from cp.agent.admin import EnvoyAdmin
from cp.agent.say import Say
from cp.model.envoy_questions import AgentFault

_LOGGER: Final = re.compile(r"^\s*([\w./-]+): (\w+)$", re.MULTILINE)
_RETRY: Final = 5.0


class LogLevel:
    """The levels of one Envoy's loggers."""

    def __init__(self, admin: EnvoyAdmin, say: Say) -> None:
        self._admin, self._say = admin, say
        self._lock = threading.Lock()
        self._before: Mapping[str, str] = {}
        """The levels that the loggers had; empty while they have them."""

        self._timer: threading.Timer | None = None
        self._until = 0.0

    def change(self, level: str, seconds: float) -> None:
        """Raises `AgentFault`."""
        with self._lock:
            before = self._before or self._levels()
            if not self._admin.post(f"/logging?level={level}"):
                raise AgentFault("Envoy does not take the level")
            self._before = before
            self._set_back_after(seconds)
        self._say(f"Envoy logs at level {level} for {seconds:g} s, as an operator asked")

    def as_data(self) -> dict[str, Any]:
        """The loggers that differ from what most have, and how long it stays. Raises `AgentFault`."""
        with self._lock:
            levels = self._levels()
            values = list(levels.values())
            usual = max(set(values), key=values.count, default="")
            remaining = max(0.0, self._until - time.monotonic()) if self._before else None
        different = {name: level for name, level in levels.items() if level != usual}
        return {"level": usual, "loggers": different, "setBackIn": remaining and round(remaining, 1)}

    def end(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()

    def _levels(self) -> Mapping[str, str]:
        content = self._admin.answer_to_post("/logging")
        levels = dict(_LOGGER.findall((content or b"").decode(errors="replace")))
        if not levels:
            raise AgentFault("Envoy does not say at which level it logs")
        return levels

    def _set_back_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._until = time.monotonic() + seconds
        self._timer = threading.Timer(seconds, self._set_back)
        self._timer.daemon = True
        self._timer.start()

    def _set_back(self) -> None:
        with self._lock:
            if time.monotonic() < self._until:  # it was changed again meanwhile
                return
            levels = ",".join(f"{name}:{level}" for name, level in self._before.items())
            if self._admin.post(f"/logging?paths={levels}"):
                self._before, self._timer = {}, None
                self._say("Envoy logs as before")
            else:
                self._set_back_after(_RETRY)
