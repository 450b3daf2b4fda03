"""Findings as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import typer

from cp.model.wording import printable

if TYPE_CHECKING:
    from cp.insight.report import ValidationReport
    from cp.model.violation import Finding


def finding_lines(finding: Mapping[str, Any]) -> Iterator[str]:
    """A finding as lines: first location and code, as compilers print them; then why; then what to write instead.

    Whoever writes resources chooses the names of files, and what is quoted, so no terminal obeys them.
    """
    return map(printable, _finding_lines(finding))


def _finding_lines(finding: Mapping[str, Any]) -> Iterator[str]:
    subject = f" {finding['resource']}" if finding["resource"] else ""
    yield f"{_place(finding)}{finding['severity']} [{finding['code']}]{subject}"
    yield f"  {finding['path']}: {finding['message']}" if finding["path"] else f"  {finding['message']}"
    if finding["hint"]:
        yield f"  Instead: {finding['hint']}"


def print_findings(findings: Iterable[Finding]) -> None:
    """Print findings to standard error, so that a program can still read the output."""
    for finding in findings:
        typer.echo(printable(f"{finding.severity}: {finding}"), err=True)


def findings_before_write(report: ValidationReport) -> Iterable[Finding]:
    """The findings to print before a write: of valid documents, those that the control plane does not repeat."""
    return (finding for finding in report.findings if finding.resource is None) if report.is_valid else report.findings


def _place(finding: Mapping[str, Any]) -> str:
    if not finding["file"]:
        return ""
    return f"{finding['file']}:{finding['line']}: " if finding["line"] else f"{finding['file']}: "
