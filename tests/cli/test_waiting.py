"""`--wait`, and what proxies have, where no proxies are needed for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cp.cli.reporting import reporting_problems
from cp.cli.waiting import WrittenResources, conclude, duration, progress_printer, until_delivered
from cp.client.problem import Problem
from cp.model.names import Key
from tests.api.samples import TIMEOUT_YAML, dataplane
from tests.cli.conftest import Ended, Koguma
from tests.cli.test_resources import written
from tests.support.waiting import eventually

DONE: dict[str, Any] = {
    "revision": 7,
    "proxies": 3,
    "have": 3,
    "done": True,
    "refusing": [],
    "waiting": [],
    "gone": [],
    "failed": [],
    "findings": [],
}


SERVED_ELSE = "not within 30s: default.a is served what a rollout proposes in its place"


def concluded(**changes: Any) -> Ended:
    """How a command ends with this as the last that is heard."""
    app = typer.Typer()
    app.command()(reporting_problems(lambda: conclude({**DONE, **changes}, 7, duration("30s"), 84.2)))
    result = CliRunner().invoke(app, [])
    return Ended(result.exit_code, result.stdout, result.stderr)


def test_a_change_that_all_have_is_told_with_how_long_it_took() -> None:
    ended = concluded()

    assert (ended.status, ended.out) == (0, "3 of 3 proxies have it, 0 refused, 84 ms\n")


def test_a_change_for_nobody_is_told_as_that() -> None:
    assert concluded(proxies=0, have=0).out == "it reaches no proxy\n"


def test_what_follows_later_from_a_change_of_mtls_is_told() -> None:
    move = "mesh default: the authority `ca-2` signs as soon as every proxy trusts it"

    assert concluded(proxies=0, have=0, moves=[move]).out == f"it reaches no proxy yet\nmTLS goes on in {move}\n"
    assert concluded(moves=[move]).out.splitlines()[1:] == [f"mTLS goes on in {move}"]


def test_who_has_come_back_is_told_apart_from_those_that_were_there() -> None:
    assert concluded(proxies=0, have=0, returned=1).lines == [
        "it reaches no proxy that was connected",
        "1 proxy connected meanwhile, and has all that is stored",
    ]
    assert concluded(returned=2).lines[1:] == ["2 proxies connected meanwhile, and have all that is stored"]


def test_whom_it_reaches_is_not_known_while_somebody_is_expected() -> None:
    ended = concluded(proxies=0, have=0, unknown=["default.a"])

    assert (ended.status, ended.out) == (1, "it reaches no proxy that was connected\n")


def test_who_has_gone_is_named_and_is_no_failure() -> None:
    ended = concluded(have=2, gone=["default.a"])

    assert ended.status == 0
    assert "default.a has disconnected; it gets the change when it connects again" in ended.err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"have": 1, "waiting": ["default.a", "default.b"]}, "not within 30s: default.a, default.b have not answered"),
        ({"have": 2, "refusing": ["default.a"]}, "default.a refuses it"),
        (
            {"proxies": 0, "have": 0, "failed": ["default.a"]},
            "by a fault of the control plane, some part of it could not be made for default.a",
        ),
        ({"have": 2, "waiting": ["default.a"], "held": ["default.a"]}, SERVED_ELSE),
        (
            {"have": 1, "waiting": ["default.a", "default.b"], "held": ["default.a"]},
            "not within 30s: default.b has not",
        ),
        ({"unknown": ["default.a"]}, "not known within 30s what default.a has"),
        ({"unknown": ["default.a", "default.b"]}, "not known within 30s what default.a, default.b have"),
        ({"have": 2, "refusing": ["default.a"], "unknown": ["default.b"]}, "default.a refuses it"),
        ({"revision": 6}, "the control plane has not worked it out within 30s"),
        ({"done": False}, "the control plane ended before every proxy had answered"),
    ],
)
def test_what_did_not_come_about_is_a_failure_with_its_reason(changes: dict[str, Any], message: str) -> None:
    ended = concluded(**changes)

    assert ended.status == 1
    assert f"Error: {message}" in ended.err


def test_of_many_names_a_few_are_told() -> None:
    waiting = [f"default.web-{number}" for number in range(1000)]

    assert "default.web-4 and 995 more have not answered" in concluded(have=0, waiting=waiting).err


BAR = """
from cp.cli.waiting import progress_printer
with progress_printer() as print_progress:
    for left in range(12, 0, -1):
        print_progress({"proxies": 12, "waiting": ["p"] * left, "refusing": ["q"]})
