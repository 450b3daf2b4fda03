"""A stored document as the HTTP API shows it: in Kuma's Universal or Kubernetes form, with its dates and its KRI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cp.api.errors import bad_request
from cp.model.moments import timestamp
from cp.model.source import INLINED, NAME_LABEL, NAMESPACE_LABEL
from cp.resources.kinds import Kind
from cp.resources.redaction import redacted
from cp.store.port import Stored

UNIVERSAL: Final = frozenset({"", "universal"})
KUBERNETES: Final = frozenset({"k8s", "kubernetes"})

_ENVELOPE: Final = ("type", "mesh", "name", "labels", "creationTime", "modificationTime", "kri")
_MESH: Final = "Mesh"
_ZONE_LABEL: Final = "kuma.io/zone"


def payload(stored: Stored, kind: Kind, form: str = "", *, reveals: bool = False) -> dict[str, Any]:
    """A resource in the form that was asked for."""
    data = _settled(kind, stored.document.data if reveals else redacted(kind, stored.document.data))
    if form in UNIVERSAL:
        return _universal(stored, kind, data)
    if form in KUBERNETES:
        return kubernetes(data)
    raise bad_request("format", f"`{form}` is not one of universal, kubernetes, k8s")


def universal(stored: Stored, kind: Kind) -> dict[str, Any]:
    return _universal(stored, kind, _settled(kind, redacted(kind, stored.document.data)))


def _settled(kind: Kind, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same with the engine of a Mesh, also where the settings decide it."""
    return kind.complete(dict(data)) if kind.name == _MESH else data


def _universal(stored: Stored, kind: Kind, data: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in data.items() if name not in _ENVELOPE}
    head: dict[str, Any] = {"type": stored.document.key.type}
    if not kind.is_global:
        head["mesh"] = stored.document.key.mesh
    head |= {
        "name": stored.document.key.name,
        "creationTime": timestamp(stored.created),
        "modificationTime": timestamp(stored.modified),
        "kri": kri(stored, kind),
    }
    return head | ({"labels": data["labels"]} if "labels" in data else {}) | fields


def kubernetes(data: Mapping[str, Any]) -> dict[str, Any]:
    """The Kubernetes form of a document in Universal form: the same, with its metadata elsewhere."""
    kind = str(data["type"])
    labels = dict(_labels(data))
    namespace = labels.pop(NAMESPACE_LABEL, "")
    name = labels.pop(NAME_LABEL, data["name"]) if namespace else data["name"]
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    out: dict[str, Any] = {"apiVersion": "kuma.io/v1alpha1", "kind": kind}
    if "mesh" in data:
        out["mesh"] = data["mesh"]
    out["metadata"] = metadata | ({"labels": labels} if labels else {})
    fields = {field: value for field, value in data.items() if field not in _ENVELOPE}
    return out | ({"spec": fields} if kind in INLINED else fields)


def etag(revision: int) -> str:
    return f'"{revision}"'


def kri(stored: Stored, kind: Kind) -> str:
    """Kuma's resource identifier. Parts that are empty keep their underscore; the last is the section."""
    labels, key = _labels(stored.document.data), stored.document.key
    name = labels.get(NAME_LABEL, key.name)
    return f"kri_{kind.short}_{key.mesh}_{labels.get(_ZONE_LABEL, '')}_{labels.get(NAMESPACE_LABEL, '')}_{name}_"


def _labels(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """A folder of files may hold what is no valid resource: that is shown too."""
    labels = data.get("labels")
    return labels if isinstance(labels, Mapping) else {}
