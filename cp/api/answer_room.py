"""`AnswerRoom`: how much of large answers may wait at once until clients have taken it, in all and for one caller.

An answer is in memory as a whole until its client has read it, and clients read as slowly as they like.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from cp.api.caller import caller_in
from cp.api.errors import UNAVAILABLE, ApiError
from cp.api.shares import LOCAL, share_of

MOST: Final = 512 * 1024 * 1024
"""Bytes, beside those for administrators on this machine."""

MOST_OF_CALLER: Final = 128 * 1024 * 1024

_ROOM: Final = "koguma.answer_room"
_RETRY: Final = {"retry-after": "5"}


class AnswerRoom:
    """The room of one server."""

    def __init__(self, most: int = MOST, most_of_caller: int = MOST_OF_CALLER) -> None:
        self._most, self._most_of_caller = most, most_of_caller
        self._taken: Counter[str] = Counter()

    @contextmanager
    def taken(self, share: str, size: int) -> Iterator[None]:
        """Take so many bytes for as long as the block lasts. Raises `ApiError` where there is no room for them."""
        self._must_have_room(share, size)
        self._taken[share] += size
        try:
            yield
        finally:
            self._taken[share] -= size
            self._taken += Counter()  # forgets those who have none

    def _must_have_room(self, share: str, size: int) -> None:
        of_caller = self._taken[share]
        if of_caller and of_caller + size > self._most_of_caller:
            raise _busy(f"{share} has not read {of_caller >> 20} MiB of earlier answers yet")
        shared = self._taken.total() - self._taken[LOCAL]
        if share != LOCAL and shared and shared + size > self._most:
            raise _busy(f"clients have not read {shared >> 20} MiB of earlier answers yet")


class RoomForAnswers:
    """Stands before an application whose large answers share a room."""

    def __init__(self, app: ASGIApp, room: AnswerRoom) -> None:
        self._app, self._room = app, room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[_ROOM] = self._room
        await self._app(scope, receive, send)


@contextmanager
def room_for(size: int, scope: Scope) -> Iterator[None]:
    """Room for an answer to whoever has sent a request. Raises `ApiError`."""
    room: AnswerRoom | None = scope.get(_ROOM)
    if room is None:
        yield
        return
    with room.taken(share_of(caller_in(scope), scope), size):
        yield


def _busy(reason: str) -> ApiError:
    return ApiError(UNAVAILABLE, "Too busy", f"{reason}; ask again when they have", headers=_RETRY)
