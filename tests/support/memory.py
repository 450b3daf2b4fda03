"""How much memory a process takes."""

import os
import subprocess
import sys

import psutil

IS_COVERED = any(name.startswith("COVERAGE_PROCESS") for name in os.environ)  # noqa: TID251  # pytest-cov says so there
"""Whether processes that are started trace their own lines, which takes memory that is not theirs."""


def resident(process: int) -> int:
    """Bytes that are in memory, libraries included that other processes share."""
    return int(psutil.Process(process).memory_info().rss)


def of_a_bare_interpreter() -> int:
    command = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bare:
        assert bare.stdin is not None
        assert bare.stdout is not None
        assert bare.stdout.readline() == b"up\n"
        return resident(bare.pid)
