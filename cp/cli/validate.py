"""`koguma validate`: everything that is wrong with some files, without a control plane."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from cp.cli.options import Files, Output, OutputFormat, Variables
from cp.cli.output import print_data
from cp.cli.types import known
from cp.client.files import pieces, texts
from cp.insight.report import ValidationReport
from cp.model.violation import Finding


def validate(file: Files, var: Variables = None, output: Output = OutputFormat.TABLE) -> None:
    """Check files without a control plane. Ends with status 1 if a resource in them is invalid."""
    _, report = pieces(texts(file, var or []), known())
    if output is OutputFormat.TABLE:
        tell(report.findings)
        typer.echo(_summary(report))
    else:
        print_data(report.as_data(), output)
    if not report.is_valid:
        raise typer.Exit(1)


def tell(findings: Iterable[Finding]) -> None:
    """Print what was found, for people, beside what a command prints for its reader."""
    for finding in findings:
        typer.echo(f"{finding.severity}: {finding}", err=True)


def untold(report: ValidationReport) -> Iterable[Finding]:
    """What nobody else says of documents that are to be written: the control plane's answer has the warnings."""
    return (one for one in report.findings if one.resource is None) if report.is_valid else report.findings


def _summary(report: ValidationReport) -> str:
    count = len(report.documents)
    documents = f"{count} resource" if count == 1 else f"{count} resources"
    if report.is_valid:
        return f"{documents}, valid"
    errors = len(report.errors)
    return f"{documents}, {errors} error{'' if errors == 1 else 's'}"
