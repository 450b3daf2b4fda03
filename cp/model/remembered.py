"""`remembered`: a property that is worked out when it is first asked for.

As `functools.cached_property`, without its lock: before Python 3.12 that is one for all objects of a class, so that who
asks about one of them waits for who asks about another. Two threads that ask at once may both work it out, which is
harmless for what follows from frozen values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class remembered(Generic[T]):  # noqa: N801  # it is written as a decorator
    def __init__(self, work_out: Callable[[Any], T]) -> None:
        self._work_out = work_out
        self.__doc__ = work_out.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, owner: None, kind: type) -> remembered[T]: ...
    @overload
    def __get__(self, owner: object, kind: type) -> T: ...
    def __get__(self, owner: object | None, kind: type) -> remembered[T] | T:
        if owner is None:
            return self
        value: T = owner.__dict__.setdefault(self._name, self._work_out(owner))
        return value
