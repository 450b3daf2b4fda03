"""Dataplane: one proxy, the workload behind it, and what that workload calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from cp.model.duration import Duration
from cp.model.hosts import is_ip
from cp.model.numbers import Integer, Natural, PortOrNone
from cp.model.paths import entry
from cp.model.violation import Violation, at
from cp.resources.checks import above_zero, absent, address, is_domain, must_be_set, one_of, port, repeated, usable_port
from cp.resources.client import client_label
from cp.resources.kinds import DocumentMeta, Kind
from cp.resources.mesh import prometheus
from cp.resources.schema import Schema, near
from cp.resources.targets import SERVICES, tag

SERVICE_TAG: Final = "kuma.io/service"
PROTOCOL_TAG: Final = "kuma.io/protocol"
ZONE_TAG: Final = "kuma.io/zone"
PROTOCOLS: Final = ("tcp", "http", "http2", "grpc", "kafka", "tls", "mysql")


class InboundHealth(Schema, frozen=True):
    ready: bool | None = None


class TcpProbe(Schema, frozen=True):
    pass


class ServiceProbe(Schema, frozen=True):
    interval: Duration | None = None
    timeout: Duration | None = None
    unhealthy_threshold: Natural | None = None
    healthy_threshold: Natural | None = None
    tcp: TcpProbe | None = None


class InboundSpec(Schema, frozen=True):
    """One port on which the workload is reached through its proxy."""

    port: Integer | None = None
    address: str | None = None
    service_port: Integer | None = None
    service_address: str | None = None
    name: str | None = None
    protocol: str | None = None
    tags: dict[str, str] | None = None
    health: InboundHealth | None = None
    service_probe: ServiceProbe | None = None
    state: Literal["Ready", "NotReady", "Ignored"] | None = None

    @property
    def section(self) -> str:
        """The name by which policies and MeshServices refer to it."""
        return self.name or str(self.port)


class OutboundBackendRef(Schema, frozen=True):
    kind: str | None = None
    name: str | None = None
    namespace: str | None = None
    port: Integer | None = None
    labels: dict[str, str] | None = None


class OutboundSpec(Schema, frozen=True):
    """One local address at which the workload reaches a service."""

    port: Integer | None = None
    address: str | None = None
    tags: dict[str, str] | None = None
    backend_ref: OutboundBackendRef | None = None


class GatewaySpec(Schema, frozen=True):
    type: Literal["DELEGATED", "BUILTIN"] | None = None
    tags: dict[str, str] | None = None


class ReachableBackends(Schema, frozen=True):
    refs: list[OutboundBackendRef] | None = None


class TransparentProxying(Schema, frozen=True):
    redirect_port_inbound: PortOrNone | None = None
    redirect_port_outbound: PortOrNone | None = None
    redirect_port_inbound_v6: PortOrNone | None = None
    ip_family_mode: Literal["UnSpecified", "DualStack", "IPv4", "IPv6"] | None = None
    direct_access_services: list[str] | None = None
    reachable_services: list[str] | None = None
    reachable_backends: ReachableBackends | None = None


class AdminSpec(Schema, frozen=True):
    port: Integer | None = None


class ZoneListener(Schema, frozen=True):
    """Where traffic enters or leaves a zone."""

    type: Literal["ZoneIngress", "ZoneEgress"] | None = None
    address: str | None = None
    port: Integer | None = None
    name: str | None = None
    state: Literal["Ready", "NotReady"] | None = None


class DataplaneNetworking(Schema, frozen=True):
    address: str | None = None
    advertised_address: str | None = None
    inbound: list[InboundSpec] | None = None
    outbound: list[OutboundSpec] | None = None
    gateway: GatewaySpec | None = None
    transparent_proxying: TransparentProxying | None = None
    admin: AdminSpec | None = None
    listeners: list[ZoneListener] | None = None


class ProbeEndpoint(Schema, frozen=True):
    inbound_port: Integer | None = None
    inbound_path: str | None = None
    path: str | None = None


class Probes(Schema, frozen=True):
    port: Integer | None = None
    endpoints: list[ProbeEndpoint] | None = None


class DataplaneMetrics(Schema, frozen=True):
    name: str | None = None
    type: str | None = None
    conf: dict[str, Any] | None = None


class Dataplane(Schema, frozen=True):
    networking: DataplaneNetworking | None = None
    probes: Probes | None = None
    metrics: DataplaneMetrics | None = None

    @property
    def net(self) -> DataplaneNetworking:
        return self.networking or DataplaneNetworking()

    def tag_values(self) -> Mapping[str, frozenset[str]]:
        """The values that each tag has, on any inbound or on the gateway."""
        gateway = [self.net.gateway.tags] if self.net.gateway is not None else []
        values: dict[str, set[str]] = {}
        for tags in (*gateway, *(inbound.tags for inbound in self.net.inbound or ())):
            for name, value in (tags or {}).items():
                values.setdefault(name, set()).add(value)
        return {name: frozenset(of_tag) for name, of_tag in values.items()}

    @property
    def is_builtin_gateway(self) -> bool:
        return self.net.gateway is not None and self.net.gateway.type == "BUILTIN"

    @property
    def is_delegated_gateway(self) -> bool:
        return self.net.gateway is not None and self.net.gateway.type != "BUILTIN"


_LOOPBACK: Final = "127.0.0.1"
_NOWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104  # a fault, not an address to bind
_URL_PATH: Final = re.compile(r"(/|[a-zA-Z][a-zA-Z0-9+.-]*:).*")


def validate(dataplane: Dataplane, meta: DocumentMeta) -> Iterator[Violation]:
    yield from client_label(meta.labels)
    net = dataplane.networking
    if net is None:
        yield absent("networking", "must be set", "give it an `address` and an `inbound`")
        return
    yield from at("networking", _networking(net))
    if dataplane.is_builtin_gateway:
        yield from at("networking", _builtin_gateway(net))
        if dataplane.probes is not None:
            yield Violation("probes", "have no meaning for a builtin gateway", "remove them")
        return
    if dataplane.is_delegated_gateway:
        yield from at("networking", _delegated_gateway(net))
    else:
        yield from at("networking.listeners", _listeners(net))
        yield from at("metrics", _metrics(dataplane.metrics))
    if dataplane.probes is not None:
        yield from at("probes", _probes(dataplane.probes))


def _builtin_gateway(net: DataplaneNetworking) -> Iterator[Violation]:
    for name, entries in (("inbound", net.inbound), ("outbound", net.outbound), ("listeners", net.listeners)):
        if entries:
            yield Violation(name, "has no meaning for a builtin gateway", "its MeshGateway has the listeners")


def _delegated_gateway(net: DataplaneNetworking) -> Iterator[Violation]:
    for name, entries in (("inbound", net.inbound), ("listeners", net.listeners)):
        if entries:
            hint = "remove it, or remove `gateway`"
            yield Violation(name, "has no meaning for a gateway, which receives its traffic by itself", hint)


def _networking(net: DataplaneNetworking) -> Iterator[Violation]:
    yield from address("address", net.address)
    if net.address in _NOWHERE:
        yield Violation("address", f"`{net.address}` is no address of this proxy's", "the one at which others reach it")
    yield from _admin(net)
    for index, inbound in enumerate(net.inbound or ()):
        yield from at(f"inbound[{index}]", _inbound(inbound, net.address))
    for index, outbound in enumerate(net.outbound or ()):
        yield from at(f"outbound[{index}]", _outbound(outbound))
    if net.gateway is not None:
        yield from at("gateway", _gateway(net.gateway))
    if net.transparent_proxying is not None and net.transparent_proxying.reachable_backends is not None:
        for index, ref in enumerate(net.transparent_proxying.reachable_backends.refs or ()):
            yield from at(f"transparentProxying.reachableBackends.refs[{index}]", _reachable(ref))


def _admin(net: DataplaneNetworking) -> Iterator[Violation]:
    if net.admin is None:
        return
    yield from usable_port("admin.port", net.admin.port or None)  # 0 is none
    inbound = [place for inbound_spec in net.inbound or () for place in _listens(inbound_spec, net.address)]
    outbound = [(outbound_spec.address or _LOOPBACK, outbound_spec.port) for outbound_spec in net.outbound or ()]
    for name, taken in (("inbound", inbound), ("outbound", outbound)):
        if any(number == net.admin.port and host in {_LOOPBACK, *_NOWHERE} for host, number in taken):
            yield Violation("admin.port", f"an {name} has the same port on {_LOOPBACK}", "choose another")


def _listens(inbound: InboundSpec, default: str | None) -> Iterator[tuple[str | None, int | None]]:
    """The addresses at which the proxy and the workload listen for an inbound."""
    listens_at = inbound.address or default
    yield listens_at, inbound.port
    yield inbound.service_address or listens_at, inbound.service_port or inbound.port


def _inbound(inbound: InboundSpec, default_address: str | None) -> Iterator[Violation]:
    yield from port("port", inbound.port or 0)
    if inbound.service_port:
        yield from port("servicePort", inbound.service_port)
    yield from _ip("address", inbound.address)
    yield from _ip("serviceAddress", inbound.service_address)
    listens_at = {inbound.address, default_address} if inbound.service_address else ()
    if inbound.service_address in listens_at and inbound.service_port in {None, 0, inbound.port}:
        hint = "give the workload another `servicePort`, or leave `serviceAddress` out"
        yield Violation("serviceAddress", "the proxy itself listens there", hint)
    yield from _tags(inbound.tags)
    yield from _protocol('tags["kuma.io/protocol"]', (inbound.tags or {}).get(PROTOCOL_TAG))
    if inbound.tags and SERVICE_TAG not in inbound.tags:
        yield Violation("tags" + entry(SERVICE_TAG), "must be set", _service_hint(inbound.tags))
    yield from _protocol("protocol", inbound.protocol or None)
    if inbound.service_probe is not None:
        yield from at("serviceProbe", _service_probe(inbound.service_probe))


def _ip(path: str, value: str | None) -> Iterator[Violation]:
    if value and not is_ip(value):
        yield Violation(path, f"`{value}` is not an IP address")


def _tags(tags: Mapping[str, str] | None) -> Iterator[Violation]:
    for name, value in (tags or {}).items():
        yield from at("tags", tag(name, value))


def _service_hint(tags: Mapping[str, str]) -> str:
    meant = [name for name in tags if near(name, (SERVICE_TAG,))]
    return f"is `{meant[0]}` meant to be it?" if meant else "name the service that the port belongs to"


def _protocol(path: str, value: str | None) -> Iterator[Violation]:
    if value is not None and value.lower() not in PROTOCOLS:
        yield from one_of(path, value, PROTOCOLS)


def _service_probe(probe: ServiceProbe) -> Iterator[Violation]:
    for name, value in (("interval", probe.interval), ("timeout", probe.timeout)):
        yield from above_zero(name, value)
    yield from above_zero("unhealthyThreshold", probe.unhealthy_threshold)
    yield from above_zero("healthyThreshold", probe.healthy_threshold)


def _outbound(outbound: OutboundSpec) -> Iterator[Violation]:
    yield from port("port", outbound.port or 0)
    yield from _ip("address", outbound.address)
    if outbound.backend_ref is not None:
        yield from at("backendRef", _backend_ref(outbound.backend_ref))
        if outbound.tags:
            yield Violation("backendRef", "cannot stand beside `tags`", "remove `tags`")
        return
    yield from _tags(outbound.tags)
    if SERVICE_TAG not in (outbound.tags or {}):
        yield Violation("tags", f"must have `{SERVICE_TAG}`", "or write a `backendRef`")


def _backend_ref(ref: OutboundBackendRef) -> Iterator[Violation]:
    yield from one_of("kind", ref.kind, SERVICES)
    if not ref.name and not ref.labels:
        yield absent("", "does not say which service", "give it `name` or `labels`")
    if ref.kind != "MeshExternalService":
        yield from port("port", ref.port or 0)


def _gateway(gateway: GatewaySpec) -> Iterator[Violation]:
    yield from _tags(gateway.tags)
    if gateway.tags and SERVICE_TAG not in gateway.tags:
        yield Violation("tags", f"must have `{SERVICE_TAG}`", _service_hint(gateway.tags))
    protocol = (gateway.tags or {}).get(PROTOCOL_TAG, "tcp")
    if protocol.lower() != "tcp":
        yield Violation("tags" + entry(PROTOCOL_TAG), f"must be tcp for a gateway, not `{protocol}`", "remove it")


def _reachable(ref: OutboundBackendRef) -> Iterator[Violation]:
    yield from one_of("kind", ref.kind, SERVICES)
    if ref.name and not is_domain(ref.name):
        yield Violation("name", f"`{ref.name}` is not a name", "use lower case letters, digits, `-` and `.`")
    if not ref.name and ref.namespace:
        yield absent("name", "must be set beside `namespace`")
    elif not ref.name and not ref.labels:
        yield absent("name", "must be set", "or choose services by `labels`")
    if ref.labels and (ref.name or ref.namespace):
        yield Violation("labels", "cannot stand beside `name` or `namespace`", "choose by the one or by the other")


def _listeners(net: DataplaneNetworking) -> Iterator[Violation]:
    listeners = net.listeners or []
    for index, listener in enumerate(listeners):
        yield from at(f"[{index}]", _listener(listener, net))
    places = [(listener.address, listener.port) for listener in listeners]
    for index in repeated(places):
        yield Violation(f"[{index}]", f"another listener has the address {_place(*places[index])}")
    sections = [inbound.section for inbound in net.inbound or ()]
    names = [*sections, *(listener.name for listener in listeners)]
    for index in repeated(names):
        if index >= len(sections) and names[index]:
            hint = "choose another name"
            yield Violation(f"[{index - len(sections)}].name", f"`{names[index]}` is the name of another port", hint)


def _listener(listener: ZoneListener, net: DataplaneNetworking) -> Iterator[Violation]:
    yield from must_be_set("type", listener.type, "ZoneIngress or ZoneEgress")
    yield from address("address", listener.address)
    if listener.address in _NOWHERE:
        yield Violation("address", f"`{listener.address}` is no address of this proxy's")
    yield from port("port", listener.port or 0)
    if (listener.address, listener.port) in [
        (inbound.address or net.address, inbound.port) for inbound in net.inbound or ()
    ]:
        yield Violation("", f"an inbound has the address {_place(listener.address, listener.port)}")


def _place(host: str | None, number: int | None) -> str:
    return f"{host}:{number}"


def _metrics(metrics: DataplaneMetrics | None) -> Iterator[Violation]:
    if metrics is None:
        return
    yield from one_of("type", metrics.type, ("prometheus",))
    if metrics.type == "prometheus":
        yield from prometheus(metrics.conf or {})


def _probes(probes: Probes) -> Iterator[Violation]:
    yield from port("port", probes.port or 0)
    for index, endpoint in enumerate(probes.endpoints or ()):
        yield from port(f"endpoints[{index}].inboundPort", endpoint.inbound_port or 0)
        for name, path in (("inboundPath", endpoint.inbound_path), ("path", endpoint.path)):
            if _URL_PATH.fullmatch(path or "") is None:
                yield Violation(f"endpoints[{index}].{name}", f"`{path or ''}` is not a path", "begin it with a slash")


DATAPLANE: Final = Kind(
    "Dataplane",
    "dp",
    "dataplanes",
    Dataplane,
    validate,
    customary=(
        (r"^networking\.transparentProxying", "networking.transparentProxing"),
        (r"^probes$", "networking.probes"),
    ),
)
