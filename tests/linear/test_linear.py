"""Clients of several control planes on one store, while everything fails that can: what they are told is linearisable.

`make linear` lets it last 10 minutes; in `make test-long` each thing fails once, and then all for half a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import pytest

from tests.linear.checker import faults
from tests.linear.clients import Clients
from tests.linear.faults import Calamities, ThreadedCable, cable_in_a_thread, faults_of
from tests.linear.follower import Follower
from tests.support.control_plane import ControlPlane
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.waiting import eventually

CONTROL_PLANES: Final = 2
CLIENTS: Final = 4
KILLS: Final = 10
PATIENCE: Final = "2"
"""Seconds that a control plane waits for its database, so that it notices sooner what fails here."""


@dataclass(frozen=True, slots=True)
class Stand:
    """A store, and the faults that it can have. Each control plane reaches it in its own way."""

    url: str
    urls: tuple[str, ...]
    server: PostgresServer | None = None
    cables: tuple[ThreadedCable, ...] = ()


@contextmanager
def sqlite(folder: Path) -> Iterator[Stand]:
    url = f"sqlite:///{folder}/koguma.db"
    yield Stand(url, (url,) * CONTROL_PLANES)


@contextmanager
def postgres(_: Path) -> Iterator[Stand]:
    with postgres_server() as server, ExitStack() as stack:
        url = server.new_url()
        cables = tuple(stack.enter_context(cable_in_a_thread(server.address)) for _ in range(CONTROL_PLANES))
        urls = (url.replace(str(server.address), str(cable.address)) for cable in cables)
        yield Stand(url, tuple(f"{url}?timeout={PATIENCE}&connect_timeout={PATIENCE}" for url in urls), server, cables)


Store = Callable[[Path], AbstractContextManager[Stand]]

STORES: Final = [pytest.param(sqlite, id="sqlite"), pytest.param(postgres, id="postgres")]


@pytest.mark.long
@pytest.mark.parametrize("store", STORES)
def test_what_clients_are_told_while_each_thing_fails_once_is_linearisable(store: Store, tmp_path: Path) -> None:
    told_is_linearisable(store, tmp_path, 1, lambda calamities: calamities.each_once())


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("store", STORES)
def test_what_clients_are_told_while_much_fails_is_linearisable(
    store: Store, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seconds, seed = (request.config.getoption(f"--linear-{name}") for name in ("seconds", "seed"))
    told_is_linearisable(store, tmp_path, seed, lambda calamities: calamities.rage(seconds))


def told_is_linearisable(store: Store, tmp_path: Path, seed: int, fail: Callable[[Calamities], None]) -> None:
    chance = Random(seed)
    with store(tmp_path) as stand, ExitStack() as stack:
        control_planes = [
            stack.enter_context(ControlPlane(tmp_path / f"cp-{number}", url, KOGUMA_LOG_LEVEL="info"))
            for number, url in enumerate(stand.urls)
        ]
        control_planes[0].apply({"type": "Mesh", "name": "default", "skipCreatingInitialPolicies": ["*"]})
        follower = Follower(stand.url)
        clients = Clients([control_plane.api for control_plane in control_planes], CLIENTS, chance)
        calamities = Calamities(faults_of(control_planes, stand.server, stand.cables, chance), chance)
        with follower.following(), clients.busy():
            fail(calamities)
            for _ in range(KILLS):  # whether somebody waits for an answer when a control plane dies is a matter of luck
                if clients.counts["write uncertain"] == 0:
                    calamities.happen("control plane killed")
            # On a slow machine the faults may be over before there is enough to judge.
            eventually(lambda: min(clients.counts["write done"], clients.counts["read done"]) > 100, within=60)
    print(f"seed {seed}: {dict(calamities.done)}, {dict(clients.counts)}")  # noqa: T201
    assert faults(clients.history, follower.log) == []
    assert clients.odd == []
