"""`backendRefs`: the destinations that a route sends its requests to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cp.model.numbers import LARGEST
from cp.model.target import BackendRef
from cp.model.violation import Violation, at
from cp.resources.checks import absent, usable_port
from cp.resources.targets import SERVICES, target

BACKENDS: Final = (*SERVICES, "MeshServiceSubset")
MIRRORS: Final = BACKENDS
_DEFAULT_WEIGHT: Final = 1
_NEED_PORT: Final = frozenset({"MeshMultiZoneService"})


def backend_refs(backends: list[BackendRef]) -> Iterator[Violation]:
    """The faults of a list of backends."""
    for index, backend in enumerate(backends):
        yield from at(f"[{index}]", _backend_ref(backend))
    total = sum(_DEFAULT_WEIGHT if backend.weight is None else backend.weight for backend in backends)
    if total > LARGEST:
        yield Violation("", f"the weights sum to {total}, and Envoy takes {LARGEST}", "divide them all by one number")


def _backend_ref(backend: BackendRef) -> Iterator[Violation]:
    yield from target(backend, BACKENDS)
    if backend.kind in _NEED_PORT and backend.port is None:
        yield absent("port", f"must be set with the kind {backend.kind}", "the number of one of its `ports`")
    yield from usable_port("port", backend.port)
    if backend.weight is not None and backend.weight < 0:
        yield Violation("weight", f"must not be negative, not `{backend.weight}`", "0 sends nothing there")
