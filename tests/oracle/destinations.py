"""What an outbound and a reference to a backend lead to, and which endpoints are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tests.oracle.matching import named, old_port
from tests.oracle.reading import Data, Documents, Identity, Resource

REAL: Final = ("MeshService", "MeshMultiZoneService", "MeshExternalService")
MISSING: Final = "answered with 500"
UNCLEAR: Final = "not said by any document"

HTTP: Final = {"http", "http2", "grpc"}

_STACKS: Final = {"grpc": ("grpc", "http2", "tcp"), "http2": ("http2", "tcp"), "http": ("http", "tcp")}


@dataclass(frozen=True)
class Destination:
    """A port of a real service, or all that carries some tags."""

    service: Identity | None = None
    section: str = ""
    port: int = 0
    can_be_called: bool = True
    tags: tuple[tuple[str, str], ...] = ()
    protocol: str = "tcp"

    @property
    def tag(self) -> str:
        return dict(self.tags).get("kuma.io/service", "")

    def __str__(self) -> str:
        """Real services by their KRI (record 0021), others by their tag."""
        if self.service is None:
            return self.tag + ("-" if len(self.tags) > 1 else "")
        short = {"MeshService": "msvc", "MeshMultiZoneService": "mzsvc", "MeshExternalService": "extsvc"}
        service = self.service
        return f"kri_{short[service.kind]}_default_{service.zone}_{service.namespace}_{service.name}_{self.section}"


def outbound(documents: Documents, proxy: Resource, data: Data) -> Destination | str | None:
    """Where an outbound leads. One that leads to what is not there has no listener (record 0018)."""
    if "tags" in data:
        return of_tags(documents, data["tags"])
    return port_of_one(services(documents, proxy, data["backendRef"]), data["backendRef"])


def services(documents: Documents, writer: Resource, ref: Data) -> list[Resource]:
    """As a target would; else the one there without a zone, and, if no namespace is written, the one without both
    (matching and merging, Where routes come from).
    """
    if ref["kind"] not in REAL:
        return []
    resources = named(documents, writer, ref)
    if resources or ref.get("labels"):
        return resources
    namespaces = [ref.get("namespace") or writer.namespace, *(() if ref.get("namespace") else ("",))]
    identities = [Identity(ref["kind"], ref["name"], namespace) for namespace in namespaces]
    of_identities = [
        [resource for resource in documents.of(ref["kind"]) if resource.identity == identity] for identity in identities
    ]
    return next((of_identity for of_identity in of_identities if of_identity), [])


def port_of_one(resources: list[Resource], ref: Data) -> Destination | str | None:
    """Which of several is meant is said nowhere, nor what becomes of a service whose certificates are not there."""
    if len(resources) > 1 or (resources and resources[0].spec.get("tls")):
        return UNCLEAR
    return of_port(resources[0], ref.get("port")) if resources else None


def of_tags(documents: Documents, tags: Mapping[str, str]) -> Destination:
    protocols = [carried.get("kuma.io/protocol", "tcp") for carried in _served(documents, tags)]
    return Destination(tags=tuple(sorted(tags.items())), protocol=_common(protocols))


def _common(protocols: list[str]) -> str:
    """What all endpoints can speak: gRPC is HTTP/2, and everything is TCP."""
    stacks = [_STACKS.get(protocol, ("tcp",)) for protocol in protocols]
    shared = [protocol for protocol in (stacks[0] if stacks else ()) if all(protocol in stack for stack in stacks)]
    return shared[0] if shared else "tcp"


def _served(documents: Documents, tags: Mapping[str, str]) -> list[Mapping[str, str]]:
    """The tags of all that can be called by some: of inbounds or, without any, of ExternalServices."""
    carrying = [(resource.kind, carried) for resource, carried in _carrying(documents, tags)]
    inside = [carried for kind, carried in carrying if kind == "Dataplane"]
    return inside or [carried for _, carried in carrying]


def _carrying(documents: Documents, tags: Mapping[str, str]) -> Iterator[tuple[Resource, Mapping[str, str]]]:
    for resource in documents.resources:
        for carried in _tags_of(resource):
            if tags.items() <= carried.items():
                yield resource, carried


def _tags_of(resource: Resource) -> Iterator[Mapping[str, str]]:
    if resource.kind == "Dataplane":
        yield from (inbound.get("tags") or {} for inbound in _inbounds(resource))
    if resource.kind == "ExternalService":
        yield resource.spec["tags"]


def _inbounds(proxy: Resource) -> Iterator[Data]:
    """Less those of which another workload has the address (record 0042)."""
    workloads: dict[int, int] = {}
    for inbound in proxy.spec["networking"].get("inbound") or []:
        workload = inbound.get("servicePort", inbound["port"])
        if workloads.setdefault(inbound["port"], workload) == workload:
            yield inbound


def exists(documents: Documents, tags: Mapping[str, str]) -> bool:
    return any(True for _ in _carrying(documents, tags))


def of_port(service: Resource, port: int | None) -> Destination | None:
    """A port by its number. A service outside has one alone, which need not be named."""
    destinations = list(ports([service]))
    if port is None and service.kind == "MeshExternalService":
        return destinations[0]
    return next((destination for destination in destinations if destination.port == port), None)


def ports(services_: list[Resource]) -> Iterator[Destination]:
    for service in services_:
        if service.kind == "MeshExternalService":
            yield _outside(service.identity, service.spec)
            continue
        for data in service.spec["ports"]:
            protocol = data.get("appProtocol", "tcp")
            yield Destination(service.identity, _section(data), data["port"], protocol=protocol)


def _outside(service: Identity, spec: Data) -> Destination:
    port, is_there = spec["match"]["port"], bool(spec.get("endpoints"))
    return Destination(service, str(port), port, is_there, protocol=spec["match"].get("protocol", "tcp"))


def _section(port: Data) -> str:
    return str(port.get("name") or port["port"])


def means(documents: Documents, policy: Resource, target: Data, destination: Destination) -> str:
    """Whether a target means a destination: "", "service", or "section" where it names the port.

    `sectionName` is the port's name or its number (differences from Kuma, Names); a section that is not there means
    nothing. A service that is only a tag has no sections: an item for one is for all of it (matching and merging), but
    a null in it still uncovers what is said of the whole service (rules by tags).
    """
    if destination.service is None:
        is_meant = target["kind"] == "MeshService" and target.get("name") == destination.tag
        return ("section" if target.get("sectionName") else "service") if is_meant else ""
    if destination.service not in [resource.identity for resource in _named(documents, policy, target)]:
        return ""
    if (port := old_port(target)) is not None:
        return _means_old_port(documents, destination, port)
    if not target.get("sectionName"):
        return "service"
    return "section" if target["sectionName"] in {destination.section, str(destination.port)} else ""


def _means_old_port(documents: Documents, destination: Destination, port: int) -> str:
    """The port of `a_ns_svc_8080` is a section; a service that lacks it is meant as a whole."""
    service = next(one for one in documents.resources if one.identity == destination.service)
    if all(of_service["port"] != port for of_service in service.items("ports")):
        return "service"
    return "section" if destination.port == port else ""


def _named(documents: Documents, policy: Resource, target: Data) -> list[Resource]:
    return named(documents, policy, target) if target["kind"] in REAL else []
