"""The suite itself: what hangs is a failure with a name and a place, whatever it hangs in."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

IN_A_PROPERTY = """
from hypothesis import given, settings, strategies as st

@settings(database=None)
@given(number=st.integers())
def test_ends(number):
    while abs(number) > 10:
        pass
"""
IN_A_CALLBACK = """
import asyncio

def turn_for_ever():
    while True:
        pass

async def waiting():
    asyncio.get_running_loop().call_soon(turn_for_ever)
    await asyncio.sleep(1000)

def test_ends():
    asyncio.run(waiting())
"""
IN_A_FIXTURE = """
import time
import pytest

@pytest.fixture
def server():
    time.sleep(1000)

def test_ends(server):
    pass
"""


def outcome_of(folder: Path, test: str) -> str:
    """What pytest says of a module with one test that hangs, and one after it."""
    (folder / "test_it.py").write_text(f"{test}\n\ndef test_after():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.hangs", "-o", "timeout=0.5", "-o", "addopts=", "-q"]
    command += ["--rootdir", str(folder), str(folder)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    return ended.stdout


@pytest.mark.parametrize(
    ("test", "name"),
    [
        (IN_A_PROPERTY, "test_ends(number="),
        pytest.param(IN_A_CALLBACK, "test_ends()", marks=pytest.mark.long),
        (IN_A_FIXTURE, "test_ends("),
    ],
    ids=["property", "callback", "fixture"],
)
def test_a_hang_is_a_failure_with_its_place_and_the_next_test_runs(tmp_path: Path, test: str, name: str) -> None:
    said = outcome_of(tmp_path, test)

    assert name in said
    assert "did not end within 0.5 s" in said
    assert f'File "{tmp_path / "test_it.py"}"' in said
    assert "1 passed" in said
