"""`Violation` and `Finding`: a fault of a document, and what an operator should know about a stored object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cp.model.names import Key


class ViolationSort(StrEnum):
    """The sort of a fault. It decides which other faults are not worth reporting beside it (`cp.resources.parse`)."""

    WRONG = "wrong"
    MISSING = "missing"
    """A value is missing. It is no fault where one was written that is faulty itself."""

    INCOMPLETE = "incomplete"
    """A value is missing, which is reported only if nothing else is wrong."""

    UNWANTED = "unwanted"
    """A value must not be there at all, so faults inside it do not matter."""

    WRITE = "write"
    """A write with it is rejected. A document that is stored already, or stands in a folder, stays in use."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One fault of one document: a path such as `spec.to[0].default`, what is wrong, and what would be right."""

    path: str
    message: str
    hint: str = ""
    written_at: str | None = None
    """The path in the document, where it differs from the path that programs know the field by."""

    sort: ViolationSort = ViolationSort.WRONG

    def at(self, root: str) -> Violation:
        """The same fault with paths from the top of a document in which the checked value stands at `root`."""
        written_at = None if self.written_at is None else join(root, self.written_at)
        return replace(self, path=join(root, self.path), written_at=written_at)

    @property
    def place(self) -> str:
        """The path in the document."""
        return self.path if self.written_at is None else self.written_at

    def __str__(self) -> str:
        text = f"{self.place}: {self.message}" if self.place else self.message
        return f"{text}; {self.hint}" if self.hint else text


def join(root: str, path: str) -> str:
    """`spec` and `to` make `spec.to`; `to` and `[0]` make `to[0]`."""
    if not root or not path:
        return root or path
    return f"{root}{path}" if path.startswith("[") else f"{root}.{path}"


def at(root: str, violations: Iterable[Violation]) -> Iterator[Violation]:
    """The same violations with `root` before their paths, so that a validator needs to know its own fields only."""
    return (violation.at(root) for violation in violations)


class Severity(StrEnum):
    """How bad a finding is: an error takes something away, a warning is about something that is not as it seems."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that the operator should know about one stored object, while everything else goes on."""

    code: str
    severity: Severity
    resource: Key | None
    message: str
    path: str = ""
    hint: str = ""
    file: str = ""
    line: int = 0
    known_as: str = ""
    """The path that programs know the field by, where it is not the one in the document."""

    @property
    def field(self) -> str:
        """The field as programs know it."""
        return self.known_as or self.path

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.file and self.line else self.file

    def __str__(self) -> str:
        subject = " ".join(part for part in (self.place, str(self.resource or ""), self.path) if part)
        text = f"{subject}: {self.message}" if subject else self.message
        return f"{text}; {self.hint}" if self.hint else text


class Invalid(Exception):
    """A document that is invalid, with all of its violations."""

    def __init__(self, subject: str, violations: Iterable[Violation]) -> None:
        self.subject = subject
        self.violations = tuple(violations)
        super().__init__("\n".join([f"{subject} is invalid:", *(f"  {violation}" for violation in self.violations)]))
