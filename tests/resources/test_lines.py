"""Where a path stands in its file, whatever the path is made of."""

from __future__ import annotations

import json

import pytest

from cp.model.document import Source
from cp.model.source import read_documents
from cp.model.yaml import step
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
    source = Source("mesh.yaml", {"": 1, "labels": 4})

    assert source.line(step("labels", key)) == 4
    assert source.line(step(step("labels", key), key)) == 4
    assert source.line(step("spec", key)) == 1
