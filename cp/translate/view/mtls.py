"""mTLS: who speaks TLS with whom in a mesh, and by which names each side knows the other.

Everything here follows from the World. Which certificate a proxy shows does not, and is no business of this room: its
configuration names a secret, and every proxy gets another one under that name (record 0055).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from cp.identity.identities import answers_with_tls, identity_of, workload_ids
from cp.identity.security import MeshSecurity, security_of
from cp.model.memo import Memo
from cp.model.names import Destination, Identity
from cp.resources.caller import CallerTls
from cp.resources.client import is_grpc_client
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.resource import Resource
from cp.resources.services import ServiceIdentity
from cp.resources.spiffe import SCHEME
from cp.resources.world import Table, World
from cp.rules.matching import in_force
from cp.translate.view.dataplanes import DataplanePort
from cp.translate.view.services import ports_behind, service_of
from generators.envoy.permissions import service_uri
from generators.proxy import Backend, CertificateName, Inbound, MeshTls, Trust, TrustDomain

_NEWEST: Final = "TLSv1_3"
"""Envoy's own default for clients is TLS 1.2, and a MeshTLS may ask for 1.3. Its ciphers are all that one may name."""

_OLD: Final = {"TLS10": "TLSv1_0", "TLS11": "TLSv1_1"}
"""Versions below Envoy's default for clients, by what a MeshTLS may have for the newest."""

_SHORT: Final = {"MeshService": "ms", "MeshExternalService": "mes", "MeshMultiZoneService": "mzms"}
ServiceAndPort: TypeAlias = tuple[Resource, Any] | None
"""Of a destination; None for one by tags, and where either is missing."""

_LABEL: Final = 62
"""The most characters of a name in a label of a server name: one less than DNS allows."""


@dataclass(frozen=True, slots=True)
class InboundTls:
    """How callers speak TLS with the proxies of a mesh."""

    tls: MeshTls
    is_permissive: bool
    """Whether they may do without, unless a MeshTLS says otherwise."""


def inbound_tls(world: World, dataplane: Resource) -> InboundTls | None:
    """How callers of a proxy speak TLS with it; one object for a mesh, for as long as it stays the same.

    A proxy of a mesh with an authority that has no name to be certified gets no certificate, and lets in nobody.
    Whoever has a certificate that callers do not reckon with yet takes plain text too, as that is what they speak.
    """
    of_mesh = world.recall(_InboundTlsOfMeshes, dataplane.mesh)
    if of_mesh is None or is_grpc_client(dataplane) or not has_certificate(world, dataplane):
        return None
    return of_mesh.called if answers_with_tls(world, dataplane) else of_mesh.awaiting_callers


@dataclass(frozen=True, slots=True)
class _InboundTlsOfMesh:
    called: InboundTls
    """For those with whom callers speak TLS, or will."""

    awaiting_callers: InboundTls
    """For those with whom callers speak plain text, until everybody has a certificate."""


class _InboundTlsOfMeshes(Memo[World, str, _InboundTlsOfMesh | None]):
    def basis(self, source: World, key: str) -> MeshSecurity | None:
        return security_of(source, key)

    def work_out(self, source: World, key: str) -> _InboundTlsOfMesh | None:
        security = security_of(source, key)
        if security is None:
            return None
        tls = MeshTls(key, _anybody(domains_of(security, key)))
        return _InboundTlsOfMesh(InboundTls(tls, security.is_permissive), InboundTls(tls, is_permissive=True))


def secured(inbound: Inbound, tls: InboundTls | None) -> Inbound:
    """An inbound with the TLS that callers have to speak."""
    return inbound if tls is None else replace(inbound, tls=tls.tls, is_permissive=tls.is_permissive)


def caller_tls(world: World, mesh: str) -> CallerTls | None:
    """How the proxies of a mesh call each other; None: without TLS."""
    security = security_of(world, mesh)
    if security is None or not security.callers_use_tls:
        return None
    return CallerTls(domains_of(security, mesh), world.table("MeshTLS", mesh).derived(_oldest))


