"""A plan as plain data: the same over HTTP and on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from cp.insight.fields import ABSENT
from cp.insight.plan.model import (
    MeshPlan,
    Plan,
    PlannedDifference,
    PlannedDocument,
    PlannedField,
    PlannedValue,
    ValueChange,
)
from cp.insight.report import finding_data
from cp.model.checkpoint import Checkpoint, checked, never_stopped
from cp.model.failure import Failure
from cp.model.names import Key
from cp.model.secret_data import redacted_answer
from cp.model.wording import few

NOT_COMPARED: Final = (
    "the certificates that proxies are issued: they are made for a connection",
    "what the control plane itself would write afterwards, such as whom proxies trust while mTLS is moved",
    "proxies without a Dataplane",
)
"""What a plan cannot know."""


def plan_data(plan: Plan, checkpoint: Checkpoint = never_stopped) -> dict[str, Any]:
    """A plan as JSON. A side on which there is nothing is left out."""
    answer = {
        "empty": plan.is_empty,
        "documents": [_document(document) for document in plan.documents],
        "meshes": [_mesh(mesh, checkpoint) for mesh in plan.meshes],
        "findings": {
            "appearing": [finding_data(finding) for finding in plan.appearing],
            "vanishing": [finding_data(finding) for finding in plan.vanishing],
        },
        "notCompared": [*NOT_COMPARED, *(text for mesh in plan.meshes for text in failure_sentences(mesh.failures))],
    }
    return redacted_answer(answer, checkpoint)


def failure_sentences(failures: Mapping[Key, Failure]) -> Iterator[str]:
    """Which proxies of each mesh cannot be compiled, and why the first of them cannot."""
    names: dict[str, list[str]] = {}
    reasons: dict[str, str] = {}
    for key, failure in failures.items():
        names.setdefault(key.mesh, []).append(key.name)
        reasons.setdefault(key.mesh, failure.reason)
    for mesh, reason in reasons.items():
        yield f"{few(names[mesh])} of mesh {mesh}, by a fault of koguma: {reason}"


def _document(document: PlannedDocument) -> dict[str, Any]:
    place = {"file": document.file, "line": document.line} if document.file else {}
    return {**_named(document.key), "change": document.change.value, **place}


def _mesh(mesh: MeshPlan, checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "mesh": mesh.mesh,
        "proxies": mesh.proxy_count,
        "reached": _names(mesh.reached),
        "added": _names(mesh.added),
        "removed": _names(mesh.removed),
        **({"failed": _names(mesh.failures)} if mesh.failures else {}),
        "groups": [{"proxies": _names(group.proxies), "differences": list(group.differences)} for group in mesh.groups],
        "differences": [_difference(difference) for difference in checked(mesh.differences, checkpoint)],
    }


def _difference(difference: PlannedDifference) -> dict[str, Any]:
    told_fields = difference.told_fields
    values = (
        {"values": [list(map(_value_change, changes)) for changes in told_fields.values]} if told_fields.values else {}
    )
    more = {"moreFields": told_fields.more} if told_fields.more else {}
    drains = {"drains": difference.drain} if difference.drain else {}
    return {
        "type": difference.resource.type,
        "name": difference.resource.name,
        "change": _change(difference),
        "proxies": _names(difference.proxies),
        "fields": [_field(field) for field in told_fields.fields],
        **more,
        **values,
        "causes": [_named(cause) for cause in difference.causes],
        **drains,
    }


def _change(difference: PlannedDifference) -> str:
    if difference.resource.before is None:
        return "Added"
    return "Removed" if difference.resource.after is None else "Changed"


def _field(field: PlannedField) -> dict[str, Any]:
    sides = (("before", field.before), ("after", field.after))
    shown = {name: value for name, value in sides if value is not ABSENT}
    return {"path": field.path, **shown, **({"values": list(field.values)} if field.values else {})}


def _value_change(value: ValueChange) -> dict[str, Any]:
    sides = (("before", value.before), ("after", value.after))
    shown = {name: _value(side) for name, side in sides if side is not None}
    return {"type": value.kind, "field": value.field, **shown}


def _value(value: PlannedValue) -> Mapping[str, Any]:
    if value.policy is None:
        return {"value": value.value, "builtIn": True}
    place = {"file": value.file, "line": value.line} if value.file else {}
    return {"value": value.value, "policy": value.policy.name, "path": value.path, **place}


def _names(proxies: Iterable[Key]) -> list[str]:
    return [proxy.name for proxy in proxies]


def _named(key: Key) -> dict[str, str]:
    return {"type": key.type, **({"mesh": key.mesh} if key.mesh else {}), "name": key.name}
