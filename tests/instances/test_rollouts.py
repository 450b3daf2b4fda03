"""A rollout on two control planes: one takes it from step to step, and both serve the same proxies what it has."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.instances.test_together import NAMES, all_are_online, connected, fakes, pair, statuses, timeout
from tests.support.control_plane import ControlPlane, Document
from tests.support.mesh import MESH, Proxy, mesh_service
from tests.support.waiting import eventually

__all__ = ["pair"]


def begin(control_plane: ControlPlane, hold: str, *documents: Document) -> None:
    order = {"steps": "1,100%", "hold": hold}
    body = {"resources": [{"text": json.dumps(each)} for each in documents], "rollout": order}
    content, kind = json.dumps(body).encode(), {"content-type": "application/json"}
    control_plane.request("POST", "/_apply", content, **kind).raise_for_status()


def rollout(control_plane: ControlPlane) -> Any:
    return control_plane.get("/meshes/default/_rollout")


def chosen(control_plane: ControlPlane) -> list[str]:
    """Who is served the first step, as soon as they have it."""
    proxies: list[str] = eventually(
        lambda: rollout(control_plane)["state"] == "Holding" and rollout(control_plane)["proxies"], within=30
    )
    return proxies


def served(control_plane: ControlPlane, name: str) -> str:
    return json.dumps(control_plane.get(f"/meshes/default/dataplanes/{name}/_config")["xds"])


def steps_taken(control_plane: ControlPlane) -> list[int]:
    return [event["step"] for event in control_plane.events("rollout.step")]


@pytest.mark.long
@pytest.mark.parametrize("pair", ["postgres"], indirect=True)
def test_both_serve_the_same_proxies_what_is_rolled_out_and_one_takes_the_steps(
    pair: tuple[ControlPlane, ControlPlane],
) -> None:
    first, second = pair
    with connected(*fakes(first.ads, *NAMES[:2]), *fakes(second.ads, *NAMES[2:])):
        eventually(partial(all_are_online, second), within=20)
        begin(second, "1s", timeout("7s"))
        (name,) = chosen(second)
        for each in NAMES:
            assert served(first, each) == served(second, each)
            assert ('"7s"' in served(first, each)) is (each == name)
        eventually(lambda: rollout(second)["state"] == "Done", within=30)

        assert sorted(map(len, (steps_taken(first), steps_taken(second)))) == [0, 2]
        for control_plane in pair:
            eventually(lambda control_plane=control_plane: all('"7s"' in served(control_plane, each) for each in NAMES))  # type: ignore[misc]  # bound here


@pytest.mark.long
@pytest.mark.parametrize("pair", ["postgres"], indirect=True)
def test_another_one_goes_on_where_one_was_killed(pair: tuple[ControlPlane, ControlPlane]) -> None:
    first, second = pair
    with connected(*fakes(second.ads, *NAMES)):
        eventually(partial(all_are_online, second), within=20)
        eventually(lambda: statuses(second) == ["Online", "Online"], within=10)
        assert [item["leads"] for item in second.get("/_instances")["items"]] == [True, False]
        begin(second, "3s", timeout("7s"))
        names = chosen(second)
        assert (steps_taken(first), steps_taken(second)) == ([1], [])
        first.kill()

        assert rollout(second)["proxies"] == names
        eventually(lambda: rollout(second)["state"] == "Done", within=60)
        assert steps_taken(second) == [2]
        assert all('"7s"' in served(second, each) for each in NAMES)


@pytest.mark.long
def test_workers_serve_the_proxies_that_the_process_with_the_api_has_chosen(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/koguma.db"
    with ControlPlane(tmp_path / "first", store, KOGUMA_WORKERS="2") as control_plane:
        control_plane.apply(MESH, mesh_service("web"), timeout("9s"))
        control_plane.apply(*(Proxy(name, "web", backends=("web",)).document for name in NAMES))
        with connected(*fakes(control_plane.ads, *NAMES)):
            eventually(partial(all_are_online, control_plane), within=20)
            begin(control_plane, "1s", timeout("7s"))
            (name,) = chosen(control_plane)
            assert [each for each in NAMES if '"7s"' in served(control_plane, each)] == [name]
            eventually(lambda: rollout(control_plane)["state"] == "Done", within=30)
            sent = control_plane.get(f"/meshes/default/dataplanes/{name}/_delivery")["streams"][0]["types"]
            (routes,) = [each for each in sent if each["type"] == "routes"]
            assert (routes["responses"], routes["inSync"]) == (2, True)
