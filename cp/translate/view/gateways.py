"""What a builtin gateway listens for: the ports of its MeshGateway, with their hostnames and certificates.

A listener that cannot be served is left out, with the reason; the others are served (record 0066).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from cp.identity.certificates import server_certificate, text_of
from cp.model.hosts import ANY_HOST, covering
from cp.model.memo import Memo
from cp.model.names import Key
from cp.model.secret_names import kept_from
from cp.model.violation import Violation, at
from cp.resources.gateway import GatewayListener
from cp.resources.resource import Resource
from cp.resources.sources import DataSource, decoded
from cp.resources.world import World
from cp.rules.matching.profile import gateway_of
from cp.translate.view.outside import SECRET
from generators.envoy import names
from generators.proxy import GatewayCertificate, Material

_HTTP: Final = frozenset({"HTTP", "HTTPS"})
_OVER_TLS: Final = frozenset({"HTTPS", "TLS"})


@dataclass(frozen=True, slots=True)
class ServedListener:
    """A listener of a MeshGateway that is served."""

    index: int
    """Its place in the MeshGateway."""

    hostname: str
    certificates: tuple[GatewayCertificate, ...] = ()


@dataclass(frozen=True, slots=True)
class ServedPort:
    """A port of a gateway, with all listeners that share it."""

    port: int
    protocol: str
    """HTTP, HTTPS, TCP or TLS."""

    listeners: tuple[ServedListener, ...]
    connection_limit: int = 0
    """How many connections there may be at once; 0: any number."""

    elsewhere: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)
    """By the hostname of each listener that has a table of its own, the hostnames that belong to others."""

    @property
    def is_http(self) -> bool:
        return self.protocol in _HTTP

    @property
    def tells_names(self) -> bool:
        """Whether clients say in TLS which hostname they want, so that each has a chain of its own."""
        return self.protocol in _OVER_TLS


@dataclass(frozen=True, slots=True)
class ServedGateway:
    """What a MeshGateway comes to on each of its proxies."""

    ports: tuple[ServedPort, ...]
    faults: tuple[Violation, ...] = ()
    """Why some listeners are not served, with their paths in the MeshGateway."""

    secrets: tuple[str, ...] = field(default=(), compare=False)
    """The Secrets that it names, be they there or not."""


def served_gateway(world: World, gateway: Resource) -> ServedGateway:
    """What a MeshGateway comes to, worked out once until it or one of its Secrets changes."""
    return world.recall(_ServedGateways, gateway)


def gateway_of_proxy(world: World, dataplane: Resource) -> Resource | None:
    """The MeshGateway of a builtin gateway; None for other proxies, and where none selects it."""
    return gateway_of(world, dataplane) if dataplane.spec.is_builtin_gateway else None


class _ServedGateways(Memo[World, Resource, ServedGateway]):
    def is_alive(self, generation: World, key: Resource) -> bool:
        return generation.get(key.key) is key  # reading certificates is slow

    def basis(self, source: World, key: Resource) -> tuple[Resource | None, ...]:
        return tuple(source.get(Key(SECRET, key.mesh, name)) for name in key.derived(_secret_names))

    def work_out(self, source: World, key: Resource) -> ServedGateway:
        return _Reading(source, key).gateway()


def _secret_names(gateway: Resource) -> tuple[str, ...]:
    sources = (source for listener in gateway.spec.listeners for source in _sources(listener))
    return tuple(dict.fromkeys(source.secret for source in sources if source.secret is not None))


def _sources(listener: GatewayListener) -> list[DataSource]:
    """Where the certificates of a listener come from. One that passes TLS on needs none."""
    tls = listener.tls
    return [] if tls is None or tls.mode == "PASSTHROUGH" else tls.certificates or []


class _Reading:
    """One MeshGateway that is being read, with every fault that turns up."""

    def __init__(self, world: World, gateway: Resource) -> None:
        self._world, self._gateway = world, gateway
        self._faults: list[Violation] = []

    def gateway(self) -> ServedGateway:
        by_port: dict[int, list[tuple[int, GatewayListener]]] = {}
        for index, listener in enumerate(self._gateway.spec.listeners):
            by_port.setdefault(listener.port or 0, []).append((index, listener))
        ports = [self._port(number, listeners) for number, listeners in by_port.items()]
        secrets = self._gateway.derived(_secret_names)
        return ServedGateway(tuple(port for port in ports if port.listeners), tuple(self._faults), secrets)

    def _port(self, number: int, listeners: list[tuple[int, GatewayListener]]) -> ServedPort:
        protocol = listeners[0][1].protocol or "HTTP"
        served = [self._listener(index, listener) for index, listener in self._told_apart(protocol, listeners)]
        limits = [listener.resources.connection_limit or 0 for _, listener in listeners if listener.resources]
        whole = tuple(listener for listener in served if listener is not None)
        port = ServedPort(number, protocol, whole, max(limits, default=0))
        return replace(port, elsewhere=_elsewhere(whole)) if port.tells_names else port

    def _told_apart(
        self, protocol: str, listeners: list[tuple[int, GatewayListener]]
    ) -> Iterator[tuple[int, GatewayListener]]:
        """The listeners of a port that clients can choose among. Without TLS and HTTP there is no name to go by."""
        for place, (index, listener) in enumerate(listeners):
            if listener.cross_mesh:
                self._fault(index, "crossMesh", Violation("", "calls from other meshes are not served"))
            elif (fault := _fault_of_tls(protocol, listener)) is not None:
                self._fault(index, "tls", fault)
            elif protocol == "TCP" and place:
                text = f"the port {listener.port} has another TCP listener, and nothing tells connections apart"
                self._fault(index, "hostname", Violation("", text, "give it a port of its own, or the protocol TLS"))
            else:
                yield index, listener

    def _listener(self, index: int, listener: GatewayListener) -> ServedListener | None:
        faults_before = len(self._faults)
        issued = [self._certificate(index, place, source) for place, source in enumerate(_sources(listener))]
        if len(self._faults) > faults_before:
            return None
        whole = tuple(certificate for certificate in issued if certificate is not None)
        return ServedListener(index, listener.host, whole)

    def _certificate(self, index: int, place: int, source: DataSource) -> GatewayCertificate | None:
        """A certificate with its key. Both stand in one text; in a file, both stand in that file."""
        path = f"tls.certificates[{place}]"
        material = self._material(index, path, source)
        if material is None:
            return None
        name = names.gateway_certificate(self._gateway.display_name, source.secret or self._place(index, place))
        if material.file:
            return GatewayCertificate(name, material, material)
        certificate = server_certificate(material.text)
        if isinstance(certificate, Violation):
            self._fault(index, path, certificate)
            return None
        return GatewayCertificate(name, Material(certificate.chain), Material(certificate.key_pem))

    def _place(self, index: int, place: int) -> str:
        """A name for a certificate that has none. It stays when other listeners come and go, whatever its index."""
        listener = self._gateway.spec.listeners[index]
        return f"{listener.port}:{listener.host}:{place}"

    def _material(self, index: int, path: str, source: DataSource) -> Material | None:
        if source.file is not None:
            return Material(file=source.file)
        if source.secret is None:
            text = text_of(decoded(source.inline) or b"") if source.inline is not None else _inline(source)
            return Material(text)
        secret = self._world.get(Key(SECRET, self._gateway.mesh, source.secret))
        if secret is None:
            text = f"there is no Secret {source.secret} in mesh {self._gateway.mesh}"
            self._fault(index, f"{path}.secret", Violation("", text, "create it, or correct the name"))
            return None
        if (kept := kept_from(secret.document, self._gateway.key)) is not None:
            self._fault(index, f"{path}.secret", kept)
            return None
        return Material(text_of(secret.spec.value()))

    def _fault(self, index: int, path: str, fault: Violation) -> None:
        self._faults.extend(at(f"conf.listeners[{index}].{path}", [fault]))


def _fault_of_tls(protocol: str, listener: GatewayListener) -> Violation | None:
    """What a listener says of TLS has to go with its protocol: nobody is served in plain text by mistake."""
    if protocol in _OVER_TLS:
        hint = "set `tls.mode` to TERMINATE or PASSTHROUGH"
        return Violation("", f"must be set for {protocol}", hint) if listener.tls is None else None
    if listener.tls is None:
        return None
    return Violation("", f"has no meaning for {protocol}", "write HTTPS in place of HTTP, and TLS in place of TCP")


def _elsewhere(listeners: Sequence[ServedListener]) -> Mapping[str, tuple[str, ...]]:
    """By the hostname of each listener that has a table of its own, what belongs to others.

    A client may ask for any hostname on a connection that it has, whatever it said in TLS (RFC 9110, section 7.4).
    The listeners within the pattern of another one are named, and `*` stands for all that is outside of it.
    """
    patterns = {listener.hostname: [] if listener.hostname == ANY_HOST else [ANY_HOST] for listener in listeners}
    for hostname in patterns:
        for wider in covering(hostname):
            if wider != hostname and wider in patterns:
                patterns[wider].append(hostname)
    return {hostname: tuple(elsewhere) for hostname, elsewhere in patterns.items()}


def _inline(source: DataSource) -> str:
    return source.inline_string.reveal() if source.inline_string is not None else ""
