"""Two control planes whose database fails in each way: proxies lose no request, and what was answered is there.

tests/store/test_postgres.py has the same of the store alone, and tests/linear of what clients of the API are told.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final

import asyncpg
import httpx
import pytest

from cp.client.client import Client
from tests.e2e.test_two_control_planes import (
    CLIENTS,
    IN_SYNC,
    START,
    Instances,
    in_force,
    plane,
    timeout,
    with_one_authority,
    with_proxies,
)
from tests.linear.faults import ThreadedCable, cable_in_a_thread
from tests.support.client import Traffic
from tests.support.control_plane import ControlPlane
from tests.support.load import Calls
from tests.support.loopback import free_port, new_host
from tests.support.mesh import MESH, mesh_service
from tests.support.postgres import PostgresServer, database_on_small_disk, postgres_server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.envoy, pytest.mark.long]

PATIENCE: Final = "2"
"""Seconds that a control plane waits for its database, so that it notices sooner what fails here."""

DISK: Final = "40m"
FILLING: Final = "INSERT INTO filler SELECT repeat('x', 7000) FROM generate_series(1, {})"
"""A page for each row."""


@dataclass(frozen=True, slots=True)
class Database:
    """What can fail: the server, the disk of its tables, and the cable of each control plane to it."""

    server: PostgresServer
    name: str
    cables: Sequence[ThreadedCable]
    has_disk: bool

    def execute(self, statement: str) -> list[asyncpg.Record]:
        return self.server.execute(statement, self.name)


@contextmanager
def restarted(database: Database) -> Iterator[None]:
    database.server.stop()
    yield
    database.server.start()


@contextmanager
def killed(database: Database) -> Iterator[None]:
    database.server.kill()
    yield
    database.server.start()


@contextmanager
def cut(database: Database) -> Iterator[None]:
    for cable in database.cables:
        cable.cut()
    yield


@contextmanager
def silent(database: Database) -> Iterator[None]:
    """Packets are dropped, and nobody is told."""
    for cable in database.cables:
        cable.swallow()
    yield
    for cable in database.cables:
        cable.carry()


@contextmanager
def full(database: Database) -> Iterator[None]:
    if not database.has_disk:
        pytest.skip("only root can make a disk that is soon full")
    database.execute("CREATE TABLE filler (content text STORAGE PLAIN) WITH (autovacuum_enabled = off)")
    for rows in (100_000, *[1] * 500):  # first all at once, which leaves a few pages
        try:
            database.execute(FILLING.format(rows))
        except asyncpg.DiskFullError:
            if rows == 1:
                break
    yield
    database.execute("DROP TABLE filler")


Fault = Callable[[Database], AbstractContextManager[None]]
AWAY, NO_WRITES, NOTHING = "follows", "writes", ""
"""Which level of `/ready` tells of a fault, if any does."""


class NotedEdits:
    """Edits of a timeout, one after the other, and those that were answered with success."""

    def __init__(self, addresses: str, numbers: Iterator[int]) -> None:
        self._client, self._numbers = Client(addresses, timeout=START), numbers
        self.answered: list[int] = []

    def __call__(self) -> str:
        number = next(self._numbers)
        self._client.put("/meshes/default/meshtimeouts/edited", json.dumps(timeout(number)))
        self.answered.append(number)
        return "stored"


@dataclass(frozen=True, slots=True)
class Stand:
    instances: Instances
    database: Database
    numbers: Iterator[int]

    def logged(self) -> list[int]:
        """The values of the timeout that were ever stored, in the order of their writes."""
        rows = self.database.execute(
            "SELECT after #>> '{spec,to,0,default,http,requestTimeout}' AS value FROM koguma.changes "
            "WHERE type = 'MeshTimeout' AND name = 'edited' ORDER BY revision"
        )
        return [int(row["value"].removesuffix("ms")) for row in rows]

    def is_told(self, level: str) -> bool:
        return any(ready(plane, level) == httpx.codes.SERVICE_UNAVAILABLE for plane in self.instances.planes)

    def is_well(self) -> bool:
        levels = [(plane, level) for plane in self.instances.planes for level in (AWAY, NO_WRITES)]
        return all(ready(plane, level) == httpx.codes.OK for plane, level in levels)


def ready(control_plane: ControlPlane, level: str) -> int:
    return httpx.get(f"{control_plane.diagnostics.url}/ready", params={"level": level}, timeout=START).status_code


@contextmanager
def database_with_cables(planes: int) -> Iterator[Database]:
    with postgres_server() as server, ExitStack() as stack:
        name = stack.enter_context(database_on_small_disk(server, DISK))
        cables = [stack.enter_context(cable_in_a_thread(server.address)) for _ in range(planes)]
        yield Database(server, name or server.new_database(), cables, has_disk=name is not None)


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    folder, port, admin = tmp_path_factory.mktemp("database"), free_port(new_host()), new_host()
    folders = [folder / name for name in ("one", "two")]
    with_one_authority(folder / "work" for folder in folders)
    with database_with_cables(len(folders)) as database, ExitStack() as stack:
        url = database.server.url(database.name, timeout=PATIENCE, connect_timeout=PATIENCE)
        urls = [url.replace(str(database.server.address), str(cable.address)) for cable in database.cables]
        planes = [stack.enter_context(plane(*of, port, admin)) for of in zip(folders, urls, strict=True)]
        planes[0].apply(MESH, mesh_service("backend"), timeout(9000))
        instances = Instances(folder, stack, planes)
        with_proxies(instances)
        eventually(lambda: instances.all_in_sync_with(*planes), START)
        yield Stand(instances, database, count(9001))


def test_a_proxy_that_moves_is_sent_nothing_that_it_has(stand: Stand) -> None:
    killed, left = sorted(stand.instances.planes, key=lambda plane: plane.metrics()[IN_SYNC], reverse=True)
    assert killed.metrics()[IN_SYNC] > 0
    before = accepted(left)
    killed.kill()
    eventually(lambda: stand.instances.all_in_sync_with(left), START)
    in_force(stand.instances, left, next(stand.numbers))

    callers = [(f"default.client-{number}", "routes") for number in range(CLIENTS)]
    assert sorted(accepted(left)[len(before) :]) == callers
    killed.start().ready(START)


def accepted(control_plane: ControlPlane) -> list[tuple[Any, Any]]:
    """Who took which type of resources from it."""
    return [(event["proxy"], event["type"]) for event in control_plane.events("resources.accepted")]


@pytest.mark.parametrize(
    ("fault", "told_by"), [(restarted, AWAY), (killed, AWAY), (cut, NOTHING), (silent, AWAY), (full, NO_WRITES)]
)
def test_a_database_that_fails_costs_no_request_and_no_edit_that_was_answered(
    stand: Stand, fault: Fault, told_by: str
) -> None:
    instances, edits = stand.instances, NotedEdits(stand.instances.addresses, stand.numbers)
    with (
        Traffic(instances.proxies["client-0"].outbound()) as traffic,
        Calls(edits, pause=0.05) as steady,
    ):
        eventually(partial(more_than, edits.answered, 10), START)
        with fault(stand.database):
            eventually(lambda: not told_by or stand.is_told(told_by), START)
            requests, failures = len(traffic.outcomes) + 20, len(steady.failures) + (3 if told_by else 0)
            eventually(lambda: len(traffic.outcomes) > requests and len(steady.failures) >= failures, START)
        answered = len(edits.answered) + 10
        eventually(lambda: len(edits.answered) > answered and stand.is_well(), START)

    assert traffic.failures == []
    logged = stand.logged()
    assert [number for number in logged if number in set(edits.answered)] == edits.answered
    assert len(logged) == len(set(logged))
    for control_plane in instances.planes:
        in_force(instances, control_plane, next(stand.numbers))


def more_than(values: Sequence[object], number: int) -> bool:
    return len(values) > number
