"""Whether a resource is accepted, and the fields for which it is not."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from cp.model.source import read_documents
from cp.model.violation import Finding, Severity
from cp.policies import discover, kinds
from cp.resources.kinds import Kinds
from cp.resources.parse import parse_written


def validate(text: str) -> dict[str, Any]:
    """The verdict on the resources of a file, with every violation."""
    violations = [{"field": found.field, "message": found.message} for found in _findings(text)]
    return {"valid": not violations, "violations": violations}


def _findings(text: str) -> Iterator[Finding]:
    reading = read_documents(text)
    yield from reading.findings
    for document in reading.documents:
        yield from (found for found in parse_written(document, _kinds()).findings() if found.severity is Severity.ERROR)


@cache
def _kinds() -> Kinds:
    return kinds(discover())
