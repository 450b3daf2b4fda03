"""MeshGateway: the listeners of the built-in gateways that it selects."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from cp.model.hosts import ANY_HOST
from cp.model.numbers import Integer
from cp.model.paths import entry
from cp.model.violation import Violation, at
from cp.resources.checks import absent, file_path, is_domain, must_be_set, port
from cp.resources.dataplane import PROTOCOL_TAG, SERVICE_TAG, ZONE_TAG
from cp.resources.kinds import DocumentMeta, Kind
from cp.resources.schema import Schema
from cp.resources.sources import DataSource, data_source
from cp.resources.targets import tag

_NOT_OF_A_LISTENER: Final = (SERVICE_TAG, ZONE_TAG, PROTOCOL_TAG, "kuma.io/external-service-name")
_LONGEST_HOSTNAME: Final = 253
_MOST_CERTIFICATES: Final = 2
_MOST_CONNECTIONS: Final = 2**32 - 1


class GatewaySelector(Schema, frozen=True):
    match: dict[str, str] | None = None


class TlsOptions(Schema, frozen=True):
    pass


class GatewayTls(Schema, frozen=True):
    mode: Literal["NONE", "TERMINATE", "PASSTHROUGH"] | None = None
    certificates: list[DataSource] | None = None
    options: TlsOptions | None = None


class GatewayResources(Schema, frozen=True):
    connection_limit: Integer | None = None


class GatewayListener(Schema, frozen=True):
    hostname: str | None = None
    port: Integer | None = None
    protocol: Literal["NONE", "TCP", "TLS", "HTTP", "HTTPS"] | None = None
    tls: GatewayTls | None = None
    tags: dict[str, str] | None = None
    cross_mesh: bool | None = None
    resources: GatewayResources | None = None

    @property
    def host(self) -> str:
        """The hostname, or `*` for every host."""
        return self.hostname or ANY_HOST


class GatewayConf(Schema, frozen=True):
    listeners: list[GatewayListener] | None = None


class MeshGateway(Schema, frozen=True):
    selectors: list[GatewaySelector] | None = None
    tags: dict[str, str] | None = None
    conf: GatewayConf | None = None

    @property
    def listeners(self) -> list[GatewayListener]:
        return (self.conf.listeners if self.conf else None) or []


def carries(tags: Mapping[str, str], selector: Mapping[str, str] | None) -> bool:
    """True if tags have all that a selector requires; `*` matches any value. An empty selector always matches."""
    return all(name in tags and value in {tags[name], "*"} for name, value in (selector or {}).items())


def validate(gateway: MeshGateway, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from must_be_set("selectors", gateway.selectors, f"select gateways by their `{SERVICE_TAG}`")
    is_cross_mesh = any(listener.cross_mesh for listener in gateway.listeners)
    for index, selector in enumerate(gateway.selectors or ()):
        yield from at(f"selectors[{index}].match", _selector(selector.match or {}))
        if index and is_cross_mesh:
            yield Violation(f"selectors[{index}]", "is one too many where other meshes may call", "keep one")
    yield from at("tags", _tags(gateway.tags or {}))
    if gateway.conf is None:
        yield absent("conf", "must be set", "give it `listeners`")
        return
    yield from must_be_set("conf.listeners", gateway.conf.listeners)
    for index, listener in enumerate(gateway.listeners):
        yield from at(f"conf.listeners[{index}]", _listener(listener))
    yield from at("conf.listeners", _conflicts(gateway.listeners))


def _selector(match: Mapping[str, str]) -> Iterator[Violation]:
    for name, value in match.items():
        yield from tag(name, value, anything=True)
    if SERVICE_TAG not in match:
        yield absent("", f"must have `{SERVICE_TAG}`")


def _tags(tags: Mapping[str, str]) -> Iterator[Violation]:
    for name, value in tags.items():
        yield from tag(name, value, anything=True)
        if name in _NOT_OF_A_LISTENER:
            yield Violation(entry(name), f"`{name}` is a tag of proxies, not of listeners", "choose another name")


def _listener(listener: GatewayListener) -> Iterator[Violation]:
    yield from _hostname(listener.hostname or ANY_HOST)
    yield from port("port", listener.port or 0)
    if listener.protocol in {None, "NONE"}:
        yield absent("protocol", "must be set", "HTTP, HTTPS, TCP or TLS")
    if listener.protocol == "HTTPS":
        yield from _https(listener)
    if listener.tls is not None:
        yield from at("tls", _tls(listener.tls, is_cross_mesh=listener.cross_mesh is True))
    yield from at("tags", _tags(listener.tags or {}))
    yield from at("resources", _resources(listener.resources or GatewayResources()))


def _resources(resources: GatewayResources) -> Iterator[Violation]:
    limit = resources.connection_limit or 0
    if not 0 <= limit <= _MOST_CONNECTIONS:
        yield Violation("connectionLimit", f"must be between 0 and {_MOST_CONNECTIONS}", "0 is no limit")


def _hostname(hostname: str) -> Iterator[Violation]:
    if hostname == ANY_HOST:
        return
    if len(hostname) > _LONGEST_HOSTNAME:
        yield Violation("hostname", f"is longer than {_LONGEST_HOSTNAME} characters")
    elif not is_domain(hostname.removeprefix("*.")):
        hint = (
            "a `*` can stand for the first part alone" if "*" in hostname else "use lower case letters, digits and `-`"
        )
        yield Violation("hostname", f"`{hostname}` is not the name of a host", hint)


def _https(listener: GatewayListener) -> Iterator[Violation]:
    if listener.cross_mesh:
        yield Violation("protocol", "must be HTTP where other meshes may call: mTLS is spoken there anyway")
    elif listener.tls is None:
        yield absent("tls", "must be set for HTTPS", "write `mode: TERMINATE` and `certificates`")
    elif listener.tls.mode == "PASSTHROUGH":
        yield Violation("tls.mode", "cannot be PASSTHROUGH for HTTPS", "write `protocol: TLS`")


def _tls(tls: GatewayTls, *, is_cross_mesh: bool) -> Iterator[Violation]:
    mode, certificates = tls.mode or "NONE", tls.certificates or []
    if is_cross_mesh:
        if mode != "NONE" or certificates:
            yield Violation("", "must be empty where other meshes may call: mTLS is spoken there anyway")
    elif mode == "NONE":
        yield absent("mode", "must be set", "TERMINATE or PASSTHROUGH")
    elif mode == "TERMINATE" and not certificates:
        yield absent("certificates", "must be set to terminate TLS", "name a Secret with the certificate and its key")
    elif mode == "TERMINATE" and len(certificates) > _MOST_CERTIFICATES:
        yield Violation("certificates", f"are {len(certificates)}, of 2 at most", "one with RSA and one with ECDSA")
    for index, source in enumerate(certificates):
        yield from data_source(f"certificates[{index}]", source)
        yield from file_path(f"certificates[{index}].file", source.file or None)


def _conflicts(listeners: list[GatewayListener]) -> Iterator[Violation]:
    """Conflicts of listeners with the same port, because Envoy has one listener for all of them."""
    by_port: dict[int, list[tuple[int, GatewayListener]]] = defaultdict(list)
    for index, listener in enumerate(listeners):
        by_port[listener.port or 0].append((index, listener))
    for group in by_port.values():
        protocols = {listener.protocol or "NONE" for _, listener in group}
        hosts = Counter(listener.host for _, listener in group)
        limits = {
            listener.resources.connection_limit
            for _, listener in group
            if listener.resources and listener.resources.connection_limit
        }
        for index, listener in group:
            if len(protocols) > 1:
                yield Violation(f"[{index}]", f"the port {listener.port} has {' and '.join(sorted(protocols))}")
            if hosts[listener.host] > 1:
                yield Violation(f"[{index}]", f"the port {listener.port} has the host `{listener.host}` twice")
            if len(limits) > 1 and listener.resources and listener.resources.connection_limit:
                path = f"[{index}].resources.connectionLimit"
                yield Violation(path, f"the port {listener.port} has other limits as well", "write one everywhere")


MESH_GATEWAY: Final = Kind("MeshGateway", "mgw", "meshgateways", MeshGateway, validate)
