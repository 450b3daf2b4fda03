"""`Resource`: a document that has been understood."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from cp.model.document import Document, Source
from cp.model.names import Identity, Key
from cp.model.remembered import remembered
from cp.model.source import NAME_LABEL, NAMESPACE_LABEL, ROLE_LABEL
from cp.resources.kinds import Kind
from cp.resources.labels import ORIGIN_LABEL, ZONE_LABEL, stamped

T = TypeVar("T")

EFFECT_LABEL = "kuma.io/effect"


@dataclass(frozen=True, eq=False)
class Resource:
    """One valid resource. Equal only to itself: an unchanged one is the same object in the next World."""

    kind: Kind
    document: Document
    spec: Any
    """Decoded by the kind's schema."""

    data: Mapping[str, Any]
    """The same as plain data, as `Kind.complete` leaves it: what confs are merged from."""

    _derived: dict[Callable[[Resource], Any], Any] = field(default_factory=dict, init=False, repr=False)

    def derived(self, function: Callable[[Resource], T]) -> T:
        """What a function makes of this resource alone, worked out once for as long as it does not change."""
        if function not in self._derived:
            self._derived[function] = function(self)
        return cast("T", self._derived[function])

    @property
    def key(self) -> Key:
        return self.document.key

    @property
    def type(self) -> str:
        return self.document.key.type

    @property
    def mesh(self) -> str:
        return self.document.key.mesh

    @property
    def name(self) -> str:
        return self.document.key.name

    @property
    def source(self) -> Source:
        return self.document.source

    @remembered
    def labels(self) -> Mapping[str, str]:
        """Those that were written."""
        labels: Mapping[str, str] = self.document.data.get("labels") or {}
        return labels

    @remembered
    def selectable_labels(self) -> Mapping[str, str]:
        """The labels by which others choose it: those that were written, over those that every resource has."""
        return {**stamped(self.kind, self.document), **self.labels}

    @property
    def display_name(self) -> str:
        return self.labels.get(NAME_LABEL, self.name)

    @property
    def namespace(self) -> str:
        return self.labels.get(NAMESPACE_LABEL, "")

    @property
    def zone(self) -> str:
        return self.labels.get(ZONE_LABEL, "")

    @property
    def origin(self) -> str:
        return self.labels.get(ORIGIN_LABEL, "")

    @property
    def role(self) -> str:
        return self.labels.get(ROLE_LABEL, "system")

    @remembered
    def identity(self) -> Identity:
        return Identity(self.type, self.mesh, self.display_name, self.zone, self.namespace)

    def __repr__(self) -> str:
        return f"<{self.key}>"
