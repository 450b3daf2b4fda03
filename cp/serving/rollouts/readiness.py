"""Which proxies can be served a rollout now, and which have to be waited for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cp.model.names import Key
from cp.serving.delivery import Presence, ProxyState

GONE_AFTER: Final = 20.0
"""Seconds for which a proxy may be away: a control plane that ends takes its streams along."""

BACK_WITHIN: Final = 45.0
"""Seconds in which proxies come back when a control plane has begun, or gone: an Envoy tries again within 30."""

_UNFIT: Final = frozenset({ProxyState.REFUSED, ProxyState.FAILED})


@dataclass(frozen=True, slots=True)
class Readiness:
    """Of the proxies that a rollout reaches, those that can be chosen, and those whose state nobody knows.

    Who has been away for long is none of these.
    """

    ready: frozenset[str]
    awaited: tuple[str, ...]
    unfit: tuple[str, ...]
    """Those that refuse something already, or for which something could not be made."""


def readiness(presences: Mapping[Key, Presence], now: float, alike_for: float) -> Readiness:
    """As proxies stand now. `alike_for` is for how long the same control planes have been there."""
    ready = frozenset(key.name for key, presence in presences.items() if presence.state is ProxyState.ONLINE)
    awaited = [key.name for key, presence in presences.items() if _is_awaited(presence, now, alike_for)]
    unfit = (key.name for key, presence in presences.items() if presence.state in _UNFIT)
    return Readiness(ready, tuple(awaited or _lost(presences)), tuple(unfit))


def _is_awaited(presence: Presence, now: float, alike_for: float) -> bool:
    if presence.state is ProxyState.OFFLINE:
        return _may_come_back(presence, now, alike_for)
    return presence.state in {ProxyState.OUT_OF_SYNC, ProxyState.UNKNOWN}


def _may_come_back(presence: Presence, now: float, alike_for: float) -> bool:
    """Whether a proxy that is not connected is expected. A control plane that has gone took its memory along."""
    left = [record.until for record in presence.connections if record.until is not None]
    return now < max(left) + GONE_AFTER if left else alike_for < BACK_WITHIN


def _lost(presences: Mapping[Key, Presence]) -> list[str]:
    """Those that were here, if everybody is gone: rather a network that is cut than a mesh that has ended."""
    if any(presence.state is not ProxyState.OFFLINE for presence in presences.values()):
        return []
    return [key.name for key, presence in presences.items() if presence.connections]
