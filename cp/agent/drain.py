"""A proxy ends without losing a request: callers are told first, then its connections end, then it does.

1. Its health checks fail, and responses ask callers to leave: `Connection: close` over HTTP/1, GOAWAY over HTTP/2.
2. The control plane takes it from the endpoints of every caller, and says when they all have that.
3. It goes on serving until no connection is left, or the drain time is over.
4. It accepts nothing any more, what is under way ends, and the Dataplane that it registered goes.

Without a control plane callers are not told, so the proxy goes on accepting for nearly all of its drain time.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from cp.agent.admin import EnvoyAdmin

Say = Callable[[str], None]

_EVERY: Final = 0.1
_QUIET: Final = 5
"""Looks that have to find no connection: a caller may have chosen us just before it was told."""

_FOR_THE_REST: Final = 0.1
"""The share of the drain time in which nothing is accepted any more, and what is under way ends."""

_INBOUND: Final = "inbound:"


class Departure(Protocol):
    """Who hears that a proxy ends."""

    def announce(self, seconds: float) -> bool:
        """Have callers leave the proxy. Whether they have done so, within so many seconds."""
        ...

    def conclude(self) -> None:
        """The proxy is no more."""
        ...


@dataclass(frozen=True, slots=True)
class ProxyDrain:
    """How one proxy ends."""

    admin: EnvoyAdmin
    departure: Departure
    seconds: float
    say: Say

    def run(self, at_once: threading.Event) -> None:
        """Returns when the proxy may be ended; soon after `at_once` is set."""
        began = time.monotonic()
        if self.admin.post("/healthcheck/fail") and not at_once.is_set():
            self.say(f"draining for up to {self.seconds:g} s; another signal ends it at once")
            self._connections_end(began, at_once)
        self.departure.conclude()

    def _connections_end(self, began: float, at_once: threading.Event) -> None:
        # `skip_exit` keeps listeners open for callers that are not told yet; Envoy ends what is idle meanwhile.
        self.admin.post("/drain_listeners?graceful&inboundonly&skip_exit")
        callers_know = self.departure.announce(self.seconds / 2)
        end = began + self.seconds
        last_call = end - self.seconds * _FOR_THE_REST
        self._until(last_call, at_once, quiet=_QUIET if callers_know else None)
        self.admin.post("/drain_listeners?inboundonly")
        self._until(end, at_once, quiet=1)
        self.say(f"drained after {time.monotonic() - began:.1f} s")

    def _until(self, moment: float, at_once: threading.Event, quiet: int | None) -> None:
        """Until a moment or, before that, until so many looks in a row have found no connection."""
        looks = 0
        while time.monotonic() < moment and not at_once.is_set():
            looks = looks + 1 if self._connections() == 0 else 0
            if quiet is not None and looks >= quiet:
                return
            at_once.wait(_EVERY)

    def _connections(self) -> int:
        """Those that callers have with the workload; 0 for an Envoy that has ended."""
        names = {
            _statistic(listener)
            for listener in self._json("/listeners?format=json", "listener_statuses")
            if _is_inbound(listener)
        }
        statistics = self._json(r"/stats?format=json&filter=^listener\..*\.downstream_cx_active$", "stats")
        return sum(int(statistic["value"]) for statistic in statistics if statistic.get("name") in names)

    def _json(self, path: str, field: str) -> list[dict[str, Any]]:
        answer = self.admin.get(path)
        rows: list[dict[str, Any]] = [] if answer is None else json.loads(answer).get(field, [])
        return rows


def _is_inbound(listener: dict[str, Any]) -> bool:
    return str(listener.get("name", "")).startswith(_INBOUND)


def _statistic(listener: dict[str, Any]) -> str:
    """Envoy names the statistics of a listener by its address, in which colons are underscores."""
    address = listener["local_address"]["socket_address"]
    host = f"[{address['address']}]" if ":" in address["address"] else address["address"]
    return f"listener.{host}_{address['port_value']}.downstream_cx_active".replace(":", "_")
