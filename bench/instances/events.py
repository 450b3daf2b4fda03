"""Discrete events: time passes from each event to the next, and processes wait for them.

A process is a generator that yields waits. A wait is given what resumes the process, and calls it when it is over.
Nothing here knows of control planes: the queues are held against what queueing theory says of them (`tests`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Final, TypeAlias

Resume: TypeAlias = Callable[[], None]
Wait: TypeAlias = Callable[[Resume], None]
Process: TypeAlias = Generator[Wait, None, None]

SLICE: Final = 0.005
"""Seconds after which work gives way to other work: the switch interval of Python, and about that of Linux."""


class Clock:
    """Seconds since the beginning, and what is due."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Resume]] = []
        self._numbers = count()

    def after(self, seconds: float, resume: Resume) -> None:
        """What is due at the same moment comes in the order in which it was asked for."""
        heappush(self._due, (self.now + seconds, next(self._numbers), resume))

    def start(self, process: Process) -> None:
        def resume() -> None:
            wait = next(process, None)
            if wait is not None:
                wait(resume)

        self.after(0, resume)

    def pause(self, seconds: float) -> Wait:
        return partial(self.after, seconds)

    def run(self, until: float) -> None:
        """Have everything happen that is due up to a moment."""
        while self._due and self._due[0][0] <= until:
            self.now, _, resume = heappop(self._due)
            resume()
        self.now = until


class Queue:
    """So many places, which are taken in the order in which they are asked for."""

    def __init__(self, clock: Clock, places: int = 1) -> None:
        self._clock, self._places, self._free = clock, places, places
        self._waiting: deque[Resume] = deque()
        self._used, self._since = 0.0, 0.0

    def enter(self, resume: Resume) -> None:
        """A wait: it is over when there is a place."""
        if self._free == 0:
            self._waiting.append(resume)
            return
        self._note_use()
        self._free -= 1
        self._clock.after(0, resume)

    def leave(self) -> None:
        if self._waiting:
            self._clock.after(0, self._waiting.popleft())
            return
        self._note_use()
        self._free += 1

    @property
    def taken(self) -> int:
        return self._places - self._free

    @property
    def used(self) -> float:
        """Seconds for which places were taken, in sum."""
        return self._used + self.taken * (self._clock.now - self._since)

    @property
    def share(self) -> float:
        """The part of the time until now in which a place was taken."""
        return self.used / self._places / self._clock.now

    def _note_use(self) -> None:
        self._used, self._since = self.used, self._clock.now


class News:
    """Wakes whoever waits for another edition than the last that he has seen, as `RevisionSignal` does."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self.edition = clock, 0
        self._waiting: list[Resume] = []

    def publish(self) -> None:
        self.edition += 1
        for resume in self._waiting:
            self._clock.after(0, resume)
        self._waiting = []

    def after(self, edition: int) -> Wait:
        return partial(self._wait, edition)

    def _wait(self, edition: int, resume: Resume) -> None:
        if edition == self.edition:
            self._waiting.append(resume)
        else:
            self._clock.after(0, resume)


class Processors:
    """Those of a machine. `slowed` is by how much work takes longer while another processor is busy as well."""

    def __init__(self, clock: Clock, count: int, slowed: float = 1.0) -> None:
        self._clock, self._slowed = clock, slowed
        self.queue = Queue(clock, count)

    def work(self, seconds: float) -> Process:
        left = seconds
        while left > 0:
            yield self.queue.enter
            part = min(left, SLICE)
            yield self._clock.pause(part * self._slowed if self.queue.taken > 1 else part)
            self.queue.leave()
            left -= part


class Program:
    """A process that does one thing at a time, as one of Python does, on the processors of its machine."""

    def __init__(self, clock: Clock, processors: Processors) -> None:
        self._processors, self.queue = processors, Queue(clock)
        self.spent = 0.0
        """Processor seconds."""

    def work(self, seconds: float) -> Process:
        left = seconds
        while left > 0:
            part = min(left, SLICE)
            yield self.queue.enter
            self.spent += part
            yield from self._processors.work(part)
            self.queue.leave()
            left -= part
