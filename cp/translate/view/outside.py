"""Services outside the mesh: what a MeshExternalService or an ExternalService comes to, or why it cannot be served.

An ExternalService, which is the older kind, is read as a MeshExternalService that says the same (records 0032, 0075).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cp.identity.certificates import NO_CERTIFICATE, certificates, fault_of_key, text_of
from cp.model.dependency import Name
from cp.model.hosts import is_ip
from cp.model.memo import Memo
from cp.model.names import Key
from cp.model.secret_names import kept_from
from cp.model.violation import Violation, join
from cp.resources import services
from cp.resources.dataplane import ZONE_TAG
from cp.resources.resource import Resource
from cp.resources.sources import DataSource, decoded
from cp.resources.tls import ENVOY_VERSIONS
from cp.resources.world import World
from generators.proxy import CertificateName, Endpoint, Locality, Material, Tags, Tls

EXTERNAL: Final = services.MESH_EXTERNAL_SERVICE.name
LEGACY_EXTERNAL: Final = services.EXTERNAL_SERVICE.name
SECRET: Final = "Secret"  # noqa: S105  # a kind of resource

_VERIFICATION: Final[Mapping[str, str]] = {EXTERNAL: "spec.tls.verification", LEGACY_EXTERNAL: "networking.tls"}
"""Where a document says how servers are verified. The fields there have the same names in both kinds."""


@dataclass(frozen=True, slots=True)
class ExternalDestination:
    """A service outside the mesh, as Envoy has to know it."""

    endpoints: tuple[Endpoint, ...] = ()
    faults: tuple[Violation, ...] = ()
    """Why it cannot be served. Then nobody is told of the rest."""

    secrets: tuple[str, ...] = ()
    """Those on which it depends, be they there or not."""

    @property
    def tls(self) -> Tls | None:
        """How TLS is spoken with the first endpoint; None: not at all."""
        return self.endpoints[0].tls if self.endpoints else None

    @property
    def names(self) -> frozenset[Name]:
        """The same as changes call them."""
        return frozenset((SECRET, name) for name in self.secrets)

    @property
    def reason(self) -> str:
        return "; ".join(f"{fault.path}: {fault.message}" if fault.path else fault.message for fault in self.faults)

    @property
    def host(self) -> str:
        """A name by which its servers know themselves; empty if they have none."""
        return next((endpoint.host for endpoint in self.endpoints if endpoint.host), "")


def outside(world: World, service: Resource) -> ExternalDestination:
    """What a service outside comes to, worked out once until it or one of its secrets changes."""
    return world.recall(_ExternalDestinations, service)


def together(destinations: Iterable[ExternalDestination]) -> ExternalDestination:
    """Several services as one destination. Those that cannot be served are left out, unless none can."""
    parts = tuple(destinations)
    served = [part for part in parts if not part.faults]
    return ExternalDestination(
        tuple(endpoint for part in served for endpoint in part.endpoints),
        () if served else tuple(fault for part in parts for fault in part.faults),
        tuple(dict.fromkeys(secret for part in parts for secret in part.secrets)),
    )


class _ExternalDestinations(Memo[World, Resource, ExternalDestination]):
    def is_alive(self, generation: World, key: Resource) -> bool:
        return generation.get(key.key) is key  # reading certificates is slow, and most changes ask for few services

    def basis(self, source: World, key: Resource) -> tuple[Resource | None, ...]:
        return tuple(source.get(Key(SECRET, key.mesh, name)) for name in key.derived(_secret_names))

    def work_out(self, source: World, key: Resource) -> ExternalDestination:
        return _Reading(source, key).outside()


def _secret_names(service: Resource) -> tuple[str, ...]:
    """The secrets that a service names, also where its TLS is not enabled."""
    tls = service.derived(_spec).tls
    verification = tls.verification if tls is not None else None
    if verification is None:
        return ()
    sources = (verification.ca_cert, verification.client_cert, verification.client_key)
    return tuple(source.secret for source in sources if source is not None and source.secret is not None)


def _spec(service: Resource) -> services.MeshExternalService:
    """What a service outside says, in the newer form."""
    spec: services.MeshExternalService = service.spec if service.type == EXTERNAL else _newer(service.spec)
    return spec


def _newer(service: services.ExternalService) -> services.MeshExternalService:
    """An ExternalService as a MeshExternalService. The port by which workloads call it is not in it."""
    networking = service.networking or services.LegacyNetworking()
    endpoint = services.ExternalEndpoint(networking.host, networking.port)
    return services.MeshExternalService(endpoints=[endpoint], tls=_newer_tls(networking.tls or services.LegacyTls()))


def _newer_tls(tls: services.LegacyTls) -> services.ExternalTls:
    """Without `caCert` nobody is verified, and a certificate of the client needs its key, as in Kuma."""
    is_whole = tls.client_cert is not None and tls.client_key is not None
    mode: services.VerificationMode = "SkipSAN" if tls.skip_hostname_verification else "Secured"
    verification = services.Verification(
        mode="SkipAll" if tls.ca_cert is None else mode,
        server_name=tls.server_name,
        ca_cert=tls.ca_cert,
        client_cert=tls.client_cert if is_whole else None,
        client_key=tls.client_key if is_whole else None,
    )
    return services.ExternalTls(tls.enabled, allow_renegotiation=tls.allow_renegotiation, verification=verification)


class _Reading:
    """One service that is being read, with every fault that turns up."""

    def __init__(self, world: World, service: Resource) -> None:
        self._world, self._mesh, self._service = world, service.mesh, service.key
        self._spec = service.derived(_spec)
        self._tags = _tags(service)
        self._faults: list[Violation] = []
        self._secrets: dict[str, None] = {}

    def outside(self) -> ExternalDestination:
        if self._spec.extension is not None:
            text = f"no extension `{self._spec.extension.type}` is known here"
            return ExternalDestination(
                faults=(Violation("spec.extension", text, "give it `endpoints` in place of it"),)
            )
        if not self._spec.endpoints:
            fault = Violation("spec.endpoints", "no endpoints are given", "say under which addresses it is there")
            return ExternalDestination(faults=(fault,))
        spoken = self._spec.tls
        tls = self._tls(spoken) if spoken is not None and spoken.enabled is True else None
        endpoints = tuple(self._endpoint(endpoint, tls) for endpoint in self._spec.endpoints)
        return ExternalDestination(endpoints, tuple(self._faults), tuple(self._secrets))

    def _endpoint(self, endpoint: services.ExternalEndpoint, tls: Tls | None) -> Endpoint:
        return Endpoint(
            endpoint.address,
            endpoint.port or 0,
            locality=Locality(dict(self._tags).get(ZONE_TAG, ""), priority=endpoint.priority or 0),
            tags=self._tags,
            host=self._host(endpoint),
            tls=tls,
        )

    def _host(self, endpoint: services.ExternalEndpoint) -> str:
        tls = self._spec.tls
        server = tls.verification.server_name if tls and tls.enabled is True and tls.verification else None
        if server:
            return str(server)
        return "" if endpoint.is_socket or is_ip(endpoint.address) else str(endpoint.address.rstrip("."))

    def _tls(self, tls: services.ExternalTls) -> Tls:
        verification = tls.verification
        mode = (verification.mode if verification else None) or "Secured"
        hosts = [host for host in dict.fromkeys(map(self._host, self._spec.endpoints or ())) if host]
        verified = mode in {"Secured", "SkipSAN"}
        ca = self._authorities(verification) if verified and verification else None
        certificate, key = self._identity(verification) if verification else (None, None)
        return Tls(
            sni=hosts[0] if len(hosts) == 1 else "",
            sni_of_endpoint=len(hosts) > 1,
            verified=verified,
            ca=ca,
            names=tuple(self._names(verification)) if mode == "Secured" else (),
            certificate=certificate,
            key=key,
            oldest=ENVOY_VERSIONS.get(tls.version.min or "", "") if tls.version else "",
            newest=ENVOY_VERSIONS.get(tls.version.max or "", "") if tls.version else "",
            renegotiation=tls.allow_renegotiation is True,
        )

    def _names(self, verification: services.Verification | None) -> Iterator[CertificateName]:
        """What a certificate has to be for: what is said, or what the server is called, or else where it is."""
        if verification is not None and verification.subject_alt_names:
            yield from (CertificateName(name.value, name.type == "Prefix") for name in verification.subject_alt_names)
            return
        endpoints = self._spec.endpoints or ()
        hosts = (self._host(endpoint) or ("" if endpoint.is_socket else endpoint.address) for endpoint in endpoints)
        named = dict.fromkeys(hosts)
        yield from (CertificateName(name) for name in named if name)
        if "" in named:
            hint = "give it `serverName` or `subjectAltNames`, or the mode SkipSAN"
            self._fault("", Violation("", "a socket has no name that its certificate could be for", hint))

    def _authorities(self, verification: services.Verification) -> Material | None:
        return None if verification.ca_cert is None else self._certificates("caCert", verification.ca_cert)

    def _identity(self, verification: services.Verification) -> tuple[Material | None, Material | None]:
        if verification.client_cert is None or verification.client_key is None:
            return None, None
        certificate = self._certificates("clientCert", verification.client_cert)
        key = self._material("clientKey", verification.client_key)
        if key is not None and not key.file and (fault := fault_of_key(key.text, certificate.text)) is not None:
            self._fault("clientKey", fault)
        return certificate, key

    def _certificates(self, path: str, source: DataSource) -> Material:
        """Certificates alone: what else is in there is nobody's business."""
        material = self._material(path, source)
        if material is None or material.file:
            return material or Material()
        pem = certificates(material.text)
        if not pem:
            self._fault(path, NO_CERTIFICATE)
        return Material(pem)

    def _material(self, path: str, source: DataSource) -> Material | None:
        """A certificate or a key from wherever it comes; None, and a fault, if it is not there."""
        if source.file is not None:
            return Material(file=source.file)
        if source.secret is not None:
            self._secrets[source.secret] = None
            secret = self._world.get(Key(SECRET, self._mesh, source.secret))
            if secret is None:
                text = f"there is no Secret {source.secret} in mesh {self._mesh}"
                self._fault(path, Violation("secret", text, "create it, or correct the name"))
                return None
            if (kept := kept_from(secret.document, self._service)) is not None:
                self._fault(path, kept.at("secret"))
                return None
            return Material(text_of(secret.spec.value()))
        if source.inline is not None:
            return Material(text_of(decoded(source.inline) or b""))
        return Material(source.inline_string.reveal() if source.inline_string is not None else "")

    def _fault(self, path: str, fault: Violation) -> None:
        self._faults.append(fault.at(join(_VERIFICATION[self._service.type], path)))


def _tags(service: Resource) -> Tags:
    """The tags of an ExternalService. The newer kind has none."""
    tags = service.spec.tags or {} if service.type == LEGACY_EXTERNAL else {}
    return tuple(sorted(tags.items()))
