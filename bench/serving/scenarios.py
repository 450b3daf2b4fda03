"""The edits of a mesh that are measured, and how many proxies each must reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from bench.serving import mesh
from bench.serving.processes import ControlPlane

BULK: Final = 200
COLD, ROUTE, ENDPOINT, FEW, UNRELATED, SAME, IN_BULK, AGAIN = (
    "cold start",
    "a route's timeout",
    "an endpoint comes or goes",
    "an edit for 10",
    "an unrelated edit",
    "an edit that changes nothing",
    f"{BULK} edits in bulk",
    "all come back",
)

Edit = Callable[[ControlPlane], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Edits of one kind. Each is measured alone; `first` only creates what the others change."""

    name: str
    edits: tuple[Edit, ...]
    hears: Callable[[int], int]
    """How many of so many proxies an edit must reach, at least."""

    first: Edit | None = None
    takes_turns: bool = False
    """Whether an edit consists of many, and is over only when the control plane is idle."""


def scenarios(services: int) -> Iterator[Scenario]:
    second = count(2)

    def timeouts(document: Callable[[str], dict[str, Any]], times: int) -> tuple[Edit, ...]:
        return tuple(_put(document(f"{next(second)}s")) for _ in range(times))

    first, *later_edits = timeouts(mesh.route_timeout, 10)
    yield Scenario(ROUTE, tuple(later_edits), _all, first)
    flap = (_put(mesh.endpoint()), _delete(mesh.endpoint()))
    yield Scenario(ENDPOINT, flap * 4, _all)
    first, *later_edits = timeouts(mesh.timeout_for_few, 4)
    yield Scenario(FEW, tuple(later_edits), _few, first)
    first, *later_edits = timeouts(mesh.timeout_for_nobody, 2)
    yield Scenario(UNRELATED, tuple(later_edits), _nobody, first)
    seconds = next(second)
    same = (_put(mesh.route_timeout(f"{seconds}000ms")),)
    yield Scenario(SAME, same, _nobody, _put(mesh.route_timeout(f"{seconds}s")))
    yield Scenario(IN_BULK, (lambda plane: _bulk(plane, services),), _all, takes_turns=True)


def _all(proxies: int) -> int:
    return proxies


def _few(proxies: int) -> int:
    return min(mesh.FEW, proxies)


def _nobody(_: int) -> int:
    return 0


def _put(document: dict[str, Any]) -> Edit:
    return lambda plane: plane.put(mesh.path_of(document), document)


def _delete(document: dict[str, Any]) -> Edit:
    return lambda plane: plane.delete(mesh.path_of(document))


def _bulk(plane: ControlPlane, services: int) -> None:
    """Write many documents, as `koguma apply` does with a folder."""
    plane.apply(mesh.timeout_in_bulk(number, services, f"{1 + number}s") for number in range(BULK))
