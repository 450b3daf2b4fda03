"""Which proxies are expected: nobody can say what they have, and will be able to in a moment."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final

from cp.serving.delivery.delivery import Presence, ProxyState

GONE_AFTER: Final = 20.0
"""Seconds for which a proxy may be away: a control plane that ends takes its streams along."""

BACK_WITHIN: Final = 45.0
"""Seconds in which proxies come back when a control plane has begun, or gone: an Envoy tries again within 30."""


class Attendance:
    """Since when the same control planes have been there: proxies of one that has gone come back to another one."""

    def __init__(self, now: float) -> None:
        self.present: AbstractSet[str] | None = None
        """Those that were there at the last look; None: nobody has looked."""

        self.alike_since = now
        """Since when we look, and none of them has gone."""

    def note(self, present: AbstractSet[str] | None, now: float) -> None:
        if present is not None and (self.present is None or not self.present <= present):
            self.alike_since = now
        self.present = present


def is_awaited(presence: Presence, now: float, alike_since: float) -> bool:
    """Whether it will soon be known what a proxy has. `alike_since` is that of the attendance."""
    if presence.state is ProxyState.OFFLINE:
        return now < _back_by(presence, alike_since)
    return presence.state in {ProxyState.OUT_OF_SYNC, ProxyState.UNKNOWN}


def _back_by(presence: Presence, alike_since: float) -> float:
    """Until when a proxy that is not connected is expected. A control plane that has gone took its memory along."""
    left = [record.until for record in presence.connections if record.until is not None]
    return max(left) + GONE_AFTER if left else alike_since + BACK_WITHIN
