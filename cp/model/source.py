"""Reads the documents of a file, in Universal or in Kubernetes form.

The forms differ in their metadata only. Documents are kept in Universal form.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from cp.model.document import Document, Source
from cp.model.lines import Lines
from cp.model.moments import moment, timestamp
from cp.model.names import DEFAULT_MESH, Key
from cp.model.roles import role
from cp.model.violation import Finding, Severity
from cp.model.yaml import NotYaml, ParsedYaml, parse_all

GLOBAL: Final = frozenset({"Mesh", "HostnameGenerator", "Zone", "GlobalSecret"})
"""Types that belong to no mesh."""

LEGACY_POLICIES: Final = frozenset(
    {
        *("TrafficPermission", "TrafficRoute", "Timeout", "Retry", "CircuitBreaker", "HealthCheck", "RateLimit"),
        *("FaultInjection", "TrafficLog", "TrafficTrace", "ProxyTemplate", "MeshGatewayRoute", "VirtualOutbound"),
    }
)
"""The policies of Kuma's first versions."""

INLINED: Final = LEGACY_POLICIES | {
    *("Mesh", "Dataplane", "ExternalService", "MeshGateway", "Secret", "GlobalSecret", "Zone"),
}
"""Types whose fields stand beside `type` and `name`. All others have them under `spec`."""

MESH_LABEL: Final = "kuma.io/mesh"
NAME_LABEL: Final = "kuma.io/display-name"
NAMESPACE_LABEL: Final = "k8s.kuma.io/namespace"
SET_BY_CONTROL_PLANE: Final = frozenset({"creationTime", "modificationTime", "kri"})
"""Fields that a control plane adds and Kuma's tools send back. They are left out of the data that is stored."""

_WITH_SNIS: Final = frozenset({"MeshExternalService", "MeshMultiZoneService", "MeshService"})
"""Types with a field `snis`, which Kuma's control plane adds too."""

ROLE_LABEL: Final = "kuma.io/policy-role"

OF_VALUES: Final = ",[{\n"
"""Signs with one of which each value of a text comes, but the first."""

MOST_VALUES: Final = 100_000
"""The most values of one document that is written, about. Reading so many takes some seconds."""

LARGEST: Final = 4 * 1024 * 1024
"""The most bytes of one document that is written. Reading them in one go keeps all other threads waiting."""


def excess(text: str) -> str:
    """Return why the text of a document is too large to be written; empty if it is not. It reads no document."""
    if len(text) > LARGEST or len(text.encode(errors="surrogatepass")) > LARGEST:
        return f"is larger than {LARGEST >> 20} MiB"
    count = sum(map(text.count, OF_VALUES))
    return f"has about {count} values: {MOST_VALUES} are the most" if count > MOST_VALUES else ""


@dataclass(frozen=True, slots=True)
class FileReading:
    """The documents of a file, its findings, and whether it could not be read to its end."""

    documents: tuple[Document, ...]
    findings: tuple[Finding, ...] = ()
    broken: bool = False


def read_documents(text: str, file: str = "", *, first_line: int = 1) -> FileReading:
    """Every document of a file. What is no document becomes a finding, and the others are read all the same."""
    documents: list[Document] = []
    findings: list[Finding] = []
    seen: dict[Key, int] = {}
    broken = False
    try:
        for parsed in parse_all(text, first_line):
            document = _document(parsed, file)
            if isinstance(document, Finding):
                findings.append(document)
            elif document.key in seen:
                findings.append(_twice(document, seen[document.key]))
            else:
                seen[document.key] = document.source.line("")
                documents.append(document)
    except NotYaml as error:
        broken = True
        findings.append(_finding("not-yaml", f"not YAML: {error.message}", file, error.line))
    return FileReading(tuple(documents), tuple(findings), broken)


def universal(data: dict[str, Any]) -> dict[str, Any]:
    """A resource of either form in Universal form, without the fields that a control plane adds."""
    if "apiVersion" not in data or "kind" not in data:
        return {name: value for name, value in data.items() if not _is_added(data.get("type"), name)}
    meta = _mapping(data.get("metadata"))
    kind, name, namespace = data["kind"], meta.get("name", ""), meta.get("namespace", "")
    labels = dict(_mapping(meta.get("labels")))
    mesh = data.get("mesh") or labels.get(MESH_LABEL) or DEFAULT_MESH
    out: dict[str, Any] = {"type": kind}
    if kind not in GLOBAL:
        out["mesh"] = mesh
    out["name"] = f"{name}.{namespace}" if name and namespace else name
    spec = data.get("spec")
    if namespace:
        labels |= {NAME_LABEL: name, NAMESPACE_LABEL: namespace}
        with suppress(ValueError):  # `misplaced` reports this fault
            labels |= {ROLE_LABEL: policy_role} if (policy_role := role(spec, namespace)) else {}
    if labels:
        out["labels"] = labels
    if kind in INLINED and isinstance(spec, dict):
        return out | spec
    return out if spec is None else out | {"spec": spec}


