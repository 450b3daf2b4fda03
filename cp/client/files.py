"""Reads the files that a command line names, and cuts them into documents."""

from __future__ import annotations

import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final

from cp.client.problem import Problem
from cp.insight.report import ValidationReport, examine
from cp.model.document import Document
from cp.model.names import Key
from cp.model.source import FileReading, excess, read_documents
from cp.model.violation import Finding, Severity, Violation
from cp.resources.kinds import Kinds
from cp.resources.parse import INVALID, finding
from cp.store.tree import survey

STANDARD_INPUT: Final = "-"
LARGEST: Final = 64 * 1024 * 1024
"""The most characters that a file may have. The control plane takes less in one request."""

_VARIABLE: Final = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_.-]*)\s*\}\}")


@dataclass(frozen=True, slots=True)
class FileText:
    """The text of one file."""

    file: str
    text: str


@dataclass(frozen=True, slots=True)
class FileDocument:
    """One document, with the text in which it was written."""

    document: Document
    text: str

    @property
    def key(self) -> Key:
        return self.document.key

    @property
    def location(self) -> str:
        source = self.document.source
        return f"{source.file}:{source.line('')}"


def file_texts(names: Iterable[str], variables: Sequence[str] = ()) -> list[FileText]:
    """The text of every named file, and of the files in every named folder, with variables replaced."""
    values = _values(variables)
    return [_filled(text, values) for name in names for text in _texts(name)]


def file_documents(files: Iterable[FileText], kinds: Kinds) -> tuple[list[FileDocument], ValidationReport]:
    """Every document in some files with its own text, and a report of all errors in them."""
    file_readings = [(file, read_documents(file.text, file.file)) for file in files]
    documents = [document for file, reading in file_readings for document in _cut(file, reading)]
    report = examine((reading for _, reading in file_readings), kinds)
    texts = {file.file: file.text for file, _ in file_readings}
    all_findings = (*report.findings, *chain.from_iterable(map(_too_large, documents)))
    findings = tuple(_with_variable(finding, texts.get(finding.file, "")) for finding in all_findings)
    return documents, replace(report, findings=findings)


def _too_large(document: FileDocument) -> Iterator[Finding]:
    """Yield a finding if no control plane takes a document of this size."""
    if reason := excess(document.text):
        yield finding(document.document, INVALID, Severity.ERROR, Violation("", reason, "divide it"))


def _with_variable(finding: Finding, text: str) -> Finding:
    """A finding about a line with a variable that was not replaced: as a text, braces mean nothing there."""
    if finding.severity is not Severity.ERROR or "{{" not in text:
        return finding
    lines = text.splitlines()
    match = _VARIABLE.search(lines[finding.line - 1]) if 0 < finding.line <= len(lines) else None
    return finding if match is None else replace(finding, hint=f"give {match[0]} a value: -v {match[1]}=VALUE")


def _cut(file: FileText, reading: FileReading) -> Iterator[FileDocument]:
    """A document's text goes from its first line to where the next document begins."""
    lines = file.text.splitlines(keepends=True)
    starts = [document.source.line("") for document in reading.documents]
    ends = [*starts, len(lines) + 1][1:]
    for document, start, end in zip(reading.documents, starts, ends, strict=True):
        yield FileDocument(document, "".join(lines[start - 1 : end - 1]))


def _texts(name: str) -> Iterator[FileText]:
    if name == STANDARD_INPUT:
        yield FileText("stdin", _whole("stdin", sys.stdin.read(LARGEST + 1)))
        return
    path = Path(name)
    if not path.exists():
        raise Problem(f"there is no file {name}", "Check the path.")
    if not path.is_dir():
        yield _text(path)
        return
    files = sorted(_below(path))
    if not files:
        raise Problem(f"there is no .yaml, .yml or .json file in {name}")
    for file in files:
        yield _text(file)


def _below(folder: Path) -> Iterator[Path]:
    """The files that a `dir:` store would read: also in subfolders, behind links, and nothing hidden.

    Raises `Problem` if something cannot be looked at: what is in it would be taken for removed (`--prune`).
    """
    for path, seen in survey(str(folder)).seen.items():
        if isinstance(seen, str):
            raise Problem(f"{path} cannot be read: {seen}", "Mend it, or remove it.")
        if not stat.S_ISREG(seen.mode):
            raise Problem(f"{path} is no file", "Remove it, or give it another name.")
        yield Path(path)


def _text(path: Path) -> FileText:
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(LARGEST + 1)
    except UnicodeDecodeError:
        raise Problem(f"{path} is not UTF-8 text", "Save it as UTF-8.") from None
    except OSError as error:
        raise Problem(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    return FileText(str(path), _whole(str(path), text))


def _whole(name: str, text: str) -> str:
    """Raises `Problem` for a text that is too long: a part of it is not what was meant."""
    if len(text) > LARGEST:
        raise Problem(f"{name} is larger than {LARGEST >> 20} MiB", "Divide it into several files.")
    return text


def _values(variables: Sequence[str]) -> Mapping[str, str]:
    values = {}
    for variable in variables:
        name, equals, value = variable.partition("=")
        if not equals:
            raise Problem(f"`{variable}` is no variable", "Write it as NAME=VALUE.")
        values[name] = value
    return values


def _filled(text: FileText, values: Mapping[str, str]) -> FileText:
    """A text with its variables replaced, as in Kuma's templates. Without `--var`, braces are left alone."""
    if not values:
        return text

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise Problem(f"{text.file} needs a value for {match[0]}", f"Add -v {match[1]}=VALUE.")
        return values[match[1]]

    return FileText(text.file, _VARIABLE.sub(value, text.text))
