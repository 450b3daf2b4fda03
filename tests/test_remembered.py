"""A property that is worked out once, and nobody waits for who works out another's."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cp.model
from cp.model.remembered import remembered


class Answer:
    def __init__(self, work_out: Callable[[], int]) -> None:
        self._work_out = work_out

    @remembered
    def value(self) -> int:
        """What it comes to."""
        return self._work_out()


def test_it_is_worked_out_once() -> None:
    numbers = iter(range(9))
    answer = Answer(lambda: next(numbers))

    assert (answer.value, answer.value) == (0, 0)


def test_of_one_object_it_is_had_while_that_of_another_is_being_worked_out() -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def slow() -> int:
        has_begun.set()
        assert may_end.wait(60)
        return 1

    with ThreadPoolExecutor(2) as threads:
        try:
            first = threads.submit(lambda: Answer(slow).value)
            assert has_begun.wait(10)
            assert threads.submit(lambda: Answer(lambda: 2).value).result(10) == 2
            assert not first.done()
        finally:
            may_end.set()
        assert first.result(10) == 1


def test_nothing_is_remembered_with_a_lock() -> None:
    sources = Path(cp.model.__file__).parent.parent.rglob("*.py")
    locking = [path.name for path in sources if re.search(r"import .*cached_property", path.read_text())]

    assert locking == []
