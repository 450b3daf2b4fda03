"""`koguma apply --rollout` and `koguma rollout`, where no proxy is connected; tests/e2e/test_rollouts.py has Envoys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from cp.cli import rollouts
from cp.cli.rollouts import followed, must_be_done
from cp.client.client import Client
from cp.client.failures import Unreachable
from cp.client.problem import Problem
from tests.api.samples import TIMEOUT_YAML
from tests.cli.conftest import Koguma


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    (file := tmp_path / "slow.yaml").write_text(TIMEOUT_YAML)
    return file


def test_what_reaches_no_connected_proxy_is_stored_at_once(koguma: Koguma, slow: Path) -> None:
    ended = koguma("apply", "-f", slow, "--rollout", "1,100%")

    assert ended.status == 0, ended.err
    assert ended.lines[0] == 'resource type="MeshTimeout" mesh="default" name="slow" would be Created'
    assert ended.lines[1].endswith("of mesh default is done: it makes no difference for a connected proxy")
    assert koguma("get", "meshtimeout", "slow").status == 0
    shown = koguma("rollout", "show").lines
    assert shown[0].endswith("of mesh default: done")
    assert shown[-1] == "MeshTimeout default/slow is new"
    assert koguma("rollout", "show", "--follow").status == 0
    assert koguma("rollout", "list").lines[1].split()[2:4] == ["Done", "2/2"]
    for command in ("pause", "continue", "abort"):
        assert (koguma("rollout", command).status, "is done" in koguma("rollout", command).err) == (1, True)


def test_what_is_stored_already_is_not_rolled_out(koguma: Koguma, slow: Path) -> None:
    koguma("apply", "-f", slow)

    assert koguma("apply", "-f", slow, "--rollout", "1").lines[-1] == "nothing to roll out: all of it is stored already"
    assert json.loads(koguma("apply", "-f", slow, "--rollout", "1", "-o", "json").out)["rollout"] is None


def test_programs_are_told_how_it_ended(koguma: Koguma, slow: Path) -> None:
    answer = json.loads(koguma("apply", "-f", slow, "--rollout", "1", "-o", "json").out)

    assert [each["outcome"] for each in answer["resources"]] == ["Created"]
    assert (answer["rollout"]["state"], answer["delivery"]) == ("Done", None)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--hold", "3s"), "--hold and --until are for --rollout"),
        (("--until", "5xx < 1%"), "--hold and --until are for --rollout"),
        (("--rollout", "1", "--wait"), "cannot be combined"),
        (("--rollout", "1", "--dry-run"), "cannot be combined"),
        (("--rollout", ""), "--rollout has no steps"),
        (("--rollout", "many"), "`many` is no step"),
        (("--rollout", "1", "--until", "p99 < 1s"), "is no condition; write `5xx < 1%`"),
    ],
)
def test_options_that_do_not_fit_are_refused(koguma: Koguma, slow: Path, options: tuple[str, ...], reason: str) -> None:
    ended = koguma("apply", "-f", slow, *options)

    assert (ended.status != 0, reason in ended.err) == (True, True), ended.err
    assert koguma("get", "meshtimeout", "slow").status == 1


def test_without_a_rollout_it_is_said_how_one_is_begun(koguma: Koguma) -> None:
    assert "`koguma apply --rollout` begins one" in koguma("rollout", "show").err


class Told:
    """A control plane that answers what it is told to, one answer after the other."""

    def __init__(self, *answers: Mapping[str, Any] | BaseException) -> None:
        self._answers = list(answers)

    def answer(self, _path: str, _fields: object) -> Mapping[str, Any]:
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def at(state: str, number: int = 7, reason: str | None = None, step: str = "step 1") -> dict[str, Any]:
    under_way = state in {"Going", "Holding", "Paused"}
    course = f"{step}, {state.lower()}" if under_way else {"Done": "done"}.get(state, "rolled back")
    known = {"mesh": "default", "number": number, "state": state, "underWay": under_way}
    return {**known, "course": course, "reason": reason, "resources": []}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollouts, "_EVERY", 0.0)


@pytest.mark.usefixtures("quick")
def test_each_step_is_printed_once_and_a_control_plane_may_be_away(capsys: pytest.CaptureFixture[str]) -> None:
    gone = Unreachable("no control plane answers")
    told: Any = Told(at("Going"), at("Going"), gone, gone, at("Holding"), at("Holding", reason="few"), at("Done"))
    last = rollouts.followed(told, "default", 7)
    rollouts.must_be_done(last, 7)

    printed = capsys.readouterr()
    assert printed.err.splitlines() == ["step 1, going", "step 1, holding", "step 1, holding: few"]
    assert printed.out == "rollout 7 of mesh default is done\n"


@pytest.mark.usefixtures("quick")
def test_what_does_not_end_well_ends_with_a_status_of_its_own() -> None:
    back: Any = Told(at("Going"), at("RolledBack", reason="web-1 refuses it"))
    with pytest.raises(Problem, match="was rolled back: web-1 refuses it"):
        rollouts.must_be_done(rollouts.followed(back, "default", 7), 7)
    other: Any = Told(at("Going"), at("Going", number=9))
    with pytest.raises(Problem, match="another one was begun"):
        rollouts.must_be_done(rollouts.followed(other, "default", 7), 7)


def test_who_stops_watching_is_told_that_it_goes_on() -> None:
    interrupted: Any = Told(KeyboardInterrupt())
    with pytest.raises(Problem, match="goes on without being watched from here") as problem:
        rollouts.followed(interrupted, "default", 7)
    assert "koguma rollout show --mesh default --follow" in problem.value.hint
    assert problem.value.status == 130


EVIL = "\x1b[2Jall fine\nrollout 1 of mesh default is done"
HELD = {"number": 1, "mesh": "default", "state": "Holding", "course": "step 1 of 2", "underWay": True, "reason": EVIL}
ENDED = {**HELD, "state": "Done", "course": "done", "underWay": False}


class TellingClient:
    """A client to which a control plane tells how a rollout goes on."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self._answers = list(answers)

    def answer(self, *_: object) -> dict[str, Any]:
        return self._answers.pop(0)


def test_nothing_that_a_proxy_says_moves_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollouts, "_EVERY", 0)
    last = followed(cast("Client", TellingClient(HELD, ENDED)), "default", 1)
    must_be_done(last, 1)

    printed = capsys.readouterr()
    assert ("\x1b" in printed.out + printed.err, len(printed.out.splitlines())) == (False, 1)
    assert printed.err == r"step 1 of 2: \x1b[2Jall fine\nrollout 1 of mesh default is done" + "\n"
