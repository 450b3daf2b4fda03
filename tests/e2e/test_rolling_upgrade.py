"""Two control planes are upgraded one after the other, over a migration of their store, and one goes back again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import pytest

import cp
from cp.store.migrations import migrations
from tests.support.client import Traffic
from tests.support.control_plane import ControlPlane
from tests.support.mesh import MESH, mesh_service, policy, request_timeout, service_item
from tests.support.playground import Playground, timeouts
from tests.support.postgres import database_of, needs_postgres, shared_postgres
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

START: Final = 40.0
"""Seconds for a process to start on a busy machine."""

STEP: Final = "-- compatible with: {known}\nCREATE TABLE {table} (number INTEGER);\n"
"""A migration after which the version that does not know it goes on."""


@dataclass(frozen=True, slots=True)
class StoreKind:
    """Where control planes keep what there is, and how it is seen that a newer version was there."""

    name: str
    url: Callable[[Path], str]
    table: str
    is_migrated: Callable[[Path], bool]


def _in_postgres(folder: Path) -> bool:
    database = database_of(folder).rpartition("/")[2]
    return bool(shared_postgres().execute("SELECT to_regclass('koguma.of_tomorrow') IS NOT NULL", database)[0][0])


def _in_sqlite(folder: Path) -> bool:
    return b"of_tomorrow" in (folder / "koguma.db").read_bytes() + (folder / "koguma.db-wal").read_bytes()


STORES: Final = {
    "sqlite": StoreKind("sqlite", lambda folder: f"sqlite:///{folder}/koguma.db", "of_tomorrow", _in_sqlite),
    "postgres": StoreKind("postgres", database_of, "koguma.of_tomorrow", _in_postgres),
}


@pytest.fixture(params=["postgres", pytest.param("sqlite", marks=pytest.mark.long)])
def store(request: pytest.FixtureRequest) -> StoreKind:
    if request.param == "postgres":
        needs_postgres()
    return STORES[request.param]


@dataclass(frozen=True, slots=True)
class Installations:
    """Two control planes on one store, a caller of each, and the folder with the next version."""

    one: ControlPlane
    two: ControlPlane
    callers: tuple[Playground, Playground]
    next_version: Path
    numbers: Iterator[int]

    def edit(self, at: ControlPlane) -> str:
        """Edit a timeout, and answer with what the callers are to have of it."""
        milliseconds = next(self.numbers)
        at.apply(policy("MeshTimeout", "edited", service_item("echo", request_timeout(f"{milliseconds}ms"))))
        return f"{milliseconds / 1000:.3f}s"

    def all_have(self, timeout: str) -> bool:
        return all(timeout in timeouts(caller.envoys[f"caller-{n}"]).values() for n, caller in enumerate(self.callers))


@pytest.fixture
def installations(store: StoreKind, tmp_path: Path) -> Iterator[Installations]:
    with ExitStack() as stack:
        one, two = [stack.enter_context(ControlPlane(tmp_path / name, store.url(tmp_path))) for name in ("one", "two")]
        one.apply(MESH, mesh_service("echo"))
        callers = Playground(one, tmp_path, stack), Playground(two, tmp_path, stack)
        callers[0].service("echo")
        for number, caller in enumerate(callers):
            caller.client(f"caller-{number}", "echo")
            caller.ready()
        yield Installations(one, two, callers, with_another_step(store, tmp_path / "next"), count(10_001))


def with_another_step(store: StoreKind, folder: Path) -> Path:
    """A copy of this version that knows one more migration."""
    shutil.copytree(Path(cp.__file__).parent, folder / "cp", ignore=shutil.ignore_patterns("__pycache__"))
    known = len(migrations(store.name))
    step = folder / "cp" / "store" / "migrations" / store.name / "9999_of_tomorrow.sql"
    step.write_text(STEP.format(known=known, table=store.table))
    return folder


@pytest.mark.long
def test_an_upgrade_over_a_migration_and_back_costs_no_request_and_no_edit(
    installations: Installations, store: StoreKind, tmp_path: Path
) -> None:
    one, two, callers = installations.one, installations.two, installations.callers
    addresses = [caller.proxies[f"caller-{number}"].outbound() for number, caller in enumerate(callers)]
    assert not store.is_migrated(tmp_path)
    with Traffic(addresses[0]) as of_one, Traffic(addresses[1]) as of_two:
        for leaving, staying, version in (
            (one, two, installations.next_version),
            (two, one, installations.next_version),
            (two, one, None),
        ):
            leaving.stop()
            meanwhile = installations.edit(staying)
            leaving.start(PYTHONPATH="" if version is None else str(version)).ready(START)

            eventually(partial(installations.all_have, meanwhile), START)
            assert store.is_migrated(tmp_path)
            for control_plane in (leaving, staying):
                eventually(partial(installations.all_have, installations.edit(control_plane)), START)

    assert [traffic.failures for traffic in (of_one, of_two)] == [[], []]
    assert min(len(of_one.outcomes), len(of_two.outcomes)) > 100
