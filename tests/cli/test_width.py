"""On a terminal nothing is wider than it; elsewhere tables are for programs too, and have a line for each row."""

from __future__ import annotations

import os
import subprocess
import sys
import termios
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import yaml

from cp.app import RunningControlPlane
from cp.cli import proxies, tables
from cp.cli.tables import narrowed, row_lines, table
from tests.api.samples import dataplane
from tests.support.forks import Fork
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


CALLED = {"kind": "MeshService", "name": "backend"}
OF_A_ROUTE = [
    {
        "type": "MeshTimeout",
        "mesh": "default",
        "name": "for-backend",
        "spec": {"to": [{"targetRef": CALLED, "default": {"http": {"requestTimeout": "3s"}}}]},
    },
    {
        "type": "MeshHTTPRoute",
        "mesh": "default",
        "name": "slow-ones",
        "spec": {
            "to": [
                {
                    "targetRef": CALLED,
                    "rules": [{"matches": [{"path": {"type": "PathPrefix", "value": "/slow"}}], "default": {}}],
                }
            ]
        },
    },
]
"""Origins as long as usual: on a terminal of 80 columns, nothing of a line has room to spare."""


@pytest.fixture
def mesh(tmp_path: Path) -> Path:
    (file := tmp_path / "mesh.yaml").write_text(
        yaml.safe_dump_all([MESH, service("web", "backend"), service("backend"), ACCESS_LOG, *OF_A_ROUTE])
    )
    return file


def on_a_terminal(columns: int, *words: str | Path, address: str = "", no_color: str = "1") -> list[str]:
    """What a command prints on a terminal of so many columns."""
    terminal, child_end = os.openpty()
    termios.tcsetwinsize(child_end, (50, columns))
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}  # noqa: TID251  # the command's
    environment = {
        **inherited,
        "NO_COLOR": no_color,
        "TERM": "dumb",
        **({"KOGUMA_ADDRESS": address} if address else {}),
    }
    with ThreadPoolExecutor(1) as thread:
        running = Fork(["koguma", *map(str, words)], Path(os.ttyname(child_end)), environment, None)
        printed = thread.submit(_read, terminal)
        status = running.wait(60)
        os.close(child_end)
    assert status == 0, printed.result()
    return printed.result().decode().splitlines()


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


LONG_NAME = "backend-of-the-shop-in-the-eastern-region-1"
"""As long as names are that people give. It has room on a terminal of 80 columns, and stays whole."""

LONGEST_NAME = "x".join(["backend"] * 20)


@pytest.fixture(scope="module")
def address(running: RunningControlPlane) -> str:
    """A control plane with Dataplanes of long names."""
    url = f"http://127.0.0.1:{running.http_port}"
    with httpx.Client(base_url=url) as client:
        client.put("/meshes/default", json=MESH).raise_for_status()
        for name in ("web-1", LONG_NAME):
            data = dataplane(name=name)
            client.put(f"/meshes/default/dataplanes/{name}", json=data).raise_for_status()
        timeout = {"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "2s"}}
        policy = {"type": "MeshTimeout", "mesh": "default", "name": LONGEST_NAME, "spec": {"to": [timeout]}}
        client.put(f"/meshes/default/meshtimeouts/{LONGEST_NAME}", json=policy).raise_for_status()
    return url


OF_CONTROL_PLANE = [
    ("get", "dataplanes"),
    ("inspect", "dataplanes"),
    ("get", "meshes"),
    ("history",),
    ("inspect", "instances"),
]
WITH_NAMES = OF_CONTROL_PLANE[:2]
WIDTHS = pytest.mark.parametrize("columns", [80, pytest.param(120, marks=pytest.mark.long), 200])


@WIDTHS
@pytest.mark.parametrize("words", OF_CONTROL_PLANE, ids=" ".join)
def test_a_table_is_as_narrow_as_the_terminal_and_names_stay_whole(
    address: str, columns: int, words: tuple[str, ...]
) -> None:
    lines = on_a_terminal(columns, *words, address=address)

    assert max(map(len, lines)) <= columns
    assert words not in WITH_NAMES or any(LONG_NAME in line for line in lines)


def test_what_there_is_no_room_for_is_left_out_and_said(address: str) -> None:
    narrow, wide = (on_a_terminal(80, "inspect", "dataplanes", *more, address=address) for more in ((), ("-o", "wide")))

    assert narrow[0].split() == ["MESH", "NAME", "STATUS", "TOTAL", "ERRORS"]
    assert narrow[-1] == "10 columns are left out for want of room: -o wide shows all"
    assert "SUPPORTED CERT BACKENDS   ENVOY VERSION" in wide[0]
    assert wide[-1].startswith("default")


def test_a_name_that_has_no_room_ends_in_three_dots_and_is_whole_elsewhere(address: str) -> None:
    lines = on_a_terminal(80, "get", "meshtimeouts", address=address)

    assert max(map(len, lines)) <= 80
    assert [line for line in lines if "backendx" in line and "…" in line]
    assert LONGEST_NAME in " ".join(on_a_terminal(80, "get", "mt", "-o", "wide", address=address))
    assert LONGEST_NAME in " ".join(on_a_terminal(80, "get", "mt", "-o", "json", address=address))


SENT = {
    "mesh": "default",
    "name": "web-1",
    "status": "Online",
    "since": "2026-01-01T00:00:00Z",
    "findings": [],
    "streams": [
        {
            "protocol": "delta",
            "envoy": "1.40.0",
            "connectedSince": "2026-01-01T00:00:00Z",
            "types": [
                {
                    "type": type_,
                    "inSync": True,
                    "refusals": [],
                    "since": "2026-01-01T00:00:00Z",
                    "acked": "e4ec465b81d0",
                }
                | dict.fromkeys(("responses", "accepted", "rejected", "resources", "bytes"), 1_000_000)
                for type_ in ("clusters", "endpoints", "listeners")
            ],
        }
    ],
}


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_what_a_proxy_was_sent_fits_and_its_types_and_versions_stay_whole(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "terminal_width", lambda: columns)
    lines = list(proxies.delivery(SENT))

    assert max(map(len, lines)) <= columns
    assert [line.split()[0] for line in lines[4:7]] == ["clusters", "endpoints", "listeners"]
    assert all("e4ec465b81d0" in line for line in lines[4:7])


@pytest.mark.parametrize(("columns", "left_out"), [(60, 1), (80, 0)])
def test_no_tag_is_cut_while_a_column_that_matters_less_is_shown(
    columns: int, left_out: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "terminal_width", lambda: columns)
    tags = ("kuma.io/protocol=http", "kuma.io/service=backend")
    text = table(("NAME", "TAGS", "STATUS", "MORE"), [("a" * 20, " ".join(tags), "Online", "x" * 8)], less=("MORE",))

    assert max(map(len, text.splitlines())) <= columns
    assert [tag for tag in tags if tag not in text] == []
    assert ("left out" in text) is bool(left_out)


def test_a_column_of_tags_with_one_for_which_there_is_no_room_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "terminal_width", lambda: 40)
    text = table(("NAME", "TAGS"), [("web-1", "version=" + "v" * 60)])

    assert max(map(len, text.splitlines())) <= 40
    assert "version=vvv" in text


