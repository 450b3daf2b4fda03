"""Documents in one form.

A document of Kubernetes says the same as one of Universal: its name becomes `name.namespace`, its mesh is a label, and
its name and namespace are labels as well (document 002, Metadata).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Data = Mapping[str, Any]

_INLINE: Final = {"Mesh", "Dataplane", "ExternalService", "MeshGateway", "Secret"}
_PRODUCED: Final = {"MeshService", "MeshHTTPRoute", "MeshTCPRoute"}


@dataclass(frozen=True)
class Identity:
    """What a resource is called by: its display name, and where it was written."""

    kind: str
    name: str
    namespace: str = ""
    zone: str = ""


@dataclass(frozen=True, eq=False)
class Resource:
    kind: str
    stored: str
    """The name under which it is kept, of which each kind has one in a mesh."""

    labels: Mapping[str, str]
    spec: Data

    @property
    def identity(self) -> Identity:
        name = self.labels.get("kuma.io/display-name", self.stored)
        return Identity(self.kind, name, self.namespace, self.labels.get("kuma.io/zone", ""))

    @property
    def namespace(self) -> str:
        return self.labels.get("k8s.kuma.io/namespace", "")

    @property
    def role(self) -> str:
        """Without a namespace all policies are the system's (document 000, Overriding on universal)."""
        return self.labels.get("kuma.io/policy-role", "system")

    @property
    def all_labels(self) -> Mapping[str, str]:
        """The name stands for a display name that is absent (differences from Kuma, Names)."""
        return {"kuma.io/display-name": self.stored, **self.labels}

    def items(self, part: str) -> list[Data]:
        return list(self.spec.get(part) or [])


@dataclass(frozen=True)
class Documents:
    resources: tuple[Resource, ...]

    def of(self, kind: str) -> list[Resource]:
        return [resource for resource in self.resources if resource.kind == kind]

    def get(self, kind: str, stored: str) -> Resource | None:
        return next((resource for resource in self.of(kind) if resource.stored == stored), None)


def read(documents: Iterable[Data]) -> Documents:
    return Documents(tuple(_resource(document) for document in documents))


def _resource(data: Data) -> Resource:
    if "apiVersion" in data:
        return _of_kubernetes(data["kind"], data["metadata"], data["spec"])
    kind = data["type"]
    spec = data if kind in _INLINE else data.get("spec") or {}
    return Resource(kind, data["name"], data.get("labels") or {}, spec)


def _of_kubernetes(kind: str, meta: Data, spec: Data) -> Resource:
    name, namespace = meta["name"], meta["namespace"]
    labels = {
        **(meta.get("labels") or {}),
        "kuma.io/display-name": name,
        "k8s.kuma.io/namespace": namespace,
        "kuma.io/policy-role": _role(spec, namespace),
    }
    return Resource(kind, f"{name}.{namespace}", labels, spec)


def _role(spec: Data, namespace: str) -> str:
    """A policy whose items are all for what is in its own namespace is a producer's (document 000, MeshRetry)."""
    if namespace == "kuma-system":
        return "system"
    to = spec.get("to") or []
    if not to:
        return "workload-owner"
    return "producer" if all(_is_produced(item["targetRef"], namespace) for item in to) else "consumer"


def _is_produced(target: Data, namespace: str) -> bool:
    if target["kind"] not in _PRODUCED or not target.get("name"):
        return False
    return bool((target.get("namespace") or namespace) == namespace)
