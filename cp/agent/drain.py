"""Draining: a proxy ends without losing a request.

1. Its health checks fail, and responses ask callers to disconnect: `Connection: close` in HTTP/1 (RFC 9112, section
   9.6), GOAWAY in HTTP/2 (RFC 9113, section 6.8).
2. The control plane removes it from the endpoints of all callers, and reports when all have accepted that.
3. It goes on serving until no connection is left, or until nearly all of the drain time has passed.
4. It accepts no new connections, requests in progress end, and the Dataplane that it registered is removed.

Without a control plane callers do not learn of it, and neither do the clients of a builtin gateway, which are outside
the mesh. So step 3 never ends early there: whoever watches the gateway from outside has that time to send them
elsewhere.
"""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import dataclass
from typing import Any, Final, Protocol

from cp.agent.admin import EnvoyAdmin
from cp.agent.say import Say

_EVERY: Final = 0.1
_QUIET: Final = 5
"""How many looks in a row must find no connection: a caller may have chosen this proxy just before its update."""

_LAST_SHARE: Final = 0.1
"""The last share of the drain time, in which no connection is accepted and requests in progress end."""

_INBOUND: Final = "inbound:"
_OF_GATEWAY: Final = re.compile(r":(?:HTTPS?|TCP|TLS):\d+$")
"""How the names of a builtin gateway's listeners end; those of others end in an address."""


class Departure(Protocol):
    """How the control plane and the callers learn that a proxy ends."""

    def announce(self, seconds: float) -> bool:
        """Take the proxy from its callers. Returns whether all of them accepted that within so many seconds."""
        ...

    def conclude(self) -> None:
        """Report that the proxy has ended."""
        ...


@dataclass(frozen=True, slots=True)
class ProxyDrain:
    """The draining of one proxy."""

    admin: EnvoyAdmin
    departure: Departure
    seconds: float
    say: Say

    def run(self, at_once: threading.Event) -> None:
        """Drain. Returns when the proxy may be ended, or soon after `at_once` is set."""
        began = time.monotonic()
        if self.admin.post("/healthcheck/fail") and not at_once.is_set():
            self.say(f"draining for up to {self.seconds:g} s; another signal ends it at once")
            self._connections_end(began, at_once)
        self.departure.conclude()

    def _connections_end(self, began: float, at_once: threading.Event) -> None:
        # `skip_exit` keeps listeners open for callers without the update; meanwhile Envoy closes idle connections.
        self.admin.post("/drain_listeners?graceful&inboundonly&skip_exit")
        callers_know = self.departure.announce(self.seconds / 2)
        end = began + self.seconds
        last_call = end - self.seconds * _LAST_SHARE
        all_know = callers_know and not self._is_gateway()
        self._until(last_call, at_once, quiet=_QUIET if all_know else None)
        self.admin.post("/drain_listeners?inboundonly")
        self._until(end, at_once, quiet=1)
        self.say(f"drained after {time.monotonic() - began:.1f} s")

    def _until(self, moment: float, at_once: threading.Event, quiet: int | None) -> None:
        """Wait until a moment, or until so many looks in a row (`quiet`) have found no connection."""
        looks = 0
        while time.monotonic() < moment and not at_once.is_set():
            looks = looks + 1 if self._connections() == 0 else 0
            if quiet is not None and looks >= quiet:
                return
            at_once.wait(_EVERY)

    def _connections(self) -> int:
        """How many connections callers have; 0 for an Envoy that has ended."""
        names = {_statistic(listener) for listener in self._listeners() if _takes_callers(listener)}
        statistics = self._json(r"/stats?format=json&filter=^listener\..*\.downstream_cx_active$", "stats")
        return sum(int(statistic["value"]) for statistic in statistics if statistic.get("name") in names)

    def _is_gateway(self) -> bool:
        return any(_is_of_gateway(listener) for listener in self._listeners())

    def _listeners(self) -> list[dict[str, Any]]:
        return self._json("/listeners?format=json", "listener_statuses")

    def _json(self, path: str, field: str) -> list[dict[str, Any]]:
        answer = self.admin.get(path)
        rows: list[dict[str, Any]] = [] if answer is None else json.loads(answer).get(field, [])
        return rows


def _takes_callers(listener: dict[str, Any]) -> bool:
    return _name(listener).startswith(_INBOUND) or _is_of_gateway(listener)


def _is_of_gateway(listener: dict[str, Any]) -> bool:
    return _OF_GATEWAY.search(_name(listener)) is not None


def _name(listener: dict[str, Any]) -> str:
    return str(listener.get("name", ""))


def _statistic(listener: dict[str, Any]) -> str:
    """The name of a listener's statistic: Envoy uses its address, with underscores in place of colons."""
    address = listener["local_address"]["socket_address"]
    host = f"[{address['address']}]" if ":" in address["address"] else address["address"]
    return f"listener.{host}_{address['port_value']}.downstream_cx_active".replace(":", "_")
