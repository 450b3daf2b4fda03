"""`Stand`: measures a mesh with mTLS and the same without, each on a control plane with proxies of its own, in turn."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.mtls import mesh as mtls_mesh
from bench.serving import mesh
from bench.serving.processes import ControlPlane
from bench.serving.scenarios import COLD, ROUTE, Edit
from bench.serving.stand import MeasuredPlane, Measurement, PlaneState, Step, load_of, make

ALL_PERMITTED: Final = "a permission for all"
ONE_PERMITTED: Final = "a permission for one service"
RENEWALS: Final = "renewals"
ROTATION: Final = "another authority"
ISSUED: Final = "koguma_certificates_issued_total"
PROPAGATION: Final = "1"
"""Seconds between the roots and the certificates of another authority: nothing is measured while that is waited for."""

_WITHIN: Final = 180.0
_EVERY: Final = 0.25
_QUIET: Final = 0.3
_QUIET_BETWEEN: Final = 1.0
"""Seconds without a renewal after which the last has come: the control plane looks twice a second."""


@dataclass(frozen=True, slots=True)
class Size:
    proxies: int = 1000
    services: int = 1000
    rounds: int = 5
    """Of cold starts, with and without mTLS in turn."""

    edits: int = 5
    lifetime: str = "20s"
    """Of the certificates that are renewed while that is measured."""


@dataclass(slots=True)
class Pair:
    """The measurements of one scenario, with mTLS and without; the latter only where there is something to compare."""

    scenario: str
    delta: bool
    secured: list[Measurement] = field(default_factory=list)
    plain: list[Measurement] = field(default_factory=list)
    issued: list[float] = field(default_factory=list)
    """How many certificates the control plane issued in each measurement with mTLS."""

    @property
    def time_ratio(self) -> float | None:
        return _ratio([one.took for one in self.secured], [one.took for one in self.plain])

    @property
    def cpu_ratio(self) -> float | None:
        return _ratio([one.cpu for one in self.secured], [one.cpu for one in self.plain])


@dataclass(frozen=True, slots=True)
class EditScenario:
    """Edits of one kind, and how many proxies each must reach at least, with mTLS and without."""

    name: str
    edits: tuple[Edit, ...]
    hear: int
    hear_without: int = 0


Certificates = Mapping[str, list[dict[str, Any]]]
"""What the certificates say that each proxy was sent."""


@dataclass(frozen=True, slots=True)
class Found:
    pairs: list[Pair]
    certificates: Certificates


class Stand:
    def __init__(self, folder: Path, size: Size, *, delta: bool, step: Step = lambda _: None) -> None:
        self._folder = folder
        self._size = size
        self._delta = delta
        self._step = step

    def run(self) -> Found:
        with ExitStack() as stack:
            plain, secured = (stack.enter_context(self._measured(has_mtls=has_mtls)) for has_mtls in (False, True))
            cold = self._cold(plain, secured)
            certificates = secured.load.do("certificates")
            edits = [self._edits(each, plain, secured) for each in self._scenarios()]
            return Found([cold, *edits, self._renewals(secured), self._rotation(secured)], certificates)

    def _scenarios(self) -> Iterator[EditScenario]:
        proxies, services = self._size.proxies, self._size.services
        of_one = len([number for number in range(proxies) if number % services == 1])
        numbers = range(1, self._size.edits + 1)
        routes = (mesh.route_timeout(f"{1 + number}s") for number in numbers)
        for_all = (mtls_mesh.permission_for_all(f"nobody-{number}") for number in numbers)
        for_one = (mtls_mesh.permission_for_one(f"nobody-{number}") for number in numbers)
        yield EditScenario(ROUTE, tuple(map(_put, routes)), proxies, proxies)
        yield EditScenario(ALL_PERMITTED, tuple(map(_put, for_all)), proxies)
        yield EditScenario(ONE_PERMITTED, tuple(map(_put, for_one)), of_one)

    @contextmanager
    def _measured(self, *, has_mtls: bool) -> Iterator[MeasuredPlane]:
        name = "secured" if has_mtls else "plain"
        store = f"sqlite:///{self._folder}/{name}.db"
        mesh.fill(store, mtls_mesh.documents(self._size.proxies, self._size.services, has_mtls=has_mtls))
        settings = {"KOGUMA_TRUST_PROPAGATION": PROPAGATION}
        with (
            ControlPlane(store, self._folder / f"{name}.log", settings) as plane,
            load_of(self._folder, f"load-{name}", self._size.proxies, delta=self._delta) as load,
        ):
            yield MeasuredPlane(plane, load, self._size.proxies)

    # --- with and without, in turn ---

    def _cold(self, plain: MeasuredPlane, secured: MeasuredPlane) -> Pair:
        """Some rounds; each begins with another of the two."""
        pair = Pair(COLD, self._delta)
        for number in range(self._size.rounds):
            turns = [(plain, pair.plain), (secured, pair.secured)]
            for served, measured in turns if number % 2 == 0 else reversed(turns):
                self._step(f"{COLD} {number + 1}, {'with' if served is secured else 'without'} mTLS")
                if number > 0:
                    self._begin_anew(served)
                measured.append(served.cold())
            pair.issued.append(secured.plane.metrics()[ISSUED])
        return pair

    def _begin_anew(self, served: MeasuredPlane) -> None:
        served.load.do("disconnect")
        served.plane.stop()
        served.plane.start()
        make(served.load, self._size.proxies, delta=self._delta)

    def _edits(self, scenario: EditScenario, plain: MeasuredPlane, secured: MeasuredPlane) -> Pair:
        self._step(scenario.name)
        pair = Pair(scenario.name, self._delta)
        for edit in scenario.edits:
            pair.plain.append(plain.edit(edit, scenario.hear_without))
            pair.secured.append(secured.edit(edit, scenario.hear))
        return pair

    # --- with mTLS alone ---

    def _renewals(self, served: MeasuredPlane) -> Pair:
        """Each certificate becomes due once; measured from shortly before the first does."""
        self._step(RENEWALS)
        self._write(served, mtls_mesh.secured(mtls_mesh.AUTHORITY, self._size.lifetime))
        began, before = served.begin()
        for _ in self._looks():  # nothing is asked of the control plane meanwhile, so that nothing else is measured
            now, cpu = time.monotonic(), served.plane.cpu
            if served.load.do("heard")["messages"] > 0:
                break
            began, before = now, replace(before, cpu=cpu)
        settled = self._settled(served, times=1, quiet=_QUIET_BETWEEN)
        renewals = self._pair(RENEWALS, served, served.measured(settled, began, before), before)
        self._write(served, mtls_mesh.secured(mtls_mesh.AUTHORITY))
        return renewals

    def _rotation(self, served: MeasuredPlane) -> Pair:
        """The roots of another authority for each, and then a certificate."""
        self._step(ROTATION)
        edited = mtls_mesh.secured(mtls_mesh.NEXT_AUTHORITY)
        began, before = served.begin()
        served.plane.put(mesh.path_of(edited), edited)
        settled = self._settled(served, times=2, quiet=_QUIET)
        return self._pair(ROTATION, served, served.measured(settled, began, before), before)

    def _write(self, served: MeasuredPlane, document: dict[str, Any]) -> None:
        served.edit(lambda plane: plane.put(mesh.path_of(document), document), self._size.proxies)

    def _settled(self, served: MeasuredPlane, *, times: int, quiet: float) -> dict[str, Any]:
        """What was heard until every proxy has answered so many messages."""
        everybody = {"wants": "answered", "least": self._size.proxies, "times": times}
        return served.load.do("settle", **everybody, quiet=quiet, within=_WITHIN)

    def _pair(self, name: str, served: MeasuredPlane, measured: Measurement, before: PlaneState) -> Pair:
        issued = served.plane.metrics()[ISSUED] - before.metrics[ISSUED]
        return Pair(name, self._delta, [measured], issued=[issued])

    def _looks(self) -> Iterator[None]:
        """A few times a second, but not for ever."""
        deadline = time.monotonic() + _WITHIN
        while time.monotonic() < deadline:
            yield
            time.sleep(_EVERY)
        raise RuntimeError("no certificate was renewed in time")


def _put(document: dict[str, Any]) -> Edit:
    return lambda plane: plane.put(mesh.path_of(document), document)


def _ratio(values: Sequence[float], others: Sequence[float]) -> float | None:
    """The middle one of the ratios of each round: what else the machine does is about the same within a round."""
    ratios = [value / other for value, other in zip(values, others, strict=False) if other > 0]
    return median(ratios) if ratios else None
