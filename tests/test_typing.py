"""A misspelt field of an Envoy message, or of one of ours, fails the type check, not the first request."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.xdist_group("mypy")  # one worker, so that the second run finds the first one's cache

SNIPPET = """
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from google.protobuf.duration_pb2 import Duration
from koguma.v1.workers_pb2 import NackReports


def second(cluster: Cluster) -> Duration:
    return cluster.{timeout}


def proxies(message: NackReports) -> list[str]:
    return [report.proxy for report in message.{reports}]
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy-cache")


def mypy(folder: Path, cache: Path, **fields: str) -> subprocess.CompletedProcess[str]:
    (snippet := folder / "snippet.py").write_text(SNIPPET.format(**fields))
    return subprocess.run(
        [
            *(sys.executable, "-m", "mypy", f"--config-file={ROOT / 'pyproject.toml'}"),
            *(f"--cache-dir={cache}", "--hide-error-context", snippet),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_right_fields_pass(tmp_path: Path, cache: Path) -> None:
    checked = mypy(tmp_path, cache, timeout="connect_timeout", reports="reports")

    assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout


def test_a_misspelt_field_is_an_error_that_says_which_one_was_meant(tmp_path: Path, cache: Path) -> None:
    checked = mypy(tmp_path, cache, timeout="conect_timeout", reports="report")

    assert checked.returncode == 1
    assert '"Cluster" has no attribute "conect_timeout"; maybe "connect_timeout"?' in checked.stdout
    assert '"NackReports" has no attribute "report"; maybe "reports"?' in checked.stdout
