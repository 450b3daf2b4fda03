"""What clients did to a store and were answered, and the order of writes that the store itself tells."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

NO_VALUE: Final = ""
"""What a deletion leaves."""

ABSENT: Final = 0
"""The revision of what is not there."""

NEVER: Final = math.inf
"""When an operation ended that was not answered: it may still happen."""


class Outcome(Enum):
    """What a client knows of its operation."""

    DONE = "done"
    REFUSED = "refused"
    """It was told, or knows otherwise, that nothing was written."""

    UNCERTAIN = "uncertain"
    """It was not answered, or told that nobody knows."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What somebody saw of a document: the value, the revision or both. `None`: this was not to be seen."""

    value: str | None = None
    revision: int | None = None


GONE: Final = Sighting(NO_VALUE, ABSENT)


@dataclass(frozen=True, slots=True)
class Operation:
    """One request of a client. No two operations write the same value."""

    client: str
    began: float
    ended: float
    outcome: Outcome
    writes: Mapping[str, str] = field(default_factory=dict)
    """Values by the names of documents, to be written together."""

    revision: int | None = None
    """Which the client was told, of a write that was done."""

    based_on: int | None = None
    """The revision that the document must have, or `ABSENT`."""

    saw: Mapping[str, Sighting] = field(default_factory=dict)
    """What it was shown, all at one time."""

    @property
    def is_deletion(self) -> bool:
        return set(self.writes.values()) == {NO_VALUE}

    @property
    def is_over(self) -> bool:
        """Whether it cannot happen any more."""
        return self.outcome is not Outcome.UNCERTAIN

    @property
    def is_done_deletion(self) -> bool:
        return self.is_deletion and self.outcome is Outcome.DONE

    def __str__(self) -> str:
        what = f"writes {dict(self.writes)}" if self.writes else f"sees {dict(self.saw)}"
        return f"{self.client} {what} from {self.began:.6f} to {self.ended:.6f}, {self.outcome.value}"


@dataclass(frozen=True, slots=True, order=True)
class LogEntry:
    """One document that was changed by a write, as a follower of the store reads it."""

    revision: int
    name: str
    value: str
