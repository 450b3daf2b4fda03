"""Which proxies can be served a rollout now, and which have to be waited for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cp.model.names import Key
from cp.serving.delivery import Presence, ProxyState, is_awaited


@dataclass(frozen=True, slots=True)
class Readiness:
    """Of the proxies that a rollout reaches, those that can be chosen, and those whose state nobody knows.

    A proxy that has been away for long is none of these.
    """

    ready: frozenset[str]
    awaited: tuple[str, ...]
    unfit: tuple[str, ...]
    """Proxies that refuse something already, or for which some part is not built."""


def readiness(presences: Mapping[Key, Presence], now: float, alike_for: float) -> Readiness:
    """How proxies are now. `alike_for`: for how long the same control planes have been there."""
    ready = frozenset(key.name for key, presence in presences.items() if presence.state is ProxyState.ONLINE)
    awaited = [key.name for key, presence in presences.items() if is_awaited(presence, now, alike_for)]
    unfit = (key.name for key, presence in presences.items() if presence.state.is_unfit)
    return Readiness(ready, tuple(awaited or _lost(presences)), tuple(unfit))


def _lost(presences: Mapping[Key, Presence]) -> list[str]:
    """If all proxies are gone, those that were connected: rather a network that is cut than a mesh that has ended."""
    if any(presence.state is not ProxyState.OFFLINE for presence in presences.values()):
        return []
    return [key.name for key, presence in presences.items() if presence.connections]
