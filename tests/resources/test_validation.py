"""What is wrong with a document is told with its file, line and path, and with what would be right."""

from __future__ import annotations

import pytest

from cp.model.source import read_documents
from cp.resources.parse import parse
from tests.golden import Case, Golden, cases, dump
from tests.resources.reading import every_kind


def render(text: str, file: str) -> str:
    """Everything that is said of a file, as it is printed."""
    reading = read_documents(text, file)
    findings = [
        *reading.findings,
        *(one for found in reading.documents for one in parse(found, every_kind()).findings()),
    ]
    return dump([f"{one.severity}: {one}" for one in sorted(findings, key=lambda one: one.line)])


@pytest.mark.parametrize("case", cases("validation"))
def test_what_is_said_of_a_mistake(case: Case, golden: Golden) -> None:
    golden.check(case, render(case.text, case.path.name))
