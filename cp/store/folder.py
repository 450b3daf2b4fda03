"""`Folder`: the documents that are in force from a directory of files, while people write in it.

Whatever goes wrong with a file takes nothing out of force: what was last good stays, and a finding says so until it
is mended. Of a file that is broken from the start, what can be read counts.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from cp.model.document import Document
from cp.model.names import Key
from cp.model.source import FileReading
from cp.model.violation import Finding, Severity
from cp.store.port import Delete, Put
from cp.store.settling import SettledValues
from cp.store.tree import FileSignature, Seen, reason, survey

LARGEST: Final = 16 * 1024 * 1024
"""Bytes that a file may have."""

Parse: TypeAlias = Callable[[str, str], FileReading]
"""The text of a file and its name, to the documents in it."""

Claims: TypeAlias = dict[Key, list[Document]]
"""The documents that were written under each name; one, if all is well."""

_KEPT: Final = "until this is mended, what was last good stays in force"


@dataclass(frozen=True, slots=True)
class FolderFile:
    """What one file contributes: the documents that are in force from it, and what is wrong with it."""

    signature: FileSignature | None = None
    documents: tuple[Document, ...] = ()
    findings: tuple[Finding, ...] = ()
    was_whole: bool = False
    """It could once be read to its end."""


@dataclass(frozen=True, slots=True)
class FolderEdit:
    """What has changed since the last reading, all that is wrong now, and which directories tell of the next change."""

    writes: tuple[Put | Delete, ...]
    findings: tuple[Finding, ...]
    places: frozenset[str]
    in_doubt: bool
    """Something has not settled yet and was left as it was: read again soon."""


class Folder:
    """Reads the files that have changed since it last did, once they have stayed as they are for a while."""

    def __init__(self, root: Path, parse: Parse, lasting: float) -> None:
        self._root, self._parse = str(root), parse
        self._settling = SettledValues[str, Seen](lasting)
        self._files: dict[str, FolderFile] = {}
        self._unreadable: dict[str, str] = {}
        self._documents: dict[Key, Document] = {}
        self._findings: tuple[Finding, ...] = ()

    def read(self) -> FolderEdit:
        tree = survey(self._root)
        writes = self._take(self._settling.believe(tree.seen))
        return FolderEdit(writes, self._findings, frozenset(tree.places), self._settling.in_doubt)

    def _take(self, believed: Mapping[str, Seen]) -> tuple[Put | Delete, ...]:
        unreadable = {path: seen for path, seen in believed.items() if isinstance(seen, str)}
        present = {path: self._file(path, seen) for path, seen in believed.items() if isinstance(seen, FileSignature)}
        files = dict(sorted((_unseen(self._files, unreadable) | present).items()))
        if (files, unreadable) == (self._files, self._unreadable):
            return ()
        claims = _claims(files.values())
        before, self._documents = self._documents, _in_force(claims, self._documents)
        self._files, self._unreadable = files, unreadable
        self._findings = tuple(_findings(unreadable, files.values(), claims))
        return _writes(before, self._documents)

    def _file(self, path: str, now: FileSignature) -> FolderFile:
        before = self._files.get(path, FolderFile())
        if before.signature == now:
            return before
        try:
            return _updated(before, now, self._reading(path, now))
        except _Unreadable as error:
            return _updated(before, now, FileReading((), (error.finding,), broken=True))
        except _Changing:
            return before  # it will be seen that it changed, and it is read again

    def _reading(self, path: str, now: FileSignature) -> FileReading:
        text = _text(path, now)
        try:
            return self._parse(text, _shown(path))
        except Exception as error:  # a file that trips the parser must not stop the others
            raise _Unreadable("unreadable-file", path, f"the parser failed: {error!r}") from error


class _Unreadable(Exception):
    """Nothing of a file can be read."""

    def __init__(self, code: str, path: str, message: str, *, hint: str = "", line: int = 0) -> None:
        self.finding = _finding(code, path, message, hint=hint, line=line)
        super().__init__(message)


class _Changing(Exception):
    """A file was written or replaced between being looked at and being read."""


def _text(path: str, now: FileSignature) -> str:
    if not stat.S_ISREG(now.mode):
        raise _Unreadable("unreadable-file", path, "is no ordinary file")
    data = _bytes(path, now)
    if len(data) > LARGEST:
        raise _Unreadable("file-too-large", path, f"has more than {LARGEST >> 20} MiB", hint="divide it")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _Unreadable("not-utf-8", path, "is not UTF-8", hint="save it as UTF-8", line=line) from error


def _bytes(path: str, now: FileSignature) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(LARGEST + 1)
            if FileSignature.of(os.fstat(file.fileno())) != now:
                raise _Changing
            return data
    except FileNotFoundError as error:
        raise _Changing from error
    except OSError as error:
        raise _Unreadable("unreadable-file", path, f"cannot be read: {reason(error)}") from error


def _updated(before: FolderFile, now: FileSignature, reading: FileReading) -> FolderFile:
    """The file after it was read again: what cannot be read any longer stays as it was last good."""
    last, read = _by_key(before.documents), _by_key(reading.documents)
    if reading.broken and before.was_whole:
        kept, documents = last, last
    else:
        faulty = {finding.resource for finding in reading.findings if finding.severity is Severity.ERROR}
        # While there is a document of which one cannot tell which it is, it may be any that is missing.
        kept = {key: last[key] for key in last if key in faulty or (None in faulty and key not in read)}
        documents = read | kept
    findings = tuple(map(_with_kept, reading.findings)) if kept else reading.findings
    return FolderFile(now, tuple(documents.values()), findings, before.was_whole or not reading.broken)


def _unseen(files: Mapping[str, FolderFile], unreadable: Collection[str]) -> dict[str, FolderFile]:
    """Files that may still be there, where we could not look."""
    if not unreadable:
        return {}
    blind = frozenset(unreadable)
    return {path: file for path, file in files.items() if not blind.isdisjoint((path, *map(str, Path(path).parents)))}


def _claims(files: Iterable[FolderFile]) -> Claims:
    claims: Claims = {}
    for file in files:
        for document in file.documents:
            claims.setdefault(document.key, []).append(document)
    return claims


def _in_force(claims: Claims, before: Mapping[Key, Document]) -> dict[Key, Document]:
    """One document for each name. Where several claim it the one before stays; at the start, the first by path."""
    return {
        key: documents[0] if len(documents) == 1 else before.get(key, documents[0]) for key, documents in claims.items()
    }


def _findings(unreadable: Mapping[str, str], files: Iterable[FolderFile], claims: Claims) -> Iterator[Finding]:
    for path, why in sorted(unreadable.items()):
        yield _finding("unreadable-file", path, f"cannot be read: {why}", hint=_KEPT)
    for file in files:
        yield from file.findings
    for documents in claims.values():
        if len(documents) > 1:
            yield _dispute(documents)


def _writes(before: Mapping[Key, Document], after: Mapping[Key, Document]) -> tuple[Put | Delete, ...]:
    # By identity, because a file that did not change keeps its documents: costs no comparing.
    put = (Put(document) for key, document in after.items() if before.get(key) is not document)
    return (*put, *(Delete(key) for key in before if key not in after))


def _dispute(claims: list[Document]) -> Finding:
    places = [f"{claim.source.file}:{claim.source.line('')}" for claim in claims]
    return Finding(
        "duplicate-name",
        Severity.ERROR,
        claims[0].key,
        f"is written in {' and in '.join(places)}",
        hint=f"remove it from all but one, or give it another name; {_KEPT}",
        file=claims[1].source.file,
        line=claims[1].source.line(""),
    )


def _finding(code: str, path: str, message: str, *, hint: str = "", line: int = 0) -> Finding:
    return Finding(code, Severity.ERROR, None, message, hint=hint, file=_shown(path), line=line)


def _with_kept(finding: Finding) -> Finding:
    return replace(finding, hint="; ".join(filter(None, (finding.hint, _KEPT))))


def _by_key(documents: Iterable[Document]) -> dict[Key, Document]:
    return {document.key: document for document in documents}


def _shown(path: str) -> str:
    """A name that can be written down, even if it is not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
