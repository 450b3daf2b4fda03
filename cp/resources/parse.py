"""Document to `Resource`, or every violation found."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeGuard

from cp.model.document import Document
from cp.model.violation import Finding, Severity, Sort, Violation
from cp.model.yaml import step
from cp.resources.capabilities import missing_parts, warning
from cp.resources.kinds import Kind, Kinds, Meta
from cp.resources.resource import Resource
from cp.resources.schema import check

_ENVELOPE: Final = frozenset({"type", "mesh", "name", "labels", "creationTime", "modificationTime", "kri"})
_BESIDE_SPEC: Final = frozenset({"spec", "status"})
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MESH_NAME: Final = re.compile(r"[-a-z0-9_.]{1,253}")
_LONGEST_NAME: Final = 253
_OF_ABSENCE: Final = frozenset({Sort.MISSING, Sort.INCOMPLETE})


@dataclass(frozen=True, slots=True)
class Read:
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
        for severity, code, found in (
            (Severity.ERROR, "invalid", self.violations),
            (Severity.WARNING, "deprecated", self.deprecated),
            (Severity.WARNING, "not-enforced", self.not_enforced),
        ):
            for violation in found:
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


def parse(document: Document, kinds: Kinds) -> Read:
    """Understand a document. Every violation is reported, not the first."""
    kind = kinds.get(document.key.type)
    if kind is None:
        return Read(document, None, (_unknown_kind(document.key.type, kinds),))
    body = _body(document.data, kind)
    spec, faults = check(kind.schema, body, kind.root)
    violations = [*_envelope(document.data, kind), *faults]
    meta = _meta(document)
    if spec is not None:
        written = {*_nulls(document.data, kind), *_misplaced(document.data, kind)}
        violations = list(_relevant(violations, list(kind.validate(spec, meta)), written))
    deprecated = tuple(kind.deprecations(spec, meta)) if spec is not None else ()
    if spec is None or violations:
        return Read(document, None, tuple(_customary(kind, found) for found in violations), deprecated)
    not_enforced = tuple(warning(part, kind.root) for part in missing_parts(kind.name, document.data))
    return Read(document, Resource(kind, document, spec, kind.complete(dict(body))), (), deprecated, not_enforced)


def _meta(document: Document) -> Meta:
    labels = document.data.get("labels")
    sound = {name: value for name, value in labels.items() if isinstance(value, str)} if _is_mapping(labels) else {}
    return Meta(document.key.type, document.key.mesh, document.key.name, sound)


def _is_mapping(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def _customary(kind: Kind, found: Violation) -> Violation:
    """A violation under the path that programs know its field by, unless it says itself which one that is."""
    if found.written_at is not None:
        return found
    path = found.path
    for pattern, replacement in kind.customary:
        path = re.sub(pattern, replacement, path)
    return found if path == found.path else replace(found, path=path, written_at=found.path)


def _relevant(known: list[Violation], found: list[Violation], written: set[str]) -> Iterator[Violation]:
    """What was found against the schema and by the validator, less what only follows from something else."""
    unwanted = {one.place for one in found if one.sort is Sort.UNWANTED}
    faulty = {one.place for one in known}
    written = written | faulty
    later: list[Violation] = []
    is_clean = not known
    yield from (one for one in known if not any(_is_within(one.place, path) for path in unwanted))
    for one in found:
        if one.sort is not Sort.UNWANTED and any(_is_within(one.place, path) for path in faulty | unwanted):
            continue
        if one.sort in _OF_ABSENCE and any(_is_within(path, one.place) for path in written):
            continue
        if one.sort is Sort.INCOMPLETE:
            later.append(one)
        else:
            is_clean = False
            yield one
    yield from later if is_clean else ()


def _is_within(path: str, whole: str) -> bool:
    return not whole or path == whole or (path.startswith(whole) and path[len(whole)] in ".[")


def _nulls(data: Mapping[str, Any], kind: Kind) -> Iterator[str]:
    """The paths of nulls in confs. To take away what a more general policy says is to say something."""
    spec = data.get("spec") if kind.policy is not None else None
    for name, given in spec.items() if isinstance(spec, Mapping) else ():
        items = enumerate(given) if name != "default" and isinstance(given, list) else ()
        for index, item in items:
            if isinstance(item, Mapping) and "default" in item:
                yield from _nulls_of(item["default"], f"spec.{name}[{index}].default")
        if name == "default":
            yield from _nulls_of(given, "spec.default")


def _misplaced(data: Mapping[str, Any], kind: Kind) -> Iterator[str]:
    """Where fields would stand that were written beside `spec`."""
    if not kind.is_inlined:
        yield from (step("spec", str(name)) for name in data.keys() - _ENVELOPE - _BESIDE_SPEC)


def _nulls_of(value: Any, path: str) -> Iterator[str]:
    if value is None:
        yield path
    for name, inner in value.items() if isinstance(value, Mapping) else ():
        yield from _nulls_of(inner, step(path, str(name)))


def _body(data: Mapping[str, Any], kind: Kind) -> Mapping[str, Any]:
    if kind.is_inlined:
        return {name: value for name, value in data.items() if name not in _ENVELOPE}
    found = data.get("spec")
    return {} if found is None else found


def _envelope(data: Mapping[str, Any], kind: Kind) -> Iterator[Violation]:
    yield from _names(data, kind)
    labels = data.get("labels")
    if labels is not None and not isinstance(labels, Mapping):
        yield Violation("labels", "must be a mapping of names to values")
    for name, value in (labels if isinstance(labels, Mapping) else {}).items():
        if not isinstance(value, str):
            yield Violation(f'labels["{name}"]', "must be a text", f'write `"{value}"`')
    if not kind.is_inlined:
        for name in data.keys() - _ENVELOPE - _BESIDE_SPEC:
            yield Violation(step("", name), "unknown field", f"the fields of a {kind.name} stand under `spec`")


def _names(data: Mapping[str, Any], kind: Kind) -> Iterator[Violation]:
    name = data.get("name")
    if not isinstance(name, str) or not name:
        yield Violation("name", "must be set")
    elif not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
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
    near = difflib.get_close_matches(name, kinds, n=1, cutoff=0.5)
    hint = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(sorted(kinds))}"
    return Violation("type", f"there is no kind `{name}`", hint)
