"""Objects that only Python's garbage collector can free. It seldom runs, so they stay for long."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def cyclic_garbage() -> Iterator[list[object]]:
    """The objects that only the collector can free after the block."""
    gc.collect()
    garbage: list[object] = []
    with without_collector():
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            yield garbage
            gc.collect()
            garbage += gc.garbage
        finally:
            gc.set_debug(0)
            gc.garbage.clear()


def types_of(garbage: Iterable[object], *further_types: str) -> set[str]:
    """The names of the control plane's types in it, and of other types."""
    names = {f"{type(value).__module__}.{type(value).__qualname__}" for value in garbage}
    return {name for name in names if name.startswith("cp.") or name in further_types}
