"""The identity of a resource: where it is stored, and what others call it."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Where a document is stored. A global resource (Mesh, HostnameGenerator) has no mesh."""

    type: str
    mesh: str
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.mesh}/{self.name}" if self.mesh else f"{self.type} {self.name}"


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """Who a resource, or one section of it, is: the form in which policies refer to it.

    Differs from the key for a resource that came from another zone or namespace: those are stored under a
    changed name, while policies go on to call them by their display name.
    """

    type: str
    mesh: str
    name: str
    zone: str = ""
    namespace: str = ""
    section: str = ""

    def of_section(self, section: str) -> Identity:
        return replace(self, section=section)

    @property
    def whole(self) -> Identity:
        """The resource that this is a section of."""
        return replace(self, section="") if self.section else self
