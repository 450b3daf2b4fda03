"""The `Roster` port: which control planes share a store, and which of them does what only one may do.

It stands in tables of its own: what is said here makes no revision, and wakes nobody who follows the store. All times
are those of the store's clock, so the clocks of the machines need not agree. See record 0083.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

FORGOTTEN_AFTER: Final = 3600.0
"""Seconds after which an instance that ended without a word is no longer listed."""


@dataclass(frozen=True, slots=True)
class Instance:
    """What a control plane says of itself."""

    id: str
    """Another one at each start."""

    name: str
    """The machine that it is on."""

    address: str
    """Where its API is, for the others."""

    authority: str
    """Who signed the certificate of that address (PEM); empty without TLS, or where every machine trusts it."""

    version: str
    started: datetime
    revision: int
    """What it has read of the store."""


@dataclass(frozen=True, slots=True)
class RosterEntry:
    """An instance that has reported, and for how many seconds it has said nothing since."""

    instance: Instance
    silence: float


@dataclass(frozen=True, slots=True)
class Fence:
    """What a write shows that only the holder of a lease may make: under which term it was begun."""

    lease: str
    term: int


@dataclass(frozen=True, slots=True)
class Lease:
    """Who does what only one may do. Each holder after another has a higher term."""

    name: str
    holder: str
    term: int

    @property
    def fence(self) -> Fence:
        """What a write has to show that only the holder may make."""
        return Fence(self.name, self.term)


class Roster(Protocol):
    """Who is there. Each implementation passes `tests/store/test_roster.py`."""

    async def report(self, instance: Instance) -> None:
        """Say that an instance is there. Those that have been silent for very long are forgotten.

        Those that were heard later than it is now, as before a clock was set back, count as heard now: if they are
        there they say so again, and if not they must not seem to be for as long.
        """
        ...

    async def succeed(self, instance: Instance) -> None:
        """Say that an instance begins. Whoever was at its address on its machine has ended, and his leases with him."""
        ...

    async def leave(self, id_: str) -> None:
        """Take an instance off, and end its leases."""
        ...

    async def instances(self) -> Sequence[RosterEntry]:
        """All that have reported and not left, the oldest first."""
        ...

    async def lease(self, name: str, holder: str, seconds: float) -> Lease:
        """Take a lease that nobody holds, or keep it, for so many seconds; answers with who has it now."""
        ...