"""


def test_on_a_terminal_there_is_a_bar_and_elsewhere_none() -> None:
    terminal, child_end = os.openpty()
    subprocess.run([sys.executable, "-c", BAR], stderr=child_end, check=True, timeout=60)
    os.close(child_end)
    shown = os.read(terminal, 1 << 16).decode()
    os.close(terminal)
    elsewhere = subprocess.run([sys.executable, "-c", BAR], capture_output=True, check=True, timeout=60)

    assert "waiting for p, 1 refused" in shown
    assert "11/12" in shown
    assert elsewhere.stderr == b""


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        ({"have": 2, "waiting": ["default.a"]}, "2 of 3 proxies have answered; waiting for default.a\n"),
        ({"proxies": 0, "unknown": ["default.a"]}, "waiting to know what default.a has\n"),
        (
            {"waiting": ["default.a"], "unknown": ["default.b", "default.c"], "missing": 7},
            (
                "2 of 3 proxies have answered; waiting for default.a, and to know what default.b, default.c have, "
                "and for 4 in meshes that you may not look into\n"
            ),
        ),
        ({"proxies": 0}, "waiting for the control plane\n"),
    ],
)
def test_whom_is_waited_for_is_told_also_while_nothing_happens(
    capsys: pytest.CaptureFixture[str], progress: dict[str, Any], line: str
) -> None:
    shown: list[str] = []

    def is_told() -> bool:
        shown.append(capsys.readouterr().err)
        return "".join(shown) == line

    with progress_printer(interval=0.01) as print_progress:
        print_progress({**DONE, **progress})
        eventually(is_told)


@pytest.mark.parametrize("kind", ["waiting", "unknown", "failed"])
def test_the_command_that_shows_the_first_of_them_is_told_word_by_word(kind: str) -> None:
    assert "koguma inspect dataplane web-1 --mesh shop" in concluded(have=2, **{kind: ["shop.web-1", "shop.b"]}).err
    assert "koguma inspect dataplane web.1" in concluded(have=2, **{kind: ["default.web.1"]}).err
    assert "koguma inspect instances" in concluded(have=2, **{kind: ["all of instance cp-3.example"]}).err


@pytest.mark.parametrize("text", ["soon", "10", "0s", "-1s", "601s"])
def test_a_time_to_wait_that_is_none_is_refused_before_anything_is_written(
    koguma: Koguma, tmp_path: Path, text: str
) -> None:
    (file := tmp_path / "slow.yaml").write_text(TIMEOUT_YAML)

    ended = koguma("apply", "-f", file, "--wait", "--timeout", text)

    assert ended.status == 2
    assert f"--timeout: `{text}`" in ended.err
    assert json.loads(koguma("get", "meshtimeouts", "-o", "json").out)["total"] == 0


def test_a_dry_run_has_nothing_to_wait_for(koguma: Koguma, tmp_path: Path) -> None:
    (file := tmp_path / "slow.yaml").write_text(TIMEOUT_YAML)

    assert koguma("apply", "-f", file, "--wait", "--dry-run").status == 2


def test_what_changes_nothing_is_told_as_that(koguma: Koguma, tmp_path: Path) -> None:
    (file := tmp_path / "slow.yaml").write_text(TIMEOUT_YAML)
    koguma("apply", "-f", file)

    again = koguma("apply", "-f", file, "--wait")

    assert (again.status, again.lines[-1]) == (0, "unchanged; no proxy is connected")


class Answers:
    """A control plane that answers what the test says."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self._answers = list(answers)

    def lines(self, path: str, data: Any, seconds: float) -> list[dict[str, Any]]:
        return [{**DONE, **self._answers.pop(0)}]


@pytest.mark.parametrize(
    ("have", "proxies", "line"),
    [
        (3, 3, "unchanged; 3 of 3 connected proxies have what they should have\n"),
        (2, 3, "unchanged; 2 of 3 connected proxies have what they should have\n"),
        (1, 1, "unchanged; 1 of 1 connected proxy has what it should have\n"),
    ],
)
def test_what_changes_nothing_says_how_many_have_all(
    capsys: pytest.CaptureFixture[str], have: int, proxies: int, line: str
) -> None:
    client: Any = Answers({"proxies": 0, "have": 0}, {"proxies": proxies, "have": have})

    until_delivered(client, WrittenResources(), duration("1s"))

    assert capsys.readouterr().out == line


