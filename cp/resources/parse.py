"""Document to `Resource`, or every violation found."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cp.model.document import Document
from cp.model.violation import Finding, Severity, Violation
from cp.model.yaml import step
from cp.resources.kinds import Kind, Kinds, Meta
from cp.resources.resource import Resource
from cp.resources.schema import check

_ENVELOPE: Final = frozenset({"type", "mesh", "name", "labels", "creationTime", "modificationTime", "kri"})
_BESIDE_SPEC: Final = frozenset({"spec", "status"})
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9_.]*[a-z0-9])?")
_LONGEST_NAME: Final = 253


@dataclass(frozen=True, slots=True)
class Read:
    """What a document came to: a resource unless a violation forbids it, and what should be written otherwise."""

    document: Document
    resource: Resource | None
    violations: tuple[Violation, ...] = ()
    warnings: tuple[Violation, ...] = ()

    def findings(self) -> Iterator[Finding]:
        """The faults as findings, each with its file and line."""
        for severity, code, found in (
            (Severity.ERROR, "invalid", self.violations),
            (Severity.WARNING, "deprecated", self.warnings),
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
    )


def parse(document: Document, kinds: Kinds) -> Read:
    """Understand a document. Every violation is reported, not the first."""
    data = document.data
    kind = kinds.get(document.key.type)
    if kind is None:
        return Read(document, None, (_unknown_kind(document.key.type, kinds),))
    violations = list(_envelope(data, kind))
    body = _body(data, kind)
    spec, faults = check(kind.schema, body, kind.root)
    violations += faults
    if spec is None:
        return Read(document, None, tuple(violations))
    meta = Meta(document.key.type, document.key.mesh, document.key.name, data.get("labels") or {})
    known = {violation.path for violation in violations}
    violations += [found for found in kind.validate(spec, meta) if found.path not in known]
    warnings = tuple(kind.deprecations(spec, meta))
    if violations:
        return Read(document, None, tuple(violations), warnings)
    complete = kind.complete(dict(body))
    return Read(document, Resource(kind, document, spec, complete), (), warnings)


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
        yield Violation("name", f"`{name}` must be lower case letters, digits, `-`, `_` and `.`, 253 at most")
    mesh = data.get("mesh")
    if kind.is_global and mesh:
        yield Violation("mesh", f"must not be set: a {kind.name} belongs to no mesh")
    elif mesh is not None and (not isinstance(mesh, str) or not _NAME.fullmatch(mesh)):
        yield Violation("mesh", f"`{mesh}` is not the name of a mesh")


def _unknown_kind(name: str, kinds: Kinds) -> Violation:
    near = difflib.get_close_matches(name, kinds, n=1, cutoff=0.5)
    hint = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(sorted(kinds))}"
    return Violation("type", f"there is no kind `{name}`", hint)
