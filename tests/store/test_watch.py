"""Looking again whenever something changes, whatever becomes of the means by which we hear of it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from watchfiles._rust_notify import WatchfilesRustInternalError

from cp.store import watch
from cp.store.watch import ChangeListener, DirectoryWatch, Listen, LookResult
from tests.store.harness import DEADLINE, NEVER

PLACES = frozenset({"/a place"})


class Looks:
    """A look that answers what the test says, and tells when it was asked."""

    def __init__(self, answer: Callable[[], LookResult]) -> None:
        self._answer = answer
        self._asked = queue.SimpleQueue[None]()

    def __call__(self) -> LookResult:
        self._asked.put(None)
        return self._answer()

    def wait(self) -> None:
        self._asked.get(timeout=DEADLINE)

    def more(self) -> bool:
        return not self._asked.empty()


class Fake:
    """ChangeListener that hear what the test says."""

    def __init__(self) -> None:
        self.heard = queue.SimpleQueue[Exception | None]()
        self.listening = threading.Semaphore(0)
        self.closed = False

    def watch(self, debounce_ms: int, step_ms: int, timeout_ms: int, stop_event: threading.Event) -> object:
        self.listening.release()
        while not stop_event.is_set():
            try:
                failure = self.heard.get(timeout=0.01)
            except queue.Empty:
                continue
            if failure is not None:
                raise failure
            break
        return set()

    def close(self) -> None:
        self.closed = True


@contextmanager
def watching(look: watch.Look, listen: Listen = watch.listen) -> Iterator[queue.SimpleQueue[Exception]]:
    failures = queue.SimpleQueue[Exception]()
    watched = DirectoryWatch(look, failures.put, pause=0.01, backstop=NEVER, listen=listen)
    watched.start()
    try:
        yield failures
    finally:
        watched.stop()


def test_it_looks_before_and_after_it_begins_to_listen_and_then_waits() -> None:
    ears, looks = Fake(), Looks(lambda: LookResult(PLACES))
    asked: list[frozenset[str]] = []

    def listen(places: frozenset[str]) -> ChangeListener:
        looks.wait()
        assert not looks.more()
        asked.append(places)
        return ears

    with watching(looks, listen):
        looks.wait()
        ears.listening.acquire()
        assert asked == [PLACES]
        assert not looks.more()
        ears.heard.put(None)
        looks.wait()
        ears.listening.acquire()
        assert not looks.more()
    assert ears.closed


def test_it_looks_when_it_is_called_though_nothing_was_heard() -> None:
    ears, looks = Fake(), Looks(lambda: LookResult(PLACES))
    watched = DirectoryWatch(looks, lambda _: None, pause=0.01, backstop=NEVER, listen=lambda _: ears)
    watched.start()
    for _ in range(2):
        looks.wait()
    ears.listening.acquire()

    watched.look_again()
    looks.wait()
    ears.listening.acquire()

    watched.stop()
    assert ears.closed


def test_it_listens_where_the_last_look_said() -> None:
    answers = [frozenset({"/a"}), frozenset({"/a"}), frozenset({"/b"}), frozenset({"/b"})]
    remaining = iter(answers)
    made: list[tuple[frozenset[str], Fake]] = []

    def listen(places: frozenset[str]) -> ChangeListener:
        made.append((places, Fake()))
        return made[-1][1]

    looks = Looks(lambda: LookResult(next(remaining)))
    with watching(looks, listen):
        looks.wait()
        looks.wait()
        made[0][1].heard.put(None)
        looks.wait()
        looks.wait()
        made[1][1].listening.acquire()
    assert [places for places, _ in made] == [frozenset({"/a"}), frozenset({"/b"})]
    assert made[0][1].closed


def test_what_has_not_settled_is_looked_at_again_without_being_told() -> None:
    again = iter([True, True, True, False])
    ears, looks = Fake(), Looks(lambda: LookResult(PLACES, looks_again=next(again)))

    with watching(looks, lambda _: ears):
        for _ in range(4):
            looks.wait()
        ears.listening.acquire()
        assert not looks.more()


def test_ears_that_failed_are_replaced() -> None:
    """They stay deaf after an error."""
    made: list[Fake] = []

    def listen(places: frozenset[str]) -> ChangeListener:
        made.append(Fake())
        return made[-1]

    looks = Looks(lambda: LookResult(PLACES))
    with watching(looks, listen):
        looks.wait()
        looks.wait()
        made[0].listening.acquire()
        made[0].heard.put(WatchfilesRustInternalError("a name that is not UTF-8"))
        looks.wait()
        looks.wait()
        made[1].listening.acquire()
        assert made[0].closed


@pytest.mark.parametrize("error", [OSError("no space left on device"), WatchfilesRustInternalError("too many")])
def test_where_nothing_can_be_heard_it_looks_from_time_to_time(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listen(places: frozenset[str]) -> ChangeListener:
        raise error

    monkeypatch.setattr(watch, "_DEAF", 0.01)
    looks = Looks(lambda: LookResult(PLACES))
    with watching(looks, listen) as failures:
        for _ in range(5):
            looks.wait()
        assert failures.empty()


def test_a_look_that_fails_ends_the_watch_and_is_reported() -> None:
    def look() -> LookResult:
        raise ValueError("a bug")

    with watching(look) as failures:
        assert str(failures.get(timeout=DEADLINE)) == "a bug"


def test_it_hears_of_changes_in_the_directory_itself_and_not_below(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    looks = Looks(lambda: LookResult(frozenset({str(tmp_path)})))

    with watching(looks):
        looks.wait()
        looks.wait()
        (tmp_path / "below" / "file").touch()
        (tmp_path / "file").touch()
        looks.wait()
        (tmp_path / "file").rename(tmp_path / "other")
        looks.wait()


def test_the_backstop_looks_though_nothing_was_heard(tmp_path: Path) -> None:
    looks = Looks(lambda: LookResult(frozenset({str(tmp_path)})))
    watched = DirectoryWatch(looks, lambda failure: pytest.fail(str(failure)), pause=0.01, backstop=0.02)
    watched.start()
    for _ in range(5):
        looks.wait()
    watched.stop()
