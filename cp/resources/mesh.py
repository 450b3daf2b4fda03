"""Mesh: settings that hold for everything in one mesh."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal

import msgspec

from cp.model.duration import Duration
from cp.model.numbers import Integer
from cp.model.violation import Violation, at
from cp.resources.checks import (
    absent,
    address,
    host_and_port,
    must_be_set,
    one_of,
    port_in_text,
    regex,
    repeated,
    usable_port,
)
from cp.resources.deprecated import dns_name
from cp.resources.engine import DEFAULT_ENGINE, FIELD, Engine, engine_of
from cp.resources.kinds import DocumentMeta, Kind
from cp.resources.schema import Schema, SensitiveMap, SensitiveText, check
from cp.resources.sources import DataSource, data_source
from cp.resources.targets import tag

_DAY: Final = 86_400.0
_CA_LIFETIME: Final = 3_650 * _DAY
_UNITS: Final = {"y": 365 * _DAY, "w": 7 * _DAY, "d": _DAY, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PERIOD: Final = re.compile(r"0|([0-9]+)(y|w|d|h|m|s|ms)")
_MOST_DIGITS: Final = 12


def period(text: str | None) -> float:
    """The seconds of a period such as `1d`; 0 for none, and for what is no period."""
    match = _PERIOD.fullmatch(text or "")
    if match is None or match[1] is None:
        return 0.0
    return int(match[1][:_MOST_DIGITS]) * _UNITS[match[2]]


class Rotation(Schema, frozen=True):
    expiration: str | None = None


class DpCert(Schema, frozen=True):
    rotation: Rotation | None = None
    request_timeout: Duration | None = None


class RootChain(Schema, frozen=True):
    request_timeout: Duration | None = None


class GeneratedCa(Schema, frozen=True):
    rsa_size: Integer | None = msgspec.field(name="RSAbits", default=None)
    """As Kuma has it (`builtin_ca_config.proto`)."""

    rsa_bits: Integer | None = None
    """The same, written as all other fields are."""

    expiration: str | None = None


class CaConf(Schema, frozen=True):
    """Of a provided authority its certificate and key, of a built-in one how to make them."""

    cert: DataSource | None = None
    key: DataSource | None = None
    ca_cert: GeneratedCa | None = None


class CaBackend(Schema, frozen=True):
    name: str | None = None
    type: Literal["builtin", "provided"] | None = None
    mode: Literal["STRICT", "PERMISSIVE"] | None = None
    dp_cert: DpCert | None = None
    conf: CaConf | None = None
    root_chain: RootChain | None = None

    @property
    def leaf_lifetime(self) -> float:
        """How long the certificate of a proxy is valid, in seconds."""
        rotation = self.dp_cert.rotation if self.dp_cert else None
        return period(rotation.expiration if rotation else None) or _DAY

    @property
    def ca_lifetime(self) -> float:
        """How long a certificate of a built-in authority is valid, in seconds."""
        generated = self.conf.ca_cert if self.conf else None
        return period(generated.expiration if generated else None) or _CA_LIFETIME

    @property
    def rsa_bits(self) -> int | None:
        """The size of an RSA key, where the backend asks for RSA; it is ECDSA otherwise."""
        generated = self.conf.ca_cert if self.conf else None
        return (generated.rsa_size or generated.rsa_bits if generated else None) or None

    @property
    def wants_rsa(self) -> bool:
        return self.rsa_bits is not None


class Mtls(Schema, frozen=True):
    enabled_backend: str | None = None
    backends: list[CaBackend] | None = None
    skip_validation: bool | None = None


class NetworkingOutbound(Schema, frozen=True):
    passthrough: bool | None = None


class MeshNetworking(Schema, frozen=True):
    outbound: NetworkingOutbound | None = None


class Routing(Schema, frozen=True):
    locality_aware_load_balancing: bool | None = None
    zone_egress: bool | None = None
    default_forbid_mesh_external_service_access: bool | None = None


class TagRule(Schema, frozen=True):
    tags: dict[str, str] | None = None


class DataplaneConstraints(Schema, frozen=True):
    requirements: list[TagRule] | None = None
    restrictions: list[TagRule] | None = None


class Constraints(Schema, frozen=True):
    dataplane_proxy: DataplaneConstraints | None = None


class MeshServices(Schema, frozen=True):
    mode: Literal["Disabled", "Everywhere", "ReachableBackends", "Exclusive"] | None = None


class MeshBackend(Schema, frozen=True):
    """A destination of logs, traces or metrics. Policies have these today; older documents have them here."""

    name: str | None = None
    type: str | None = None
    format: SensitiveText | None = None
    sampling: float | None = None
    conf: SensitiveMap[Any] | None = None


class Logging(Schema, frozen=True):
    default_backend: str | None = None
    backends: list[MeshBackend] | None = None


class Tracing(Schema, frozen=True):
    default_backend: str | None = None
    backends: list[MeshBackend] | None = None


class MetricsBackends(Schema, frozen=True):
    enabled_backend: str | None = None
    backends: list[MeshBackend] | None = None


class Mesh(Schema, frozen=True):
    mtls: Mtls | None = None
    networking: MeshNetworking | None = None
    routing: Routing | None = None
    constraints: Constraints | None = None
    skip_creating_initial_policies: list[str] | None = None
    mesh_services: MeshServices | None = None
    policy_engine: Literal["Undefined", "Legacy", "TargetRef"] | None = None
    """Undefined: as the settings say. A Mesh that is made with it, or without, is stored with what they say then."""

    logging: Logging | None = None
    tracing: Tracing | None = None
    metrics: MetricsBackends | None = None

    @property
    def authority(self) -> CaBackend | None:
        """The certificate authority in force; None where mTLS is off."""
        if self.mtls is None or not self.mtls.enabled_backend:
            return None
        return next(
            (backend for backend in self.mtls.backends or () if backend.name == self.mtls.enabled_backend), None
        )


_LONGEST_PORT: Final = 6
"""The digits of a port that are read; with as many, it is no port in any case."""


def validate(mesh: Mesh, _meta: DocumentMeta) -> Iterator[Violation]:
    if mesh.mtls is not None:
        yield from at("mtls", _mtls(mesh.mtls))
    if mesh.routing and mesh.routing.zone_egress and not (mesh.mtls and mesh.mtls.enabled_backend):
        hint = "enable a backend, or switch `routing.zoneEgress` off"
        yield absent("mtls", "must be set where traffic leaves the zone by its egress", hint)
    if mesh.constraints is not None and mesh.constraints.dataplane_proxy is not None:
        yield from at("constraints.dataplaneProxy", _constraints(mesh.constraints.dataplane_proxy))
    if mesh.logging is not None:
        yield from at("logging", _backends(mesh.logging.backends, mesh.logging.default_backend, _LOGGING))
    if mesh.tracing is not None:
        yield from at("tracing", _backends(mesh.tracing.backends, mesh.tracing.default_backend, _TRACING))
        yield from at("tracing", _samplings(mesh.tracing))
    if mesh.metrics is not None:
        known_as = "enabledBackend"
        yield from at("metrics", _backends(mesh.metrics.backends, mesh.metrics.enabled_backend, _METRICS, known_as))


def _mtls(mtls: Mtls) -> Iterator[Violation]:
    backends = mtls.backends or []
    names = [backend.name for backend in backends]
    if len(backends) > 1:
        yield Violation("backends", f"{len(backends)} are one too many", "a mesh has one certificate authority")
    yield from _repeated_names(names)
    if mtls.enabled_backend and mtls.enabled_backend not in names:
        hint = f"one of {', '.join(map(str, names))}" if names else "add it to `backends`"
        yield Violation("enabledBackend", f"there is no backend `{mtls.enabled_backend}`", hint)
    for index, backend in enumerate(backends):
        yield from _ca_backend(backend, index)


def _ca_backend(backend: CaBackend, index: int) -> Iterator[Violation]:
    path = f"backends[{index}]"
    expiration = (backend.dp_cert.rotation.expiration if backend.dp_cert and backend.dp_cert.rotation else None) or ""
    if backend.dp_cert is not None and _PERIOD.fullmatch(expiration) is None:
        hint = "write for example `1d`"
        yield Violation(f"{path}.dpCert.rotation.expiration", f"`{expiration}` is not a period", hint)
    if backend.conf is not None:
        yield from data_source(f"{path}.conf.cert", backend.conf.cert)
        yield from data_source(f"{path}.conf.key", backend.conf.key)


def _constraints(constraints: DataplaneConstraints) -> Iterator[Violation]:
    for name, rules in (("requirements", constraints.requirements), ("restrictions", constraints.restrictions)):
        for index, rule in enumerate(rules or ()):
            path = f"{name}[{index}].tags"
            yield from must_be_set(path, rule.tags)
            for key, value in (rule.tags or {}).items():
                yield from at(path, tag(key, value, anything=True))


def _repeated_names(names: list[str | None]) -> Iterator[Violation]:
    for index in repeated(names):
        yield Violation(f"backends[{index}].name", f"a backend before this one has the name `{names[index]}`")


def _samplings(tracing: Tracing) -> Iterator[Violation]:
    for index, backend in enumerate(tracing.backends or ()):
        if backend.sampling is not None and not 0 <= backend.sampling <= 100:  # noqa: PLR2004  # percent
            yield Violation(f"backends[{index}].sampling", f"must be 0 to 100 percent, not `{backend.sampling}`")


ConfCheck = Callable[[dict[str, Any]], Iterator[Violation]]


def _backends(
    backends: list[MeshBackend] | None, chosen: str | None, checks: dict[str, ConfCheck], field: str = "defaultBackend"
) -> Iterator[Violation]:
    names = [backend.name for backend in backends or ()]
    yield from _repeated_names(names)
    if chosen and chosen not in names:
        yield Violation(field, f"there is no backend `{chosen}`", "add it to `backends`")
    for index, backend in enumerate(backends or ()):
        path = f"backends[{index}]"
        if checks is not _METRICS:
            yield from must_be_set(f"{path}.name", backend.name)
        yield from one_of(f"{path}.type", backend.type, checks)
        if backend.type in checks:
            yield from at(path, checks[backend.type](backend.conf or {}))


def _file(conf: dict[str, Any]) -> Iterator[Violation]:
    return at("conf", must_be_set("path", conf.get("path")))


def _tcp(conf: dict[str, Any]) -> Iterator[Violation]:
    faults = list(at("conf", host_and_port("address", conf.get("address"))))
    yield from faults
    if not faults:
        host, _, number = str(conf["address"]).rpartition(":")
        yield from at("conf", address("address", host.removeprefix("[").removesuffix("]")))
        if not 0 < int(number[:_LONGEST_PORT]) < 2**16 or len(number) > _LONGEST_PORT:
            yield Violation("conf.address", f"the port must be 1 to 65535, not `{number[:_LONGEST_PORT]}`")


def _zipkin(conf: dict[str, Any]) -> Iterator[Violation]:
    return at("conf", _zipkin_conf(conf))


def _zipkin_conf(conf: dict[str, Any]) -> Iterator[Violation]:
    if conf.get("apiVersion"):
        yield from one_of("apiVersion", conf["apiVersion"], ("httpJsonV1", "httpJson", "httpProto"))
    url = conf.get("url")
    yield from must_be_set("url", url)
    yield from port_in_text("url", str(url or ""))
    if url and re.fullmatch(r"[a-zA-Z][a-zA-Z0-9+.-]*:(//)?[^/?#\s]*:[0-9]+([/?#]\S*)?", str(url)) is None:
        yield Violation(
            "url", f"`{url}` is not a URL with a port", "write for example `http://zipkin:9411/api/v2/spans`"
        )


def _datadog(conf: dict[str, Any]) -> Iterator[Violation]:
    return at("conf", _datadog_conf(conf))


def _datadog_conf(conf: dict[str, Any]) -> Iterator[Violation]:
    yield from must_be_set("address", conf.get("address"))
    port = conf.get("port")
    if not isinstance(port, int) or not 0 < port < 2**16:
        yield Violation("port", f"must be 1 to 65535, not `{port}`")


class Aggregate(Schema, frozen=True):
    name: str | None = None
    port: Integer | None = None
    path: str | None = None
    enabled: bool | None = None
    address: str | None = None


class MeshPrometheusTls(Schema, frozen=True):
    mode: Literal["activeMTLSBackend", "providedTLS", "disabled"] | None = None


class MeshPrometheusEnvoy(Schema, frozen=True):
    filter_regex: str | None = None
    used_only: bool | None = None


class MeshPrometheus(Schema, frozen=True):
    port: Integer | None = None
    path: str | None = None
    tags: dict[str, str] | None = None
    skip_mtls: bool | None = msgspec.field(name="skipMTLS", default=None)
    aggregate: list[Aggregate] | None = None
    envoy: MeshPrometheusEnvoy | None = None
    tls: MeshPrometheusTls | None = None


def prometheus(conf: dict[str, Any]) -> Iterator[Violation]:
    """The faults of the conf of a metrics backend, of a Mesh or of a Dataplane."""
    decoded, faults = check(MeshPrometheus, conf)
    yield from at("conf", faults)
    if decoded is None:
        return
    if decoded.skip_mtls is not None and decoded.tls is not None:
        mode = decoded.tls.mode or "activeMTLSBackend"
        if mode != ("disabled" if decoded.skip_mtls else "activeMTLSBackend"):
            yield Violation("conf", "`skipMTLS` and `tls` say different things", "remove `skipMTLS`, the older of them")
    for path, number in _metric_ports(decoded):
        yield from usable_port(path, number or None)  # 0 is none, as with Kuma
    if decoded.envoy is not None:
        yield from at("conf.envoy", regex("filterRegex", decoded.envoy.filter_regex))
    names = [aggregate.name for aggregate in decoded.aggregate or ()]
    for index in repeated(names):
        yield Violation(f"conf.aggregate[{index}].name", f"an entry before this one has the name `{names[index]}`")


def _metric_ports(conf: MeshPrometheus) -> Iterator[tuple[str, int | None]]:
    yield "conf.port", conf.port
    yield from ((f"conf.aggregate[{index}].port", entry.port) for index, entry in enumerate(conf.aggregate or ()))


_LOGGING: Final[dict[str, ConfCheck]] = {"tcp": _tcp, "file": _file}
_TRACING: Final[dict[str, ConfCheck]] = {"zipkin": _zipkin, "datadog": _datadog}
_METRICS: Final[dict[str, ConfCheck]] = {"prometheus": prometheus}


def mesh_kind(engine: Engine) -> Kind:
    """Mesh, where the settings say that one that names no engine has this one."""
    return replace(MESH, complete=partial(_with_engine, engine=engine))


def _with_engine(spec: dict[str, Any], engine: Engine = DEFAULT_ENGINE) -> dict[str, Any]:
    return {**spec, FIELD: engine_of(spec, engine)}


def deprecations(_mesh: Mesh, meta: DocumentMeta) -> Iterator[Violation]:
    return dns_name(meta)


MESH: Final = Kind(
    "Mesh",
    "m",
    "meshes",
    Mesh,
    validate,
    deprecations,
    _with_engine,
    customary=(
        (r"^mtls\.backends\[\d+\]\.dpCert", "mtls.dpcert"),
        (r"^((?:logging|tracing)\.backends\[\d+\])\.conf", r"\1.config"),
    ),
)
