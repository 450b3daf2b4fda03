"""The inputs of builds: a destination, a backend or an inbound of a proxy, as plain frozen values.

Nothing here is a protobuf, and nothing knows what a mesh is. Every value is hashable, because the result of a build
is cached under its inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

Tags: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values, sorted by name."""


class Protocol(StrEnum):
    """The protocol of a service. Kafka and unknown protocols are carried as TCP."""

    TCP = "tcp"
    HTTP = "http"
    HTTP2 = "http2"
    GRPC = "grpc"

    @property
    def is_http(self) -> bool:
        return self is not Protocol.TCP


@dataclass(frozen=True, slots=True)
class Locality:
    """The zone of endpoints, and their priority and weight among localities."""

    zone: str = ""
    sub_zone: str = ""
    priority: int = 0
    """Endpoints get requests as far as those with a lower number are unhealthy."""

    weight: int | None = None
    """The share of requests among localities of the same priority; None if Envoy does not weigh localities."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address that serves a backend. An address that begins with `unix://` is a socket and has no port."""

    address: str
    port: int
    healthy: bool = True
    weight: int = 1
    locality: Locality = Locality()
    tags: Tags = ()
    host: str = ""
    """The host name that the endpoint expects in requests, whatever name the caller used."""

    tls: Tls | None = None
    """How TLS is spoken with an address outside the mesh; None: not at all."""


@dataclass(frozen=True, slots=True)
class Material:
    """A certificate or a key: its text, which is never printed, or a file on the machine of the proxy."""

    text: str = field(default="", repr=False)
    file: str = ""


@dataclass(frozen=True, slots=True)
class CertificateName:
    """A name that a certificate must have, exactly or as a prefix."""

    value: str
    is_prefix: bool = False


@dataclass(frozen=True, slots=True)
class Tls:
    """How a proxy speaks TLS with a backend."""

    sni: str = ""
    """The server name to ask for; empty: none."""

    sni_of_endpoint: bool = False
    """Whether the server name is the host name of the endpoint."""

    verified: bool = True
    """Whether the server needs a valid certificate: signed by `ca` or, without one, by a CA that the machine trusts."""

    ca: Material | None = None
    names: tuple[CertificateName, ...] = ()
    """A verified certificate must have one of these names; if there are none, any name will do."""

    certificate: Material | None = None
    key: Material | None = None
    oldest: str = ""
    """The oldest version of TLS, as Envoy names it; empty: the default of Envoy."""

    newest: str = ""
    renegotiation: bool = False


@dataclass(frozen=True, slots=True)
class MeshTls:
    """How a proxy speaks TLS with other proxies of its mesh. Both sides show a certificate and verify the other's.

    The certificates are served apart, as secrets of the mesh: one is the proxy's own, one has the roots to trust.
    """

    mesh: str
    names: tuple[CertificateName, ...] = ()
    """The certificate of the other side must have one of these URIs."""

    domain: str = ""
    """The trust domain whose roots alone vouch for the other side; empty: those of each domain for its own names."""

    sni: str = ""
    """The server name that a caller asks for."""

    oldest: str = ""
    """The oldest version of TLS, as Envoy names it; empty: the default of Envoy."""

    newest: str = ""
    ciphers: tuple[str, ...] = ()
    """The ciphers up to TLS 1.2; empty: those of Envoy."""


@dataclass(frozen=True, slots=True)
class TrustDomain:
    """A part of the world with its own authorities, and their certificates as PEM."""

    name: str
    roots: str


@dataclass(frozen=True, slots=True)
class Trust:
    """The authorities that the proxies of a mesh trust."""

    mesh: str
    domains: tuple[TrustDomain, ...]


@dataclass(frozen=True, slots=True)
class Backend:
    """An upstream cluster that a route can choose. Its endpoints are built apart, from `Endpoints`."""

    cluster: str
    service: str
    protocol: Protocol = Protocol.TCP
    subset: Tags = ()
    external: tuple[Endpoint, ...] = ()
    """Addresses outside the mesh. They stand in the cluster and Envoy resolves them, so no endpoints are served."""

    mesh_tls: MeshTls | None = None
    """How TLS is spoken with the proxies of the backend; None: not at all."""

    is_of_gateway: bool = False
    """Whether the cluster is that of a builtin gateway."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses of one backend."""

    cluster: str
    endpoints: tuple[Endpoint, ...] = ()
    is_external: bool = False
    """Whether the addresses are outside the mesh. The caller's zone then matters, and its other tags do not."""


class PathKind(StrEnum):
    """How a path is compared. A prefix matches whole segments only, one of the text any that begin so."""

    EXACT = "Exact"
    PREFIX = "PathPrefix"
    TEXT = "Prefix"
    REGEX = "RegularExpression"


