"""Findings as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def finding_lines(finding: Mapping[str, Any]) -> Iterator[str]:
    """A finding as lines: first location and code, as compilers print them; then why; then what to write instead."""
    subject = f" {finding['resource']}" if finding["resource"] else ""
    yield f"{_place(finding)}{finding['severity']} [{finding['code']}]{subject}"
    yield f"  {finding['path']}: {finding['message']}" if finding["path"] else f"  {finding['message']}"
    if finding["hint"]:
        yield f"  Instead: {finding['hint']}"


def _place(finding: Mapping[str, Any]) -> str:
    if not finding["file"]:
        return ""
    return f"{finding['file']}:{finding['line']}: " if finding["line"] else f"{finding['file']}: "
