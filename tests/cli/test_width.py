"""On a terminal nothing is wider than it; elsewhere tables are for programs too, and have a line for each row."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cp.cli import output
from cp.cli.output import narrowed, row_lines
from tests.support.mesh import MESH

LONG = {f"field{number}": f"%REQ(X-HEADER-{number})%" for number in range(30)}


def service(name: str, *outbounds: str) -> dict[str, object]:
    tags = {"kuma.io/service": name, "kuma.io/protocol": "http"}
    return {
        "type": "Dataplane",
        "mesh": "default",
        "name": f"{name}-1",
        "networking": {
            "address": "127.0.0.1",
            "inbound": [{"port": 8080, "tags": tags}],
            "outbound": [{"port": 9000, "tags": {"kuma.io/service": called}} for called in outbounds],
        },
    }


ACCESS_LOG = {
    "type": "MeshAccessLog",
    "mesh": "default",
    "name": "everything",
    "spec": {
        "targetRef": {"kind": "Mesh"},
        "to": [
            {
                "targetRef": {"kind": "Mesh"},
                "default": {
                    "backends": [
                        {
                            "type": "File",
                            "file": {
                                "path": "/dev/stdout",
                                "format": {
                                    "type": "Json",
                                    "json": [{"key": key, "value": value} for key, value in LONG.items()],
                                },
                            },
                        }
                    ]
                },
            }
        ],
    },
}


@pytest.fixture
def mesh(tmp_path: Path) -> Path:
    (file := tmp_path / "mesh.yaml").write_text(
        yaml.safe_dump_all([MESH, service("web", "backend"), service("backend"), ACCESS_LOG])
    )
    return file


def on_a_terminal(columns: int, *words: str) -> list[str]:
    """What a command prints on a terminal of so many columns."""
    terminal, child_end = os.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "dumb"}  # noqa: TID251  # the command's
    command = [sys.executable, "-m", "cp", *words]
    with subprocess.Popen(command, stdout=child_end, env=environment) as running:
        os.close(child_end)
        text = _read(terminal)
        assert running.wait(60) == 0
    return text.decode().splitlines()


def _read(descriptor: int) -> bytes:
    """All that comes; a terminal that nobody writes to any more is an error on Linux."""
    chunks = []
    try:
        while chunk := os.read(descriptor, 1 << 16):
            chunks.append(chunk)
    except OSError:
        pass
    os.close(descriptor)
    return b"".join(chunks)


@pytest.mark.parametrize(
    "words", [("explain", "web-1", "backend:9000/"), ("inspect", "rules", "web-1"), ("inspect", "mal", "everything")]
)
def test_on_a_terminal_nothing_is_wider_than_it(mesh: Path, words: tuple[str, ...]) -> None:
    lines = on_a_terminal(100, *words, "-f", str(mesh))

    assert max(map(len, lines)) <= 100
    assert "%REQ(X-HEADER-29)%" in "".join("".join(lines).split())


def test_an_explanation_is_for_people_wherever_it_goes(mesh: Path) -> None:
    command = [sys.executable, "-m", "cp", "explain", "web-1", "backend:9000/", "-f", str(mesh)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert max(map(len, text.splitlines())) <= 160


def test_a_table_that_goes_to_a_program_has_a_line_for_each_row() -> None:
    assert output.table(("A", "B"), [("x" * 400, "y")]).count("\n") == 2


@pytest.mark.parametrize(
    ("widths", "room", "expected"),
    [([5, 5], 20, [5, 5]), ([5, 50], 30, [5, 25]), ([5, 50, 40], 45, [5, 20, 20]), ([50, 50], 4, [8, 8]), ([], 9, [])],
)
def test_the_widest_columns_give(widths: list[int], room: int, expected: list[int]) -> None:
    assert narrowed(widths, room) == expected


def test_no_word_is_lost_where_a_cell_is_on_several_lines() -> None:
    assert list(row_lines(("a b c", "short"), (3, 5), " ")) == ["a b short", "c"]
