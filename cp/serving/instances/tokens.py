"""`InstanceTokens`: with what one control plane shows another one that it is one."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Final

from cp.access.issue import InstanceTokenRequest, new_token
from cp.access.keys import KeyRing
from cp.access.tokens import calling_instance
from cp.model.duration import Duration
from cp.resources.world import World
from cp.serving.signing_keys import SigningKeys

_LIFETIME: Final = Duration.parse("30s")
_USED_FOR: Final = 10.0
"""Seconds after which another one is made, well before the end: clocks may differ, and questions take a while."""


class InstanceTokens:
    """Each token is for one control plane, and for a short time. The key is a GlobalSecret of the store."""

    def __init__(
        self,
        keys: SigningKeys,
        current: Callable[[], Awaitable[World]],
        id_: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keys, self._current, self._id, self._clock = keys, current, id_, clock
        self._made: dict[str, tuple[str, float]] = {}

    async def token(self, audience: str) -> str:
        """Raises `NoSigningKey`."""
        now = self._clock()
        token, at = self._made.get(audience, ("", 0.0))
        if not at <= now < at + _USED_FOR:
            key = await self._keys.key(await self._current(), "instance")
            request = InstanceTokenRequest(caller=self._id, audience=audience, valid_for=_LIFETIME)
            token = new_token(request, key, now=now, token_id=str(uuid.uuid4()))
            self._made = {key: made for key, made in self._made.items() if now < made[1] + _USED_FOR}
            self._made[audience] = token, now
        return token

    async def caller(self, token: str) -> str:
        """The id of who asks us. Raises `TokenRefused`."""
        return calling_instance(token, self._id, KeyRing.of(await self._current()), self._clock())
