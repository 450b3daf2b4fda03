"""Document to `Resource`, or every violation found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import filterfalse, islice
from typing import Any, Final, TypeAlias, TypeGuard

from cp.model.checkpoint import pass_checkpoint
from cp.model.document import Document
from cp.model.failure import reason
from cp.model.names import Key
from cp.model.paths import Step, step, steps
from cp.model.secret_data import without_quotes
from cp.model.violation import Finding, Severity, Violation, ViolationSort
from cp.resources.capabilities import missing_parts, warning
from cp.resources.checks import LONGEST_NAME
from cp.resources.kinds import ENVELOPE, DocumentMeta, Kind, Kinds
from cp.resources.labels import label_faults
from cp.resources.limits import too_many
from cp.resources.redaction import hidden_texts, placeholders
from cp.resources.resource import Resource
from cp.resources.schema import MOST_FAULTS, check, near, shortened

INVALID: Final = "invalid"
UNWRITABLE: Final = "unwritable"
"""Codes of findings: faults that a document must not have, and those that are tolerated in a stored one."""

_BESIDE_SPEC: Final = frozenset({"spec", "status"})
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MESH_NAME: Final = re.compile(r"[-a-z0-9_.]{1,253}")
_LONGEST_KEY: Final = 1000
_LONGEST_TEXT: Final = 1000
_OF_ABSENCE: Final = frozenset({ViolationSort.MISSING, ViolationSort.INCOMPLETE})


_Steps: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """The outcome of reading a document: a resource or, if there are violations, none; with warnings in either case."""

    document: Document
    resource: Resource | None
    violations: tuple[Violation, ...] = ()
    deprecated: tuple[Violation, ...] = ()
    """What works and should be written in another way."""

    not_enforced: tuple[Violation, ...] = ()
    """What is accepted and has no effect here."""

    tolerated: tuple[Violation, ...] = ()
    """Faults for which a write is rejected, while a document that is stored already stays in use."""

    @property
    def warnings(self) -> tuple[Violation, ...]:
        return (*self.tolerated, *self.not_enforced, *self.deprecated)

    @property
    def as_written(self) -> ParsedDocument:
        """The outcome for a write, of which nothing is tolerated."""
        if not self.tolerated:
            return self
        return replace(self, resource=None, violations=(*self.violations, *self.tolerated), tolerated=())

    def findings(self) -> Iterator[Finding]:
        """All violations and warnings as findings, each with its file and line."""
        unwritable = (replace(violation, message=f"{violation.message}{_TOLERATED}") for violation in self.tolerated)
        for severity, code, violations in (
            (Severity.ERROR, INVALID, self.violations),
            (Severity.WARNING, UNWRITABLE, unwritable),
            (Severity.WARNING, "deprecated", self.deprecated),
            (Severity.WARNING, "not-enforced", self.not_enforced),
        ):
            for violation in violations:
                yield finding(self.document, code, severity, violation)


_TOLERATED: Final = "; it is used as it is, and a write with it is rejected"


def finding(document: Document, code: str, severity: Severity, violation: Violation) -> Finding:
    """A violation of one document, with its file and line."""
    source = document.source
    return Finding(
        code=code,
        severity=severity,
        resource=document.key,
        message=violation.message,
        path=violation.place,
        hint=violation.hint,
        file=source.file,
        line=source.line(violation.place),
        known_as=violation.path,
    )


def parse_written(document: Document, kinds: Kinds) -> ParsedDocument:
    """Read a document that is to be written: nothing is tolerated."""
    return parse(document, kinds).as_written


def parse(document: Document, kinds: Kinds) -> ParsedDocument:
    """Read a document that is stored, by its kind. Every violation is reported, not the first alone.

    A validator that raises is a fault of ours. It becomes a violation of this document, so that whoever reads a store
    gets all other documents.
    """
    kind = kinds.get(document.key.type)
    if kind is None:
        return ParsedDocument(document, None, (_unknown_kind(document.key.type, kinds),))
    try:
        return _without_secrets(_parse(document, kind), kind)
    except Exception as error:  # noqa: BLE001  # one document shall not stop the others, nor the process
        return ParsedDocument(document, None, (_our_fault(error),))


def _without_secrets(parsed: ParsedDocument, kind: Kind) -> ParsedDocument:
    """The same without the secrets that its violations and warnings quote."""
    parts = parsed.violations, parsed.deprecated, parsed.not_enforced, parsed.tolerated
    secrets = frozenset(hidden_texts(kind, parsed.document.data)) if any(parts) else frozenset()
    if not secrets:
        return parsed
    shown = (tuple(_without(violation, secrets) for violation in part) for part in parts)
    return ParsedDocument(parsed.document, parsed.resource, *shown)


def _without(violation: Violation, secrets: frozenset[str]) -> Violation:
    pass_checkpoint()
    message, hint = (without_quotes(text, secrets) for text in (violation.message, violation.hint))
    return replace(violation, message=message, hint=hint)


def _parse(document: Document, kind: Kind) -> ParsedDocument:
    if (violation := _too_long(document.key)) is not None:
        return ParsedDocument(document, None, (violation,))
    body = _body(document.data, kind)
    spec, faults = check(kind.schema, body, kind.root)
    of_plain_data = (
        *islice(_envelope(document, kind), MOST_FAULTS + 1),
        *faults,
        *placeholders(kind, document.data),
        *too_many(kind.name, document.data),
    )
    meta = _meta(document)
    judged = () if spec is None else tuple(map(_capped, islice(kind.validate(spec, meta), MOST_FAULTS + 1)))
    # Apart, as a fault that is tolerated hides none within it that is not.
    violations, of_validator = (list(filterfalse(_is_tolerated, part)) for part in (of_plain_data, judged))
    tolerated = tuple(filter(_is_tolerated, (*of_plain_data, *judged)))
    if spec is not None:
        written = {*_nulls(document.data, kind), *_misplaced(document.data, kind)}
        violations = list(_relevant(violations, of_validator, written))
    deprecated = tuple(islice(kind.deprecations(spec, meta), MOST_FAULTS)) if spec is not None else ()
    if spec is None or violations:
        return ParsedDocument(document, None, _customary(kind, (*violations, *tolerated)), deprecated)
    return ParsedDocument(
        document,
        Resource(kind, document, spec, kind.complete(dict(body))),
        deprecated=deprecated,
        not_enforced=tuple(_not_enforced(document, kind)),
        tolerated=_customary(kind, tolerated),
    )


def _is_tolerated(violation: Violation) -> bool:
    return violation.sort is ViolationSort.WRITE


def _not_enforced(document: Document, kind: Kind) -> Iterator[Violation]:
    for part in islice(missing_parts(kind.name, document.data), MOST_FAULTS):
        yield _capped(warning(part, kind.root))


def _too_long(key: Key) -> Violation | None:
    """The fault of a name that is longer than any may be. It is looked for first, as every finding repeats the name."""
    for field, name in (("type", key.type), ("mesh", key.mesh), ("name", key.name)):
        if len(name) > _LONGEST_KEY:
            return Violation(field, f"is {len(name)} characters long", f"{LONGEST_NAME} are what it may have")
    return None


def _few(violations: Sequence[Violation]) -> Iterator[Violation]:
    yield from map(_capped, violations[:MOST_FAULTS])
    if len(violations) > MOST_FAULTS:
        yield Violation("", f"has more than the {MOST_FAULTS} faults that are told at once", "mend these first")


def _capped(violation: Violation) -> Violation:
    """A violation with its texts cut off: a document may quote megabytes in one."""
    message, hint = violation.message, violation.hint
    if len(message) <= _LONGEST_TEXT and len(hint) <= _LONGEST_TEXT:
        return violation
    return replace(violation, message=shortened(message, _LONGEST_TEXT), hint=shortened(hint, _LONGEST_TEXT))


def _our_fault(error: Exception) -> Violation:
    message = f"cannot be read for a fault of koguma itself: {reason(error)}"
    return Violation("", message, "please report it; what was last good stays in force")


def _meta(document: Document) -> DocumentMeta:
    labels = document.data.get("labels")
    sound = {name: value for name, value in labels.items() if isinstance(value, str)} if _is_mapping(labels) else {}
    return DocumentMeta(document.key.type, document.key.mesh, document.key.name, sound)


def _is_mapping(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def _customary(kind: Kind, violations: Iterable[Violation]) -> tuple[Violation, ...]:
    """The first violations, each under the path that programs know its field by."""
    return tuple(_known_as(kind, violation) for violation in _few(tuple(violations)))


def _known_as(kind: Kind, violation: Violation) -> Violation:
    """A violation under the path that programs know its field by (`Kind.customary`), unless it already has one."""
    if violation.written_at is not None:
        return violation
    path = violation.path
    for pattern, replacement in kind.customary:
        path = re.sub(pattern, replacement, path)
    return violation if path == violation.path else replace(violation, path=path, written_at=violation.path)


def _relevant(by_schema: list[Violation], by_validator: list[Violation], written: set[_Steps]) -> Iterator[Violation]:
    """The violations that the schema and the validator found, without those that only follow from others.

    `written` are the paths of fields that somebody wrote and the decoded spec does not have.
    """
    unwanted = {_steps(violation) for violation in by_validator if violation.sort is ViolationSort.UNWANTED}
    faulty = {_steps(violation) for violation in by_schema}
    # What is faulty is not in the decoded spec. The validator takes it for missing, and what is around it for empty.
    not_empty = {outer for path in written | faulty for outer in _around(path)}
    pointless = faulty | unwanted
    incomplete: list[Violation] = []
    is_clean = not by_schema
    yield from (violation for violation in by_schema if unwanted.isdisjoint(_around(_steps(violation))))
    for violation in by_validator:
        path = _steps(violation)
        if violation.sort is not ViolationSort.UNWANTED and not pointless.isdisjoint(_around(path)):
            continue
        if violation.sort in _OF_ABSENCE and path in not_empty:
            continue
        if violation.sort is ViolationSort.INCOMPLETE:
            incomplete.append(violation)
        else:
            is_clean = False
            yield violation
    # Nobody wants to hear what is still missing as long as what is there makes no sense.
    yield from incomplete if is_clean else ()


def _steps(violation: Violation) -> _Steps:
    return tuple(steps(violation.place))


def _around(path: _Steps) -> Iterator[_Steps]:
    """The paths of a value and of every value around it."""
    return (path[:length] for length in range(len(path) + 1))


def _nulls(data: Mapping[str, Any], kind: Kind) -> Iterator[_Steps]:
    """The paths of nulls in confs. Each is a value: it removes the value of a weaker policy. A null conf is no conf."""
    spec = data.get("spec") if kind.policy is not None else None
    for name, value in spec.items() if isinstance(spec, Mapping) else ():
        items = enumerate(value) if name != "default" and isinstance(value, list) else ()
        for index, item in items:
            if isinstance(item, Mapping) and item.get("default") is not None:
                yield from _nulls_of(item["default"], ("spec", name, index, "default"))
        if name == "default" and value is not None:
            yield from _nulls_of(value, ("spec", "default"))


def _misplaced(data: Mapping[str, Any], kind: Kind) -> Iterator[_Steps]:
    """The paths that fields would have under `spec` which were written beside it."""
    if not kind.is_inlined:
        yield from (("spec", str(name)) for name in data.keys() - ENVELOPE - _BESIDE_SPEC)


def _nulls_of(value: Any, path: _Steps) -> Iterator[_Steps]:
    if value is None:
        yield path
    for name, inner in value.items() if isinstance(value, Mapping) else ():
        yield from _nulls_of(inner, (*path, str(name)))


def _body(data: Mapping[str, Any], kind: Kind) -> Mapping[str, Any]:
    if kind.is_inlined:
        return {name: value for name, value in data.items() if name not in ENVELOPE}
    spec = data.get("spec")
    return {} if spec is None else spec


def _envelope(document: Document, kind: Kind) -> Iterator[Violation]:
    data = document.data
    yield from _names(data, kind)
    labels = data.get("labels")
    if labels is not None and not isinstance(labels, Mapping):
        yield Violation("labels", "must be a mapping of names to values")
    yield from label_faults(labels if isinstance(labels, Mapping) else {}, document.key)
    if kind.needs_spec and data.get("spec") is None:
        yield Violation("spec", "must be set", "`spec: {}` says nothing of anybody")
    if not kind.is_inlined:
        for name in data.keys() - ENVELOPE - _BESIDE_SPEC:
            yield Violation(step("", name), "unknown field", f"the fields of a {kind.name} stand under `spec`")


def _names(data: Mapping[str, Any], kind: Kind) -> Iterator[Violation]:
    name = data.get("name")
    if not isinstance(name, str) or not name:
        yield Violation("name", "must be set")
    elif len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        yield Violation("name", f"`{name}` is not a name", _name_hint(name))
    mesh = data.get("mesh")
    if kind.is_global and mesh:
        yield Violation("mesh", f"must not be set: a {kind.name} belongs to no mesh")
    elif mesh is not None and (not isinstance(mesh, str) or not _MESH_NAME.fullmatch(mesh)):
        yield Violation("mesh", f"`{mesh}` is not the name of a mesh")


def _name_hint(name: str) -> str:
    likely = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.")
    return (
        f"write `{likely}`" if _NAME.fullmatch(likely) else "use lower case letters, digits, `-` and `.`, 253 at most"
    )


def _unknown_kind(name: str, kinds: Kinds) -> Violation:
    hint = near(name, kinds, cutoff=0.5) or f"known are {', '.join(sorted(kinds))}"
    return Violation("type", f"there is no kind `{shortened(name)}`", hint)
