"""Files from a command line to documents."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cp.client.problem import Problem
from cp.insight.report import ValidationReport, examine
from cp.model.document import Document
from cp.model.source import FileReading, read_documents
from cp.resources.kinds import Kinds
from cp.store.tree import SUFFIXES

STANDARD_INPUT: Final = "-"
LARGEST: Final = 64 * 1024 * 1024
"""Characters that a file may have; the control plane takes less at a time."""

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
    def place(self) -> str:
        source = self.document.source
        return f"{source.file}:{source.line('')}"


def texts(names: Iterable[str], variables: Sequence[str] = ()) -> list[FileText]:
    """The text of every file that is named, or lies in a folder that is named, with its variables filled in."""
    values = _values(variables)
    return [_filled(text, values) for name in names for text in _texts(name)]


def pieces(files: Iterable[FileText], kinds: Kinds) -> tuple[list[FileDocument], ValidationReport]:
    """Every document of some files with its own text, and everything that is wrong with them."""
    read = [(file, read_documents(file.text, file.file)) for file in files]
    return [piece for file, reading in read for piece in _cut(file, reading)], examine(
        (reading for _, reading in read), kinds
    )


def _cut(file: FileText, reading: FileReading) -> Iterator[FileDocument]:
    """A document's text goes from its first line to where the next document begins."""
    lines = file.text.splitlines(keepends=True)
    starts = [document.source.line("") for document in reading.documents]
    ends = [*starts, len(lines) + 1][1:]
    for document, start, end in zip(reading.documents, starts, ends, strict=True):
        yield FileDocument(document, "".join(lines[start - 1 : end - 1]))


def _texts(name: str) -> Iterator[FileText]:
    if name == STANDARD_INPUT:
        yield FileText("stdin", sys.stdin.read(LARGEST))
        return
    path = Path(name)
    if not path.exists():
        raise Problem(f"there is no file {name}", "Check the path after -f.")
    if not path.is_dir():
        yield _text(path)
        return
    files = sorted(_below(path))
    if not files:
        raise Problem(f"in {name} there is no file with .yaml, .yml or .json at the end of its name")
    for file in files:
        yield _text(file)


def _below(folder: Path) -> Iterator[Path]:
    """As a `dir:` store has them: in folders of folders too, and nothing that is hidden."""
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and path.suffix.lower() in SUFFIXES and path.is_file():
            yield path


def _text(path: Path) -> FileText:
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(LARGEST + 1)
    except UnicodeDecodeError:
        raise Problem(f"{path} is not UTF-8 text", "Save it as UTF-8.") from None
    except OSError as error:
        raise Problem(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(text) > LARGEST:
        raise Problem(f"{path} is larger than {LARGEST >> 20} MiB", "Divide it into several files.")
    return FileText(str(path), text)


def _values(variables: Sequence[str]) -> Mapping[str, str]:
    values = {}
    for variable in variables:
        name, equals, value = variable.partition("=")
        if not equals:
            raise Problem(f"`{variable}` is no variable", "Write it as NAME=VALUE.")
        values[name] = value
    return values


def _filled(text: FileText, values: Mapping[str, str]) -> FileText:
    """As in Kuma's templates. Without variables nothing is a template."""
    if not values:
        return text

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise Problem(f"{text.file} needs a value for {found[0]}", f"Add --var {found[1]}=VALUE.")
        return values[found[1]]

    return FileText(text.file, _VARIABLE.sub(value, text.text))