def test_wait_measures_time_since_first_write(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = Answers(DONE)
    monkeypatch.setattr("cp.cli.waiting.monotonic", lambda: 100.25)

    until_delivered(client, WrittenResources(began=100.0, revisions=[7]), duration("1s"))

    assert capsys.readouterr().out == "3 of 3 proxies have it, 0 refused, 250 ms\n"


class Impatient:
    """A control plane for which somebody does not wait any longer."""

    def lines(self, path: str, data: Any, seconds: float) -> list[dict[str, Any]]:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("revisions", "hint"),
    [([7], "The change is stored, and proxies are served it all the same"), ([], "it was stored before")],
)
def test_who_stops_waiting_is_told_that_nothing_is_taken_back(revisions: list[int], hint: str) -> None:
    client: Any = Impatient()
    reports: list[Any] = []

    with pytest.raises(Problem, match="not waited for to the end") as problem:
        until_delivered(client, WrittenResources(revisions=revisions), duration("1s"), reports.append)

    assert (problem.value.status, reports) == (130, [{}])
    assert hint in problem.value.hint


class Closed:
    """A control plane that does not tell this caller of proxies."""

    def lines(self, path: str, data: Any, seconds: float) -> list[dict[str, Any]]:
        raise Problem("user ann may not read Inspection in any mesh", "ask an administrator")


def test_failed_wait_reports_the_change_as_stored() -> None:
    client: Any = Closed()

    with pytest.raises(Problem, match="may not read Inspection") as problem:
        until_delivered(client, WrittenResources(revisions=[7]), duration("1s"))

    assert problem.value.hint == "ask an administrator\nThe change is stored: only the wait for proxies failed."


@pytest.mark.parametrize(
    ("key", "is_late"),
    [
        (Key("MeshTimeout", "default", "slow"), True),
        (Key("Mesh", "", "default"), True),
        (Key("HostnameGenerator", "", "local"), True),
        (Key("MeshTimeout", "shop", "slow"), False),
    ],
)
def test_what_changes_nothing_fails_while_a_proxy_of_the_mesh_has_not_answered(
    capsys: pytest.CaptureFixture[str], key: Key, *, is_late: bool
) -> None:
    client: Any = Answers({"proxies": 0, "have": 0}, {"have": 2, "waiting": ["default.a"]})
    written, reports = WrittenResources(keys=[key]), list[Any]()

    with pytest.raises(Problem, match=r"not within 1s: default\.a has not answered") if is_late else nullcontext():
        until_delivered(client, written, duration("1s"), reports.append)

    assert [report["waiting"] for report in reports] == [["default.a"] if is_late else []]
    assert capsys.readouterr().err == "unchanged; 2 of 3 connected proxies have what they should have\n"


def test_without_proxies_nobody_is_waited_for(koguma: Koguma, tmp_path: Path) -> None:
    (file := tmp_path / "slow.yaml").write_text(TIMEOUT_YAML)

    applied, deleted = koguma("apply", "-f", file, "--wait"), koguma("delete", "-f", file, "--wait")

    assert (applied.status, applied.lines[-1]) == (deleted.status, deleted.lines[-1]) == (0, "it reaches no proxy")


def test_proxies_are_listed_as_kumactl_lists_them(koguma: Koguma, tmp_path: Path) -> None:
    koguma("apply", "-f", written(tmp_path, dataplane("web-1"), dataplane("web-2")))

    heads, *rows = koguma("inspect", "dataplanes").lines

    assert heads.startswith("MESH      NAME    TAGS")
    at_the_end = "TOTAL UPDATES   TOTAL ERRORS   CERT REGENERATED AGO"
    assert f"STATUS    LAST CONNECTED AGO   LAST UPDATED AGO   {at_the_end}" in heads
    assert [row.split()[1] for row in rows] == ["web-1", "web-2"]
    assert all("Offline   never" in row for row in rows)
    assert json.loads(koguma("inspect", "dataplanes", "-o", "json").out)["total"] == 2


def test_one_dataplane_is_got_with_how_its_proxy_is(koguma: Koguma, tmp_path: Path) -> None:
    koguma("apply", "-f", written(tmp_path, dataplane("web-1"), dataplane("web-2")))

    heads, row = koguma("get", "dataplane", "web-1").lines

    assert heads.split()[-2:] == ["STATUS", "AGE"]
    assert row.split()[:2] == ["default", "web-1"]
    assert "Offline" in row
    assert json.loads(koguma("get", "dataplane", "web-1", "-o", "json").out)["type"] == "Dataplane"


def test_inspect_needs_a_name_where_it_is_about_one(koguma: Koguma) -> None:
    problem = "Error: inspect rules needs a name\nAdd the NAME of a Dataplane or of a policy.\n"

    assert koguma("inspect", "rules").err == problem


def test_files_do_not_know_what_proxies_have(offline: Koguma, tmp_path: Path) -> None:
    file = written(tmp_path, dataplane("web-1"))

    assert offline("inspect", "dataplane", "web-1", "-f", file).err.startswith(
        "Error: files do not contain the state of proxies"
    )
