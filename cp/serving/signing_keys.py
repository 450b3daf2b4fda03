"""`SigningKeys`: makes the signing keys of tokens that are missing, and the token of the first administrator.

A key is made when the first token is asked for, and with the condition that there is none yet, so that of several
control planes on one store one makes it and the others take it (record 0058).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from base64 import b64encode
from collections.abc import Callable
from typing import Final

import structlog

from cp.access.issue import UserTokenRequest, new_token
from cp.access.keys import (
    ADMIN_TOKEN,
    FIRST_SERIAL,
    Purpose,
    SigningKey,
    UnusableKey,
    new_private_key,
    read_private_key,
    signing_key,
    signing_secret,
)
from cp.access.rights import ADMIN
from cp.model.document import Document
from cp.model.duration import Duration
from cp.model.made_here import MADE_HERE
from cp.model.names import Key
from cp.resources.kinds import Kinds
from cp.resources.world import World
from cp.store.port import ABSENT, Author, Conflict, Put, ReadOnly, Store, Unusable

_AUTHOR: Final = Author("control plane", "signing keys")
_ADMIN_LIFETIME: Final = Duration.parse("87600h")

log = structlog.get_logger()


class NoSigningKey(Exception):
    """There is no key that could sign a token. The message says why, and what to do."""


class SigningKeys:
    """The keys that sign tokens in one store."""

    def __init__(self, store: Store, kinds: Kinds, clock: Callable[[], float] = time.time) -> None:
        self._store, self._kinds, self._clock = store, kinds, clock

    async def key(self, world: World, purpose: Purpose, mesh: str = "") -> SigningKey:
        """The key that signs, made now if there is none. Raises `NoSigningKey`."""
        try:
            key = await asyncio.to_thread(signing_key, world, purpose, mesh)
            return key or await self._first(purpose, mesh)
        except UnusableKey as error:
            raise NoSigningKey(str(error)) from None

    async def make_admin_token(self) -> None:
        """Store a token of an administrator, unless there is one. What cannot be stored is no error, but logged."""
        try:
            if await self._store.get(ADMIN_TOKEN) is not None:
                return
            key = await self.key(await self._world(), "user")
            await self._store.write(Put(_secret(ADMIN_TOKEN, self._admin_token(key)), ABSENT), author=_AUTHOR)
        except Conflict:
            return  # another control plane was faster
        except (NoSigningKey, ReadOnly, Unusable) as error:
            log.info("signing_keys.no_admin_token", reason=str(error))
            return
        log.info("signing_keys.admin_token", resource=str(ADMIN_TOKEN))

    def _admin_token(self, key: SigningKey) -> bytes:
        request = UserTokenRequest(name=ADMIN, groups=[ADMIN], valid_for=_ADMIN_LIFETIME)
        return new_token(request, key, now=self._clock(), token_id=str(uuid.uuid4())).encode()

    async def _first(self, purpose: Purpose, mesh: str) -> SigningKey:
        name = signing_secret(purpose, mesh, FIRST_SERIAL)
        data = await asyncio.to_thread(new_private_key)
        try:
            await self._store.write(Put(_secret(name, data), ABSENT), author=_AUTHOR)
        except Conflict:
            return await self._key_made_elsewhere(purpose, mesh)
        except (ReadOnly, Unusable) as error:
            hint = f"store one as {name}: `koguma generate signing-key` makes it"
            raise NoSigningKey(f"there is no signing key, and none can be stored: {error}; {hint}") from None
        log.info("signing_keys.made", resource=str(name))
        return SigningKey(FIRST_SERIAL, await asyncio.to_thread(read_private_key, data))

    async def _key_made_elsewhere(self, purpose: Purpose, mesh: str) -> SigningKey:
        key = await asyncio.to_thread(signing_key, await self._world(), purpose, mesh)
        if key is None:
            raise NoSigningKey("the signing key was removed while a token was made; try again")
        return key

    async def _world(self) -> World:
        """The Secrets of the store as they are now, whatever is in force."""
        stored = (await self._store.read()).stored
        return World.of((item.document for item in stored if "Secret" in item.document.key.type), self._kinds)


def _secret(key: Key, data: bytes) -> Document:
    plain = {"type": key.type, "name": key.name, "labels": dict(MADE_HERE), "data": b64encode(data).decode()}
    return Document(key, {**plain, "mesh": key.mesh} if key.mesh else plain)
