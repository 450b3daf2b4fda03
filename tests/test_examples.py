"""The files in examples/ are what they say: valid, whole, and good for every dataplane in them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
KOGUMA = Path(sys.executable).with_name("koguma")
MESHES = sorted((ROOT / "examples").glob("*.yaml"))
DEMO = sorted((ROOT / "examples/demo/resources").glob("*.yaml"))
TRIED = sorted((ROOT / "examples/demo/try").glob("*.yaml"))


def koguma(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(KOGUMA), *map(str, words)], capture_output=True, text=True, check=False)


def documents(*files: Path) -> list[dict[str, Any]]:
    return [document for file in files for document in yaml.safe_load_all(file.read_text())]


def dataplanes() -> list[tuple[str, Path]]:
    return [(d["name"], file) for file in MESHES for d in documents(file) if d["type"] == "Dataplane"]


@pytest.mark.parametrize("file", [*MESHES, *TRIED], ids=lambda file: file.stem)
def test_it_is_valid_without_a_warning(file: Path) -> None:
    checked = koguma("validate", "-f", file)

    assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout


def test_the_resources_of_the_demo_are_valid_without_an_error() -> None:
    checked = koguma("validate", *(word for file in DEMO for word in ("-f", str(file))))

    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(("dataplane", "file"), dataplanes())
def test_every_dataplane_gets_what_its_outbounds_need(dataplane: str, file: Path) -> None:
    rendered = koguma("render", dataplane, "--mesh", "default", "-f", file, "-o", "json")
    assert (rendered.returncode, rendered.stderr) == (0, "")

    (written,) = [d["networking"] for d in documents(file) if d["type"] == "Dataplane" and d["name"] == dataplane]
    listeners = listener_ports(json.loads(rendered.stdout))
    assert listeners == {one["port"] for one in (*written["inbound"], *written.get("outbound", ()))}


def listener_ports(rendered: Any) -> set[int]:
    """The port of every listener, wherever in the output it stands."""
    return {int(port) for port in _ports(rendered.get("listeners", rendered))}


def _ports(data: Any) -> list[Any]:
    found = data.get("listeners", data) if isinstance(data, dict) else data
    entries = found.values() if isinstance(found, dict) else found
    return [entry["address"]["socketAddress"]["portValue"] for entry in entries]
