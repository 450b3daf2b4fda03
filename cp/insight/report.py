"""Reports about documents, with the same content over HTTP and on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cp.model.document import Document
from cp.model.names import Key
from cp.model.source import FileReading
from cp.model.violation import Finding, Severity
from cp.resources.kinds import Kinds
from cp.resources.parse import parse_written


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """The documents that were read, and the findings about them."""

    documents: tuple[Document, ...]
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is not Severity.ERROR)

    @property
    def is_valid(self) -> bool:
        return not self.errors

    def as_data(self, limit: int | None = None) -> dict[str, Any]:
        """The report as JSON. `limit` is the most errors, and the most warnings, to list; the others are counted."""
        return {
            "valid": self.is_valid,
            "documents": len(self.documents),
            "violations": [as_data(finding) for finding in self.errors[:limit]],
            "warnings": [as_data(finding) for finding in self.warnings[:limit]],
            **_omitted("violations", self.errors, limit),
            **_omitted("warnings", self.warnings, limit),
        }


def examine(readings: Iterable[FileReading], kinds: Kinds) -> ValidationReport:
    """The report about the documents of some files. What is stored plays no part in it."""
    documents: dict[Key, Document] = {}
    findings: list[Finding] = []
    for reading in readings:
        findings += reading.findings
        for document in reading.documents:
            first_document = documents.setdefault(document.key, document)
            if first_document is not document:
                findings.append(_duplicate_finding(document, first_document))
            findings += parse_written(document, kinds).findings()
    return ValidationReport(tuple(documents.values()), tuple(sorted(findings, key=_position)))


def as_data(finding: Finding) -> dict[str, Any]:
    """A finding of a validation as JSON."""
    return {
        "field": finding.field,
        "message": finding.message,
        "hint": finding.hint,
        "file": finding.file,
        "line": finding.line,
        "resource": str(finding.resource) if finding.resource is not None else "",
    }


def lint_data(findings: Sequence[Finding]) -> dict[str, Any]:
    """The findings of lint as JSON: the same for files and for a control plane."""
    counts = {severity: sum(finding.severity is severity for finding in findings) for severity in Severity}
    return {
        "errors": counts[Severity.ERROR],
        "warnings": counts[Severity.WARNING],
        "infos": counts[Severity.INFO],
        "findings": [finding_data(finding) for finding in findings],
    }


def finding_data(finding: Finding) -> dict[str, Any]:
    return {"code": finding.code, "severity": finding.severity.value, "path": finding.path, **as_data(finding)}


def _omitted(name: str, findings: tuple[Finding, ...], limit: int | None) -> dict[str, int]:
    more = 0 if limit is None else len(findings) - limit
    return {f"{name}NotTold": more} if more > 0 else {}


def _position(finding: Finding) -> tuple[str, int]:
    return finding.file, finding.line


def _duplicate_finding(document: Document, first_document: Document) -> Finding:
    source = first_document.source
    first_position = f"{source.file}:{source.line('')}" if source.file else "another file"
    return Finding(
        "duplicate-name",
        Severity.ERROR,
        document.key,
        f"is written a second time, the first time in {first_position}",
        hint="give one of them another name, or remove it",
        file=document.source.file,
        line=document.source.line(""),
    )
