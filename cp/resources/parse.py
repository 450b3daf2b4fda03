"""Document to `Resource`, or every violation found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, TypeAlias, TypeGuard

from cp.model.document import Document
from cp.model.failure import reason
from cp.model.names import Key
from cp.model.paths import Step, step, steps
from cp.model.violation import Finding, Severity, Violation, ViolationSort
from cp.resources.capabilities import missing_parts, warning
from cp.resources.kinds import ENVELOPE, DocumentMeta, Kind, Kinds
from cp.resources.labels import label_faults
from cp.resources.limits import too_many
from cp.resources.redaction import placeholders
from cp.resources.resource import Resource
from cp.resources.schema import MOST_FAULTS, check, near, shortened

_BESIDE_SPEC: Final = frozenset({"spec", "status"})
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MESH_NAME: Final = re.compile(r"[-a-z0-9_.]{1,253}")
_LONGEST_NAME: Final = 253
_LONGEST_KEY: Final = 1000
_LONGEST_TEXT: Final = 1000
_OF_ABSENCE: Final = frozenset({ViolationSort.MISSING, ViolationSort.INCOMPLETE})


_Steps: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """What a document came to: a resource unless a violation forbids it.

    And what should be written otherwise, and what is not enforced.
    """

    document: Document
    resource: Resource | None
    violations: tuple[Violation, ...] = ()
    deprecated: tuple[Violation, ...] = ()
    not_enforced: tuple[Violation, ...] = ()

    @property
    def warnings(self) -> tuple[Violation, ...]:
        return (*self.not_enforced, *self.deprecated)

    def findings(self) -> Iterator[Finding]:
        """The faults as findings, each with its file and line."""
        for severity, code, violations in (
            (Severity.ERROR, "invalid", self.violations),
            (Severity.WARNING, "deprecated", self.deprecated),
            (Severity.WARNING, "not-enforced", self.not_enforced),
        ):
            for violation in violations:
                yield finding(self.document, code, severity, violation)


def finding(document: Document, code: str, severity: Severity, violation: Violation) -> Finding:
    """A violation of one document, with the place where it stands."""
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


def parse(document: Document, kinds: Kinds) -> ParsedDocument:
    """Understand a document. Every violation is reported, not the first.

    Whatever a validator of ours does with a document, it is a fault of that document's reading alone: nobody who
    reads a store has to be afraid of what is in it.
    """
    kind = kinds.get(document.key.type)
    if kind is None:
        return ParsedDocument(document, None, (_unknown_kind(document.key.type, kinds),))
    try:
        return _parse(document, kind)
    except Exception as error:  # noqa: BLE001  # one document shall not stop the others, nor the process
        return ParsedDocument(document, None, (_our_fault(error),))


def _parse(document: Document, kind: Kind) -> ParsedDocument:
    if (violation := _too_long(document.key)) is not None:
        return ParsedDocument(document, None, (violation,))
    body = _body(document.data, kind)
    spec, faults = check(kind.schema, body, kind.root)
    violations = [
        *islice(_envelope(document, kind), MOST_FAULTS + 1),
        *faults,
        *placeholders(kind, document.data),
        *too_many(kind.name, document.data),
    ]
    meta = _meta(document)
    if spec is not None:
        written = {*_nulls(document.data, kind), *_misplaced(document.data, kind)}
        judged = [_capped(violation) for violation in islice(kind.validate(spec, meta), MOST_FAULTS + 1)]
        violations = list(_relevant(violations, judged, written))
    deprecated = tuple(islice(kind.deprecations(spec, meta), MOST_FAULTS)) if spec is not None else ()
    if spec is None or violations:
        return ParsedDocument(
            document, None, tuple(_customary(kind, violation) for violation in _few(violations)), deprecated
        )
    return ParsedDocument(
        document,
        Resource(kind, document, spec, kind.complete(dict(body))),
        deprecated=deprecated,
        not_enforced=tuple(_not_enforced(document, kind)),
    )


def _not_enforced(document: Document, kind: Kind) -> Iterator[Violation]:
    for part in islice(missing_parts(kind.name, document.data), MOST_FAULTS):
        yield _capped(warning(part, kind.root))


def _too_long(key: Key) -> Violation | None:
    """A name that no resource can have, and that every finding would repeat."""
    for field, name in (("type", key.type), ("mesh", key.mesh), ("name", key.name)):
        if len(name) > _LONGEST_KEY:
            return Violation(field, f"is {len(name)} characters long", f"{_LONGEST_NAME} are what it may have")
    return None


def _few(violations: Sequence[Violation]) -> Iterator[Violation]:
    yield from map(_capped, violations[:MOST_FAULTS])
    if len(violations) > MOST_FAULTS:
        yield Violation("", f"has more than the {MOST_FAULTS} faults that are told at once", "mend these first")


def _capped(violation: Violation) -> Violation:
    """A violation that quotes no more of a long text than tells which it is."""
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


def _customary(kind: Kind, violation: Violation) -> Violation:
    """A violation under the path that programs know its field by, unless it says itself which one that is."""
    if violation.written_at is not None:
        return violation
    path = violation.path
    for pattern, replacement in kind.customary:
        path = re.sub(pattern, replacement, path)
    return violation if path == violation.path else replace(violation, path=path, written_at=violation.path)


def _relevant(known: list[Violation], found: list[Violation], written: set[_Steps]) -> Iterator[Violation]:
    """What was found against the schema and by the validator, less what only follows from something else."""
    unwanted = {_steps(one) for one in found if one.sort is ViolationSort.UNWANTED}
    faulty = {_steps(one) for one in known}
    around = {above for path in written | faulty for above in _around(path)}
    pointless = faulty | unwanted
    later: list[Violation] = []
    is_clean = not known
    yield from (one for one in known if unwanted.isdisjoint(_around(_steps(one))))
    for one in found:
        if one.sort is not ViolationSort.UNWANTED and not pointless.isdisjoint(_around(_steps(one))):
            continue
        if one.sort in _OF_ABSENCE and _steps(one) in around:
            continue
        if one.sort is ViolationSort.INCOMPLETE:
            later.append(one)
        else:
            is_clean = False
            yield one
    yield from later if is_clean else ()


def _steps(violation: Violation) -> _Steps:
    return tuple(steps(violation.place))


def _around(path: _Steps) -> Iterator[_Steps]:
    """A path, and all that it stands in."""
    return (path[:length] for length in range(len(path) + 1))


def _nulls(data: Mapping[str, Any], kind: Kind) -> Iterator[_Steps]:
    """The paths of nulls in confs. To take away what a more general policy says is to say something."""
    spec = data.get("spec") if kind.policy is not None else None
    for name, value in spec.items() if isinstance(spec, Mapping) else ():
        items = enumerate(value) if name != "default" and isinstance(value, list) else ()
        for index, item in items:
            if isinstance(item, Mapping) and "default" in item:
                yield from _nulls_of(item["default"], ("spec", name, index, "default"))
        if name == "default":
            yield from _nulls_of(value, ("spec", "default"))


def _misplaced(data: Mapping[str, Any], kind: Kind) -> Iterator[_Steps]:
    """Where fields would stand that were written beside `spec`."""
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
    elif len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
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
