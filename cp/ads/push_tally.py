"""`PushTally`: what some proxies were sent and answered since a moment, type by type."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass


@dataclass(slots=True)
class TypePush:
    """What proxies were sent of one type, until the last of them answered."""

    began: float
    ended: float
    responses: int = 0
    resources: int = 0
    size: int = 0
    acks: int = 0
    nacks: int = 0
    last: str = ""
    """The proxy that answered last."""


class PushTally:
    """One for each change that is looked at; `clock` is in seconds since 1970."""

    def __init__(self, proxies: AbstractSet[str], clock: Callable[[], float]) -> None:
        self._proxies, self._clock = proxies, clock
        self.types: dict[str, TypePush] = {}

    def sent(self, proxy: str, type_name: str, resources: int, size: int) -> None:
        if proxy not in self._proxies:
            return
        push = self._of(type_name)
        push.responses += 1
        push.resources += resources
        push.size += size

    def answered(self, proxy: str, type_name: str, *, is_ack: bool) -> None:
        """Counts only where something of that type was sent since: what was sent before is no part of a change."""
        if proxy not in self._proxies or type_name not in self.types:
            return
        push = self.types[type_name]
        push.acks += is_ack
        push.nacks += not is_ack
        push.ended, push.last = self._clock(), proxy

    def _of(self, type_name: str) -> TypePush:
        now = self._clock()
        return self.types.setdefault(type_name, TypePush(now, now))
