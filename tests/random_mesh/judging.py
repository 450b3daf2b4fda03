"""Tests over many random meshes, each another one; what fails is made small and printed as a file.

    @for_meshes(CALLS)
    def test_something(mesh: Mesh) -> None:
        ...

Hypothesis is not asked for the seeds: it varies what it drew before, and of 60 meshes only 15 had a seed of their own.
The seeds are the first numbers, so that every run asks the same; `--hypothesis-profile=long` asks many more, and
`make draws` new ones each time.
`make test` asks a share of them, `make test-long` the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import wraps
from math import ceil
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import settings

from tests.drawing import FIRST_SEED, SHARES, in_time
from tests.random_mesh.documents import EVERY
from tests.random_mesh.mesh import Mesh, mesh_of
from tests.random_mesh.words import Data

Judge: TypeAlias = Callable[[Mesh], None]

IN_SHARES: Final = pytest.mark.parametrize(
    SHARES, [pytest.param(False, id="first"), pytest.param(True, id="further", marks=pytest.mark.long)]
)
"""Ask the first share of the seeds in `make test`, and the others in `make test-long`."""

_FIRST_SHARE: Final = 0.2
_TRIES: Final = 500
_NONE: Final[Mapping[int, str]] = MappingProxyType({})
_STAYS: Final = frozenset(
    {"type", "mesh", "name", "kind", "apiVersion", "metadata", "targetRef", "inbound", "tags", "default", "selector"}
)
"""What is left in a document, or it would be about something else."""


def seeds(times: float = 1.0, also: Sequence[int] = (), besides: Iterable[int] = ()) -> list[int]:
    """The first ones, and those with which something was found before; without those of which a fault is known.

    While new examples are drawn (`make draws`), these are other ones each time.
    """
    first, count = FIRST_SEED.get(), int(settings().max_examples * times)
    chosen = [*also, *range(count)] if first is None else [*range(first, first + count)]
    return [seed for seed in chosen if seed not in set(besides)]


def share(seeds: Sequence[int], is_further: bool) -> Iterable[int]:
    """The first share of these seeds, or the others; new ones in their place until the time of the round is over."""
    first_seed = FIRST_SEED.get()
    if first_seed is not None:
        return in_time(range(first_seed, first_seed + min(len(seeds), settings().max_examples)))
    first = ceil(len(seeds) * _FIRST_SHARE)
    return seeds[first:] if is_further else seeds[:first]


def for_meshes(
    of_kinds: Sequence[str] = EVERY, times: float = 1.0, also: Sequence[int] = (), besides: Mapping[int, str] = _NONE
) -> Callable[[Judge], Callable[[bool], None]]:
    """Ask a judge of each mesh, `times` as many as a property has examples, in two shares.

    `besides` has the seeds of faults that are known and not mended yet, with what is wrong.
    """

    def of(judge: Judge) -> Callable[[bool], None]:
        @IN_SHARES
        @wraps(judge)
        def test(is_further: bool) -> None:
            for seed in share(seeds(times, also, besides), is_further):
                check(judge, mesh_of(seed, of_kinds))

        del test.__wrapped__  # or pytest would look for a fixture `mesh`
        return test

    return of


def check(judge: Judge, mesh: Mesh) -> None:
    """Fail with a mesh in which nothing can be left out, if the judge finds something."""
    assert mesh.errors() == [], f"what is made here has to be valid: {mesh}"
    if (error := _finding(judge, mesh)) is not None:
        small = smallest(mesh, lambda smaller: _is_found(judge, smaller))
        raise AssertionError(f"{_finding(judge, small)}\n\n{small}") from error


def _finding(judge: Judge, mesh: Mesh) -> AssertionError | None:
    try:
        judge(mesh)
    except AssertionError as error:
        return error
    return None


def _is_found(judge: Judge, mesh: Mesh) -> bool:
    """The same sort of finding: a judge that stumbles over what was left out has found nothing."""
    try:
        return _finding(judge, mesh) is not None
    except Exception:  # noqa: BLE001  # whatever it stumbles over
        return False


def smallest(mesh: Mesh, is_found: Callable[[Mesh], bool]) -> Mesh:
    """Leave out what can be left out, first documents and then their parts, until nothing can or it takes too long."""
    candidates, tries = _smaller(mesh), 0
    while (candidate := next(candidates, None)) is not None and tries < _TRIES:
        tries += 1
        if not candidate.errors() and is_found(candidate):
            mesh, candidates = candidate, _smaller(candidate)
    return mesh


def _smaller(mesh: Mesh) -> Iterator[Mesh]:
    """The Mesh stays."""
    documents = mesh.documents
    for index in range(1, len(documents)):
        yield Mesh((*documents[:index], *documents[index + 1 :]), mesh.seed)
    for index, document in enumerate(documents):
        for path in _paths(document):
            yield Mesh((*documents[:index], _without(document, path), *documents[index + 1 :]), mesh.seed)


def _paths(value: Any, parent: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    named: list[Any] = []
    if isinstance(value, dict):
        named = [name for name in value if name not in _STAYS]
    elif isinstance(value, list):
        named = list(range(len(value))) if len(value) > 1 else []
    for name in named:
        yield (*parent, name)
    for name in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from _paths(value[name], (*parent, name))


def _without(document: Data, path: tuple[Any, ...]) -> Data:
    copied = deepcopy(document)
    holder: Any = copied
    for name in path[:-1]:
        holder = holder[name]
    del holder[path[-1]]
    return copied
