"""A process that serves ends when it is told to, whatever its threads are doing."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

COMPUTING = """
import threading
from cp.serving import process

def compute():
    while True:
        pass

threading.Thread(target=compute, name="koguma-questions_0").start()
process.end_within(0.2)
"""


def test_a_thread_that_computes_for_ever_does_not_keep_the_process_from_ending() -> None:
    command = [sys.executable, "-c", COMPUTING]

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 0
    assert "koguma-questions_0" in ended.stdout + ended.stderr


def test_end_within_lets_idle_process_end_sooner() -> None:
    command = [sys.executable, "-c", "from cp.serving import process; process.end_within(600)"]

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, ended.stdout) == (0, "")
