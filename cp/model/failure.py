"""`Failure`: a fault of ours in one part of what a proxy gets, while everything else goes on."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from cp.model.checkpoint import Stopped
from cp.model.names import Key
from cp.model.secret_texts import without_secrets

T = TypeVar("T")

CODE: Final = "failed"
"""The code of findings about failures."""

HINT: Final = "please report it, with this message; until then, change or remove what is named"

WHOLE: Final = "all that it gets"
"""The part of a proxy's configuration that is all of it."""

_LONGEST: Final = 300


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

    def __str__(self) -> str:
        work = f"{self.kind} at " if self.kind else ""
        return f"a fault of koguma in {work}{self.part}, which serves {self.instead}: {self.reason}"

    @property
    def unknown(self) -> str:
        """What is said in place of an answer for which what failed is needed."""
        work = f" in {self.kind}" if self.kind else ""
        return f"cannot be worked out, by a fault of koguma{work}: {self.reason}"

    def keeping(self) -> Failure:
        """The same failure, where the last good version is still served."""
        return replace(self, instead="what it did before", is_kept=True)


def failure(error: Exception, part: str = "", kind: str = "") -> Failure:
    return Failure(part, reason(error), kind)


def made_or_failure(make: Callable[[], T], part: str) -> T | Failure:
    """What is made or, whatever went wrong, the failure: it is one proxy's, and all others go on."""
    try:
        return make()
    except Stopped:  # nobody waits for any of it
        raise
    except Exception as error:  # noqa: BLE001  # whatever it is, it is one proxy's
        return failure(error, part)


def reason(error: Exception) -> str:
    """The exception and the line that raised it, for a report."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {frames[-1].filename.rpartition('/')[2]}, line {frames[-1].lineno}" if frames else ""
    text = without_secrets(str(error))
    message = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return f"{type(error).__name__}{place}: {message}"
