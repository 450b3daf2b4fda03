"""`koguma access check` shows the worth of rights before a control plane reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from cp.access.powers import NAMED_KINDS, NAMED_PARTS
from cp.access.rights_file import rights_of
from cp.access.worth import worths
from tests.api.conftest import ADMINS, KINDS
from tests.cli.conftest import Koguma

FILE: Final = """\
rights:
  - groups: [team]
    users: [ci]
    may: [read, write]
    meshes: [shop]
  - {groups: [ops], may: [write], kinds: [MeshAccessLog, MeshTimeout]}
  - {groups: [edge], may: [write], kinds: [MeshGateway]}
  - {groups: [keys], may: [write], kinds: [MeshGateway, Secret]}
  - {groups: [readers], may: [read]}
  - {users: [issuer], may: [write], kinds: [UserToken]}
administrators: {users: [root]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "access.yaml"
    path.write_text(FILE)
    return path


def test_access_check_shows_the_worst_of_each_right(offline: Koguma, file: Path) -> None:
    shown = offline("access", "check", file)

    assert shown.status == 0
    assert [line for line in shown.out.splitlines() if "The worst" in line] == [
        "  The worst: read, change and redirect calls (MeshHTTPRoute).",
        "  The worst: run code on the machines of proxies (MeshAccessLog).",
        "  The worst: read, change and redirect calls (MeshGateway).",
        "  The worst: become trusted, or act as others (Secret).",
        "  The worst: do everything, as an administrator (UserToken).",
    ]
    assert f"{file}:2: user ci, group team may read and write in shop: all kinds that need not be named" in shown.out


def test_access_check_shows_administrators(offline: Koguma, file: Path) -> None:
    lines = offline("access", "check", file).lines
    data = json.loads(offline("access", "check", file, "-o", "json").out)

    assert lines[0] == "administrators: user root may do everything, as an administrator"
    assert data["administrators"] == {"users": ["root"], "groups": []}
    assert {"GlobalSecret", "ZoneToken", "MeshTrust"} <= set(data["administratorsOnly"])
    assert ", ".join(data["administratorsOnly"]) in lines[1]
    file.write_text("rights: []\n")
    assert "group mesh-system:admin may do everything" in offline("access", "check", file).lines[0]


def test_access_check_shows_each_kind_to_be_named(offline: Koguma, file: Path) -> None:
    right = json.loads(offline("access", "check", file, "-o", "json").out)["rights"][0]

    assert set(right["notCovered"]) == NAMED_KINDS | NAMED_PARTS.keys()
    assert "Secret" not in right["lost"]


def test_access_check_prints_the_right_that_is_missing(offline: Koguma, file: Path) -> None:
    strict = offline("access", "check", file, "--strict")
    data = json.loads(offline("access", "check", file, "-o", "json").out)
    added = data["rights"][0]["toGrant"]

    assert strict.status == 1
    assert added in strict.out
    assert added.startswith("- {users: [ci], groups: [team], may: [write], meshes: [shop], kinds: [Dataplane, Health")
    file.write_text(f"rights:\n  {added}\n")
    assert offline("access", "check", file, "--strict").status == 0
    kept = rights_of(file.read_text(), "f", KINDS, ADMINS).rights
    assert [worth.lost for worth in worths(kept)] == [()]


def test_access_check_finds_the_file_in_the_settings(offline: Koguma, file: Path, tmp_path: Path) -> None:
    settings = tmp_path / "koguma.yaml"
    settings.write_text(f"accessFile: {file}\n")

    assert offline("access", "check", "--config", settings).out == offline("access", "check", file).out
    settings.write_text("{}\n")
    assert "No file with rights is named" in offline("access", "check", "--config", settings).err
    file.write_text("rights: {}\n")
    assert "rights: must be a list" in offline("access", "check", file).err
