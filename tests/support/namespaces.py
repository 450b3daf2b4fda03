"""Namespaces of Linux, which preflight needs for its sandbox."""

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.support.envoy import envoy_binary

_NEW: Final = ("unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork")


@cache
def has_namespaces() -> bool:
    """Check by the machine's own tools, so that a fault of ours skips no test."""
    command = [*_NEW, "mount", "-t", "tmpfs", "none", "/tmp"]  # noqa: S108  # seen by this command only
    return shutil.which("unshare") is not None and subprocess.run(command, check=False).returncode == 0


def sandboxed_envoy() -> Path:
    """The Envoy under test, for a preflight. Skips the test where the machine allows no sandbox."""
    if not has_namespaces():
        pytest.skip("this machine allows no namespaces, so there is no preflight")
    return envoy_binary()