def with_tls(backend: Backend, world: World, mesh: str, destination: Destination, caller: CallerTls | None) -> Backend:
    """A backend with the TLS that a caller has to speak with its proxies. What is outside the mesh has its own."""
    if caller is None or backend.external:
        return backend
    ports = ports_behind(world, mesh, destination)
    if not _answer_with_tls(world, mesh, ports):
        return backend
    service_and_port = service_of(world, destination)
    uris = _identities_behind(world, mesh, destination, service_and_port, ports)
    tls = MeshTls(
        mesh,
        tuple(map(CertificateName, uris)) or _anybody(caller.domains),
        domain=_only_domain(uris, caller.domains),
        sni=_server_name(mesh, destination, service_and_port),
        oldest=caller.oldest,
        newest=_NEWEST,
    )
    return replace(backend, mesh_tls=tls)


def _only_domain(uris: Iterable[str], domains: Collection[str]) -> str:
    """The trust domain of those who answer, where a mesh has several and they are all in one of them."""
    named = {uri.removeprefix(SCHEME).partition("/")[0] for uri in uris}
    return next(iter(named)) if len(domains) > 1 and len(named) == 1 and named <= set(domains) else ""


def tls_of_caller(
    world: World, dataplane: Resource, tls: CallerTls | None, *, is_certified_client: bool
) -> CallerTls | None:
    """How one proxy of a mesh calls others: without TLS where it has no certificate and will have none.

    `is_certified_client`: it is a gRPC client without a proxy whose library finds certificates.
    """
    if tls is None:
        return None
    if is_grpc_client(dataplane):
        return tls if is_certified_client and identity_of(world, dataplane) is not None else None
    return tls if has_certificate(world, dataplane) else None


def has_certificate(world: World, dataplane: Resource) -> bool:
    """Whether a proxy has a certificate, or gets one as soon as somebody signs."""
    return _is_certified(world, dataplane.mesh) or identity_of(world, dataplane) is not None


def _is_certified(world: World, mesh: str) -> bool:
    """Whether an authority signs for the whole mesh."""
    resource = world.mesh(mesh)
    return resource is not None and resource.spec.authority is not None


def _answer_with_tls(world: World, mesh: str, ports: Iterable[DataplanePort]) -> bool:
    """Whether all these proxies speak TLS; a cluster of Envoy's speaks it with all of them, or with none."""
    if _is_certified(world, mesh):
        return True
    dataplanes = _dataplanes(ports)
    return bool(dataplanes) and all(answers_with_tls(world, dataplane) for dataplane in dataplanes)


def trust_of(world: World, mesh: str) -> Trust | None:
    """The roots that the proxies of a mesh trust; None while there are none."""
    return world.recall(_TrustOfMeshes, mesh)


class _TrustOfMeshes(Memo[World, str, Trust | None]):
    def basis(self, source: World, key: str) -> MeshSecurity | None:
        return security_of(source, key)

    def work_out(self, source: World, key: str) -> Trust | None:
        security = security_of(source, key)
        if security is None or not security.bundles:
            return None
        return Trust(key, tuple(TrustDomain(bundle.domain, bundle.certificates) for bundle in security.bundles))


def trust_of_grpc_clients(world: World, mesh: str) -> Trust | None:
    """The roots that gRPC clients without a proxy trust, all of them for every name: their libraries know no domains.

    So there are only those of the domains in which the mesh itself signs, and nobody else can say to be one of it.
    """
    return world.recall(_TrustOfGrpcClients, mesh)


