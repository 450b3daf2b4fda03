"""`InstancesStand`: so many control planes on one PostgreSQL, each with proxies of its own."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil

from bench.api import Client
from bench.serving import mesh
from bench.serving.processes import ControlPlane, Worker
from bench.serving.stand import MeasuredPlane
from tests.support.postgres import PostgresServer

FLUSHED: Final = 12.0
"""Seconds after which all sessions of PostgreSQL have told what they did (it is 10 for those that are idle)."""

CLIENTS: Final = 4
"""That write at once at each instance."""

_TRANSACTIONS: Final = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '{}'"
_CONNECTIONS: Final = "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND application_name = 'koguma'"
_QUIET: Final = 0.3
_WITHIN: Final = 120.0
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Options:
    """What is measured."""

    instances: Sequence[int] = (1, 2, 3, 4)
    proxies: int = 100
    """Of each instance."""

    services: int = 100
    edits: int = 20
    writes: int = 400
    """In sum, by clients that write at once."""


@dataclass(frozen=True, slots=True)
class InstancesResult:
    """What was measured with so many instances."""

    instances: int
    until_answered: float
    """Seconds until the last proxy of all instances had answered, in the median edit."""

    cpu: float
    """Processor seconds of an instance for an edit, its proxies included."""

    memory: float
    """MiB of an instance, the largest."""

    messages: Mapping[str, int]
    """To all proxies, by an edit."""

    transactions: float
    """In the database, for an edit."""

    idle: float
    """Transactions in a second without edits."""

    idle_cpu: float
    """Processor seconds of an instance in such a second."""

    writes_a_second: float
    """Of many clients at once."""

    database_cpu: float
    """Processor seconds of the database for one of these, with what all instances read of it."""

    cpu_of_a_write: float
    """Processor seconds of an instance for one of these, be it asked for it or only told of it."""

    connections: int
    """To the database after these, of all instances."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """Counters at one moment."""

    moment: float
    transactions: float
    cpu: float
    """Of all instances."""

    def since(self, earlier: _Reading) -> _Reading:
        return _Reading(
            self.moment - earlier.moment,
            self.transactions - earlier.transactions,
            self.cpu - earlier.cpu,
        )

    def times(self, factor: float) -> _Reading:
        return _Reading(*(value * factor for value in (self.moment, self.transactions, self.cpu)))


class InstancesStand:
    def __init__(self, server: PostgresServer, folder: Path, instances: int, options: Options) -> None:
        self._server, self._folder, self._options, self._instances = server, folder, options, instances
        self._database = server.new_database()
        self._timeouts = count(2)

    def run(self) -> InstancesResult:
        url = self._server.url(self._database)
        mesh.fill(url, mesh.documents(self._instances * self._options.proxies, self._options.services))
        with ExitStack() as stack:
            planes = [stack.enter_context(self._plane(number, url)) for number in range(self._instances)]
            loads = [stack.enter_context(self._load(number)) for number in range(self._instances)]
            measured = [MeasuredPlane(*pair, self._options.proxies) for pair in zip(planes, loads, strict=True)]
            for plane in measured:
                plane.cold()
            return self._result(planes, measured)

    def _result(self, planes: Sequence[ControlPlane], measured: Sequence[MeasuredPlane]) -> InstancesResult:
        self._edit(measured)  # the first creates what others change
        before_rest = self._flushed(planes)
        at_rest = self._flushed(planes)
        edits = [self._edit(measured) for _ in range(self._options.edits)]
        of_edits = self._flushed(planes).since(at_rest)
        resting = at_rest.since(before_rest)
        a_second = resting.times(1 / resting.moment)
        an_edit = of_edits.since(a_second.times(of_edits.moment)).times(1 / len(edits))
        memory = max(psutil.Process(plane.pid).memory_info().rss for plane in planes) / _MIB
        written = self._written_at_once(planes)
        return InstancesResult(
            instances=self._instances,
            until_answered=median(measurement.took for measurement in edits),
            cpu=an_edit.cpu / self._instances,
            memory=memory,
            messages=dict(edits[-1].messages),
            transactions=an_edit.transactions,
            idle=a_second.transactions,
            idle_cpu=a_second.cpu / self._instances,
            writes_a_second=written.a_second,
            database_cpu=written.database_cpu,
            cpu_of_a_write=written.cpu,
            connections=round(self._ask(_CONNECTIONS)),
        )

    def _edit(self, measured: Sequence[MeasuredPlane]) -> Edited:
        """Edit a timeout that all proxies have, at one instance, and wait for all of them."""
        began = [plane.load.do("begin")["now"] for plane in measured][-1]
        document = mesh.route_timeout(f"{next(self._timeouts)}s")
        measured[0].plane.put(mesh.path_of(document), document)
        settled = [plane.load.do("settle", **self._all_answer) for plane in measured]
        messages = sum((Counter(of_load["messages"]) for of_load in settled), Counter[str]())
        assert not any("late" in of_load for of_load in settled)
        return Edited(max(last for of_load in settled for last in of_load["last"]) - began, messages)

    @property
    def _all_answer(self) -> dict[str, Any]:
        return {"wants": "answered", "least": self._options.proxies, "quiet": _QUIET, "within": _WITHIN}

    def _written_at_once(self, planes: Sequence[ControlPlane]) -> WrittenAtOnce:
        """Many writes by several clients of each instance."""
        each = self._options.writes // (CLIENTS * len(planes))
        apis = [plane.api for plane in planes] * CLIENTS
        clients = [threading.Thread(target=_write, args=(api, number, each)) for number, api in enumerate(apis)]
        began, database_cpu, cpu = time.monotonic(), self._database_cpu(), _cpu_of_all(planes)
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        took, writes = time.monotonic() - began, each * len(clients)
        for plane in planes:
            plane.until_idle()
        spent = _cpu_of_all(planes) - cpu
        return WrittenAtOnce(
            writes / took, (self._database_cpu() - database_cpu) / writes, spent / writes / len(planes)
        )

    def _flushed(self, planes: Sequence[ControlPlane]) -> _Reading:
        """The counters when all sessions have told what they did."""
        time.sleep(FLUSHED)
        return _Reading(time.monotonic(), self._ask(_TRANSACTIONS), _cpu_of_all(planes))

    def _ask(self, question: str) -> float:
        """A number that the server tells of our database. It is asked in another one, so that this costs nothing."""
        return float(self._server.execute(question.format(self._database), "postgres")[0][0])

    def _database_cpu(self) -> float:
        """Of all processes of the server, those that have ended included."""
        assert self._server.process is not None
        times = [_cpu(process) for process in _family(self._server.process.pid)]
        return sum(times)

    @contextmanager
    def _plane(self, number: int, url: str) -> Iterator[ControlPlane]:
        folder = self._folder / f"{self._instances}-{number}"
        folder.mkdir()
        with ControlPlane(url, folder / "log", {"KUMA_GENERAL_WORK_DIR": str(folder / "work")}) as plane:
            yield plane

    @contextmanager
    def _load(self, number: int) -> Iterator[Worker]:
        """The proxies of one instance."""
        own = range(number * self._options.proxies, (number + 1) * self._options.proxies)
        with Worker("bench.serving.load", log=self._folder / f"{self._instances}-{number}.load") as load:
            load.do("make", names=[f"{mesh.MESH}.{mesh.proxy_name(proxy)}" for proxy in own], delta=True)
            yield load


@dataclass(frozen=True, slots=True)
class Edited:
    """How long an edit took, and what was sent."""

    took: float
    messages: Counter[str]


@dataclass(frozen=True, slots=True)
class WrittenAtOnce:
    """How many writes there were in a second, and what one cost the database and an instance."""

    a_second: float
    database_cpu: float
    cpu: float


def _cpu_of_all(planes: Sequence[ControlPlane]) -> float:
    return sum(plane.cpu for plane in planes)


def _write(url: str, number: int, writes: int) -> None:
    """Write what concerns no proxy, as one client on a kept connection."""
    client = Client(url)
    for seconds in range(1, writes + 1):
        document = mesh.timeout_for_nobody(f"{seconds}s") | {"name": f"for-nobody-{number}"}
        client.ask("PUT", mesh.path_of(document), json.dumps(document).encode())


def _family(pid: int) -> Iterator[psutil.Process]:
    process = psutil.Process(pid)
    yield process
    yield from process.children(recursive=True)


def _cpu(process: psutil.Process) -> float:
    try:
        return sum(process.cpu_times()[:4])  # with those of children that have ended
    except psutil.NoSuchProcess:
        return 0.0
