"""The fleet and the feed of control planes that run: those of two on one store, and of two workers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from tests.instances.test_together import NAMES, connected, fakes, timeout
from tests.support.control_plane import ControlPlane
from tests.support.leaks import leaks
from tests.support.mesh import MESH, Proxy, mesh_service
from tests.support.waiting import eventually


def fleet_of(control_plane: ControlPlane) -> dict[str, dict[str, Any]]:
    data = control_plane.get("/_fleet")
    rows = (dict(zip(data["columns"], row, strict=True)) for row in data["meshes"]["default"])
    return {row["name"]: row for row in rows}


def states_of(control_plane: ControlPlane) -> dict[str, str]:
    return {name: row["state"] for name, row in fleet_of(control_plane).items()}


def all_are(control_plane: ControlPlane, *expected: str) -> bool:
    return list(states_of(control_plane).values()) == list(expected)


@contextmanager
def followed(control_plane: ControlPlane, events: list[tuple[str, Any]]) -> Iterator[None]:
    """Read the feed until the block ends."""
    with (
        httpx.Client(base_url=control_plane.api.url, timeout=60) as client,
        client.stream("GET", "/_feed?wait=60s") as answer,
    ):
        reader = Thread(target=_read, args=(answer, events))
        reader.start()
        try:
            yield
        finally:
            # Ends the wait for a line that does not come.
            answer.extensions["network_stream"].get_extra_info("socket").shutdown(2)
            reader.join(20)
    assert not list(leaks(json.dumps(events).encode()))


def _read(answer: httpx.Response, events: list[tuple[str, Any]]) -> None:
    name = ""
    try:
        for line in answer.iter_lines():
            field, _, text = line.partition(": ")
            if field == "event":
                name = text
            elif field == "data":
                events.append((name, json.loads(text)))
    except httpx.TransportError:
        return


def told(events: list[tuple[str, Any]]) -> dict[str, str]:
    """The last that was said of each proxy."""
    rows = [row for name, data in list(events) if name == "fleet" for row in data["meshes"]["default"]]
    return {row[0]: row[1] for row in rows}


def writes(events: list[tuple[str, Any]]) -> list[int]:
    return [data["revision"] for name, data in list(events) if name == "changes"]


def written(control_plane: ControlPlane) -> ControlPlane:
    control_plane.apply(MESH, mesh_service("web"), timeout("9s"))
    control_plane.apply(*(Proxy(name, "web", backends=("web",)).document for name in NAMES))
    return control_plane


@pytest.mark.long
def test_two_control_planes_tell_of_the_proxies_of_both(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/koguma.db"
    events: list[tuple[str, Any]] = []
    with ControlPlane(tmp_path / "first", store) as first, ControlPlane(tmp_path / "second", store) as second:
        written(first)
        with followed(first, events):
            eventually(lambda: bool(events))
            with connected(*fakes(first.ads, *NAMES[:2]), *fakes(second.ads, *NAMES[2:])):
                eventually(lambda: told(events) == dict.fromkeys(NAMES, "Online"), within=20)
                ids = {item["self"]: item["id"] for item in first.get("/_instances")["items"]}
                assert [row["instance"] for row in fleet_of(first).values()] == ["", "", ids[False], ids[False]]
                revision = int(second.put(timeout("8s")).headers["koguma-revision"])
                eventually(lambda: ("world", {"revision": revision}) in events, within=20)
                eventually(lambda: writes(events)[-1] == revision)
            eventually(lambda: told(events) == dict.fromkeys(NAMES, "Offline"), within=20)
            second.kill()
            eventually(lambda: told(events) == dict.fromkeys(NAMES, "Unknown"), within=20)
            assert first.get("/_fleet")["silent"] == 1


@pytest.mark.long
def test_two_workers_tell_of_the_proxies_of_both(tmp_path: Path) -> None:
    events: list[tuple[str, Any]] = []
    with ControlPlane(tmp_path, f"sqlite:///{tmp_path}/koguma.db", KOGUMA_WORKERS="2") as control_plane:
        written(control_plane)
        with followed(control_plane, events):
            with connected(*fakes(control_plane.ads, *NAMES)):
                eventually(partial(all_are, control_plane, *["Online"] * len(NAMES)), within=20)
                eventually(lambda: told(events) == dict.fromkeys(NAMES, "Online"), within=20)
            eventually(lambda: told(events) == dict.fromkeys(NAMES, "Offline"), within=20)
