"""Control planes on one PostgreSQL: they begin together, and go on without it until it is there again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.instances.test_feed_served import followed, writes
from tests.support.control_plane import ControlPlane
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.waiting import eventually

DATAPLANE = {
    "type": "Dataplane",
    "mesh": "default",
    "name": "web-1",
    "networking": {
        "address": "192.0.2.1",
        "inbound": [{"port": 8080, "tags": {"kuma.io/service": "web", "kuma.io/protocol": "http"}}],
    },
}
CONFIG = "/meshes/default/dataplanes/web-1/_config"


def timeout(seconds: int) -> dict[str, Any]:
    conf = {"http": {"requestTimeout": f"{seconds}s"}}
    to = [{"targetRef": {"kind": "Mesh"}, "default": conf}]
    return {"type": "MeshTimeout", "mesh": "default", "name": "slow", "spec": {"targetRef": {"kind": "Mesh"}, "to": to}}


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def pair(server: PostgresServer, tmp_path: Path) -> Iterator[tuple[ControlPlane, ControlPlane]]:
    """Two that are started at once on an empty database."""
    url = server.new_url()
    with ExitStack() as stack:
        both = [
            ControlPlane(tmp_path / name, store=url, KUMA_DEFAULTS_SKIP_MESH_CREATION="false").start() for name in "ab"
        ]
        for control_plane in both:
            stack.callback(control_plane.close)
        yield both[0].ready(), both[1].ready()


def ready(control_plane: ControlPlane, **parameters: str) -> httpx.Response:
    return httpx.get(f"{control_plane.diagnostics.url}/ready", params=parameters)


def stored(control_plane: ControlPlane) -> Any:
    return control_plane.get("/meshes/default/meshtimeouts/slow")["spec"]["to"][0]["default"]["http"]["requestTimeout"]


def test_two_control_planes_make_one_mesh_and_outlive_their_database(
    pair: tuple[ControlPlane, ControlPlane], server: PostgresServer
) -> None:
    one, other = pair
    made = server.execute("SELECT revision FROM koguma.changes WHERE type = 'Mesh'", server.last_database)
    assert [row["revision"] for row in made] == [1]

    one.apply(DATAPLANE, timeout(7))
    assert eventually(lambda: stored(other) == "7s")
    config = one.get(CONFIG)
    eventually(lambda: other.get(CONFIG) == config)
    server.stop()
    eventually(lambda: all(ready(each, level="follows").status_code == 503 for each in pair))
    refusal = one.put(timeout(8))
    assert refusal.status_code == 503
    assert "the store is away since" in refusal.json()["detail"]
    assert [ready(each).json()["follows"] for each in pair] == [False, False]
    assert ready(one).status_code == 200
    assert one.get(CONFIG) == other.get(CONFIG) == config
    assert one.metrics()["koguma_store_follows"] == 0

    server.start()
    eventually(lambda: all(ready(each, level="follows").status_code == 200 for each in pair), within=20)
    other.apply(timeout(9))
    eventually(lambda: stored(one) == "9s")


@pytest.mark.long
def test_the_feed_tells_that_the_database_is_away_and_afterwards_of_what_was_written(
    pair: tuple[ControlPlane, ControlPlane], server: PostgresServer
) -> None:
    one, other = pair
    events: list[tuple[str, Any]] = []
    with followed(one, events):
        eventually(lambda: [data["follows"] for name, data in events if name == "contact"] == [True])
        server.stop()
        eventually(lambda: _last_contact(events)["follows"] is False, within=30)
        assert _last_contact(events) == {"follows": False, "writes": False, "silent": 0}
        server.start()
        eventually(lambda: other.put(timeout(9)).is_success, within=20)
        eventually(lambda: bool(writes(events)) and _last_contact(events)["follows"], within=30)

    assert "reload" not in [name for name, _ in events]


def _last_contact(events: list[tuple[str, Any]]) -> Any:
    return [data for name, data in list(events) if name == "contact"][-1]
