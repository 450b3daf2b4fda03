"""The file with rights: text to `Rights`, or every fault in it with its line and what would be right.

See record 0060.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, Literal

from cp.access.rights import BESIDE_RESOURCES, UNAUTHENTICATED, WITHOUT_MESH, AccessRight, Rights, Subjects, Verb
from cp.model.source import GLOBAL
from cp.model.violation import Finding, Severity, Violation, at
from cp.model.yaml import NotYaml, ParsedYaml, parse_all
from cp.resources.schema import Schema, check, near

CODE: Final = "bad-access-file"
_MESH: Final = "Mesh"
_READ: Final = "read"


class BadAccessFile(Exception):
    """The file with rights is invalid, with every fault."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(map(str, self.findings)))


class SubjectsItem(Schema, frozen=True):
    users: list[str] | None = None
    groups: list[str] | None = None

    def subjects(self) -> Subjects:
        return Subjects(frozenset(self.users or ()), frozenset(self.groups or ()))


class RightItem(SubjectsItem, frozen=True, kw_only=True):
    may: list[Literal["read", "write"]]
    meshes: list[str] | None = None
    kinds: list[str] | None = None


class AccessFile(Schema, frozen=True):
    administrators: SubjectsItem | None = None
    rights: list[RightItem] | None = None


def rights_of(text: str, file: str, kinds: Collection[str], administrators: Subjects) -> Rights:
    """The rights in a file. The administrators hold where the file names none. Raises `BadAccessFile`."""
    parsed = _only_document(text, file)
    content, violations = check(AccessFile, parsed.data)
    if content is not None:
        violations += _violations(content, kinds)
    if violations or content is None:
        faults = dict.fromkeys(violations)
        raise BadAccessFile([_finding(fault, file, parsed.lines.of(fault.path)) for fault in faults])
    rights = (
        _right(item, f"{file}:{parsed.lines.of(f'rights[{index}]')}") for index, item in enumerate(content.rights or ())
    )
    named = content.administrators
    return Rights(administrators if named is None else named.subjects(), tuple(rights))


def _only_document(text: str, file: str) -> ParsedYaml:
    try:
        documents = list(parse_all(text))
    except NotYaml as error:
        raise BadAccessFile([_finding(Violation("", f"not YAML: {error.message}"), file, error.line)]) from None
    if len(documents) != 1:
        hint = "write one document with `administrators` and `rights`"
        fault = Violation("", f"has {len(documents) or 'no'} documents", hint)
        raise BadAccessFile([_finding(fault, file, documents[1].lines.line if documents else 1)])
    return documents[0]


def _right(item: RightItem, place: str) -> AccessRight:
    return AccessRight(
        item.subjects(),
        frozenset(map(Verb, item.may)),
        None if item.meshes is None else frozenset(item.meshes),
        None if item.kinds is None else frozenset(item.kinds),
        place=place,
    )


def _violations(content: AccessFile, kinds: Collection[str]) -> Iterator[Violation]:
    if content.administrators is not None:
        yield from at("administrators", _faults_of_administrators(content.administrators))
    for index, item in enumerate(content.rights or ()):
        yield from at(f"rights[{index}]", _faults_of_right(item, kinds))


def _faults_of_administrators(item: SubjectsItem) -> Iterator[Violation]:
    yield from _nobody(item.subjects())
    if UNAUTHENTICATED in item.subjects().groups:
        hint = "remove it; KUMA_API_SERVER_AUTHN_TYPE=none is for a network of which everybody is trusted"
        yield Violation("groups", f"`{UNAUTHENTICATED}` is everybody without a token", hint)


def _faults_of_right(item: RightItem, kinds: Collection[str]) -> Iterator[Violation]:
    yield from _nobody(item.subjects())
    if not item.may:
        yield Violation("may", "must not be empty", "write `[read]`, `[write]` or `[read, write]`")
    if item.meshes is not None and not item.meshes:
        yield Violation("meshes", "must not be empty", "leave it out for all meshes")
    if item.kinds is not None and not item.kinds:
        yield Violation("kinds", "must not be empty", "leave it out for all kinds that need not be named")
    if UNAUTHENTICATED in item.subjects().groups and set(item.may) - {_READ}:
        yield Violation("may", f"`{UNAUTHENTICATED}` is everybody without a token, and may only read", "write `[read]`")
    for index, kind in enumerate(item.kinds or ()):
        yield from at(f"kinds[{index}]", _faults_of_kind(kind, kinds, has_meshes=item.meshes is not None))


def _faults_of_kind(kind: str, kinds: Collection[str], *, has_meshes: bool) -> Iterator[Violation]:
    known = (*kinds, *BESIDE_RESOURCES)
    if kind not in known:
        hint = near(kind, known) or f"known are {', '.join(sorted(known))}"
        yield Violation("", f"there is no kind `{kind}`", hint)
    elif has_meshes and kind != _MESH and kind in GLOBAL | WITHOUT_MESH:
        yield Violation("", f"{kind} belongs to no mesh", "grant it in a right without `meshes`")


def _nobody(subjects: Subjects) -> Iterator[Violation]:
    if not subjects.users and not subjects.groups:
        yield Violation("", "names nobody", "give it `users` or `groups`")


def _finding(fault: Violation, file: str, line: int) -> Finding:
    return Finding(CODE, Severity.ERROR, None, fault.message, fault.path, fault.hint, file, line)
