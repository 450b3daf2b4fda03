"""SIGHUP never ends a control plane: a folder is read again, and what else there is stays as it is."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.control_plane import ControlPlane
from tests.support.waiting import eventually

FOLDER = ("dir:{}", "control_plane.rereading")
DATABASE = ("sqlite:///{}/koguma.db", "control_plane.hangup_ignored")


def logged(control_plane: ControlPlane, event: str) -> bool:
    return event in control_plane.log.read_text()


@pytest.mark.parametrize(
    ("store", "event", "workers"),
    [
        (*FOLDER, "2"),
        (*DATABASE, "1"),
        pytest.param(*FOLDER, "1", marks=pytest.mark.long),
        pytest.param(*DATABASE, "2", marks=pytest.mark.long),
    ],
)
def test_a_control_plane_outlives_a_hangup_and_says_what_it_did(
    tmp_path: Path, store: str, event: str, workers: str
) -> None:
    (folder := tmp_path / "store").mkdir()
    with ControlPlane(tmp_path, store.format(folder), KOGUMA_WORKERS=workers) as control_plane:
        control_plane.process.send(signal.SIGHUP)
        eventually(lambda: logged(control_plane, event))

        assert control_plane.request("GET", "/").status_code == 200
        assert control_plane.stop() == 0
