"""`BodyRoom`: how many bytes of request bodies may be in memory at once, in all and for one caller.

A client sends as slowly as it likes, and a body waits until its request has been answered.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from cp.api.caller import caller_in
from cp.api.errors import TOO_MANY, UNAVAILABLE, ApiError
from cp.api.shares import ADDRESS, LOCAL, share_of

MOST: Final = 128 * 1024 * 1024
"""Bytes, beside those of administrators on this machine."""

MOST_OF_CALLER: Final = 32 * 1024 * 1024
MOST_WITHOUT_TOKEN: Final = 16 * 1024 * 1024
"""Of all callers without a token together. One request alone may have as much as any body."""

_ROOM: Final = "koguma.body_room"
_RETRY: Final = {"retry-after": "5"}


class BodyRoom:
    """The room of one server."""

    def __init__(
        self, most: int = MOST, most_of_caller: int = MOST_OF_CALLER, most_without_token: int = MOST_WITHOUT_TOKEN
    ) -> None:
        self._most, self._most_of_caller, self._most_without_token = most, most_of_caller, most_without_token
        self._taken: Counter[str] = Counter()

    def take(self, share: str, size: int, own: int) -> None:
        """Take room for the next bytes of a request that has `own` so far. Raises `ApiError` if there is none."""
        if share != LOCAL:
            self._must_have_room(share, size, own)
        self._taken[share] += size

    def give_back(self, share: str, size: int) -> None:
        self._taken[share] -= size
        self._taken += Counter()  # forgets those that have none

    def _must_have_room(self, share: str, size: int, own: int) -> None:
        of_caller = self._taken[share]
        if _is_over(self._most_of_caller, of_caller, size, own):
            raise _busy(f"requests of {share}", of_caller - own, TOO_MANY)
        without_token = sum(taken for name, taken in self._taken.items() if name.startswith(ADDRESS))
        if share.startswith(ADDRESS) and _is_over(self._most_without_token, without_token, size, own):
            raise _busy("requests without a token", without_token - own, UNAVAILABLE)
        shared = self._taken.total() - self._taken[LOCAL]
        if _is_over(self._most, shared, size, own):
            raise _busy("requests", shared - own, UNAVAILABLE)


def _is_over(most: int, taken: int, size: int, own: int) -> bool:
    """True if there are other requests, and with these bytes they would have more than the most together."""
    return taken > own and taken + size > most


class _Reservation:
    """The room that one request has taken."""

    def __init__(self, room: BodyRoom, scope: Scope) -> None:
        self._room, self._scope = room, scope
        self._share, self._size = "", 0

    def grow(self, size: int) -> None:
        self._share = self._share or share_of(caller_in(self._scope), self._scope)
        self._room.take(self._share, size, self._size)
        self._size += size

    def end(self) -> None:
        if self._size:
            self._room.give_back(self._share, self._size)


class RoomForBodies:
    """Stands before an application whose request bodies share a room."""

    def __init__(self, app: ASGIApp, room: BodyRoom) -> None:
        self._app, self._room = app, room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[_ROOM] = reservation = _Reservation(self._room, scope)
        try:
            await self._app(scope, receive, send)
        finally:
            reservation.end()
            del scope[_ROOM]  # it has the scope


def take_room(scope: Scope, size: int) -> None:
    """Take room for the next bytes of a request's body. Raises `ApiError` if there is none."""
    reservation: _Reservation | None = scope.get(_ROOM)
    if reservation is not None:
        reservation.grow(size)


def _busy(requests: str, size: int, status: int) -> ApiError:
    text = f"{requests} have {size >> 20} MiB under way already; send this one again when they have been answered"
    return ApiError(status, "Too busy", text, headers=_RETRY)
