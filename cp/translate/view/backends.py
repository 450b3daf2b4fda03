"""`BackendResolver`: the destinations that the backendRefs of a route lead to, or why they lead nowhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from cp.model.dependency import ANY, Name
from cp.model.names import Destination, Identity
from cp.model.source import LEGACY_POLICIES
from cp.model.target import BackendRef
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.resource import Resource
from cp.resources.schema import decode
from cp.resources.world import World
from cp.rules import RouteRule
from cp.translate.view.services import (
    NOTHING_WITHHELD,
    cluster_name,
    destination_of,
    exists,
    find_port,
    outside_of,
    port_name,
    service_of,
)
from generators.proxy import Route, Split

UNMATCHED: Final = "unmatched"
"""The name of a gateway's row for what no route takes."""

NOT_FOUND: Final = 404
_NO_SERVICE: Final = Destination("")

_MEANS_TAG = "which a backendRef without a port means for a call by tag"


class MarkedDestination(NamedTuple):
    """A destination that calls by some listeners of a gateway reach by a cluster of their own, as other confs hold."""

    destination: Destination
    mark: str
    """What the name of the cluster ends with."""


BackendKey: TypeAlias = Destination | MarkedDestination


def mark_of(key: BackendKey) -> str:
    """What the name of the cluster ends with by which calls reach a destination."""
    return key.mark if isinstance(key, MarkedDestination) else ""


def reached(key: BackendKey) -> Destination:
    """The destination that calls reach by a cluster."""
    return key.destination if isinstance(key, MarkedDestination) else key


def cluster_of(key: BackendKey) -> str:
    """The cluster by which calls reach a destination."""
    return f"{cluster_name(reached(key))}{mark_of(key)}"


class BackendResolver:
    """Resolves the backends of one destination's routes, and remembers which destinations and names it needed."""

    def __init__(
        self, world: World, mesh: str, destination: Destination, withheld: AbstractSet[str] = NOTHING_WITHHELD
    ) -> None:
        """`withheld`: the ExternalServices that the caller may not call."""
        self._world, self._mesh, self.destination, self._withheld = world, mesh, destination, withheld
        self.used: dict[Destination, None] = {}
        """The destinations to which some share of requests goes, in the order of the routes."""

        self.route_rules: dict[str, RouteRule] = {}
        """A rule for each `owner` that was asked for."""

        self.names_referred_to: set[Name] = set()
        """The dependency names of what backendRefs and Secrets refer to, whether or not it exists."""

    def called_destination(self) -> Split:
        return self._split(self.destination, 1)

    def unmatched(self) -> Route:
        """What is done with what no route takes: it goes where it was sent, if anybody is there."""
        split = self.called_destination()
        return Route(name=cluster_name(self.destination), splits=(split,), unavailable_reason=split.reason)

    def owner(self, rule: RouteRule) -> str:
        """One name for all rules for which the same holds; for a tagged destination one for each of them.

        See docs/concepts/rules-by-tags.md#policies-that-name-a-route.
        """
        name = rule.name if self.destination.is_real else f"{rule.name}#{rule.hash}"
        self.route_rules[name] = rule
        return name

    def split(self, reference: BackendRef, seen_from: Identity) -> Split:
        weight = 1 if reference.weight is None else reference.weight
        backend = self._resolve(reference, seen_from)
        if isinstance(backend, str):
            return Split("", weight, missing=True, reason=backend)
        return self._split(backend, weight)

    def _split(self, destination: Destination, weight: int) -> Split:
        """The share of requests for a destination; a missing one, with the reason, where it cannot be served."""
        external = outside_of(self._world, self._mesh, destination, self._withheld)
        if external is not None:
            self.names_referred_to |= external.names
            if external.faults:
                return Split("", weight, missing=True, reason=f"{_called(destination)}: {external.reason}")
        if weight > 0:
            self.used[destination] = None
        return Split(cluster_name(destination), weight, host="" if external is None else external.host)

    def led_to(self, rules: Iterable[RouteRule]) -> Iterator[Destination]:
        """The destinations to which rules lead some share of requests, whether or not they are routes of anything."""
        for rule in rules:
            for reference in rule.default.get("backendRefs") or ():
                backend = self._resolve(decode(BackendRef, reference), rule.backends.identity)
                if isinstance(backend, Destination) and reference.get("weight") != 0:
                    yield backend

    def _resolve(self, reference: BackendRef, seen_from: Identity) -> Destination | str:
        if seen_from.type in LEGACY_POLICIES:
            return self._by_tags_of_call(reference)
        self.names_referred_to |= {(reference.kind, reference.name or ANY), (SERVICE_TAG, reference.name or ANY)}
        service = None if reference.kind == "MeshServiceSubset" else self._service(reference, seen_from)
        by_tag = self._by_tag(reference)
        if by_tag is None and service is not None and self._means_tag(reference):
            missing = f"there is no {SERVICE_TAG} {reference.name}, {_MEANS_TAG}"
            return f"{missing}: write the port of the {_described(reference)}"
        if by_tag is not None and self._means_tag(reference):
            return by_tag
        backend = f"there is no {_described(reference)}" if service is None else self._port(service, reference)
        return by_tag if isinstance(backend, str) and by_tag is not None else backend

    def _by_tags_of_call(self, reference: BackendRef) -> Destination | str:
        """What tags of a legacy policy mean. Those that it leaves open are those of the call, and so is `*`."""
        called = {SERVICE_TAG: self.destination.service, **dict(self.destination.tags)}
        written = {SERVICE_TAG: reference.name or ANY, **(reference.tags or {})}
        tags = called | {name: value for name, value in written.items() if value != ANY}
        service = tags.pop(SERVICE_TAG)
        backend = Destination(service, tags=tuple(sorted(tags.items())))
        self.names_referred_to.add((SERVICE_TAG, service))
        if backend == self.destination or exists(self._world, self._mesh, backend):
            return backend
        return " ".join([f"there is no {SERVICE_TAG} {service}", *(f"{name}={value}" for name, value in backend.tags)])

    def _means_tag(self, reference: BackendRef) -> bool:
        """Whether a reference means a tag and nothing else, as one without a port does for a call by tag.

        So a route to the called service leads to where the call would go without the route.
        See docs/concepts/routes.md#backends.
        """
        return not self.destination.is_real and _may_be_tag(reference)

    def _by_tag(self, reference: BackendRef) -> Destination | None:
        """The destination by tags that a reference can mean; None if no such destination exists."""
        if not _may_be_tag(reference):
            return None
        backend = Destination(reference.name or "", tags=tuple(sorted((reference.tags or {}).items())))
        return backend if exists(self._world, self._mesh, backend) else None

    def _service(self, reference: BackendRef, seen_from: Identity) -> Resource | None:
        """The real service that a reference names.

        A name is looked up in the zone and namespace of the route, then in that namespace without a zone and then,
        unless the reference names a namespace, without both.
        """
        table = self._world.table(reference.kind, self._mesh)
        if reference.labels:
            return next(iter(table.labelled(reference.labels)), None)
        namespace = reference.namespace or seen_from.namespace
        places = [(seen_from.zone, namespace), ("", namespace), *(() if reference.namespace else (("", ""),))]
        for zone, of_namespace in places:
            identity = Identity(reference.kind, self._mesh, reference.name or "", zone, of_namespace)
            if (service := table.by_identity.get(identity)) is not None:
                return service
        return None

    def _port(self, service: Resource, reference: BackendRef) -> Destination | str:
        """The port that a reference names, or else the called port or the only one; a text if there is none."""
        named = reference.section_name or (str(reference.port) if reference.port is not None else "")
        ports = list(service.spec.ports or ())
        port = find_port(service, named) if named else self._usual(service, ports)
        if port is not None:
            return destination_of(service, port)
        has = ", ".join(str(port.port) for port in ports) or "none"
        if named:
            return f"{_described(reference)} has no port {named}; it has {has}"
        return f"{_described(reference)} has several ports ({has}), and the backendRef names none"

    def _usual(self, service: Resource, ports: list[object]) -> object | None:
        """The port with the name or the number of the called port, else the only port; None if there is neither."""
        called = service_of(self._world, self.destination)
        sections = () if called is None else (port_name(called[1]), str(called[1].port))
        same = next((port for section in sections if (port := find_port(service, section)) is not None), None)
        return same or (ports[0] if len(ports) == 1 else None)


