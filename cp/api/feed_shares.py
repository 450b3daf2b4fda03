"""`FeedShares`: how many feeds may be open at once, and how many of them for one caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from starlette.types import Scope

from cp.access.rights import NOBODY
from cp.api.caller import ApiCaller
from cp.api.errors import TOO_MANY, UNAVAILABLE, ApiError
from cp.api.shares import ADDRESS, LOCAL, share_of

MOST: Final = 200
"""Feeds that are open at once, beside those of administrators on this machine."""

MOST_WITHOUT_TOKEN: Final = 100
"""Those of them whose readers do not say who they are."""

MOST_OF_CALLER: Final = 20

_RETRY: Final = {"retry-after": "5"}


class FeedShares:
    """A user is one caller, from whatever address; who shows no token is one by his address.

    Administrators on this machine are one caller too, who needs none of what all others share.
    """

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def take(self, caller: ApiCaller, scope: Scope) -> Callable[[], None]:
        """Count one more feed, until what is returned is called. Raises `ApiError` where there is no room for it."""
        share = share_of(caller, scope)
        if self._open[share] >= MOST_OF_CALLER:
            detail = f"{MOST_OF_CALLER} feeds are open for {share}, which is the most for one caller"
            raise ApiError(TOO_MANY, "Too many feeds", detail, headers=_RETRY)
        if share != LOCAL:
            self._must_have_room(caller)
        self._open[share] += 1
        return partial(self._give_back, share)

    def _must_have_room(self, caller: ApiCaller) -> None:
        shared = self._open.total() - self._open[LOCAL]
        if shared >= MOST:
            raise _busy(f"{MOST} feeds are open here, which is the most")
        without_token = sum(count for share, count in self._open.items() if share.startswith(ADDRESS))
        if caller.user == NOBODY and without_token >= MOST_WITHOUT_TOKEN:
            raise _busy(f"{MOST_WITHOUT_TOKEN} feeds are open here without a token, which is the most")

    def _give_back(self, share: str) -> None:
        self._open[share] -= 1
        self._open += Counter()  # forgets those who have none


def _busy(reason: str) -> ApiError:
    return ApiError(UNAVAILABLE, "Too busy", reason, headers=_RETRY)
