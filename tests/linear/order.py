"""`Order`: what the store tells of its writes, and when something was to be seen in that order."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

from tests.linear.history import ABSENT, GONE, NO_VALUE, LogEntry, Sighting

Period: TypeAlias = tuple[int, int]
"""From one revision on, up to and without another."""


class Order:
    """The log by revisions, and for how long each document was as a write left it."""

    def __init__(self, log: Sequence[LogEntry], names: Collection[str]) -> None:
        """Of other documents than those that are named it only matters that they took a revision."""
        self.newest = max((entry.revision for entry in log), default=0)
        self.end = self.newest + 1
        self.entries: dict[int, dict[str, str]] = {}
        self._taken = {entry.revision for entry in log}
        self._by_value: dict[tuple[str, str], list[Period]] = defaultdict(list)
        self._by_revision: dict[tuple[str, int], list[Period]] = defaultdict(list)
        self._before: dict[tuple[str, int], int] = {}
        for entry in log:
            if entry.name in names:
                self.entries.setdefault(entry.revision, {})[entry.name] = entry.value
        for name in names:
            self._keep_periods(name, sorted(entry for entry in log if entry.name == name))

    def gaps(self) -> Iterator[str]:
        for revision in range(1, self.end):
            if revision not in self._taken:
                yield f"the log has nothing at revision {revision}, and its newest is {self.newest}"

    def before(self, name: str, revision: int) -> int:
        """The revision of a document right before a write to it."""
        return self._before[name, revision]

    def showing(self, saw: Mapping[str, Sighting]) -> Sequence[Period]:
        """When all of some sightings held at once."""
        periods, *others = sorted((self._showing(*sighting) for sighting in saw.items()), key=len)
        for showing in others:
            periods = list(common(periods, showing))
        return periods

    def _showing(self, name: str, sighting: Sighting) -> Sequence[Period]:
        of_revision = self._by_revision[name, sighting.revision or ABSENT]
        if sighting.value is None:
            return of_revision
        of_value = self._by_value[name, sighting.value]
        if sighting.revision is None or sighting == GONE:  # it was gone often, and always at no revision
            return of_value
        return list(common(of_value, of_revision))

    def _keep_periods(self, name: str, entries: Sequence[LogEntry]) -> None:
        firsts = [0, *(entry.revision for entry in entries), self.end]
        values = [NO_VALUE, *(entry.value for entry in entries)]
        before = ABSENT
        for first, end, value in zip(firsts, firsts[1:], values, strict=False):
            revision = ABSENT if value == NO_VALUE else first
            self._before[name, first], before = before, revision
            self._by_value[name, value].append((first, end))
            self._by_revision[name, revision].append((first, end))


def common(some: Sequence[Period], others: Sequence[Period]) -> Iterator[Period]:
    """What is in both, of periods in their order of which none meets another."""
    for first, end in some:
        place = bisect_left(others, first, key=lambda period: period[1] - 1)
        while place < len(others) and others[place][0] < end:
            yield max(first, others[place][0]), min(end, others[place][1])
            place += 1
