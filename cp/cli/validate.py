"""`koguma validate`: all errors in some files, found without a control plane."""

from __future__ import annotations

import typer

from cp.cli.findings import print_findings
from cp.cli.options import Files, Output, OutputFormat, Variables
from cp.cli.output import print_data
from cp.cli.types import known_kinds
from cp.client.files import file_documents, file_texts
from cp.insight.report import ValidationReport


def validate(file: Files, var: Variables = None, output: Output = OutputFormat.TABLE) -> None:
    """Check files without a control plane. Ends with status 1 if a resource in them is invalid."""
    _, report = file_documents(file_texts(file, var or []), known_kinds())
    if output is OutputFormat.TABLE:
        print_findings(report.findings)
        typer.echo(_summary(report))
    else:
        print_data(report.as_data(), output)
    if not report.is_valid:
        raise typer.Exit(1)


def _summary(report: ValidationReport) -> str:
    count = len(report.documents)
    documents = f"{count} resource" if count == 1 else f"{count} resources"
    if report.is_valid:
        return f"{documents}, valid"
    errors = len(report.errors)
    return f"{documents}, {errors} error{'' if errors == 1 else 's'}"
