"""Whose requests are counted together, where each caller has a share, and how many may wait at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

from cp.access.rights import NOBODY
from cp.api.authentication import host_of, is_local
from cp.api.caller import ApiCaller
from cp.api.errors import TOO_MANY, UNAVAILABLE, ApiError
from cp.metrics import Metrics

LOCAL: Final = "administrators on this machine"
ADDRESS: Final = "address "

_RETRY: Final = {"retry-after": "5"}


def share_of(caller: ApiCaller, scope: Scope) -> str:
    """Return the name under which a caller's requests are counted.

    A user is one caller, from whatever address. Without a token, or with one for many proxies, an address is one.
    """
    if caller.is_administrator and is_local(scope, Headers(scope=scope)):
        return LOCAL
    if caller.proxy is not None and not caller.proxy.name:
        return f"user {caller.user.name} at {host_of(scope)}"
    return f"{ADDRESS}{host_of(scope)}" if caller.user == NOBODY else f"user {caller.user.name}"


@dataclass(frozen=True, slots=True)
class WaitingLimits:
    """How many requests of one sort may be open at once."""

    name: str
    most: int
    """All of them, apart from those of administrators on this machine."""

    most_without_token: int
    """Those of them whose callers do not say who they are."""

    most_of_caller: int


class WaitingShares:
    """The open requests of one sort: a user is one caller, and without a token an address is one.

    Administrators on this machine are one caller too, who needs none of what all others share.
    """

    def __init__(self, limits: WaitingLimits, metrics: Metrics) -> None:
        self._limits, self._metrics = limits, metrics
        self._open: Counter[str] = Counter()

    def take(self, caller: ApiCaller, scope: Scope) -> Callable[[], None]:
        """Count one more request, until what is returned is called. Raises `ApiError` where there is no room for it."""
        try:
            share = self._share_with_room(caller, scope)
        except ApiError:
            self._metrics.api_limited.labels(self._limits.name).inc()
            raise
        self._open[share] += 1
        return partial(self._give_back, share)

    def _share_with_room(self, caller: ApiCaller, scope: Scope) -> str:
        share, limits = share_of(caller, scope), self._limits
        if self._open[share] >= limits.most_of_caller:
            detail = f"{limits.most_of_caller} {limits.name} are open for {share}, which is the most for one caller"
            raise ApiError(TOO_MANY, f"Too many {limits.name}", detail, headers=_RETRY)
        if share != LOCAL:
            self._must_have_room(caller)
        return share

    def _must_have_room(self, caller: ApiCaller) -> None:
        limits, shared = self._limits, self._open.total() - self._open[LOCAL]
        if shared >= limits.most:
            raise _busy(f"{limits.most} {limits.name} are open here, which is the most")
        without_token = sum(count for share, count in self._open.items() if share.startswith(ADDRESS))
        if caller.user == NOBODY and without_token >= limits.most_without_token:
            most = f"{limits.most_without_token} {limits.name}"
            raise _busy(f"{most} are open here without a token, which is the most")

    def _give_back(self, share: str) -> None:
        self._open[share] -= 1
        self._open += Counter()  # forgets those who have none


def _busy(reason: str) -> ApiError:
    return ApiError(UNAVAILABLE, "Too busy", reason, headers=_RETRY)