@dataclass(frozen=True, slots=True)
class PathMatch:
    kind: PathKind
    value: str


@dataclass(frozen=True, slots=True)
class ValueMatch:
    """A header or query parameter that must have, or must not have, a value."""

    name: str
    kind: str = "Exact"
    """Exact, RegularExpression, Prefix, Present or Absent."""

    value: str = ""


@dataclass(frozen=True, slots=True)
class Match:
    """The conditions that a request must meet for a route to take it."""

    path: PathMatch = PathMatch(PathKind.PREFIX, "/")
    method: str = ""
    headers: tuple[ValueMatch, ...] = ()
    queries: tuple[ValueMatch, ...] = ()


CATCH_ALL = Match()


@dataclass(frozen=True, slots=True)
class Split:
    """A share of a route's requests, for one cluster. If the cluster is missing, its share is answered with 500."""

    cluster: str
    weight: int = 1
    missing: bool = False
    reason: str = ""
    """Why the cluster is missing."""

    host: str = ""
    """One of the host names that the servers of the cluster expect; empty: they take any."""


@dataclass(frozen=True, slots=True)
class HeaderChange:
    """Headers to set, add and remove, on requests or on responses."""

    on: str
    set: Tags = ()
    add: Tags = ()
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TextChange:
    """What every match of an expression becomes; `\\1` stands for its first group."""

    pattern: str
    substitution: str


@dataclass(frozen=True, slots=True)
class PathChange:
    """The new path (`full`), what replaces the matched prefix (`prefix`), or what is done to its text (`text`)."""

    full: str | None = None
    prefix: str | None = None
    text: TextChange | None = None


@dataclass(frozen=True, slots=True)
class Redirect:
    scheme: str = ""
    hostname: str = ""
    port: int = 0
    status: int = 302
    path: PathChange | None = None


@dataclass(frozen=True, slots=True)
class Rewrite:
    hostname: str = ""
    path: PathChange | None = None
    host_to_backend: bool = False
    host_of_path: TextChange | None = None
    """The host is made of the path."""


@dataclass(frozen=True, slots=True)
class Mirror:
    cluster: str
    percentage: float = 100.0
    host: str = ""
    """The host that copies name; empty: the host of the original request, which Envoy marks as a copy."""


Filter: TypeAlias = HeaderChange | Redirect | Rewrite | Mirror


@dataclass(frozen=True, slots=True)
class Route:
    """One row of a route table."""

    name: str
    """The name of the route in Envoy's logs and statistics."""

    owner: str = ""
    """The route resource that contributed the route; empty for the implicit catch-all route of a service."""

    match: Match = CATCH_ALL
    splits: tuple[Split, ...] = ()
    filters: tuple[Filter, ...] = ()
    unavailable_reason: str = ""
    """Why the route cannot serve; then it answers every request with 500 and this text. Empty: it can."""

    status: int = 0
    """The status with which it answers every request; 0: it passes requests on."""

    protocol: Protocol | None = None
    """What its backends speak, where the listener does not say."""

    is_every: bool = False
    """Whether it stands for each row with a name that ends like its own, and that has no conf for itself."""

    @property
    def mirrors(self) -> Iterator[Mirror]:
        """The copies of its requests that go elsewhere."""
        return (route_filter for route_filter in self.filters if isinstance(route_filter, Mirror))


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The proxy of a listener: the facts about it that the listener's configuration contains."""

    mesh: str = ""
    zone: str = ""
    service: str = ""
    workload: str = ""
    address: str = ""
    tags: Tags = ()
    """The tags that the proxy sends to those that it calls. A name may have several values."""


@dataclass(frozen=True, slots=True)
class Outbound:
    """A destination as a proxy's workload sees it: a local address, and the routes for what is sent there."""

    name: str
    service: str
    address: str
    port: int
    protocol: Protocol
    routes: tuple[Route, ...] = ()
    """For HTTP in the order in which Envoy tries them; for TCP a single one."""

    sidecar: Sidecar = Sidecar()
    """The caller. Only fields that a policy needs are set, so that more proxies share the result of a build."""

    is_bound: bool = True
    """Whether Envoy opens a socket. A virtual address has none: the machine redirects its connections."""

    names: tuple[str, ...] = ()
    """The names that a gRPC client without a proxy uses for the destination."""


