"""`Failure`: a part of what a proxy gets that is not built, while everything else is served.

The reason is a fault of ours, or a limit that documents exceed (`OverLimit`). What exceeds a limit is a function of the
documents: the last good version does not take its place, and no attempt is repeated.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from cp.model.names import Key
from cp.model.secret_texts import without_secrets
from cp.model.wording import few

T = TypeVar("T")

CODE: Final = "failed"
"""The code of findings about failures."""

HINT: Final = "please report it, with this message; until then, change or remove what is named"

WHOLE: Final = "all that it gets"
"""The part of a proxy's configuration that is all of it."""

OVER_LIMIT: Final = "over-limit"
"""The code of findings about parts that are left out because documents exceed a limit."""

_LONGEST: Final = 300


class OverLimit(Exception):
    """Documents exceed a limit. The part that they are for is left out, and everything else is served."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.kind = ""
        """The kind of the policies that take the most."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A part of a proxy's configuration that could not be built, the reason, and what is served in its place."""

    part: str
    """The part in words for the operator, such as `the listener of backend`; empty while it is not known."""

    reason: str
    kind: str = ""
    """The kind of the policy whose hook failed, if one did."""

    policies: tuple[Key, ...] = ()
    """The policies of that kind that hold for the part."""

    instead: str = "nothing"
    is_kept: bool = False
    """Whether the last good version is still served."""

    limit_hint: str = ""
    """How to stay within the limit that documents exceed; empty after a fault of ours."""

    @property
    def is_limit(self) -> bool:
        """True if documents exceed a limit; False after a fault of ours."""
        return self.limit_hint != ""

    @property
    def code(self) -> str:
        """The code of findings about it."""
        return OVER_LIMIT if self.is_limit else CODE

    @property
    def hint(self) -> str:
        return self.limit_hint or HINT

    def __str__(self) -> str:
        if self.is_limit:
            return f"over a limit, and {self.instead} in place of {self.part}: {self.reason}"
        work = f"{self.kind} at " if self.kind else ""
        return f"a fault of koguma in {work}{self.part}, which serves {self.instead}: {self.reason}"

    @property
    def unknown(self) -> str:
        """What is said in place of an answer for which what failed is needed."""
        if self.is_limit:
            return f"cannot be worked out: {self.reason}"
        work = f" in {self.kind}" if self.kind else ""
        return f"cannot be worked out, by a fault of koguma{work}: {self.reason}"

    def keeping(self) -> Failure:
        """The same failure, where the last good version is still served."""
        return replace(self, instead="what it did before", is_kept=True)


def failure(error: Exception, part: str = "", kind: str = "") -> Failure:
    if isinstance(error, OverLimit):
        return Failure(part, error.message, error.kind or kind, limit_hint=error.hint)
    return Failure(part, reason(error), kind)


def joined(failures: Iterable[Failure]) -> tuple[Failure, ...]:
    """The failures, with one in place of all that exceed a limit for the same reason."""
    groups: dict[Failure, list[str]] = {}
    for fault in failures:
        groups.setdefault(replace(fault, part="") if fault.is_limit else fault, []).append(fault.part)
    return tuple(replace(fault, part=few(parts)) if fault.is_limit else fault for fault, parts in groups.items())


def has_fault(failures: Iterable[Failure]) -> bool:
    """True if one of the failures is a fault of ours, and not a limit."""
    return not all(failure.is_limit for failure in failures)


def made_or_failure(make: Callable[[], T], part: str) -> T | Failure:
    """What is made or, whatever went wrong, the failure: it is one proxy's, and all others go on."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001  # whatever it is, it is one proxy's
        return failure(error, part)


def reason(error: Exception) -> str:
    """The exception and the line that raised it, for a report."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {frames[-1].filename.rpartition('/')[2]}, line {frames[-1].lineno}" if frames else ""
    text = without_secrets(str(error))
    message = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return f"{type(error).__name__}{place}: {message}"
