"""`InstancesStand`: so many control planes on one PostgreSQL, each with proxies of its own."""

from __future__ import annotations

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

from bench.instances.results import InstancesResult, PacedResult, Percentiles, SteadyResult
from bench.instances.writers import FeedReader, SteadyWriters, delays, served
from bench.serving import mesh
from bench.serving.processes import ControlPlane, Worker
from bench.serving.stand import MeasuredPlane
from tests.support.postgres import PostgresServer

FLUSHED: Final = 12.0
"""Seconds after which all sessions of PostgreSQL have told what they did (it is 10 for those that are idle)."""

CLIENTS: Final = 4
"""That write at once at each instance."""

PACED: Final = 200
"""Writes that come one by one, so that each has a turn of its own."""

BARE: Final = 100
"""As many before a proxy is connected."""

PACE: Final = 50
"""Of these in a second."""

WATCHED: Final = 5.0
"""Seconds for which instances are watched of which somebody reads the feeds."""

EDIT_EVERY: Final = 1.0
"""Seconds between edits while others write."""

_TRANSACTIONS: Final = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '{}'"
_CONNECTIONS: Final = "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND application_name = 'koguma'"
_TURNS: Final = "koguma_turn_seconds"
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

    rate: int = 200
    """Writes in a second that come steadily."""

    seconds: int = 20
    """For which they do."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """Counters at one moment, or between two."""

    moment: float
    planes: tuple[float, ...]
    """Processor seconds of each instance."""

    database: float
    """Processor seconds."""

    client: float
    """Processor seconds of this process."""

    turns: float
    """Of all instances, and the seconds that they took."""

    turn_seconds: float

    def since(self, earlier: _Reading) -> _Reading:
        return _Reading(
            self.moment - earlier.moment,
            tuple(now - before for now, before in zip(self.planes, earlier.planes, strict=True)),
            self.database - earlier.database,
            self.client - earlier.client,
            self.turns - earlier.turns,
            self.turn_seconds - earlier.turn_seconds,
        )

    @property
    def cpu(self) -> float:
        """Processor seconds of all instances."""
        return sum(self.planes)

    @property
    def turn(self) -> float:
        """Seconds that a turn took."""
        return self.turn_seconds / max(1.0, self.turns)


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
            bare_turn = self._bare_turn(planes)
            for plane in measured:
                plane.cold()
            return self._result(planes, measured, bare_turn)

    def _result(
        self, planes: Sequence[ControlPlane], measured: Sequence[MeasuredPlane], bare_turn: float
    ) -> InstancesResult:
        edits = self._options.edits
        self._edit(measured)  # the first creates what others change
        self._flushed()
        rested_at, resting_since = self._transactions(), self._reading(planes)
        self._flushed()
        transactions, before = self._transactions(), self._reading(planes)
        at_rest = before.since(resting_since)
        load_cpu = sum(plane.load.cpu for plane in measured)
        made = [self._edit(measured) for _ in range(edits)]
        load_cpu = sum(plane.load.cpu for plane in measured) - load_cpu
        editing = self._reading(planes).since(before)  # now: the longer one waits, the more of it is rest
        self._flushed()
        idle = (transactions - rested_at) / at_rest.moment
        of_edits = self._transactions() - transactions - idle * (editing.moment + FLUSHED)
        memory = max(psutil.Process(plane.pid).memory_info().rss for plane in planes) / _MIB
        written = self._written_at_once(planes)
        return InstancesResult(
            instances=self._instances,
            until_answered=median(edit.took for edit in made),
            cpu=_beyond(editing, at_rest, editing.cpu, at_rest.cpu) / edits / self._instances,
            turn=editing.turn,
            bare_turn=bare_turn,
            load_cpu=load_cpu / edits / self._instances,
            memory=memory,
            messages=dict(made[-1].messages),
            transactions=of_edits / edits,
            idle=idle,
            idle_cpu=at_rest.cpu / at_rest.moment / self._instances,
            idle_database_cpu=at_rest.database / at_rest.moment,
            read_cpu=self._read(planes),
            writes_a_second=written.a_second,
            database_cpu=written.database_cpu,
            cpu_of_a_write=written.cpu,
            connections=round(self._ask(_CONNECTIONS)),
            paced=self._paced(planes, at_rest),
            steady=self._steady(planes, measured),
        )

    # --- stages ---

    def _bare_turn(self, planes: Sequence[ControlPlane]) -> float:
        """What a turn takes before a proxy is connected."""
        before, writers = self._reading(planes), SteadyWriters([planes[0].api], "bare")
        with writers.writing(PACE, BARE / PACE):
            pass
        for plane in planes:
            plane.until_idle()
        return self._reading(planes).since(before).turn

    def _edit(self, measured: Sequence[MeasuredPlane]) -> Edited:
        """Edit a timeout that all proxies have, at one instance, and wait for all of them."""
        began = [plane.load.do("begin")["now"] for plane in measured][-1]
        document = mesh.route_timeout(f"{next(self._timeouts)}s")
        measured[0].plane.put(mesh.path_of(document), document)
        settled = [plane.load.do("settle", **self._all_answer) for plane in measured]
        messages = sum((Counter(of_load["messages"]) for of_load in settled), Counter[str]())
        assert not any("late" in of_load for of_load in settled)
        answered = [last - began for of_load in settled for last in of_load["last"]]
        return Edited(answered, messages)

    @property
    def _all_answer(self) -> dict[str, Any]:
        return {"wants": "answered", "least": self._options.proxies, "quiet": _QUIET, "within": _WITHIN}

    def _read(self, planes: Sequence[ControlPlane]) -> float:
        """What an instance takes in a second while nothing happens and somebody reads the feed of each."""
        with FeedReader.of([plane.api for plane in planes]):
            time.sleep(1)  # the first questions take more than those after them
            before = self._reading(planes)
            time.sleep(WATCHED)
            reading = self._reading(planes).since(before)
        return reading.cpu / reading.moment / self._instances

    def _written_at_once(self, planes: Sequence[ControlPlane]) -> WrittenAtOnce:
        """Many writes by several clients of each instance."""
        of_client = self._options.writes // (CLIENTS * len(planes))
        apis = [plane.api for plane in planes] * CLIENTS
        clients = [SteadyWriters([api], f"at-once-{number}") for number, api in enumerate(apis)]
        threads = [threading.Thread(target=client.write, args=(of_client,)) for client in clients]
        before = self._reading(planes)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took, writes = time.monotonic() - before.moment, of_client * len(clients)
        for plane in planes:
            plane.until_idle()
        spent = self._reading(planes).since(before)
        return WrittenAtOnce(writes / took, spent.database / writes, spent.cpu / writes / len(planes))

    def _paced(self, planes: Sequence[ControlPlane], at_rest: _Reading) -> PacedResult:
        before, writers = self._reading(planes), SteadyWriters([planes[0].api], "paced")
        with writers.writing(PACE, PACED / PACE):
            pass
        for plane in planes:
            plane.until_idle()
        spent = self._reading(planes).since(before)
        asked, *told = (
            _beyond(spent, at_rest, of_plane, resting) / PACED
            for of_plane, resting in zip(spent.planes, at_rest.planes, strict=True)
        )
        return PacedResult(
            asked=asked,
            told=sum(told) / len(told) if told else None,
            database_cpu=_beyond(spent, at_rest, spent.database, at_rest.database) / PACED,
            client=spent.client / PACED,
            turn=spent.turn,
            answered=Percentiles.of(write.answered - write.began for write in writers.written).p50,
        )

    def _steady(self, planes: Sequence[ControlPlane], measured: Sequence[MeasuredPlane]) -> SteadyResult:
        apis, options = [plane.api for plane in planes], self._options
        writers, before = SteadyWriters(apis, "steady"), self._reading(planes)
        edits: list[Edited] = []
        with FeedReader.of(apis) as readers:
            began = due = time.monotonic()
            with writers.writing(options.rate, options.seconds):
                while (due := due + EDIT_EVERY) < began + options.seconds:
                    time.sleep(max(0.0, due - time.monotonic()))
                    edits.append(self._edit(measured))
            spent, written = self._reading(planes).since(before), writers.written
            for reader in readers:
                reader.wait_for(max(write.revision for write in written))
        reached = [served(self._log(number)) for number in range(self._instances)]
        took = max(write.answered for write in written) - min(write.began for write in written)
        return SteadyResult(
            writes_a_second=len(written) / took,
            answered=Percentiles.of(write.answered - write.began for write in written),
            served=Percentiles.of(delay for of_plane in reached for delay in delays(written, of_plane)),
            at_proxies=Percentiles.of(delay for edit in edits for delay in edit.answered),
            in_force=Percentiles.of(edit.took for edit in edits),
            fed=Percentiles.of(delay for reader in readers for delay in delays(written, reader.told)),
            cpu=spent.cpu / spent.moment / self._instances,
            database_cpu=spent.database / spent.moment,
            turns=spent.turns / spent.moment / self._instances,
        )

    # --- what is counted ---

    def _reading(self, planes: Sequence[ControlPlane]) -> _Reading:
        metrics = [plane.metrics() for plane in planes]
        return _Reading(
            moment=time.monotonic(),
            planes=tuple(plane.cpu for plane in planes),
            database=database_cpu(self._server),
            client=time.process_time(),
            turns=sum(of_plane[f"{_TURNS}_count"] for of_plane in metrics),
            turn_seconds=sum(of_plane[f"{_TURNS}_sum"] for of_plane in metrics),
        )

    @staticmethod
    def _flushed() -> None:
        """Wait until all sessions have told what they did."""
        time.sleep(FLUSHED)

    def _transactions(self) -> float:
        return self._ask(_TRANSACTIONS)

    def _ask(self, question: str) -> float:
        """A number that the server tells of our database. It is asked in another one, so that this costs nothing."""
        return float(self._server.execute(question.format(self._database), "postgres")[0][0])

    # --- processes ---

    @contextmanager
    def _plane(self, number: int, url: str) -> Iterator[ControlPlane]:
        log = self._log(number)
        log.parent.mkdir()
        with ControlPlane(url, log, {"KUMA_GENERAL_WORK_DIR": str(log.parent / "work")}) as plane:
            yield plane

    def _log(self, number: int) -> Path:
        return self._folder / f"{self._instances}-{number}" / "log"

    @contextmanager
    def _load(self, number: int) -> Iterator[Worker]:
        """The proxies of one instance."""
        own = range(number * self._options.proxies, (number + 1) * self._options.proxies)
        with Worker("bench.serving.load", log=self._folder / f"{self._instances}-{number}.load") as load:
            load.do("make", names=[f"{mesh.MESH}.{mesh.proxy_name(proxy)}" for proxy in own], delta=True)
            yield load


@dataclass(frozen=True, slots=True)
class Edited:
    """When each proxy had answered an edit, in seconds since its begin, and what was sent."""

    answered: Sequence[float]
    messages: Mapping[str, int]

    @property
    def took(self) -> float:
        return max(self.answered)


@dataclass(frozen=True, slots=True)
class WrittenAtOnce:
    """How many writes there were in a second, and what one cost the database and an instance."""

    a_second: float
    database_cpu: float
    cpu: float


def _beyond(reading: _Reading, at_rest: _Reading, spent: float, resting: float) -> float:
    """What was spent, without what is spent in such a time while nothing happens."""
    return spent - resting / at_rest.moment * reading.moment


def database_cpu(server: PostgresServer) -> float:
    """Processor seconds of all processes of the server, those that have ended included."""
    assert server.process is not None
    return sum(_cpu(process) for process in _family(server.process.pid))


def _family(pid: int) -> Iterator[psutil.Process]:
    process = psutil.Process(pid)
    yield process
    yield from process.children(recursive=True)


def _cpu(process: psutil.Process) -> float:
    try:
        return sum(process.cpu_times()[:4])  # with those of children that have ended
    except psutil.NoSuchProcess:
        return 0.0
