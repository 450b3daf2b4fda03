"""`koguma validate`: everything that is wrong with some files, without a control plane."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cp.client import files
from tests.api.samples import TIMEOUT_YAML
from tests.cli.conftest import Koguma

BROKEN = """\
type: MeshTimeout
mesh: default
name: slow
spec:
  targetRef: {kind: Mesh}
  to:
    - targetRef: {kind: Mesh}
      default:
        connectTimeout: 5s
        http: {requestTimeout: 10}
---
type: Bear
name: small
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "resources.yaml"


def test_a_valid_file_is_valid(offline: Koguma, file: Path) -> None:
    file.write_text(TIMEOUT_YAML)

    ended = offline("validate", "-f", file)

    assert (ended.status, ended.out, ended.err) == (0, "1 resource, valid\n", "")


def test_every_fault_is_told_with_its_file_and_line(offline: Koguma, file: Path) -> None:
    file.write_text(BROKEN)

    ended = offline("validate", "-f", file)

    assert ended.status == 1
    assert [line.partition(" ")[2].partition(" ")[0] for line in ended.err.splitlines()] == [
        f"{file}:9",
        f"{file}:10",
        f"{file}:12",
    ]
    assert "did you mean `connectionTimeout`?" in ended.err
    assert ended.out == "2 resources, 3 errors\n"


def test_faults_are_told_to_machines_as_json(offline: Koguma, file: Path) -> None:
    file.write_text(BROKEN)

    ended = offline("validate", "-f", file, "-o", "json")

    report: dict[str, Any] = json.loads(ended.out)
    assert (ended.status, report["valid"]) == (1, False)
    first = report["violations"][0]
    assert first.pop("message")
    assert first == {
        "field": "spec.to[0].default.connectTimeout",
        "hint": "did you mean `connectionTimeout`?",
        "file": str(file),
        "line": 9,
        "resource": "MeshTimeout default/slow",
    }


def test_a_name_that_two_files_have_is_told_with_both_places(offline: Koguma, tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(TIMEOUT_YAML)

    ended = offline("validate", "-f", tmp_path)

    assert ended.status == 1
    assert f"{tmp_path}/b.yaml:2 MeshTimeout default/slow: is written a second time" in ended.err
    assert f"the first time in {tmp_path}/a.yaml:2" in ended.err


def test_a_warning_refuses_nothing(offline: Koguma, file: Path) -> None:
    file.write_text(TIMEOUT_YAML.replace("    kind: Mesh\n  to", "    kind: MeshSubset\n    tags: {a: b}\n  to"))

    ended = offline("validate", "-f", file)

    assert ended.status == 0
    assert ended.err.startswith("warning: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "not YAML"),
        ("a:\n\tb: 1\n", "2: not YAML: the line is indented with a tab; write spaces"),
        ("- a\n", "not a resource but a bare value"),
        ("name: x\n", "a resource without `type`"),
        ("name: x\nkind: MeshTimeout\n", "2 type: a resource without `type`; write `type` instead of `kind`"),
        ("type: MeshTimeout\n", "a resource without `name`"),
        ("type: MeshTimeouts\nmesh: default\nname: x\n", "did you mean `MeshTimeout`?"),
        ("type: Mesh\nname: a\n---\ntype: Mesh\nname: a\n", "is written a second time"),
        ("a: &a [x, x]\nb: &b [*a, *a]\n" * 2, "stands here twice"),
        ("x: " + "[" * 100, "nested more than 64 levels deep"),
    ],
)
def test_what_makes_no_sense_is_told(offline: Koguma, file: Path, text: str, message: str) -> None:
    file.write_text(text)

    ended = offline("validate", "-f", file)

    assert ended.status == 1
    assert message in ended.err


def test_ten_megabytes_are_read(offline: Koguma, file: Path) -> None:
    others = (TIMEOUT_YAML.replace("name: slow", f"name: slow-{number}") for number in range(3))
    file.write_text("\n---\n".join(f"{text}# {'x' * 4_000_000}" for text in others))

    assert offline("validate", "-f", file).status == 0


@pytest.mark.parametrize(
    ("more", "reason"),
    [(f"# {'x' * 5_000_000}", "is larger than 4 MiB"), ("# " + "," * 200_000, "values: 100000 are the most")],
)
def test_a_document_that_no_write_accepts_is_invalid(offline: Koguma, file: Path, more: str, reason: str) -> None:
    file.write_text(TIMEOUT_YAML + more)

    validated = offline("validate", "-f", file)

    assert validated.status == 1
    assert reason in validated.out + validated.err


def test_a_file_that_is_too_large_is_told(offline: Koguma, file: Path) -> None:
    with file.open("w") as out:
        out.truncate(65 * 1024 * 1024)

    assert "is larger than 64 MiB" in offline("validate", "-f", file).err


def test_standard_input_that_is_too_large_is_not_cut(offline: Koguma, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST", len(TIMEOUT_YAML) - 1)

    assert "stdin is larger than" in offline("validate", "-f", "-", stdin=TIMEOUT_YAML).err


def test_a_file_that_is_not_there_is_told(offline: Koguma, file: Path) -> None:
    ended = offline("validate", "-f", file)

    assert (ended.status, ended.err) == (1, f"Error: there is no file {file}\nCheck the path.\n")


def test_a_file_that_is_no_text_is_told(offline: Koguma, file: Path) -> None:
    file.write_bytes(b"\xff\xfe")

    assert "is not UTF-8 text" in offline("validate", "-f", file).err


def test_a_folder_without_resources_is_told(offline: Koguma, tmp_path: Path) -> None:
    assert "there is no .yaml, .yml or .json file in" in offline("validate", "-f", tmp_path).err


def test_what_is_hidden_is_not_read(offline: Koguma, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(TIMEOUT_YAML)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "b.yaml").write_text("nonsense")

    assert offline("validate", "-f", tmp_path).status == 0


def test_standard_input_is_read(offline: Koguma) -> None:
    assert offline("validate", "-f", "-", stdin=BROKEN).err.startswith("error: stdin:9 ")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            'type: Mesh\nname: "{{ name }}"\n',
            "2 Mesh {{ name }} name: `{{ name }}` is not a name",
        ),
        ("type: Mesh\nname: {{ name }}\n", "2: not YAML: a key must be a text"),
    ],
)
def test_who_forgot_the_value_of_a_variable_is_told(offline: Koguma, file: Path, text: str, fault: str) -> None:
    file.write_text(text)

    forgotten, given = offline("validate", "-f", file), offline("validate", "-f", file, "-v", "name=shop")

    assert forgotten.err.splitlines()[0] == f"error: {file}:{fault}; give {{{{ name }}}} a value: -v name=VALUE"
    assert (given.status, given.err) == (0, "")
