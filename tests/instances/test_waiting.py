"""`--wait` at a control plane that runs: right after its start, when another one goes, and beside a rollout."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cli.conftest import Koguma
from tests.instances.test_rollouts import begin, chosen, rollout
from tests.instances.test_together import NAMES, all_are_online, connected, fakes, pair, timeout, waited
from tests.support.control_plane import ControlPlane
from tests.support.mesh import MESH, Proxy, mesh_service
from tests.support.waiting import eventually

__all__ = ["pair"]

IDS = [f"default.{name}" for name in NAMES]


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane whose resources survive it, without a proxy."""
    with ControlPlane(tmp_path, f"sqlite:///{tmp_path}/koguma.db") as control_plane:
        control_plane.apply(MESH, mesh_service("web"), timeout("9s"))
        control_plane.apply(*(Proxy(name, "web", backends=("web",)).document for name in NAMES))
        yield control_plane


def written(folder: Path, value: str) -> Path:
    (file := folder / f"{value}.json").write_text(json.dumps(timeout(value)))
    return file


def test_before_proxies_have_come_back_nobody_says_that_a_change_reaches_none(
    alone: ControlPlane, tmp_path: Path
) -> None:
    koguma, file = Koguma(alone.api.url), written(tmp_path, "8s")
    fresh = koguma("apply", "-f", written(tmp_path, "9s"), "--wait")
    assert (fresh.status, fresh.lines[-1]) == (0, "unchanged; no proxy is connected")

    alone.kill()
    alone.start().ready()
    applied = koguma("apply", "-f", file, "--wait", "--timeout", "500ms")
    deleted = koguma("delete", "-f", file, "--wait", "--timeout", "500ms")

    for ended in (applied, deleted):
        assert (ended.status, ended.lines[-1]) == (1, "it reaches no proxy that was connected")
        assert f"Error: not known within 500ms what {', '.join(IDS)} have\n" in ended.err
    with connected(*fakes(alone.ads, *NAMES)):
        back = koguma("apply", "-f", file, "--wait")
        assert back.status == 0, back.err
        eventually(partial(all_are_online, alone), within=20)


@pytest.mark.long
def test_who_comes_back_while_one_waits_has_it_in_the_end(alone: ControlPlane) -> None:
    alone.kill()
    alone.start().ready()
    revision = int(alone.put(timeout("8s")).headers["koguma-revision"])

    with connected(*fakes(alone.ads, *NAMES)):
        progress = waited(alone, revision)

    assert (progress["done"], progress["unknown"], progress["waiting"]) == (True, [], [])
    assert progress["returned"] + progress["have"] == len(NAMES)


@pytest.mark.long
@pytest.mark.parametrize("pair", ["postgres"], indirect=True)
def test_the_proxies_of_a_control_plane_that_has_gone_are_waited_for(pair: tuple[ControlPlane, ControlPlane]) -> None:
    first, second = pair
    with connected(*fakes(first.ads, *NAMES)):
        eventually(partial(all_are_online, second), within=20)
    with connected(*fakes(second.ads, NAMES[0])):
        eventually(lambda: len(second.get("/_instances")["items"]) == 2, within=10)
        first.kill()
        revision = int(second.put(timeout("8s")).headers["koguma-revision"])
        progress = waited(second, revision, "12s")

    assert progress["unknown"] == IDS[1:]


def test_whom_a_rollout_holds_is_waited_for_until_it_has_gone_back(alone: ControlPlane, tmp_path: Path) -> None:
    koguma = Koguma(alone.api.url)
    with connected(*fakes(alone.ads, *NAMES)):
        eventually(partial(all_are_online, alone), within=20)
        begin(alone, "10m", timeout("7s"))
        chosen(alone)
        ended = koguma("apply", "-f", written(tmp_path, "8s"), "--wait")

        assert (ended.status, ended.lines[-1].partition(",")[0]) == (0, "4 of 4 proxies have it"), ended.err
        assert rollout(alone)["state"] == "RolledBack"


@pytest.mark.long
def test_of_what_a_rollout_changes_it_is_said_who_is_served_something_else(alone: ControlPlane, tmp_path: Path) -> None:
    koguma, file = Koguma(alone.api.url), written(tmp_path, "9s")
    assert koguma("apply", "-f", file).status == 0, "the file becomes the origin of what is stored"
    with connected(*fakes(alone.ads, *NAMES)):
        eventually(partial(all_are_online, alone), within=20)
        begin(alone, "10m", timeout("7s"))
        (name,) = chosen(alone)
        planned, data = koguma("plan", "-f", file, "--check"), koguma("plan", "-f", file, "-o", "json")
        in_markdown = koguma("plan", "-f", file, "-o", "markdown")

        (sentence,) = json.loads(data.out)["rollouts"]
        assert sentence.endswith("is under way: step 1 of 2 (1), 1 of 4 proxies, holding")
        note = f"Some proxies may be served something else than what is stored: {sentence}."
        assert (planned.status, planned.lines) == (0, ["Nothing would change.", note])
        assert f"_{note}_" in in_markdown.lines

        again = koguma("apply", "-f", file, "--wait", "--timeout", "300ms")  # writes nothing, so the rollout goes on

        assert again.status == 1
        assert f"not within 300ms: default.{name} is served what a rollout proposes in its place" in again.err
        assert rollout(alone)["underWay"]
        assert koguma("rollout", "abort").status == 0
        eventually(partial(all_are_online, alone), within=20)
        assert koguma("apply", "-f", file, "--wait").status == 0


@pytest.mark.long
def test_the_write_that_ends_a_good_rollout_has_reached_all_of_its_proxies(alone: ControlPlane) -> None:
    with connected(*fakes(alone.ads, *NAMES)):
        eventually(partial(all_are_online, alone), within=20)
        begin(alone, "100ms", timeout("7s"))
        eventually(lambda: rollout(alone)["state"] == "Done", within=30)
        newest = next(item for item in alone.get("/_changes")["items"] if item["resources"][0]["type"] == "MeshTimeout")

    reach = newest["reach"]
    assert (reach["proxies"], reach["have"], reach["waiting"]) == (len(NAMES), len(NAMES), 0)
    assert reach["inForce"] is not None
