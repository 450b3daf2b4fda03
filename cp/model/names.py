"""The identity of a resource: where it is stored, and what others call it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NewType

DEFAULT_MESH: Final = "default"


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Where a document is stored. A global resource (Mesh, HostnameGenerator) has no mesh."""

    type: str
    mesh: str
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.mesh}/{self.name}" if self.mesh else f"{self.type} {self.name}"


ProxyId = NewType("ProxyId", str)
"""How a proxy is called, and how its Envoy calls itself in `node.id`: `mesh.name`, with the name of its Dataplane.

A new name for `str` and no class: it is the key of most tables in the hub, which are read for every message.
"""


def proxy_id(dataplane: Key) -> ProxyId:
    return ProxyId(f"{dataplane.mesh}.{dataplane.name}")


def dataplane_key(node_id: str) -> Key:
    """The Dataplane of a proxy. The name of a mesh has no dot; a node that sends none has no Dataplane."""
    mesh, _, name = node_id.partition(".")
    return Key("Dataplane", mesh, name)


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
        return Identity(self.type, self.mesh, self.name, self.zone, self.namespace, section)

    @property
    def whole(self) -> Identity:
        """The resource that this is a section of."""
        return self.of_section("") if self.section else self


@dataclass(frozen=True, slots=True, order=True)
class Destination:
    """What a call can be sent to: one port of a real service, or all that carries a `kuma.io/service` tag.

    `identity` is that of the real service, with the port's name for its section; a tagged one has none. `service` is
    the name by which tags and logs know it, `tags` are those that narrow it down, beside the service's own.
    """

    service: str
    identity: Identity | None = None
    tags: tuple[tuple[str, str], ...] = ()

    @property
    def is_real(self) -> bool:
        return self.identity is not None


SHORT_NAMES = {
    "Dataplane": "dp",
    "Mesh": "m",
    "MeshExternalService": "extsvc",
    "MeshHTTPRoute": "mhttpr",
    "MeshIdentity": "mid",
    "MeshMultiZoneService": "mzsvc",
    "MeshService": "msvc",
    "MeshTCPRoute": "mtcpr",
    "MeshTrust": "mtrust",
}
"""What kinds are called inside of names; a kind without a short name is called by its own, in lower case."""


def kri(identity: Identity, short: str = "") -> str:
    """An identity in one word: `kri_msvc_default___backend_http`. `short` is the short name of its type."""
    short = short or SHORT_NAMES.get(identity.type, identity.type.lower())
    place = f"{identity.mesh}_{identity.zone}_{identity.namespace}"
    return f"kri_{short}_{place}_{identity.name}_{identity.section}"
