"""Where a path stands in its file, whatever the path is made of."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from cp.model.document import Source
from cp.model.lines import Lines
from cp.model.paths import step
from cp.model.source import read_documents
from cp.resources.parse import parse
from tests.resources.reading import every_kind

STRANGE = [".[]", "[", "]", ".", "..", "[]", '"]', "a.b[0]", "", "]["]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("key", STRANGE)
def test_a_fault_at_a_strange_key_has_a_line(key: str) -> None:
    text = json.dumps({"type": "Mesh", "name": "x", "labels": {key: 1}})

    (document,) = read_documents(text, "mesh.yaml").documents

    assert [finding.line for finding in parse(document, every_kind()).findings()] == [1]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("key", STRANGE)
def test_a_path_that_is_nowhere_has_the_line_of_what_is_around_it(key: str) -> None:
    source = Source("mesh.yaml", Lines(1, {"labels": Lines(4)}))

    assert source.line(step("labels", key)) == 4
    assert source.line(step(step("labels", key), key)) == 4
    assert source.line(step("spec", key)) == 1


def test_of_keys_within_each_other_every_level_is_found() -> None:
    text = "type: Mesh\nname: x\nlabels:\n  'a.b[0]\"]\\':\n    x:\n    - 1\n    - 2\n"

    (document,) = read_documents(text, "mesh.yaml", first_line=11).documents

    path = step("labels", 'a.b[0]"]\\')
    assert [document.source.line(path + rest) for rest in ("", ".x", ".x[1]", ".x[2]", ".y")] == [14, 15, 17, 15, 14]


def test_what_is_known_of_lines_grows_with_the_document_whatever_its_keys() -> None:
    """A table of paths would repeat the key for each of the values."""
    long, many = "k" * 4000, 3000
    text = f"type: Mesh\nname: x\nlabels:\n  ? {long}\n  : [{'1, ' * many}]\n"

    tracemalloc.start()
    (document,) = read_documents(text, "mesh.yaml").documents
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert document.source.line(f"labels.{long}[{many - 1}]") == 5
    assert used < 50 * len(text) + 500 * many


def test_values_on_one_line_take_one_entry() -> None:
    ports = ", ".join(f"{{port: {number}, name: p{number}}}" for number in range(3000))
    text = f"""apiVersion: kuma.io/v1alpha1
kind: MeshService
metadata: {{name: x, labels: {{a: b}}}}
spec:
  selector:
  - c
  ports: [{ports}]
"""

    (document,) = read_documents(text, "mesh.yaml").documents

    paths = ("type", "name", "labels.a", "spec", "spec.selector[0]", "spec.ports[2999].name", "spec.ports[3000]")
    assert [document.source.line(path) for path in paths] == [2, 3, 3, 4, 6, 7, 7]
    assert len(json.dumps(document.source.lines.plain())) < 300