def creation_time(data: Mapping[str, Any]) -> str:
    """When a resource of either form says that it was made (`Source.created`); empty where it does not."""
    written = data.get("creationTime") or _mapping(data.get("metadata")).get("creationTimestamp")
    made = moment(written)
    return "" if made is None else timestamp(made)


def _is_added(kind: Any, field: str) -> bool:
    return field in SET_BY_CONTROL_PLANE or (field == "snis" and kind in _WITH_SNIS)


def misplaced(data: Mapping[str, Any]) -> str:
    """Why a policy cannot stand in its namespace; empty if it can."""
    namespace = _mapping(data.get("metadata")).get("namespace", "")
    try:
        if namespace:
            role(data.get("spec"), namespace)
    except ValueError as error:
        return str(error)
    return ""


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def key_of(data: dict[str, Any]) -> Key:
    """Where a resource in Universal form is stored. A document that names no mesh belongs to the default one."""
    kind = str(data.get("type", ""))
    mesh = "" if kind in GLOBAL else str(data.get("mesh") or DEFAULT_MESH)
    return Key(kind, mesh, str(data.get("name", "")))


def _document(parsed: ParsedYaml, file: str) -> Document | Finding:
    data = parsed.data
    if not isinstance(data, dict):
        hint = "begin it with `type:`, `mesh:` and `name:`"
        return _finding("no-document", "not a resource but a bare value", file, parsed.lines.line, hint)
    kubernetes = "apiVersion" in data
    kind_field = "kind" if kubernetes else "type"
    if not isinstance(data.get(kind_field), str) or not data[kind_field]:
        return _without(kind_field, parsed, file)
    resource = universal(data)
    if not isinstance(resource.get("name"), str) or not resource["name"]:
        return _without("metadata.name" if kubernetes else "name", parsed, file)
    if kubernetes and (fault := misplaced(data)):
        line = parsed.lines.of("spec")
        return replace(_finding("invalid", fault, file, line), resource=key_of(resource), path="spec")
    lines = _universal_lines(parsed.lines, resource["type"]) if kubernetes else parsed.lines
    return Document(key_of(resource), resource, Source(file, lines, creation_time(data)))


def _without(field: str, parsed: ParsedYaml, file: str) -> Finding:
    line, hint = parsed.lines.of(field), f"add `{field}: …`"
    if field == "type" and "kind" in parsed.data:
        field, hint = field_beside_kind(parsed.data)
        line = parsed.lines.of("kind")
    finding = _finding("no-document", f"a resource without `{field}`", file, line, hint)
    return replace(finding, path=field)


def field_beside_kind(data: Mapping[str, Any]) -> tuple[str, str]:
    """The missing field of a resource with `kind`, and the hint: `metadata` tells that it is in Kubernetes form."""
    if "metadata" in data:
        return "apiVersion", "add `apiVersion: kuma.io/v1alpha1`"
    return "type", "write `type` instead of `kind`"


def _universal_lines(lines: Lines, kind: str) -> Lines:
    """The lines of a document in Kubernetes form, under the paths that its values have in Universal form."""
    fields = dict(lines.fields)
    for outer in ("metadata", "spec") if kind in INLINED else ("metadata",):
        fields |= lines.fields[outer].fields if outer in lines.fields else {}
    if "kind" in fields:
        fields["type"] = fields["kind"]
    return replace(lines, fields=fields)


def _twice(document: Document, first: int) -> Finding:
    line = document.source.line("")
    return Finding(
        "duplicate-name",
        Severity.ERROR,
        document.key,
        f"is written a second time, the first time on line {first}",
        hint="give one of them another name, or remove it",
        file=document.source.file,
        line=line,
    )


def _finding(code: str, message: str, file: str, line: int, hint: str = "") -> Finding:
    return Finding(code, Severity.ERROR, None, message, hint=hint, file=file, line=line)