class _TrustOfGrpcClients(Memo[World, str, Trust | None]):
    def basis(self, source: World, key: str) -> MeshSecurity | None:
        return security_of(source, key)

    def work_out(self, source: World, key: str) -> Trust | None:
        security = security_of(source, key)
        own = () if security is None else security.own_domains
        if security is None or not own:
            return None
        roots = "".join(bundle.certificates for bundle in security.bundles if bundle.domain in own)
        return Trust(key, (TrustDomain(own[0], roots),))


def domains_of(security: MeshSecurity, mesh: str) -> tuple[str, ...]:
    """The trust domains of a mesh. Before its first authority is there, that is the one that it will have."""
    return tuple(bundle.domain for bundle in security.bundles) or (mesh,)


def _server_name(mesh: str, destination: Destination, service_and_port: ServiceAndPort) -> str:
    """The server name (SNI) by which a destination is called. Kuma makes the same, and permissions may match it."""
    identity = destination.identity
    if identity is None:
        tags = ",".join(f"{name}={value}" for name, value in sorted((*destination.tags, ("mesh", mesh))))
        return f"{destination.service}{{{tags}}}"
    port = 0 if service_and_port is None else service_and_port[1].port
    return _name_of_service(identity, port)


def _name_of_service(identity: Identity, port: int) -> str:
    digest = _fnv_1a(f"{identity.name};{identity.mesh};".encode())
    name, mesh = (text if len(text) <= _LABEL else f"{text[:_LABEL]}x" for text in (identity.name, identity.mesh))
    return f"a{digest:x}.{name}.{port}.{mesh}.{_SHORT.get(identity.type, 'ms')}"


def _fnv_1a(data: bytes) -> int:
    """The hash FNV-1a of 64 bits, as it stands in Kuma's server names."""
    digest = 0xCBF29CE484222325
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    return digest


def _anybody(domains: Iterable[str]) -> tuple[CertificateName, ...]:
    return tuple(CertificateName(f"spiffe://{domain}/", is_prefix=True) for domain in domains)


def _identities_behind(
    world: World,
    mesh: str,
    destination: Destination,
    service_and_port: ServiceAndPort,
    ports: Collection[DataplanePort],
) -> tuple[str, ...]:
    """The names of those who may answer for a destination, as their certificates have them.

    A service that lists them has these. Otherwise they are those of the proxies behind it, now and soon (record 0057).
    """
    listed = getattr(service_and_port[0].spec, "identities", None) if service_and_port is not None else None
    if service_and_port is not None and listed:
        return tuple(sorted(set(_listed(service_and_port[0].mesh, listed))))
    by_tag = set(_names_by_tag(mesh, destination, ports)) if _is_certified(world, mesh) else set[str]()
    by_identity = (workload_ids(world, dataplane) for dataplane in _dataplanes(ports))
    return tuple(sorted(by_tag.union(*by_identity)))


def _listed(mesh: str, identities: Iterable[ServiceIdentity]) -> Iterator[str]:
    for identity in identities:
        yield identity.value if identity.type == "SpiffeID" else service_uri(mesh, identity.value)


def _names_by_tag(mesh: str, destination: Destination, ports: Iterable[DataplanePort]) -> Iterator[str]:
    """The names that an authority of the mesh gives them."""
    if not destination.is_real:
        yield service_uri(mesh, destination.service)
        return
    for port in ports:
        if (tag := port.tags.get(SERVICE_TAG)) is not None:
            yield service_uri(mesh, tag)


def _dataplanes(ports: Iterable[DataplanePort]) -> Collection[Resource]:
    return {port.dataplane.name: port.dataplane for port in ports}.values()


def _oldest(policies: Table) -> str:
    """The oldest version that callers have to offer, so that each MeshTLS finds one that it allows."""
    newest = {
        item.default.tls_version.max
        for policy in in_force(policies)
        for item in (*policy.spec.items("from"), *policy.spec.items("rules"))
        if item.default is not None and item.default.tls_version is not None and item.default.tls_version.max
    }
    return next((_OLD[version] for version in sorted(newest) if version in _OLD), "")
