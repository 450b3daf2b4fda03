"""What the backendRefs of a route lead to."""

from __future__ import annotations

from cp.model.dependency import ANY, Name
from cp.model.names import Destination, Identity
from cp.model.target import BackendRef
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules import RouteRule
from cp.translate.view.dataplanes import SERVICE_TAG
from cp.translate.view.services import (
    cluster_name,
    destination_of,
    exists,
    find_port,
    outside_of,
    port_name,
    service_of,
    unserved,
)
from generators.proxy import Route, Split

_LEGACY = "and nothing is served for an ExternalService: write a MeshExternalService"
_MEANS_TAG = "which a backendRef without a port means for a call by tag"


class BackendResolver:
    """Resolves the backends of one destination's routes, and remembers which were needed."""

    def __init__(self, world: World, mesh: str, destination: Destination) -> None:
        self._world, self._mesh, self._destination = world, mesh, destination
        self.used: dict[Destination, None] = {}
        self.owners: dict[str, RouteRule] = {}
        self.asked: set[Name] = set()

    def itself(self) -> Split:
        return self._split(self._destination, 1)

    def rest(self) -> Route:
        """What is done with what no route takes: it goes where it was sent, if anybody is there."""
        split = self.itself()
        return Route(name=cluster_name(self._destination), splits=(split,), refusal=split.reason)

    def owner(self, rule: RouteRule) -> str:
        """One name for all rules for which the same holds; for a tagged destination one for each of them (7.3)."""
        name = rule.name if self._destination.is_real else f"{rule.name}#{rule.hash}"
        self.owners[name] = rule
        return name

    def split(self, reference: BackendRef, seen_from: Identity) -> Split:
        weight = 1 if reference.weight is None else reference.weight
        found = self._resolve(reference, seen_from)
        if isinstance(found, str):
            return Split("", weight, missing=True, reason=found)
        return self._split(found, weight)

    def _split(self, destination: Destination, weight: int) -> Split:
        """A share for a service, unless it is one outside the mesh that cannot be served."""
        legacy = unserved(self._world, self._mesh, destination)
        if legacy is not None:
            return Split("", weight, missing=True, reason=f"there is no service {destination.service}, {_LEGACY}")
        there = outside_of(self._world, destination)
        if there is not None:
            self.asked |= there.names
            if there.faults:
                return Split("", weight, missing=True, reason=f"{_called(destination)}: {there.reason}")
        if weight > 0:
            self.used[destination] = None
        return Split(cluster_name(destination), weight, host="" if there is None else there.host)

    def _resolve(self, reference: BackendRef, seen_from: Identity) -> Destination | str:
        self.asked |= {(reference.kind, reference.name or ANY), (SERVICE_TAG, reference.name or ANY)}
        service = None if reference.kind == "MeshServiceSubset" else self._service(reference, seen_from)
        by_tag = self._by_tag(reference)
        if by_tag is None and service is not None and self._means_tag(reference):
            return f"there is no {SERVICE_TAG} {reference.name}, {_MEANS_TAG}: write the port of the {_said(reference)}"
        if by_tag is not None and self._means_tag(reference):
            return by_tag
        backend = f"there is no {_said(reference)}" if service is None else self._port(service, reference)
        return by_tag if isinstance(backend, str) and by_tag is not None else backend

    def _means_tag(self, reference: BackendRef) -> bool:
        """Whether a reference means a tag and nothing else, as in document 004: for a call by tag one without a port.

        So a route to the service that was called leads where the call would go without the route.
        """
        return not self._destination.is_real and _may_be_tag(reference)

    def _by_tag(self, reference: BackendRef) -> Destination | None:
        """The destination by tags that a reference can mean, if there is one."""
        if not _may_be_tag(reference):
            return None
        backend = Destination(reference.name or "", tags=tuple(sorted((reference.tags or {}).items())))
        return backend if exists(self._world, self._mesh, backend) else None

    def _service(self, reference: BackendRef, seen_from: Identity) -> Resource | None:
        """The real service of that name: where the route stands, there without a zone, or, unless the reference names
        a namespace, without a place of its own.
        """
        table = self._world.table(reference.kind, self._mesh)
        if reference.labels:
            return next(iter(table.labelled(reference.labels)), None)
        namespace = reference.namespace or seen_from.namespace
        places = [(seen_from.zone, namespace), ("", namespace), *(() if reference.namespace else (("", ""),))]
        for zone, of_namespace in places:
            identity = Identity(reference.kind, self._mesh, reference.name or "", zone, of_namespace)
            if (found := table.by_identity.get(identity)) is not None:
                return found
        return None

    def _port(self, service: Resource, reference: BackendRef) -> Destination | str:
        """The port that is named; without one that of the call, or the only one."""
        named = reference.section_name or (str(reference.port) if reference.port is not None else "")
        ports = list(service.spec.ports or ())
        port = find_port(service, named) if named else self._usual(service, ports)
        if port is not None:
            return destination_of(service, port)
        has = ", ".join(str(one.port) for one in ports) or "none"
        if named:
            return f"{_said(reference)} has no port {named}; it has {has}"
        return f"{_said(reference)} has several ports ({has}), and the backendRef names none"

    def _usual(self, service: Resource, ports: list[object]) -> object | None:
        """The port with the name or the number of the one that was called, else the only one."""
        called = service_of(self._world, self._destination)
        sections = () if called is None else (port_name(called[1]), str(called[1].port))
        same = next((port for section in sections if (port := find_port(service, section)) is not None), None)
        return same or (ports[0] if len(ports) == 1 else None)


def _may_be_tag(reference: BackendRef) -> bool:
    """Whether a reference can mean values of tags: a MeshService without a port, or some of a service."""
    is_of_services = reference.kind in {"MeshService", "MeshServiceSubset"}
    return is_of_services and not (_asks_for_port(reference) or reference.labels)


def _asks_for_port(reference: BackendRef) -> bool:
    return reference.port is not None or reference.section_name is not None


def _called(destination: Destination) -> str:
    return f"{destination.identity.type if destination.identity else SERVICE_TAG} {destination.service}"


def _said(reference: BackendRef) -> str:
    """A reference as an operator would say it."""
    tags = "".join(f" {name}={value}" for name, value in sorted((reference.tags or reference.labels or {}).items()))
    return f"{reference.kind} {reference.name or ''}{tags}".replace("  ", " ")
