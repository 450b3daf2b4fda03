"""`FeedShares`: how many feeds may be open at once, and how many of them for one caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

from cp.access.rights import NOBODY
from cp.api.authentication import host_of, is_local
from cp.api.caller import ApiCaller
from cp.api.errors import TOO_MANY, UNAVAILABLE, ApiError

MOST: Final = 200
"""Feeds that are open at once, beside those of administrators on this machine."""

MOST_WITHOUT_TOKEN: Final = 100
"""Those of them whose readers do not say who they are."""

MOST_OF_CALLER: Final = 20

_LOCAL: Final = "administrators on this machine"
_RETRY: Final = {"retry-after": "5"}


class FeedShares:
    """A user is one caller, from whatever address; who shows no token is one by his address.

    Administrators on this machine are one caller too, who needs none of what all others share.
    """

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def take(self, caller: ApiCaller, scope: Scope) -> Callable[[], None]:
        """Count one more feed, until what is returned is called. Raises `ApiError` where there is no room for it."""
        share = _share(caller, scope)
        if self._open[share] >= MOST_OF_CALLER:
            detail = f"{MOST_OF_CALLER} feeds are open for {share}, which is the most for one caller"
            raise ApiError(TOO_MANY, "Too many feeds", detail, headers=_RETRY)
        if share != _LOCAL:
            self._must_have_room(caller)
        self._open[share] += 1
        return partial(self._give_back, share)

    def _must_have_room(self, caller: ApiCaller) -> None:
        shared = self._open.total() - self._open[_LOCAL]
        if shared >= MOST:
            raise _busy(f"{MOST} feeds are open here, which is the most")
        without_token = sum(count for share, count in self._open.items() if share.startswith(_ADDRESS))
        if caller.user == NOBODY and without_token >= MOST_WITHOUT_TOKEN:
            raise _busy(f"{MOST_WITHOUT_TOKEN} feeds are open here without a token, which is the most")

    def _give_back(self, share: str) -> None:
        self._open[share] -= 1
        self._open += Counter()  # forgets those who have none


_ADDRESS: Final = "address "


def _share(caller: ApiCaller, scope: Scope) -> str:
    """Whose feeds are counted together."""
    if caller.is_administrator and is_local(scope, Headers(scope=scope)):
        return _LOCAL
    return f"{_ADDRESS}{host_of(scope)}" if caller.user == NOBODY else f"user {caller.user.name}"


def _busy(reason: str) -> ApiError:
    return ApiError(UNAVAILABLE, "Too busy", reason, headers=_RETRY)
