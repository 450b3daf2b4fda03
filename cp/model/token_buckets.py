"""`TokenBuckets`: limits on how often something may happen, with a burst, one for each key (a token bucket)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

MOST_KEYS: Final = 10_000
"""Of more, the one that was used longest ago is forgotten: memory does not grow with the number of callers."""


@dataclass(slots=True)
class TokenBucket:
    """A bucket of `burst` tokens, to which `rate` tokens are added in each second. `used` are missing at `at`."""

    burst: float
    rate: float
    used: float = 0.0
    at: float = 0.0

    def spend(self, amount: float, now: float) -> float:
        """Take tokens, also those that are not there yet. Returns the number of those."""
        self._refill(now)
        self.used += amount
        return max(0.0, self.used - self.burst)

    def take(self, amount: float, now: float) -> float:
        """Take tokens if they are there. Returns 0, or the seconds after which they will be."""
        self._refill(now)
        missing = self.used + amount - self.burst
        if missing > 0:
            return missing / self.rate
        self.used += amount
        return 0.0

    def _refill(self, now: float) -> None:
        self.used, self.at = max(0.0, self.used - (now - self.at) * self.rate), now


class TokenBuckets(Generic[K]):
    """Buckets of one size."""

    def __init__(self, burst: float, rate: float) -> None:
        self._burst, self._rate = burst, rate
        self._buckets: OrderedDict[K, TokenBucket] = OrderedDict()

    def bucket(self, key: K) -> TokenBucket:
        bucket = self._buckets.pop(key, None) or TokenBucket(self._burst, self._rate)
        self._buckets[key] = bucket
        if len(self._buckets) > MOST_KEYS:
            self._buckets.popitem(last=False)
        return bucket

    def __len__(self) -> int:
        return len(self._buckets)
