"""What a build is given: one destination, one backend or one inbound, in plain frozen values.

Nothing here is a protobuf and nothing knows what a mesh is. Every value is hashable, because a build is
remembered by its arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

Tags: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values, sorted by name."""


class Protocol(StrEnum):
    """What is spoken with a service. Kafka and what nobody told are carried as TCP."""

    TCP = "tcp"
    HTTP = "http"
    HTTP2 = "http2"
    GRPC = "grpc"

    @property
    def is_http(self) -> bool:
        return self is not Protocol.TCP


@dataclass(frozen=True, slots=True)
class Locality:
    """Where endpoints are, and when it is their turn."""

    zone: str = ""
    sub_zone: str = ""
    priority: int = 0
    """They get requests as far as those of a lower number are not well."""

    weight: int | None = None
    """How much they get beside others of their priority, where that is told by locality."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address that serves a backend; one that begins with `unix://` is a socket, and has no port."""

    address: str
    port: int
    healthy: bool = True
    weight: int = 1
    locality: Locality = Locality()
    tags: Tags = ()
    host: str = ""
    """The name by which it knows itself: what it is asked for, whatever a caller calls it."""


@dataclass(frozen=True, slots=True)
class Material:
    """A certificate or a key: its text, which is never printed, or the file beside the proxy that holds it."""

    text: str = field(default="", repr=False)
    file: str = ""


@dataclass(frozen=True, slots=True)
class CertificateName:
    """A name that a certificate has to be for, or that one of its names has to begin with."""

    value: str
    is_prefix: bool = False


@dataclass(frozen=True, slots=True)
class Tls:
    """How TLS is spoken with a backend."""

    sni: str = ""
    """Empty: none."""

    sni_of_endpoint: bool = False
    """Each endpoint is asked for by its own name."""

    verified: bool = True
    """Who answers has to prove who it is: by `ca` or, without one, by whom the proxy's machine trusts."""

    ca: Material | None = None
    names: tuple[CertificateName, ...] = ()
    """What a certificate that is verified has to be for, one of these; none of them: it may be for anybody."""

    certificate: Material | None = None
    key: Material | None = None
    oldest: str = ""
    """A version in Envoy's words; empty: what Envoy takes for safe."""

    newest: str = ""
    renegotiation: bool = False


@dataclass(frozen=True, slots=True)
class Backend:
    """One upstream cluster: where requests go once a route has chosen it. Its endpoints are another matter."""

    cluster: str
    service: str
    protocol: Protocol = Protocol.TCP
    subset: Tags = ()
    external: tuple[Endpoint, ...] = ()
    """Addresses outside the mesh, resolved by Envoy itself; then there are no endpoints to be served."""

    tls: Tls | None = None
    """What is spoken with those."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses of one backend."""

    cluster: str
    endpoints: tuple[Endpoint, ...] = ()


class PathKind(StrEnum):
    """How a path is compared. A prefix ends at a segment's end."""

    EXACT = "Exact"
    PREFIX = "PathPrefix"
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
    """Which requests a route takes."""

    path: PathMatch = PathMatch(PathKind.PREFIX, "/")
    method: str = ""
    headers: tuple[ValueMatch, ...] = ()
    queries: tuple[ValueMatch, ...] = ()


CATCH_ALL = Match()


@dataclass(frozen=True, slots=True)
class Split:
    """A share of a route's requests, for one cluster. A missing one answers 500 to its share."""

    cluster: str
    weight: int = 1
    missing: bool = False
    reason: str = ""
    """Why it is missing."""

    host: str = ""
    """Its servers want to be asked for by names of their own, of which this is one."""


@dataclass(frozen=True, slots=True)
class HeaderChange:
    """Headers set, added and removed, of requests or of responses."""

    on: str
    set: Tags = ()
    add: Tags = ()
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PathChange:
    """A path replaced as a whole (`full`) or in its matched prefix (`prefix`)."""

    full: str | None = None
    prefix: str | None = None


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


@dataclass(frozen=True, slots=True)
class Mirror:
    cluster: str
    percentage: float = 100.0
    host: str = ""
    """What it is asked for; empty: what the caller asked for, marked as a copy."""


Filter: TypeAlias = HeaderChange | Redirect | Rewrite | Mirror


@dataclass(frozen=True, slots=True)
class Route:
    """One row of a route table."""

    name: str
    """What Envoy calls it, in logs and statistics."""

    owner: str = ""
    """The route resource that contributed it; empty for the implicit catch-all, which belongs to the service."""

    match: Match = CATCH_ALL
    splits: tuple[Split, ...] = ()
    filters: tuple[Filter, ...] = ()
    unavailable_reason: str = ""
    """Why no request can be served; then each is answered with 500 and this text."""


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The proxy that a listener belongs to, as far as its configuration speaks of it."""

    mesh: str = ""
    zone: str = ""
    service: str = ""
    workload: str = ""
    address: str = ""
    tags: Tags = ()
    """What it tells those that it calls about itself. A name may have several values."""


@dataclass(frozen=True, slots=True)
class Outbound:
    """One destination as a proxy's workload sees it: a local address, and what happens to what is sent there."""

    name: str
    service: str
    address: str
    port: int
    protocol: Protocol
    routes: tuple[Route, ...] = ()
    """For HTTP in the order in which they are tried; for TCP one."""

    sidecar: Sidecar = Sidecar()
    """Who calls: only what some policy asks for, because proxies of which the same is said share what is built."""

    is_bound: bool = True
    """Whether the address is the machine's own. A virtual one has no socket: what is sent to it is redirected."""

    names: tuple[str, ...] = ()
    """What a gRPC client without a proxy calls it by."""


@dataclass(frozen=True, slots=True)
class Inbound:
    """One port on which a proxy's workload is reached."""

    address: str
    port: int
    service_address: str
    service_port: int
    service: str
    protocol: Protocol
    tags: Tags = ()
    tls: Tls | None = None
    permissive: bool = False
    mesh: str = ""
    sidecar: Sidecar = Sidecar()
    is_bound: bool = True
    """Whether it has a socket of its own, or is sent what the machine redirects."""


class Passthrough(StrEnum):
    """What becomes of a call to a place that is no destination of the proxy's."""

    ALL = "All"
    NONE = "None"
    MATCHED = "Matched"
    """It goes there if it is one of some exits."""


@dataclass(frozen=True, slots=True, order=True)
class Exit:
    """Calls that may go to where they are sent to: to a network, or to a domain that they tell."""

    network: str = ""
    """As a CIDR."""

    domain: str = ""
    """The name of a host, or `*.` and the end of one."""

    port: int = 0
    """0 stands for every port."""

    protocol: str = "tcp"


@dataclass(frozen=True, slots=True)
class Capture:
    """What a machine redirects to its proxy, whatever address it was sent to. A port of 0 is redirected to nobody."""

    outbound_port: int
    """Where the workload's calls arrive."""

    inbound_port: int = 0
    """Where others' calls arrive."""

    inbound_port_v6: int = 0
    has_ipv6: bool = False
    """Whether calls over IPv6 are redirected too."""

    virtual_network: str = ""
    """Addresses that are destinations of proxies or nobody's: a CIDR."""

    passthrough: Passthrough = Passthrough.ALL
    exits: tuple[Exit, ...] = ()


@dataclass(frozen=True, slots=True)
class Hosts:
    """Names that a proxy knows the addresses of, and the port at which workloads ask it."""

    port: int
    names: Tags
