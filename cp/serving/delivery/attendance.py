"""Which proxies are expected: nobody can say what they have, and will be able to in a moment."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final

from cp.serving.delivery.delivery import Presence, ProxyState

GONE_AFTER: Final = 20.0
"""Seconds for which a proxy may be away: a control plane that ends takes its streams along."""

BREAK: Final = 4.0
"""Seconds of it where no control plane has gone: an Envoy tries again at once, and then every second or so."""

BACK_WITHIN: Final = 45.0
"""Seconds in which proxies come back when a control plane has begun, or gone: an Envoy tries again within 30."""


class Attendance:
    """Since when the same control planes have been there: proxies of one that has gone come back to another one.

    Each `now` is of one clock, whichever that is.
    """

    def __init__(self, now: float) -> None:
        self.present: AbstractSet[str] | None = None
        """Those that were there at the last look; None: nobody has looked."""

        self.alike_since = now
        """Since when we look, and none of them has gone."""

    def note(self, present: AbstractSet[str] | None, now: float) -> None:
        if present is not None and (self.present is None or not self.present <= present):
            self.alike_since = now
        self.present = present

    def alike_for(self, now: float) -> float:
        """For how long the same control planes have been there."""
        return now - self.alike_since


def is_awaited(presence: Presence, now: float, alike_for: float) -> bool:
    """Whether it will soon be known what a proxy has. `alike_for` is that of the attendance."""
    if presence.state is ProxyState.OFFLINE:
        return _may_come_back(presence, now, alike_for)
    return presence.state in {ProxyState.OUT_OF_SYNC, ProxyState.UNKNOWN}


def _may_come_back(presence: Presence, now: float, alike_for: float) -> bool:
    """Whether a proxy that is not connected is expected. A control plane that has gone took its memory along."""
    are_settled = alike_for >= BACK_WITHIN
    left = last_left(presence)
    return not are_settled if left is None else now < left + (BREAK if are_settled else GONE_AFTER)


def expected_until(presence: Presence, made: float, now: float, alike_since: float) -> float | None:
    """Return until when a proxy is expected that no process remembers, as one has just begun or gone; or None.

    A Dataplane that was `made` since then is not expected: no proxy can have been there for it.
    """
    is_unknown = presence.state is ProxyState.OFFLINE and last_left(presence) is None and made < alike_since
    return alike_since + BACK_WITHIN if is_unknown and is_awaited(presence, now, now - alike_since) else None


def last_left(presence: Presence) -> float | None:
    """When a proxy left last; None: it has left nobody who remembers it."""
    return max((record.until for record in presence.connections if record.until is not None), default=None)
