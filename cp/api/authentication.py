"""`Authentication`: who sends a request, by its token or, without one, by where it comes from.

A bad token is an error on every path. It never means that there was none (record 0060).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

from cp.access.keys import KeyRing
from cp.access.rights import AUTHENTICATED, EVERYBODY_IS_ADMINISTRATOR, LOCAL_ADMIN, NOBODY, Rights, User
from cp.access.tokens import DataplaneClaims, TokenRefused, dataplane_claims, user_claims
from cp.access.tries import FailedTries
from cp.api.caller import ApiCaller, unauthenticated
from cp.api.errors import TOO_MANY, UNAVAILABLE, ApiError
from cp.model.hosts import is_ip, is_loopback
from cp.resources.world import World

FORWARDED: Final = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
"""Headers with which a proxy says that it forwards the request of somebody else."""

_BEARER: Final = "bearer"


@dataclass(frozen=True, slots=True)
class AccessControl:
    """Who is known to the API, and what they may do."""

    rights: Callable[[], Rights]
    """Those that are in force."""

    keys: Callable[[World], KeyRing] = KeyRing.of
    is_on: bool = True
    localhost_is_admin: bool = True
    tries: FailedTries = field(default_factory=FailedTries)
    clock: Callable[[], float] = time.time
    stopwatch: Callable[[], float] = time.monotonic
    note_user: Callable[[User, float], None] = lambda _user, _expires: None
    """Called with the user of each good token, and when that expires."""

    def note_bad_token(self, host: str, token: str) -> None:
        """Raises `ApiError` where too many tokens from the same place were bad. A good one is always heard: what costs
        is not to verify it, and whoever shares an address with an attacker is not to be locked out."""
        now = self.stopwatch()
        seconds = self.tries.wait(host, now)
        if seconds > 0:
            retry = {"retry-after": str(int(seconds) + 1)}
            detail = "too many tokens from this address were not accepted; try again later"
            raise ApiError(TOO_MANY, "Too many failed tries", detail, headers=retry)
        self.tries.add(host, token, now)


class Authentication:
    """Finds out who sends a request."""

    def __init__(
        self, access: AccessControl, world: Callable[[], World | None], paths_of_proxies: Collection[str] = ()
    ) -> None:
        """These are paths where proxies show their tokens to the handler, in other forms too."""
        self._access = access
        self._world = world
        self._paths_of_proxies = paths_of_proxies

    def caller(self, scope: Scope) -> ApiCaller:
        """Raises `ApiError` where a token is not good."""
        if not self._access.is_on:
            return ApiCaller(NOBODY, address_of(scope), EVERYBODY_IS_ADMINISTRATOR)
        if scope["path"] in self._paths_of_proxies:
            return ApiCaller(NOBODY, address_of(scope), self._access.rights())
        headers = Headers(scope=scope)
        credentials = headers.getlist("authorization")
        if credentials:
            return self._holder(credentials, scope)
        user = LOCAL_ADMIN if self._access.localhost_is_admin and is_local(scope, headers) else NOBODY
        return ApiCaller(user, address_of(scope), self._access.rights())

    def _holder(self, credentials: list[str], scope: Scope) -> ApiCaller:
        """Whose token it is."""
        try:
            return self._caller(_token(credentials), address_of(scope))
        except TokenRefused as refused:
            self._access.note_bad_token(host_of(scope), "\n".join(credentials))
            raise unauthenticated(refused.reason) from None

    def _caller(self, token: str, address: str) -> ApiCaller:
        world = self._world()
        if world is None:
            detail = "the store is being read, and no token can be verified yet"
            raise ApiError(UNAVAILABLE, "Not ready", detail, headers={"retry-after": "1"})
        keys, now, rights = self._access.keys(world), self._access.clock(), self._access.rights()
        try:
            of_user = user_claims(token, keys, now)
        except TokenRefused as refused:
            of_proxy = _claims_of_proxy(token, keys, now, refused)
            return ApiCaller(User(f"proxy {of_proxy.mesh}.{of_proxy.name or '*'}"), address, rights, of_proxy)
        user = User(of_user.name, tuple(dict.fromkeys((*of_user.groups, AUTHENTICATED))))
        self._access.note_user(user, of_user.expires)
        return ApiCaller(user, address, rights)


def _claims_of_proxy(token: str, keys: KeyRing, now: float, as_user: TokenRefused) -> DataplaneClaims:
    """What a token says that is none of a user. Raises `TokenRefused` with both reasons."""
    try:
        return dataplane_claims(token, keys, now)
    except TokenRefused as as_proxy:
        if as_proxy.reason == as_user.reason:
            raise
        raise TokenRefused(f"as the token of a user, {as_user.reason}; as that of a proxy, {as_proxy.reason}") from None


def is_local(scope: Scope, headers: Headers) -> bool:
    """Whether a request comes from this machine, and not by way of a proxy on it."""
    host = host_of(scope)
    return is_ip(host) and is_loopback(host) and not any(name in headers for name in FORWARDED)


def host_of(scope: Scope) -> str:
    """The address that a connection came from, or nothing where that is not known."""
    return str(scope["client"][0]) if scope.get("client") else ""


def address_of(scope: Scope) -> str:
    return f"{scope['client'][0]}:{scope['client'][1]}" if scope.get("client") else ""


def _token(credentials: list[str]) -> str:
    """The token of the only header. What stands there instead is never repeated: it may be a secret."""
    if len(credentials) > 1:
        raise TokenRefused("there are several `Authorization` headers")
    scheme, _, token = credentials[0].strip().partition(" ")
    if scheme.lower() != _BEARER or not token.strip():
        raise TokenRefused("write it as `Authorization: Bearer TOKEN`")
    return token.strip()
