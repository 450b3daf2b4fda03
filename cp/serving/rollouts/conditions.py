"""What has to hold of the requests at proxies for a rollout to go on: `5xx < 1%`, by Envoy's own counters."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction
from typing import Final

from cp.model.wording import few

_CONDITION: Final = re.compile(r"5xx\s*<\s*(\d{1,3}(?:\.\d{1,4})?)\s*%")
_WHOLE: Final = 100
_FEWEST: Final = 20
"""Requests below which nothing is judged, whatever the limit is."""


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """The requests that a proxy has answered since it began, on all of its listeners, and those answered with 5xx."""

    requests: int
    errors: int

    def since(self, before: RequestCounts) -> RequestCounts:
        """What came after. Counters that went down are those of an Envoy that has begun anew."""
        if self.requests < before.requests or self.errors < before.errors:
            return self
        return RequestCounts(self.requests - before.requests, self.errors - before.errors)


class RequestVerdict(Enum):
    """What the requests say of a condition."""

    HOLDS = auto()
    FAILS = auto()
    TOO_FEW = auto()
    """There were not enough of them to tell."""

    UNREADABLE = auto()
    """Those of some proxies are not known."""


@dataclass(frozen=True, slots=True)
class ErrorLimit:
    """Less than so much of all requests may be answered with 5xx."""

    share: Fraction

    @property
    def fewest(self) -> int:
        """So many requests are needed to tell: of these, a single error is within the limit."""
        return max(_FEWEST, math.ceil(2 / self.share))

    def verdict(self, counts: RequestCounts) -> RequestVerdict:
        """Too few requests fail where there are so many errors that the fewest that are needed would fail too."""
        if counts.errors >= self.share * max(counts.requests, self.fewest):
            return RequestVerdict.FAILS
        return RequestVerdict.HOLDS if counts.requests >= self.fewest else RequestVerdict.TOO_FEW

    def judge(self, of_proxies: Mapping[str, RequestCounts]) -> tuple[RequestVerdict, str]:
        """What the proxies say, with the reason: each that has enough requests, the others together, and all of them.

        So a proxy with very many requests hides nobody who has few.
        """
        busy = {name: counts for name, counts in sorted(of_proxies.items()) if counts.requests >= self.fewest}
        worst = next((name for name in busy if self.verdict(busy[name]) is RequestVerdict.FAILS), None)
        if worst is not None:
            return RequestVerdict.FAILS, f"{_share(busy[worst])} at {worst}"
        quiet = {name: counts for name, counts in of_proxies.items() if name not in busy}
        of_quiet = total_of(quiet.values())
        if self.verdict(of_quiet) is RequestVerdict.FAILS:
            return RequestVerdict.FAILS, f"{_share(of_quiet)} at {few(sorted(quiet))}"
        total = total_of(of_proxies.values())
        verdict, reason = self.verdict(total), f"{_share(total)} at {len(of_proxies)} proxies"
        return verdict, f"{reason}; {self.fewest} are needed" if verdict is RequestVerdict.TOO_FEW else reason


def total_of(of_proxies: Iterable[RequestCounts]) -> RequestCounts:
    listed = list(of_proxies)
    return RequestCounts(sum(counts.requests for counts in listed), sum(counts.errors for counts in listed))


def _share(counts: RequestCounts) -> str:
    return f"{counts.errors} of {counts.requests} requests were answered with 5xx"


def limit_of(text: str) -> ErrorLimit:
    """A condition as it is written. Raises `ValueError` with a sentence for the operator."""
    match = _CONDITION.fullmatch(text.strip())
    share = Fraction(match[1]) / _WHOLE if match else Fraction(0)
    if not 0 < share <= 1:
        raise ValueError(f"`{text[:40]}` is no condition; write `5xx < 1%`: no other counter is judged yet")
    return ErrorLimit(share)
