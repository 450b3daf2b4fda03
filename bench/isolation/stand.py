"""One control plane with two meshes: the worst document is stored in one, while the other is edited every second."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx

from bench.isolation import worst
from bench.isolation.worst import Shape
from bench.serving import mesh
from bench.serving.processes import ControlPlane, Worker

PROXIES: Final = 2
SERVICES: Final = 5
_WITHIN: Final = 60.0
_PAUSE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Isolation:
    """The measurement of one shape. Times are in seconds, memory in MiB."""

    kind: str
    grows: str
    size: int
    delivery: tuple[float, ...]
    """For each edit of the other mesh, the time until its last proxy had answered."""

    delivery_cpu: tuple[float, ...]
    """The processor time of the control plane in each of these times: of what other programs took nothing is in it."""

    idle: float
    peak: float
    health: tuple[float, ...]
    cpu: float

    @property
    def memory(self) -> float:
        """The peak of memory as a multiple of that at idle."""
        return self.peak / self.idle


class Health:
    """Requests for the health of a control plane from a thread, one after the other."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.seconds: list[float] = []

    def _run(self) -> None:
        with httpx.Client(timeout=_WITHIN) as client:
            while not self._over.wait(_PAUSE):
                began = time.monotonic()
                with suppress(httpx.HTTPError):
                    client.get(f"{self._url}/healthy")
                self.seconds.append(time.monotonic() - began)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(_WITHIN)


def measure(shape: Shape, folder: Path, edits: int) -> Isolation:
    """Measure one shape on a control plane of its own."""
    folder.mkdir(parents=True)
    store = f"sqlite:///{folder}/koguma.db"
    size = worst.largest(shape, worst.every_kind())
    first = {(each["type"], each["name"]): each for each in worst.documents(shape)}
    mesh.fill(store, (*mesh.documents(PROXIES, SERVICES), *(mesh.of(each) for each in first.values())))
    with ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(store, folder / "control-plane.log"))
        proxies = [each["name"] for each in first.values() if each["type"] == "Dataplane"]
        _connected(stack, plane, folder, worst.MESH, proxies)
        other = _connected(stack, plane, folder, mesh.MESH, [mesh.proxy_name(number) for number in range(PROXIES)])
        plane.until_idle()
        idle, spent = plane.memory, plane.cpu
        plane.forget_peak()
        with Health(plane.diagnostics) as health:
            deliveries = list(_deliveries(plane, other, tuple(shape.stored(size)), edits))
        return Isolation(
            kind=shape.kind,
            grows=shape.grows,
            size=size,
            delivery=tuple(taken for taken, _ in deliveries),
            delivery_cpu=tuple(cpu for _, cpu in deliveries),
            idle=idle,
            peak=plane.peak,
            health=tuple(health.seconds),
            cpu=plane.cpu - spent,
        )


def _connected(stack: ExitStack, plane: ControlPlane, folder: Path, of_mesh: str, proxies: Sequence[str]) -> Worker:
    worker = stack.enter_context(Worker("bench.serving.load", log=folder / f"load-{of_mesh}.log"))
    worker.do("make", names=[f"{of_mesh}.{name}" for name in proxies], delta=True)
    worker.do("prepare")
    worker.do("connect", port=plane.ads_port)
    worker.do("settle", wants="ready", least=len(proxies), quiet=0.2, within=_WITHIN / 6)
    return worker


def _deliveries(
    plane: ControlPlane, other: Worker, documents: Sequence[dict[str, Any]], edits: int
) -> Iterator[tuple[float, float]]:
    """The times of edits, one a second, and the processor times meanwhile. The worst documents come with the second."""
    storing = threading.Thread(target=_store, args=(plane, documents))
    for number in range(edits):
        if number == 1:
            storing.start()
        began, spent = other.do("begin")["now"], plane.cpu
        timeout = mesh.route_timeout(f"{number + 2}s")
        plane.put(mesh.path_of(timeout), timeout)
        settled = other.do("settle", wants="answered", least=PROXIES, quiet=0.0, within=_WITHIN)
        taken = max(settled["last"], default=began + _WITHIN) - began
        yield taken, plane.cpu - spent
        time.sleep(max(0.0, 1.0 - taken))
    storing.join()


def _store(plane: ControlPlane, documents: Sequence[dict[str, Any]]) -> None:
    for document in documents:  # a request has no room for all of them
        plane.apply([document])
