"""`DirectoryWatch`: look again whenever something changes in some directories."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

BACKSTOP: Final = 5.0
"""Seconds after which we look even if we heard of no change: network file systems tell nobody, queues overflow."""

_DEAF: Final = 1.0
"""Seconds between looks while the kernel does not tell us of changes."""

_LONGEST: Final = 10  # pauses to wait for quiet, while one change follows another


class ChangeListener(Protocol):
    """The part of `RustNotify` that is used."""

    def watch(self, debounce_ms: int, step_ms: int, timeout_ms: int, stop_event: threading.Event) -> object: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LookResult:
    """What was seen: the directories that will tell of changes, and whether to look again after a pause anyhow."""

    places: frozenset[str]
    looks_again: bool = False


Look: TypeAlias = Callable[[], LookResult]
Listen: TypeAlias = Callable[[frozenset[str]], ChangeListener]


def listen(places: frozenset[str]) -> ChangeListener:
    """Hear of changes in these directories, from the moment this returns; not of those in directories below."""
    # `watchfiles.awatch` would begin to listen some time later, without saying when.
    return RustNotify(sorted(places), False, False, 0, False, True)  # noqa: FBT003  # it takes no keywords


class DirectoryWatch:
    """Calls `look` in a thread of its own: at the start, then after every change in the directories it named last.

    No change is missed: directories are listened to before they are looked at. After a change it waits for a pause,
    so that what is written together is seen together. If `look` raises, the watch ends with `failed`.
    """

    def __init__(
        self,
        look: Look,
        failed: Callable[[Exception], None],
        *,
        pause: float,
        backstop: float = BACKSTOP,
        listen: Listen = listen,
    ) -> None:
        self._look, self._failed, self._listen = look, failed, listen
        self._pause, self._backstop = round(pause * 1000), round(backstop * 1000)
        self._heard: frozenset[str] | None = None
        self._listener: ChangeListener | None = None
        self._stop = threading.Event()
        self._called = threading.Event()
        """Somebody wants it to stop listening: to look, or to end."""

        self._thread = threading.Thread(target=self._run, name="koguma-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the last look is over."""
        self._stop.set()
        self._called.set()
        self._thread.join()

    def look_again(self) -> None:
        """Look at once, whether or not anything is heard."""
        self._called.set()

    def _run(self) -> None:
        try:
            while self._goes_on():
                result = self._look()
                if self._listener is None or result.places != self._heard:
                    self._turn_to(result.places)  # and look again: what came before was not heard
                elif result.looks_again:
                    self._stop.wait(self._pause / 1000)
                else:
                    self._wait(self._listener)
        except Exception as error:  # noqa: BLE001  # whatever it is, those who wait for news have to know
            self._failed(error)
        finally:
            self._turn_away()

    def _goes_on(self) -> bool:
        """Clears the call before it asks: whoever calls from now on is heard by the next wait."""
        self._called.clear()
        return not self._stop.is_set()

    def _wait(self, listener: ChangeListener) -> None:
        try:
            listener.watch(self._pause * _LONGEST, self._pause, self._backstop, self._called)
        except WatchfilesRustInternalError:  # it stays deaf after an error, such as a name that is not UTF-8
            self._turn_away()

    def _turn_to(self, places: frozenset[str]) -> None:
        self._turn_away()
        try:
            self._listener, self._heard = self._listen(places), places
        except (OSError, ValueError, WatchfilesRustInternalError):  # gone again, or the kernel has no watches left
            self._stop.wait(_DEAF)

    def _turn_away(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._listener = None
