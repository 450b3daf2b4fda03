"""The files in examples/ are what they say: valid, whole, and good for every dataplane in them."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from cp.cli.main import build

ROOT = Path(__file__).resolve().parent.parent
MESHES = sorted((ROOT / "examples").glob("*.yaml"))
DEMO = sorted((ROOT / "examples/demo").glob("[er]*/*.yaml"))
TRIED = sorted((ROOT / "examples/demo/try").glob("*.yaml"))


def koguma(*words: str | Path) -> Result:
    return CliRunner().invoke(build(), list(map(str, words)))


def documents(*files: Path) -> list[dict[str, Any]]:
    return [document for file in files for document in yaml.safe_load_all(file.read_text())]


def dataplanes() -> list[tuple[str, Path]]:
    return [(d["name"], file) for file in MESHES for d in documents(file) if d["type"] == "Dataplane"]


@pytest.mark.parametrize("file", [*MESHES, *TRIED], ids=lambda file: file.stem)
def test_it_is_valid_without_a_warning(file: Path) -> None:
    checked = koguma("validate", "-f", file)

    assert (checked.exit_code, checked.stderr) == (0, ""), checked.output


def test_the_resources_of_the_demo_are_valid() -> None:
    checked = koguma("validate", *(word for file in DEMO for word in ("-f", str(file))))

    assert checked.exit_code == 0, checked.stderr


@pytest.mark.parametrize(("dataplane", "file"), dataplanes())
def test_every_dataplane_gets_a_listener_for_each_of_its_ports(dataplane: str, file: Path) -> None:
    rendered = koguma("render", dataplane, "-f", file, "--type", "listeners", "-o", "json")
    assert (rendered.exit_code, rendered.stderr) == (0, "")

    (written,) = [d["networking"] for d in documents(file) if d["type"] == "Dataplane" and d["name"] == dataplane]
    addresses = [listener["address"]["socketAddress"] for listener in json.loads(rendered.stdout).values()]
    wanted = [one["port"] for one in (*written["inbound"], *written.get("outbound", ()))]
    assert sorted(address["portValue"] for address in addresses) == sorted(wanted)