@dataclass(frozen=True, slots=True)
class Inbound:
    """A port on which callers reach a proxy's workload."""

    address: str
    port: int
    service_address: str
    service_port: int
    service: str
    protocol: Protocol
    tags: Tags = ()
    tls: MeshTls | None = None
    """How callers speak TLS; None: not at all."""

    is_permissive: bool = False
    """Whether callers may speak without TLS as well."""

    mesh: str = ""
    sidecar: Sidecar = Sidecar()
    is_bound: bool = True
    """Whether Envoy opens a socket, or takes the connections that the machine redirects."""

    shares_workload: bool = False
    """Whether another inbound leads to the same port of the workload: each may speak and be limited in its own way."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """How a gateway speaks TLS with clients from outside: it shows a certificate, and asks for none."""

    certificates: tuple[str, ...]
    """The names of the secrets with the certificates, which are served apart: one for each sort of key."""

    protocols: tuple[str, ...] = ()
    """What it offers to speak, by ALPN."""


@dataclass(frozen=True, slots=True)
class GatewayCertificate:
    """A certificate of a gateway with its key, as a secret of this name."""

    name: str
    certificate: Material
    key: Material


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """How many connections the ports of a gateway take at once."""

    connections: tuple[tuple[str, int], ...] = ()
    """For each listener with a limit: its name, and the limit."""


@dataclass(frozen=True, slots=True)
class GatewayChain:
    """What takes connections at a port of a gateway: all of them, or those that ask for some server name."""

    listener: str
    """The name of the port's listener."""

    address: str
    port: int
    protocol: Protocol
    service: str
    """The service of the gateway itself."""

    table: str = ""
    """The name of the route table; empty for TCP."""

    is_over_tls: bool = False
    """Whether clients have to speak TLS, be it with the gateway or with what is behind it."""

    server_names: tuple[str, ...] = ()
    """The names, or patterns of names, that clients ask for in TLS; none: whatever they ask for."""

    tls: ServerTls | None = None
    """None: none is spoken, or it is passed on as it is."""

    routes: tuple[Route, ...] = ()
    """For TCP a single one. For HTTP those with confs of their own, as far as the chain has to know of them."""

    filters: tuple[bytes, ...] = field(default=(), repr=False)
    """The HTTP filters that rows of the table switch on, as bytes of Envoy's messages."""

    sidecar: Sidecar = Sidecar()


@dataclass(frozen=True, slots=True)
class GatewayHost:
    """A hostname of a gateway, with its routes: one virtual host of a route table."""

    table: str
    hostname: str
    """A name, a pattern of names (`*.example.com`), or `*`."""

    routes: tuple[Route, ...] = ()
    """In the order in which Envoy tries them."""

    service: str = ""
    sidecar: Sidecar = Sidecar()
    protocol: Protocol = Protocol.HTTP
    port: int = 0
    """Where it is called, which redirects may name."""

    is_https: bool = False


@dataclass(frozen=True, slots=True)
class GatewayPort:
    """A port of a gateway, put together from what was built for its chains, as bytes of Envoy's messages."""

    name: str
    chains: tuple[bytes, ...] = field(repr=False)
    """A Listener for each chain, with that chain alone."""

    clusters: tuple[bytes, ...] = field(default=(), repr=False)
    """Those that its chains need."""

    service: str = ""
    tags: tuple[tuple[str, tuple[Tags, ...]], ...] = ()
    """Of each chain, by its name, the tags of the listeners that it is for."""


@dataclass(frozen=True, slots=True)
class GatewayTable:
    """A route table of a gateway, put together from what was built for its hosts."""

    name: str
    hosts: tuple[bytes, ...] = field(repr=False)
    """A RouteConfiguration for each host, with that host alone."""

    elsewhere: tuple[str, ...] = ()
    """Hostnames of which a client that came by the name of this table has to ask on another connection."""

    service: str = ""


class Passthrough(StrEnum):
    """What a proxy does with calls to addresses that are none of its destinations."""

    ALL = "All"
    NONE = "None"
    MATCHED = "Matched"
    """The proxy passes on the calls that an exit allows."""


@dataclass(frozen=True, slots=True, order=True)
class Exit:
    """Calls that a proxy passes on to addresses outside the mesh: to a network, or to a domain."""

    network: str = ""
    """A CIDR."""

    domain: str = ""
    """A host name, `*.` with the end of a host name, or `*`."""

    port: int = 0
    """0 stands for every port."""

    protocol: str = "tcp"
    """tcp, mysql, tls, http, http2 or grpc."""


@dataclass(frozen=True, slots=True)
class Capture:
    """The ports of a proxy to which its machine redirects connections. A port of 0 means: none are redirected."""

    outbound_port: int
    """The port for calls of the workload."""

    inbound_port: int = 0
    """The port for calls to the workload, over IPv4."""

    inbound_port_v6: int = 0
    has_ipv6: bool = False
    """Whether calls of the workload over IPv6 are redirected too."""

    virtual_network: str = ""
    """The CIDR of virtual addresses: those without a destination must not leave the machine."""

    passthrough: Passthrough = Passthrough.ALL
    exits: tuple[Exit, ...] = ()


@dataclass(frozen=True, slots=True)
class Hosts:
    """The names that a proxy resolves for its workload, with their addresses, and the port of its DNS listener."""

    port: int
    names: Tags
