"""The demo: every row holds, what it suggests to try works, and nothing of it is left afterwards."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from examples.demo.plan import API_PORT, HOST
from examples.demo.story import Result, Row, rows
from tests.support.envoy import ROOT
from tests.support.processes import Running
from tests.support.waiting import eventually

COMMAND = [sys.executable, "-m", "examples.demo"]
STEPS = (
    "The control plane starts",
    "The resources",
    "Two frontends and two backends",
    "A gateway starts",
    "is edited",
    "Live edit",
)
ROW = Row("frontend-1", "/", takes=3, rule="some-timeout", limit=1)


def test_a_row_holds_only_if_status_time_and_rule_are_right() -> None:
    assert Result(ROW, 504, 1.05, "some-timeout").held
    assert not Result(ROW, 504, 1.05, "another").held
    assert not Result(ROW, 504, 1.25, "some-timeout").held
    assert not Result(ROW, 504, 0.75, "some-timeout").held
    assert not Result(ROW, 200, 1.0, "some-timeout").held


def test_each_frontend_has_an_answer_in_time_and_one_too_late_on_each_path() -> None:
    cases = [(row.proxy, row.path, row.status) for row in rows() if not row.scheme]

    assert sorted(cases) == sorted(
        (proxy, path, status)
        for proxy in ("frontend-1", "frontend-2")
        for path in ("/", "/slow-endpoint")
        for status in (200, 504)
    )


def test_at_the_gateway_there_is_a_redirect_two_services_and_an_answer_too_late() -> None:
    cases = [(row.request, row.status) for row in rows() if row.scheme]

    assert cases == [
        ("http://shop.localhost/", 301),
        ("https://shop.localhost/", 200),
        ("https://shop.localhost/api", 200),
        ("https://shop.localhost/api?delay=1", 504),
    ]


@pytest.mark.envoy
@pytest.mark.long
def test_once_it_ends_by_itself_and_every_row_holds() -> None:
    ran = subprocess.run([*COMMAND, "--once"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=90)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    must_have_held(ran.stdout)


def must_have_held(told: str) -> None:
    """Every row and every step."""
    assert told.count("✓") == len(rows()) + len(STEPS)
    assert all(step in told for step in STEPS)
    assert "✗" not in told


@pytest.fixture(scope="module")
def taken() -> Iterator[int]:
    """One of the usual ports is somebody else's."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind((HOST, API_PORT))
            other.listen()
        except OSError:
            pass  # it is taken already, which is as good
        yield API_PORT


@pytest.fixture(scope="module")
def demo(taken: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    log: Path = tmp_path_factory.mktemp("demo") / "log"
    with Running(COMMAND, log, {"COLUMNS": "140"}, cwd=ROOT) as running:

        def stays() -> bool:
            running.check()
            return "Ctrl-C ends everything" in log.read_text()

        eventually(stays, within=60)
        yield running


def suggested(demo: Running) -> list[list[str]]:
    """The commands under each of the numbered suggestions."""
    _, _, text = demo.log.read_text().partition("Three things to try")
    parts = re.split(r"^\d\. ", text, flags=re.MULTILINE)[1:]
    return [[line.strip() for line in part.splitlines() if line.startswith("    ")] for part in parts]


def run(command: str) -> str:
    ran = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.envoy
def test_every_row_holds(demo: Running) -> None:
    must_have_held(demo.log.read_text())


@pytest.mark.envoy
def test_it_says_which_ports_are_taken(demo: Running, taken: int) -> None:
    assert re.search(rf"\b{taken} → \d+", demo.log.read_text())


@pytest.mark.envoy
def test_what_it_suggests_to_try_does_what_it_says(demo: Running) -> None:
    shorter, retries, gone = suggested(demo)

    assert "timeout-on-backend-route" in run(shorter[0])
    eventually(lambda: run(shorter[1]).startswith("504 after 0.3"), within=5)

    run(retries[0])
    eventually(lambda: run(retries[1].replace("there", "warm-up")).startswith("200 "), within=5)
    assert run(retries[1]).startswith("200 ")
    assert run(retries[2]).startswith("503 ")

    run(gone[0])
    eventually(lambda: "control-plane has ended" in demo.log.read_text())
    assert run(gone[1]).startswith("200 after ")


@pytest.mark.envoy
def test_ctrl_c_ends_everything_that_it_started(demo: Running) -> None:
    """Last, because the module's demo is gone afterwards."""
    children = psutil.Process(demo.pid).children(recursive=True)
    assert sum("envoy" in child.name() for child in children) == 5
    folder = ROOT / ".demo" / str(demo.pid)
    assert folder.is_dir()

    demo.send(signal.SIGINT)

    assert demo.wait(20) == 0, demo.tail()
    assert not [child for child in children if child.is_running()]
    assert not folder.exists()