class GatewayBackends(BackendResolver):
    """Resolves the backends of a gateway's routes. A gateway has no service of its own to which a call could go."""

    def __init__(self, world: World, mesh: str, withheld: AbstractSet[str], mark: str = "") -> None:
        """`mark`: what the names of the clusters end with."""
        super().__init__(world, mesh, _NO_SERVICE, withheld)
        self._mark = mark

    def called_destination(self) -> Split:
        return Split("", missing=True, reason="a gateway has no service of its own")

    def unmatched(self) -> Route:
        return Route(name=UNMATCHED, status=NOT_FOUND)

    def destinations(self, row: Route) -> tuple[Destination, ...]:
        """The destinations of a row that some share of its requests goes to."""
        clusters = dict.fromkeys(split.cluster for split in row.splits if not split.missing)
        return tuple(self._by_cluster[cluster] for cluster in clusters)

    @property
    def keys(self) -> Iterator[BackendKey]:
        """The backends that its rows need."""
        return (MarkedDestination(destination, self._mark) if self._mark else destination for destination in self.used)

    @property
    def _by_cluster(self) -> Mapping[str, Destination]:
        return {cluster_of(key): reached(key) for key in self.keys}

    def _split(self, destination: Destination, weight: int) -> Split:
        split = super()._split(destination, weight)
        return split if split.missing else replace(split, cluster=f"{split.cluster}{self._mark}")


def _may_be_tag(reference: BackendRef) -> bool:
    """Whether a reference can mean tags: one without a port and labels to a MeshService or a MeshServiceSubset."""
    is_of_services = reference.kind in {"MeshService", "MeshServiceSubset"}
    return is_of_services and not (_asks_for_port(reference) or reference.labels)


def _asks_for_port(reference: BackendRef) -> bool:
    return reference.port is not None or reference.section_name is not None


def _called(destination: Destination) -> str:
    return f"{destination.identity.type if destination.identity else SERVICE_TAG} {destination.service}"


def _described(reference: BackendRef) -> str:
    """A reference in words for an operator."""
    tags = "".join(f" {name}={value}" for name, value in sorted((reference.tags or reference.labels or {}).items()))
    return f"{reference.kind} {reference.name or ''}{tags}".replace("  ", " ")
