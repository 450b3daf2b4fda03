"""A test that hangs fails when its time is up, and says where it hung: a pytest plugin, on top of pytest-timeout.

pytest-timeout alone fails a test with pytest's own failure. Hypothesis takes that for a fault of the example, runs the
same example again to make it smaller, and hangs once more, with nobody left to wake it up. `Hung` is no `Exception`, so
hypothesis lets it pass. The alarm repeats, because an event loop swallows what is raised in one of its callbacks.

What never comes back to Python, such as a loop in C, is ended by pytest's own `faulthandler_timeout`.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, Final

import pytest

_AGAIN: Final = 3.0
"""Seconds until the next alarm, should the first have been swallowed."""

_LIMIT: Final = pytest.StashKey[float]()

_LONGEST: Final = 200
"""Characters of an argument that are shown."""


class Hung(BaseException):
    """A test took longer than it may."""


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    if not hasattr(signal, "SIGALRM"):
        return None

    def alarm(_: int, frame: FrameType | None) -> None:
        __tracebackhide__ = True
        raise Hung(_message(item, settings.timeout, frame))

    signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout, _AGAIN)
    item.stash[_LIMIT] = settings.timeout
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> bool | None:
    if not hasattr(signal, "SIGALRM"):
        return None
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[Any]) -> None:
    """Writing down what happened to a test is not a part of it."""
    if call.excinfo is not None and call.excinfo.errisinstance(Hung):
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """What ends a test that hung has as much time again."""
    if _LIMIT in item.stash and signal.getitimer(signal.ITIMER_REAL)[0] == 0:
        signal.setitimer(signal.ITIMER_REAL, item.stash[_LIMIT], _AGAIN)


def _message(item: pytest.Item, seconds: float, frame: FrameType | None) -> str:
    frames = list(_outwards(frame))
    example = next((_arguments(outer) for outer in frames if outer.f_code is _code(item)), "")
    where = "".join(traceback.format_stack(frame, limit=3))
    return f"{item.name}({example}) did not end within {seconds:g} s. It was here:\n{where}"


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _code(item: pytest.Item) -> CodeType | None:
    """The test as it was written, below what `@given` makes of it."""
    function = getattr(item, "function", None)
    given = getattr(function, "hypothesis", None)
    code: CodeType | None = getattr(getattr(given, "inner_test", function), "__code__", None)
    return code


def _arguments(frame: FrameType) -> str:
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]
    return ", ".join(f"{name}={_shown(frame.f_locals.get(name))}" for name in names)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
