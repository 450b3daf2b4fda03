"""`make draws`: each run draws other examples, a number draws the same ones again, and time ends it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

TESTS = """
import pytest
from hypothesis import given, settings, strategies as st
from tests.drawing import FIRST_SEED

NUMBERS = []

@settings(database=None, max_examples=3)
@given(number=st.integers(0, 10**9))
def test_property(number):
    NUMBERS.append(number)

@pytest.mark.drawn
def test_meshes():
    NUMBERS.append(FIRST_SEED.get())

def test_something_else():
    NUMBERS.append("not drawn")

@pytest.fixture(scope="session", autouse=True)
def printed():
    yield
    print("NUMBERS", NUMBERS)
"""


def drawn(folder: Path, *options: str) -> str:
    (folder / "test_it.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = drawn\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.drawing", "-p", "no:cacheprovider", "-s", "-rs", *options]
    environment = {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, str(folder)], cwd=folder, env=environment, capture_output=True, text=True, check=False
    ).stdout


def numbers(output: str) -> list[str]:
    (line,) = (line for line in output.splitlines() if "NUMBERS" in line)
    return line.partition("[")[2].rstrip("]").split(", ")


def test_a_number_draws_the_same_again(tmp_path: Path) -> None:
    first, again, other = (drawn(tmp_path, f"--draw={seed}", "--draw-rounds=2") for seed in (1, 1, 2))

    assert "--draw=1" in first
    assert numbers(first) == numbers(again)
    assert len(numbers(first)) == 8  # two rounds of three examples and a mesh
    assert {*numbers(first)} & {*numbers(other)} <= {"0"}  # Hypothesis begins with the simplest


def test_time_ends_drawing_without_a_failure(tmp_path: Path) -> None:
    output = drawn(tmp_path, "--draw=1", "--draw-rounds=2", "--draw-seconds=0")

    assert "4 skipped" in output
    assert "the time for drawing is over" in output


def test_each_number_begins_with_other_files(tmp_path: Path) -> None:
    for name in "abcdefgh":
        (tmp_path / f"test_{name}.py").write_text("import pytest\n\n@pytest.mark.drawn\ndef test_it(): pass\n")
    orders = [
        collected(drawn(tmp_path, f"--draw={seed}", "--draw-rounds=2", "--collect-only", "-q")) for seed in (1, 2)
    ]

    assert orders[0] != orders[1]
    assert {*orders[0]} == {*orders[1]}
    assert all("draw-0" in test for order in orders for test in order[: len(order) // 2])


def collected(output: str) -> list[str]:
    return [line for line in output.splitlines() if "::" in line]
