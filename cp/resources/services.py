"""The kinds of services: MeshService, MeshMultiZoneService, MeshExternalService, and the older ExternalService."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from cp.model.hosts import is_ip
from cp.model.numbers import Integer
from cp.model.paths import entry
from cp.model.violation import Violation, at
from cp.resources.checks import (
    absent,
    address,
    file_path,
    host_and_port,
    is_address,
    longest_name,
    must_be_set,
    one_of,
    port,
    repeated,
    usable_port,
    within,
)
from cp.resources.complete import completed
from cp.resources.dataplane import PROTOCOL_TAG, PROTOCOLS, SERVICE_TAG
from cp.resources.deprecated import dns_name
from cp.resources.kinds import DocumentMeta, Kind
from cp.resources.schema import Schema, SensitiveData
from cp.resources.sources import DataSource, data_source
from cp.resources.targets import tag
from cp.resources.tls import TlsVersions, tls_versions

_LONGEST_PORT: Final = 6
"""The digits of a port that are read; with as many, it is no port in any case."""

_SERVED: Final = ("grpc", "http", "http2", "kafka", "tcp")


class LabelSelector(Schema, frozen=True):
    match_labels: dict[str, str] | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(name) == value for name, value in (self.match_labels or {}).items())


class ServicePort(Schema, frozen=True):
    """A port of a service: its number and name, and the number or name of the inbounds behind it."""

    port: Integer = 0
    name: str | None = None
    target_port: Integer | str | None = None
    app_protocol: str | None = None

    @property
    def section(self) -> str:
        """The name by which policies refer to it."""
        return self.name or str(self.port)

    @property
    def speaks(self) -> str:
        return (self.app_protocol or "tcp").lower()


class DataplaneRef(Schema, frozen=True):
    name: str | None = None


class DataplaneSelector(Schema, frozen=True):
    """The dataplanes that serve it. At most one of the fields is set; if none is, no dataplane serves it."""

    dataplane_tags: dict[str, str] | None = None
    dataplane_ref: DataplaneRef | None = None
    dataplane_labels: LabelSelector | None = None


class ServiceIdentity(Schema, frozen=True):
    type: Literal["ServiceTag", "SpiffeID"] | None = None
    value: str = ""


class MeshService(Schema, frozen=True):
    state: Literal["Available", "Unavailable"] | None = None
    selector: DataplaneSelector | None = None
    ports: list[ServicePort] | None = None
    identities: list[ServiceIdentity] | None = None


class MeshServiceSelector(Schema, frozen=True):
    mesh_service: LabelSelector | None = None


class MeshMultiZoneService(Schema, frozen=True):
    selector: MeshServiceSelector | None = None
    ports: list[ServicePort] | None = None


SOCKET: Final = "unix://"
"""How the address of a socket in the file system begins."""


class ExternalMatch(Schema, frozen=True):
    type: Literal["HostnameGenerator"] | None = None
    port: Integer = 0
    protocol: Literal["tcp", "grpc", "http", "http2"] | None = None


class ServiceExtension(Schema, frozen=True):
    type: str = ""
    config: SensitiveData = None


class ExternalEndpoint(Schema, frozen=True):
    address: str = ""
    port: Integer | None = None
    priority: Integer | None = None

    @property
    def is_socket(self) -> bool:
        return self.address.startswith(SOCKET)


class NameMatch(Schema, frozen=True):
    type: Literal["Exact", "Prefix"] | None = None
    value: str = ""


VerificationMode: TypeAlias = Literal["SkipSAN", "SkipCA", "Secured", "SkipAll"]


class Verification(Schema, frozen=True):
    mode: VerificationMode | None = None
    server_name: str | None = None
    subject_alt_names: list[NameMatch] | None = None
    ca_cert: DataSource | None = None
    client_cert: DataSource | None = None
    client_key: DataSource | None = None

    def sources(self) -> Iterator[tuple[str, DataSource]]:
        """Where certificates and keys come from, each with its name."""
        return _sources(self)


class ExternalTls(Schema, frozen=True):
    enabled: bool | None = None
    version: TlsVersions | None = None
    allow_renegotiation: bool | None = None
    verification: Verification | None = None


class MeshExternalService(Schema, frozen=True):
    match: ExternalMatch = ExternalMatch()
    extension: ServiceExtension | None = None
    endpoints: list[ExternalEndpoint] | None = None
    tls: ExternalTls | None = None

    @property
    def ports(self) -> list[ServicePort]:
        """Its one port, as a list as other services have; its number is its name."""
        return [ServicePort(port=self.match.port, app_protocol=self.match.protocol)]


class LegacyTls(Schema, frozen=True):
    enabled: bool | None = None
    ca_cert: DataSource | None = None
    client_cert: DataSource | None = None
    client_key: DataSource | None = None
    allow_renegotiation: bool | None = None
    server_name: str | None = None
    skip_hostname_verification: bool | None = None

    def sources(self) -> Iterator[tuple[str, DataSource]]:
        """Where certificates and keys come from, each with its name."""
        return _sources(self)


def _sources(tls: Verification | LegacyTls) -> Iterator[tuple[str, DataSource]]:
    named = (("caCert", tls.ca_cert), ("clientCert", tls.client_cert), ("clientKey", tls.client_key))
    return ((name, source) for name, source in named if source is not None)


class LegacyNetworking(Schema, frozen=True):
    address: str | None = None
    tls: LegacyTls | None = None
    disable_host_dns_entry: bool | None = msgspec.field(name="disableHostDNSEntry", default=None)

    @property
    def host(self) -> str:
        """The name or the IP address in `address`."""
        return (self.address or "").rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        number = (self.address or "").rpartition(":")[2][:_LONGEST_PORT]
        return int(number) if number.isdecimal() else 0


class ExternalService(Schema, frozen=True):
    networking: LegacyNetworking | None = None
    tags: dict[str, str] | None = None


def mesh_service(service: MeshService, meta: DocumentMeta) -> Iterator[Violation]:
    yield from longest_name(meta.display_name, 63)
    selector = service.selector or DataplaneSelector()
    if len(selector.wire()) > 1:
        names = " and ".join(f"`{name}`" for name in selector.wire())
        yield Violation("spec.selector", f"{names} exclude each other", "keep one of them")
    yield from at("spec", _ports(service.ports or []))


def _ports(ports: list[ServicePort]) -> Iterator[Violation]:
    for index, service_port in enumerate(ports):
        yield from port(f"ports[{index}].port", service_port.port)
        if isinstance(service_port.target_port, int):
            yield from usable_port(f"ports[{index}].targetPort", service_port.target_port)
        if service_port.name == "":
            yield Violation(f"ports[{index}].name", "must not be empty", "leave it out: the number is the name then")
    for index in repeated(service_port.port for service_port in ports):
        yield Violation(f"ports[{index}].port", f"`{ports[index].port}` stands here twice")
    for index in repeated(service_port.section for service_port in ports):
        if ports[index].name:
            yield Violation(f"ports[{index}].name", f"`{ports[index].name}` stands here twice")


def multi_zone_service(service: MeshMultiZoneService, _meta: DocumentMeta) -> Iterator[Violation]:
    labels = service.selector.mesh_service if service.selector else None
    if labels is None or not labels.match_labels:
        hint = "the labels of the MeshServices that it stands for"
        yield absent("spec.selector.meshService.matchLabels", "must be set", hint)
    yield from must_be_set("spec.ports", service.ports)
    yield from at("spec", _ports(service.ports or []))
    for index, service_port in enumerate(service.ports or ()):
        if service_port.app_protocol is not None:
            yield from one_of(f"spec.ports[{index}].appProtocol", service_port.app_protocol, _SERVED)


def mesh_external_service(service: MeshExternalService, meta: DocumentMeta) -> Iterator[Violation]:
    yield from longest_name(meta.display_name, 63)
    yield from port("spec.match.port", service.match.port)
    if service.extension is not None:
        yield from must_be_set("spec.extension.type", service.extension.type, "the name of who serves it")
        return
    for index, endpoint in enumerate(service.endpoints or ()):
        yield from at(f"spec.endpoints[{index}]", _endpoint(endpoint))
    yield from at("spec.endpoints", _not_mixed(service.endpoints or []))
    if service.tls is not None and service.tls.version is not None:
        yield from at("spec.tls.version", tls_versions(service.tls.version))
    if service.tls is not None and service.tls.verification is not None:
        yield from at("spec.tls.verification", _verification(service.tls.verification))


def _endpoint(endpoint: ExternalEndpoint) -> Iterator[Violation]:
    if endpoint.is_socket:
        yield from file_path("address", endpoint.address.removeprefix(SOCKET))
        yield from within("priority", endpoint.priority, 0, 128)
        return
    yield from address("address", endpoint.address)
    if is_address(endpoint.address):
        yield from port("port", endpoint.port or 0)
    yield from within("priority", endpoint.priority, 0, 128)


def _not_mixed(endpoints: list[ExternalEndpoint]) -> Iterator[Violation]:
    """The fault of sockets beside names: Envoy ignores sockets in a cluster whose names it resolves."""
    names = [endpoint.address for endpoint in endpoints if not endpoint.is_socket and not is_ip(endpoint.address)]
    for index, endpoint in enumerate(endpoints):
        if endpoint.is_socket and names:
            hint = "make a service of each, and split by the `weight` of backendRefs"
            yield Violation(f"[{index}].address", f"a socket cannot stand beside the name `{names[0]}`", hint)


def _verification(verification: Verification) -> Iterator[Violation]:
    server = verification.server_name
    if server is not None and (is_ip(server) or not is_address(server)):
        yield Violation("serverName", f"`{server}` is not the name of a host")
    for index, name in enumerate(verification.subject_alt_names or ()):
        yield from must_be_set(f"subjectAltNames[{index}].value", name.value)
    for path, source in verification.sources():
        yield from data_source(path, source)
        yield from file_path(f"{path}.file", source.file)
    if (verification.client_cert is None) != (verification.client_key is None):
        missing, given = ("clientKey", "clientCert") if verification.client_cert else ("clientCert", "clientKey")
        yield absent(missing, f"must be set beside `{given}`")


def external_service(service: ExternalService, _meta: DocumentMeta) -> Iterator[Violation]:
    if service.networking is None:
        yield absent("networking", "must be set", "give it an `address`")
    else:
        yield from at("networking", _legacy_networking(service.networking))
    tags = service.tags or {}
    for name, value in tags.items():
        yield from at("tags", tag(name, value))
    if SERVICE_TAG not in tags:
        yield absent("tags", f"must have `{SERVICE_TAG}`")
    protocol = tags.get(PROTOCOL_TAG)
    if protocol is not None and protocol.lower() not in PROTOCOLS:
        yield from one_of("tags" + entry(PROTOCOL_TAG), protocol, PROTOCOLS)
    host = ((service.networking and service.networking.address) or "").rpartition(":")[0]
    if host and tags.get(SERVICE_TAG) == host:
        hint = "choose another name, so that the one cannot be taken for the other"
        yield Violation("tags" + entry(SERVICE_TAG), "must not be the host of `networking.address`", hint)


def _legacy_networking(networking: LegacyNetworking) -> Iterator[Violation]:
    faults = list(host_and_port("address", networking.address))
    yield from faults
    if not faults:
        if not is_ip(networking.host):
            yield from address("address", networking.host)
        yield from port("address", networking.port)
    tls = networking.tls or LegacyTls()
    if tls.server_name == "":
        yield Violation("tls.serverName", "must not be empty", "leave it out")
    for name, source in tls.sources():
        yield from data_source(f"tls.{name}", source)
        yield from file_path(f"tls.{name}.file", source.file)


def _service_warnings(service: MeshService | MeshMultiZoneService, meta: DocumentMeta) -> Iterator[Violation]:
    yield from dns_name(meta)
    for index, service_port in enumerate(service.ports or ()):
        if service_port.speaks not in PROTOCOLS:
            hint = f"one of {', '.join(_SERVED)}"
            yield Violation(f"spec.ports[{index}].appProtocol", f"`{service_port.app_protocol}` is taken for tcp", hint)


def _named_warnings(_spec: Any, meta: DocumentMeta) -> Iterator[Violation]:
    return dns_name(meta)


MESH_SERVICE: Final = Kind(
    "MeshService",
    "msvc",
    "meshservices",
    MeshService,
    mesh_service,
    _service_warnings,
    completed({"ports[].appProtocol": "tcp", "state": "Unavailable"}),
)
MULTI_ZONE_SERVICE: Final = Kind(
    "MeshMultiZoneService",
    "mzsvc",
    "meshmultizoneservices",
    MeshMultiZoneService,
    multi_zone_service,
    _service_warnings,
    completed({"ports[].appProtocol": "tcp"}),
)
MESH_EXTERNAL_SERVICE: Final = Kind(
    "MeshExternalService",
    "extsvc",
    "meshexternalservices",
    MeshExternalService,
    mesh_external_service,
    _named_warnings,
    completed(
        {
            "match.type": "HostnameGenerator",
            "match.protocol": "tcp",
            "tls.enabled": False,
            "tls.allowRenegotiation": False,
            "tls.verification.mode": "Secured",
            "tls.verification.subjectAltNames[].type": "Exact",
        }
    ),
)
EXTERNAL_SERVICE: Final = Kind("ExternalService", "es", "external-services", ExternalService, external_service)
