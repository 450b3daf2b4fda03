"""`ProxyRates`: how often a proxy may send requests to the HTTP API, and register its Dataplane."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from starlette.requests import Request

from cp.access.tokens import DataplaneClaims
from cp.api.authentication import host_of
from cp.api.caller import caller_of
from cp.api.errors import TOO_MANY, ApiError
from cp.metrics import Metrics
from cp.model.names import Key
from cp.model.token_buckets import TokenBuckets

LARGEST_DATAPLANE: Final = 64 * 1024
"""Bytes of a Dataplane that a proxy registers. Those of people may be as large as any resource."""

AT_ONCE: Final = 30
PER_SECOND: Final = 1.0
"""Registrations of one Dataplane: a run of a proxy sends about five."""

REQUESTS_AT_ONCE: Final = 500
REQUESTS_PER_SECOND: Final = 50.0
"""Requests of all sorts with one token from one address: many proxies of a machine may have a token in common."""


class ProxyRates:
    """The clock tells seconds, and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._registrations = TokenBuckets[tuple[str, Key]](AT_ONCE, PER_SECOND)
        self._requests = TokenBuckets[tuple[str, str]](REQUESTS_AT_ONCE, REQUESTS_PER_SECOND)

    def check(self, request: Request, metrics: Metrics) -> None:
        """Count a request, if a proxy sends it. Raises `ApiError` if it sends too many."""
        claims, names = caller_of(request).proxy, request.path_params
        if claims is None:
            return
        self.take_request(claims, host_of(request.scope), metrics)
        is_registration = request.method in {"PUT", "DELETE"} or request.url.path.endswith("/_readiness")
        if is_registration and {"mesh", "name"} <= names.keys():
            self.take_registration(claims, Key("Dataplane", names["mesh"], names["name"]), metrics)

    def take_request(self, claims: DataplaneClaims, host: str, metrics: Metrics) -> None:
        """Count a request with a token. Raises `ApiError` with the time after which to send it."""
        wait = self._requests.bucket((claims.id, host)).take(1.0, self._clock())
        if wait > 0:
            metrics.api_limited.labels("requests of a proxy").inc()
            limit = f"{REQUESTS_AT_ONCE} at once and {REQUESTS_PER_SECOND:g} a second are the most"
            raise _too_many(f"too many requests came with this token from this address: {limit}", wait)

    def take_registration(self, claims: DataplaneClaims, dataplane: Key, metrics: Metrics) -> None:
        """Count a registration of a Dataplane, also one that changes nothing. Raises `ApiError`, likewise.

        Each token has its own count, so that none uses up that of a Dataplane that it is not for.
        """
        wait = self._registrations.bucket((claims.id, dataplane)).take(1.0, self._clock())
        if wait > 0:
            metrics.api_limited.labels("registrations").inc()
            limit = f"{AT_ONCE} at once and {PER_SECOND:g} a second are the most"
            raise _too_many(f"{dataplane} is registered too often: {limit}", wait)


def _too_many(detail: str, wait: float) -> ApiError:
    return ApiError(TOO_MANY, "Too many requests", detail, headers={"retry-after": str(math.ceil(wait))})