def test_what_a_program_reads_has_neither_colours_nor_dots(mesh: Path) -> None:
    command = [sys.executable, "-m", "cp", "explain", "web-1", "backend:9000/", "-f", str(mesh)]

    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "\x1b" not in text
    assert "…" not in text


def test_a_plan_has_colours_where_the_user_has_not_taken_them_away(mesh: Path, tmp_path: Path) -> None:
    (before := tmp_path / "before.yaml").write_text(yaml.safe_dump(MESH))
    words = ("plan", "--from", str(before), "--to", str(mesh))

    assert "\x1b[" in "".join(on_a_terminal(100, *words, no_color=""))
    assert "\x1b[" not in "".join(on_a_terminal(100, *words))


@WIDTHS
def test_an_explanation_breaks_no_name_and_has_all_of_it_where_it_is_asked_to(mesh: Path, columns: int) -> None:
    words = ("explain", "web-1", "GET http://backend/slow", "-f", str(mesh))
    lines, whole = on_a_terminal(columns, *words), "\n".join(on_a_terminal(columns, *words, "-o", "wide"))

    assert max(map(len, lines)) <= columns
    assert f"{mesh}:" in whole
    assert "…" not in whole


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("a-name-that-is-long", ["a-name-th…"]),
        ("in /var/lib/mesh/shop.yaml:12", ["in", "…p.yaml:12"]),
        ('{"a": "%REQ(X)%%REQ(Y)%"}', ['{"a":', '"%REQ(X)%%', 'REQ(Y)%"}']),
    ],
)
def test_a_name_is_cut_at_its_end_a_path_at_its_beginning_and_other_text_goes_on_below(
    cell: str, expected: list[str]
) -> None:
    assert list(row_lines((cell,), (10,), "", cuts=True)) == expected


def test_an_explanation_is_for_people_wherever_it_goes(mesh: Path) -> None:
    command = [sys.executable, "-m", "cp", "explain", "web-1", "backend:9000/", "-f", str(mesh)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert max(map(len, text.splitlines())) <= 160


def test_a_table_that_goes_to_a_program_has_a_line_for_each_row() -> None:
    assert table(("A", "B"), [("x" * 400, "y")]).count("\n") == 2


@pytest.mark.parametrize(
    ("widths", "room", "expected"),
    [([5, 5], 20, [5, 5]), ([5, 50], 30, [5, 25]), ([5, 50, 40], 45, [5, 20, 20]), ([50, 50], 4, [8, 8]), ([], 9, [])],
)
def test_the_widest_columns_give(widths: list[int], room: int, expected: list[int]) -> None:
    assert narrowed(widths, room) == expected


def test_no_word_is_lost_where_a_cell_is_on_several_lines() -> None:
    assert list(row_lines(("a b c", "short"), (3, 5), " ")) == ["a b short", "c"]
