# ruff: noqa: S108  one line is one shape; the paths are those of proxies that do not exist
"""The largest documents of each kind that the HTTP API accepts, and the mesh in which each of them costs the most.

A `Shape` makes a document of a size. `largest` finds the largest size whose document is valid and fits into a request,
so the documents follow the limits: where a limit is raised, the documents grow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from cp.model.document import Document
from cp.model.names import Key
from cp.model.source import excess
from cp.policies import discover, kinds
from cp.resources.kinds import Kinds
from cp.resources.parse import parse_written

MESH: Final = "a"
SERVICES: Final = 50
SIDECARS: Final = 5
HOSTNAMES: Final = 1000
RULES: Final = 200
_MOST: Final = 1 << 20

Data: TypeAlias = dict[str, Any]
ALL: Final[Data] = {"kind": "Mesh"}
SIDECARS_ONLY: Final[Data] = {"kind": "Mesh", "proxyTypes": ["Sidecar"]}

BY_KOGUMA: Final = frozenset({"Rollout"})
"""Kinds that the control plane alone writes, under limits of its own."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A document that grows."""

    kind: str
    grows: str
    """The lists that grow, in words for the table."""

    make: Callable[[int], Data]
    """The fields of a document of a size, without `type`, `mesh` and `name`."""

    beside: Callable[[], Iterator[Data]] = lambda: iter(())
    """The documents with which it makes the most."""

    name: str = "worst"
    is_legacy: bool = False
    """True if the mesh knows services by tags alone."""

    copies: int = 1
    """The number of documents of its size that are stored, under different names."""

    def document(self, size: int) -> Data:
        return {**_data(self.kind, self.name), **self.make(size)}

    def stored(self, size: int) -> Iterator[Data]:
        """The documents that are stored."""
        document = self.document(size)
        yield document
        yield from ({**document, "name": f"{self.name}-{number}"} for number in range(1, self.copies))


def largest(shape: Shape, every_kind: Kinds) -> int:
    """The largest size of a document that the API accepts."""
    below, size = 0, 1
    while size <= _MOST and is_accepted(shape.document(size), every_kind):
        below, size = size, size * 2
    while size - below > max(1, below // 64):
        middle = (below + size) // 2
        if is_accepted(shape.document(middle), every_kind):
            below = middle
        else:
            size = middle
    return below


def is_accepted(data: Data, every_kind: Kinds) -> bool:
    text = json.dumps(data)
    if excess(text):
        return False
    return not parse_written(_document(data), every_kind).violations


def documents(shape: Shape) -> Iterator[Data]:
    """The mesh in which a shape costs the most, without the document itself."""
    yield from mesh(is_legacy=shape.is_legacy)
    yield from shape.beside()


def every_kind() -> Kinds:
    return kinds(discover())


def _document(data: Data) -> Document:
    return Document(Key(data["type"], data.get("mesh", ""), data["name"]), data)


def _data(kind: str, name: str, **fields: Any) -> Data:
    scope = {} if kind in _WITHOUT_MESH else {"mesh": MESH}
    return {"type": kind, **scope, "name": name, **fields}


_WITHOUT_MESH: Final = frozenset({"Mesh", "HostnameGenerator", "GlobalSecret"})


# The mesh beside the document


def mesh(*, has_mtls: bool = True, is_legacy: bool = False) -> Iterator[Data]:
    """Sidecars that call every service and are called as one, and a gateway."""
    yield of_mesh({}, has_mtls=has_mtls, is_legacy=is_legacy)
    for number in range(0 if is_legacy else SERVICES):
        selector = {"dataplaneTags": {"kuma.io/service": f"s{number}"}}
        ports = [{"port": 80, "targetPort": 8080, "appProtocol": "http"}]
        yield _data("MeshService", f"s{number}", spec={"selector": selector, "ports": ports})
    for number in range(SIDECARS):
        yield sidecar(number, is_legacy=is_legacy)
    yield _data(
        "Dataplane",
        "edge-1",
        networking={"address": "127.9.0.1", "gateway": {"type": "BUILTIN", "tags": {"kuma.io/service": "edge"}}},
    )


def of_mesh(fields: Data, *, has_mtls: bool = True, is_legacy: bool = False) -> Data:
    backend = {"name": "ca-1", "type": "builtin", "mode": "PERMISSIVE"}
    mtls = {"mtls": {"enabledBackend": "ca-1", "backends": [backend]}} if has_mtls else {}
    services = {} if is_legacy else {"meshServices": {"mode": "Exclusive"}}
    usual: Data = {"skipCreatingInitialPolicies": ["*"], **services, **mtls}
    return {"type": "Mesh", "name": MESH, **usual, **fields}


def sidecar(number: int, *, is_legacy: bool = False) -> Data:
    tags = {"kuma.io/service": f"s{number}", "kuma.io/protocol": "http", "version": f"v{number}"}
    networking: Data = {"address": f"127.9.1.{number + 1}", "inbound": [{"port": 8080, "tags": tags}]}
    if is_legacy:
        networking["outbound"] = [
            {"port": 10000 + called, "tags": {"kuma.io/service": f"s{called}"}} for called in range(SIDECARS)
        ]
    networking["transparentProxying"] = {"redirectPortInbound": 15006, "redirectPortOutbound": 15001}
    return _data("Dataplane", f"p{number}", networking=networking)


def gateway(listeners: list[Data]) -> Data:
    selectors = [{"match": {"kuma.io/service": "edge"}}]
    return _data("MeshGateway", "edge", selectors=selectors, conf={"listeners": listeners})


def _one_listener() -> Iterator[Data]:
    yield gateway([{"port": 8080, "protocol": "HTTP"}])


def _hosts(count: int) -> list[Data]:
    return [{"port": 8080, "protocol": "HTTP", "hostname": f"h{number}.example"} for number in range(count)]


def _many_hosts() -> Iterator[Data]:
    yield gateway(_hosts(HOSTNAMES))


def _path(number: int) -> Data:
    return {"path": {"type": "Exact", "value": f"/{number}"}}


def _backend(number: int = 0) -> Data:
    return {"kind": "MeshService", "name": f"s{number % SERVICES}", "port": 80}


def _http_rules(count: int, matches: int = 1) -> list[Data]:
    return [
        {
            "matches": [_path(number * matches + match) for match in range(matches)],
            "default": {"backendRefs": [_backend(number)]},
        }
        for number in range(count)
    ]


def _route(rules: list[Data], name: str = "route", **more: Any) -> Data:
    item = {"targetRef": ALL, "rules": rules, **more}
    return _data("MeshHTTPRoute", name, spec={"targetRef": {"kind": "MeshGateway", "name": "edge"}, "to": [item]})


def _many_rules() -> Iterator[Data]:
    yield _route(_http_rules(RULES))


def _of_gateway(*to: Data) -> Data:
    return {"spec": {"targetRef": {"kind": "MeshGateway", "name": "edge"}, "to": list(to)}}


# Policies


def _to(conf: Callable[[int], Data]) -> Callable[[int], Data]:
    """One item for every destination, whose conf grows."""
    return lambda size: {"spec": {"to": [{"targetRef": ALL, "default": conf(size)}]}}


def _to_many(conf: Data) -> Callable[[int], Data]:
    """An item for each of many services."""

    def make(size: int) -> Data:
        targets = ({"kind": "MeshService", "name": f"s{number}"} for number in range(size))
        return {"spec": {"to": [{"targetRef": target, "default": conf} for target in targets]}}

    return make


def _to_any(conf: Data) -> Callable[[int], Data]:
    """Many items for every destination."""
    return lambda size: {"spec": {"to": [{"targetRef": ALL, "default": conf}] * size}}


def _from(conf: Callable[[int], Data]) -> Callable[[int], Data]:
    """An item for the clients of each of many services."""

    def make(size: int) -> Data:
        tags = ({"kuma.io/service": f"c{number}"} for number in range(size))
        return {
            "spec": {
                "targetRef": SIDECARS_ONLY,
                "from": [
                    {"targetRef": {"kind": "MeshSubset", "tags": tag}, "default": conf(number)}
                    for number, tag in enumerate(tags)
                ],
            }
        }

    return make


def _rules(conf: Data) -> Callable[[int], Data]:
    """A rule for each of many clients."""
    return lambda size: {
        "spec": {
            "targetRef": SIDECARS_ONLY,
            "rules": [{"matches": [_client(n)], "default": conf} for n in range(size)],
        }
    }


def _rules_crossed(conf: Data) -> Callable[[int], Data]:
    """Rules for clients by their names, and others by what they ask for: some clients meet one of both."""

    def make(size: int) -> Data:
        names = [_client(number) for number in range(size)]
        asked = [{"sni": {"type": "Exact", "value": f"h{number}"}} for number in range(size)]
        rules = [{"matches": [match], "default": conf} for match in (*names, *asked)]
        return {"spec": {"targetRef": SIDECARS_ONLY, "rules": rules}}

    return make


def _client(number: int) -> Data:
    return {"spiffeID": {"type": "Exact", "value": f"spiffe://a/c{number}"}}


def _default(conf: Callable[[int], Data]) -> Callable[[int], Data]:
    return lambda size: {"spec": {"default": conf(size)}}


_TIMEOUT: Final[Data] = {"http": {"requestTimeout": "3s"}}
_BREAKER: Final[Data] = {"connectionLimits": {"maxConnections": 7}}
_LIMIT: Final[Data] = {"local": {"http": {"requestRate": {"num": 3, "interval": "1s"}}}}
_FAULT: Final[Data] = {"http": [{"abort": {"httpStatus": 500, "percentage": 1}}]}


def _headers(size: int) -> list[Data]:
    return [{"name": f"x-{number}", "value": "v"} for number in range(size)]


def _matched_headers(size: int) -> list[Data]:
    return [{"type": "Exact", "name": f"x-{number}", "value": "v"} for number in range(size)]


def _log_backends(size: int) -> Data:
    return {"backends": [{"type": "File", "file": {"path": f"/tmp/{number}"}} for number in range(size)]}


def _log_format(size: int) -> Data:
    json_format = [{"key": f"k{number}", "value": "%START_TIME%"} for number in range(size)]
    return {"backends": [{"type": "File", "file": {"path": "/tmp/a", "format": {"type": "Json", "json": json_format}}}]}


def _failover(size: int) -> Data:
    rules = [{"from": {"zones": [f"z{n}"]}, "to": {"type": "Only", "zones": [f"y{n}"]}} for n in range(size)]
    return {"localityAwareness": {"crossZone": {"failover": rules}}}


def _affinity(size: int) -> Data:
    tags = [{"key": f"k{number}", "weight": size - number} for number in range(size)]
    return {"localityAwareness": {"localZone": {"affinityTags": tags}}}


def _hashes(size: int) -> Data:
    return {"hashPolicies": [{"type": "Header", "header": {"name": f"x-{number}"}} for number in range(size)]}


def _patches(size: int) -> Data:
    value = "http2ProtocolOptions: {maxConcurrentStreams: 9}"
    changes = [{"cluster": {"operation": "Patch", "value": f"{value} # {number}"}} for number in range(size)]
    return {"appendModifications": changes}


def _large_patches(size: int) -> Data:
    value = json.dumps({"metadata": {"filterMetadata": {"x": {"v": "y" * 30_000}}}})
    changes = [{"listener": {"operation": "Patch", "value": value}} for _ in range(size)]
    return {"appendModifications": changes}


def _growing_patches(size: int) -> Data:
    """Each modification adds to what those before have made."""
    value = json.dumps({"perConnectionBufferLimitBytes": 1, "listenerFilters": [{"name": f"f{n}"} for n in range(500)]})
    return {"appendModifications": [{"listener": {"operation": "Patch", "value": value}} for _ in range(size)]}


def _json_patches(size: int) -> Data:
    patches = [
        {"op": "add", "path": "/metadata", "value": {"filterMetadata": {"x": {f"k{n}": n}}}} for n in range(size)
    ]
    return {"appendModifications": [{"cluster": {"operation": "Patch", "jsonPatches": patches}}]}


def _added_filters(size: int) -> Data:
    value = json.dumps(
        {
            "name": "f",
            "typedConfig": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
                "defaultSourceCode": {"inlineString": "-" * 7000},
            },
        }
    )
    return {"appendModifications": [{"httpFilter": {"operation": "AddFirst", "value": value}}] * size}


def _exits(size: int) -> Data:
    matches = [
        {"type": "Domain", "value": f"*.d{n}.example", "port": 1 + n % 60_000, "protocol": "http"} for n in range(size)
    ]
    return {"passthroughMode": "Matched", "appendMatch": matches}


def _permissions(size: int) -> Data:
    clients = [_client(number) for number in range(size)]
    return {"spec": {"rules": [{"default": {"allow": clients, "deny": clients[: size // 2]}}]}}


def _by_overlapping_tags(conf: Callable[[int], Data]) -> Callable[[int], Data]:
    """Items for tags that a client can have together, so that each combination has rules of its own."""

    def make(size: int) -> Data:
        keys = ({f"k{number}": "v"} for number in range(size))
        items = ({"targetRef": {"kind": "MeshSubset", "tags": tags}, "default": conf(n)} for n, tags in enumerate(keys))
        return {"spec": {"targetRef": SIDECARS_ONLY, "from": list(items)}}

    return make


# Legacy policies


def _connections(conf: Data) -> Callable[[int], Data]:
    """Many sources and many destinations."""

    def make(size: int) -> Data:
        many = [{"match": {"kuma.io/service": f"s{number}"}} for number in range(size)]
        return {"sources": many, "destinations": many, "conf": conf}

    return make


def _to_all(conf: Callable[[int], Data]) -> Callable[[int], Data]:
    everyone = [{"match": {"kuma.io/service": "*"}}]
    return lambda size: {"sources": everyone, "destinations": everyone, "conf": conf(size)}


def _many_sources(conf: Data) -> Callable[[int], Data]:
    """Many clients of every service."""

    def make(size: int) -> Data:
        sources = [{"match": {"kuma.io/service": f"c{number}", "version": "1"}} for number in range(size)]
        destinations = [{"match": {"kuma.io/service": "*", "kuma.io/protocol": "http"}}]
        return {"sources": sources, "destinations": destinations, "conf": conf}

    return make


def _legacy_routes(size: int) -> Data:
    return {
        "http": [
            {"match": {"path": {"exact": f"/{n}"}}, "destination": {"kuma.io/service": f"s{n % SIDECARS}"}}
            for n in range(size)
        ],
        "destination": {"kuma.io/service": "s0"},
    }


def _legacy_split(size: int) -> Data:
    return {
        "split": [
            {"weight": 1, "destination": {"kuma.io/service": f"s{n % SIDECARS}", "v": str(n)}} for n in range(size)
        ]
    }


def _legacy_gateway_rules(size: int) -> list[Data]:
    return [
        {
            "matches": [{"path": {"match": "EXACT", "value": f"/{n}"}}],
            "backends": [{"destination": {"kuma.io/service": "s0"}}],
        }
        for n in range(size)
    ]


def _of_edge(conf: Data) -> Data:
    return {"selectors": [{"match": {"kuma.io/service": "edge"}}], "conf": conf}


def _legacy_modifications(size: int) -> Data:
    changes = [{"cluster": {"operation": "patch", "value": f"connectTimeout: {1 + n}s"}} for n in range(size)]
    return {
        "selectors": [{"match": {"kuma.io/service": "*"}}],
        "conf": {"imports": ["default-proxy"], "modifications": changes},
    }


def _virtual_outbounds(size: int) -> Data:
    """One name for each tag set: the parameters and selectors grow."""
    parameters = [{"name": "service", "tagKey": "kuma.io/service"}, {"name": "version"}]
    selectors = [{"match": {"kuma.io/service": "*", "version": "*"}}] * size
    conf = {"host": "{{ .version }}.{{ .service }}.example", "port": "80", "parameters": parameters}
    return {"selectors": selectors, "conf": conf}


def _with_many_tags() -> Iterator[Data]:
    for number in range(5):
        inbound = [
            {"port": 1 + n, "tags": {"kuma.io/service": f"t{number}-{n}", "version": f"v{n}"}} for n in range(1000)
        ]
        yield _data("Dataplane", f"t{number}", networking={"address": f"127.9.2.{number + 1}", "inbound": inbound})


def _service_ports(size: int) -> Data:
    ports = [{"port": 1 + n, "targetPort": 8080, "appProtocol": "http"} for n in range(size)]
    return {"spec": {"selector": {"dataplaneTags": {"kuma.io/service": "s0"}}, "ports": ports}}


def _many_ports() -> Iterator[Data]:
    for number in range(10):
        ports = [{"port": 1 + n, "targetPort": 8080, "appProtocol": "http"} for n in range(500)]
        yield _data(
            "MeshService", f"m{number}", spec={"selector": {"dataplaneTags": {"kuma.io/service": "s0"}}, "ports": ports}
        )


def _inbounds(size: int) -> Data:
    tags = {"kuma.io/service": "s0", "kuma.io/protocol": "http", "version": "v0"}
    return {"networking": {"address": "127.9.3.1", "inbound": [{"port": 1 + n, "tags": tags} for n in range(size)]}}


def _outbounds(size: int) -> Data:
    outbound = [
        {
            "address": f"127.10.{n >> 8}.{n & 255}",
            "port": 80,
            "backendRef": {"kind": "MeshService", "name": f"s{n % SERVICES}", "port": 80},
        }
        for n in range(size)
    ]
    return {
        "networking": {
            "address": "127.9.3.1",
            "inbound": [{"port": 8080, "tags": {"kuma.io/service": "x"}}],
            "outbound": outbound,
        }
    }


def _external(size: int) -> Data:
    endpoints = [{"address": f"h{n}.example", "port": 443} for n in range(size)]
    return {"spec": {"match": {"type": "HostnameGenerator", "port": 443, "protocol": "http"}, "endpoints": endpoints}}


def _alt_names(size: int) -> Data:
    names = [{"type": "Exact", "value": f"h{n}.example"} for n in range(size)]
    match = {"type": "HostnameGenerator", "port": 443, "protocol": "http"}
    verification = {"mode": "Secured", "subjectAltNames": names}
    return {
        "spec": {
            "match": match,
            "endpoints": [{"address": "h.example", "port": 443}],
            "tls": {"enabled": True, "verification": verification},
        }
    }


def _policy_beside(kind: str, spec: Data) -> Callable[[], Iterator[Data]]:
    return lambda: iter([_data(kind, "beside", spec=spec)])


@cache
def certificate() -> str:
    """An authority of nobody."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "nobody")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


SHAPES: Final[tuple[Shape, ...]] = (
    Shape(
        "Mesh",
        "logging.backends",
        lambda n: of_mesh(
            {"logging": {"backends": [{"name": f"l{i}", "type": "file", "conf": {"path": "/tmp/a"}} for i in range(n)]}}
        ),
        name=MESH,
    ),
    Shape(
        "Mesh",
        "metrics.backends",
        lambda n: of_mesh(
            {
                "metrics": {
                    "enabledBackend": "m0",
                    "backends": [
                        {"name": f"m{i}", "type": "prometheus", "conf": {"tags": {f"k{j}": "v" for j in range(9)}}}
                        for i in range(n)
                    ],
                }
            }
        ),
        name=MESH,
    ),
    Shape(
        "Dataplane", "inbounds", _inbounds, _policy_beside("MeshFaultInjection", _rules(_FAULT)(200)["spec"]), name="p0"
    ),
    Shape(
        "Dataplane",
        "outbounds",
        _outbounds,
        _policy_beside("MeshTimeout", _to(lambda _: _TIMEOUT)(1)["spec"]),
        name="p0",
    ),
    Shape("MeshService", "ports", _service_ports),
    Shape("MeshService", "services x ports", _service_ports, copies=50),
    Shape(
        "MeshService",
        "identities",
        lambda n: {
            "spec": {
                "selector": {"dataplaneTags": {"kuma.io/service": "s0"}},
                "identities": [{"type": "ServiceTag", "value": f"s{i}"} for i in range(n)],
                "ports": [{"port": 1 + i, "targetPort": 8080} for i in range(100)],
            }
        },
    ),
    Shape("MeshExternalService", "endpoints", _external),
    Shape("MeshExternalService", "subjectAltNames", _alt_names),
    Shape(
        "MeshMultiZoneService",
        "ports",
        lambda n: {
            "spec": {
                "selector": {"meshService": {"matchLabels": {"kuma.io/display-name": "s0"}}},
                "ports": [{"port": 1 + i, "appProtocol": "http"} for i in range(n)],
            }
        },
    ),
    Shape(
        "HostnameGenerator",
        "services",
        lambda n: {
            "spec": {
                "selector": {"meshService": {"matchLabels": {}}},
                "template": "{{ .DisplayName }}" + "a" * min(n, 60) + ".mesh",
            }
        },
        _many_ports,
    ),
    Shape(
        "MeshGateway",
        "hostnames x rules",
        lambda n: {"selectors": [{"match": {"kuma.io/service": "edge"}}], "conf": {"listeners": _hosts(n)}},
        _many_rules,
        name="edge",
    ),
    Shape(
        "MeshGateway",
        "ports x rules",
        lambda n: {
            "selectors": [{"match": {"kuma.io/service": "edge"}}],
            "conf": {"listeners": [{"port": 1 + i, "protocol": "HTTP"} for i in range(n)]},
        },
        _many_rules,
        name="edge",
    ),
    Shape(
        "MeshGatewayRoute",
        "hostnames x rules",
        lambda n: _of_edge({"http": {"rules": _legacy_gateway_rules(n)}}),
        _many_hosts,
    ),
    Shape(
        "MeshGatewayRoute",
        "hostnames",
        lambda n: _of_edge(
            {"http": {"hostnames": [f"g{i}.example" for i in range(n)], "rules": _legacy_gateway_rules(RULES)}}
        ),
        _one_listener,
    ),
    Shape(
        "MeshHTTPRoute",
        "rules x hostnames of listeners",
        lambda n: {"spec": _route(_http_rules(n))["spec"]},
        _many_hosts,
    ),
    Shape(
        "MeshHTTPRoute",
        "rules x matches",
        lambda n: {"spec": _route(_http_rules(n // 50 + 1, 50))["spec"]},
        _one_listener,
    ),
    Shape(
        "MeshHTTPRoute",
        "items x hostnames",
        lambda n: {
            "spec": _route(_http_rules(max(1, n // 100)), hostnames=[f"r{i}.example" for i in range(100)])["spec"]
        },
        _one_listener,
    ),
    Shape(
        "MeshHTTPRoute",
        "matches x headers",
        lambda n: {
            "spec": _route(
                [
                    {
                        "matches": [{**_path(m), "headers": _matched_headers(n // 20 + 1)} for m in range(20)],
                        "default": {"backendRefs": [_backend()]},
                    }
                ]
            )["spec"]
        },
        _many_hosts,
    ),
    Shape(
        "MeshHTTPRoute",
        "matches x backends",
        lambda n: {
            "spec": _route(
                [
                    {
                        "matches": [_path(m) for m in range(300)],
                        "default": {"backendRefs": [{**_backend(i), "weight": 1} for i in range(n)]},
                    }
                ]
            )["spec"]
        },
        _many_hosts,
    ),
    Shape(
        "MeshHTTPRoute",
        "matches x filters",
        lambda n: {
            "spec": _route(
                [
                    {
                        "matches": [_path(m) for m in range(300)],
                        "default": {
                            "backendRefs": [_backend()],
                            "filters": [
                                {"type": "RequestHeaderModifier", "requestHeaderModifier": {"add": _headers(n)}}
                            ],
                        },
                    }
                ]
            )["spec"]
        },
        _many_hosts,
    ),
    Shape(
        "MeshHTTPRoute",
        "rules of calls",
        lambda n: {"spec": {"to": [{"targetRef": {"kind": "MeshService", "name": "s0"}, "rules": _http_rules(n, 20)}]}},
    ),
    Shape(
        "MeshHTTPRoute",
        "matches x backends of calls",
        lambda n: {
            "spec": {
                "to": [
                    {
                        "targetRef": {"kind": "MeshService", "name": "s0"},
                        "rules": [
                            {
                                "matches": [_path(m) for m in range(1000)],
                                "default": {"backendRefs": [{**_backend(i), "weight": 1} for i in range(n)]},
                            }
                        ],
                    }
                ]
            }
        },
    ),
    Shape(
        "MeshTCPRoute",
        "backends",
        lambda n: {
            "spec": {
                "to": [
                    {
                        "targetRef": {"kind": "MeshService", "name": "s0"},
                        "rules": [{"default": {"backendRefs": [{**_backend(i), "weight": 1} for i in range(n)]}}],
                    }
                ]
            }
        },
    ),
    Shape("MeshTimeout", "to", _to_many(_TIMEOUT)),
    Shape("MeshTimeout", "to, all alike", _to_any(_TIMEOUT)),
    Shape("MeshTimeout", "rules", lambda n: {"spec": {"rules": [{"default": _TIMEOUT}] * n}}),
    Shape("MeshTimeout", "from", lambda n: {"spec": {"from": [{"targetRef": ALL, "default": _TIMEOUT}] * n}}),
    Shape(
        "MeshRetry",
        "resetHeaders",
        _to(
            lambda n: {
                "http": {
                    "rateLimitedBackOff": {"resetHeaders": [{"name": f"x-{i}", "format": "Seconds"} for i in range(n)]}
                }
            }
        ),
    ),
    Shape(
        "MeshRetry",
        "retriableRequestHeaders",
        _to(
            lambda n: {
                "http": {
                    "retriableRequestHeaders": [{"type": "Exact", "name": f"x-{i}", "value": "v"} for i in range(n)]
                }
            }
        ),
    ),
    Shape(
        "MeshRetry",
        "hostSelection",
        _to(
            lambda n: {
                "http": {
                    "hostSelection": [{"predicate": "OmitHostsWithTags", "tags": {f"k{i}": "v"}} for i in range(n)]
                }
            }
        ),
    ),
    Shape("MeshCircuitBreaker", "to", _to_many(_BREAKER)),
    Shape(
        "MeshHealthCheck",
        "expectedStatuses",
        _to(lambda n: {"http": {"path": "/", "expectedStatuses": [200 + i % 300 for i in range(n)]}}),
    ),
    Shape(
        "MeshHealthCheck",
        "requestHeadersToAdd",
        _to(lambda n: {"http": {"path": "/", "requestHeadersToAdd": {"add": _headers(n)}}}),
    ),
    Shape("MeshLoadBalancingStrategy", "failover", _to(_failover)),
    Shape("MeshLoadBalancingStrategy", "affinityTags", _to(_affinity)),
    Shape("MeshLoadBalancingStrategy", "hashPolicies", _to(_hashes)),
    Shape("MeshAccessLog", "backends of all outbounds", _to(_log_backends)),
    Shape("MeshAccessLog", "fields of all outbounds", _to(_log_format)),
    Shape(
        "MeshAccessLog",
        "from x backends",
        lambda n: {"spec": {"targetRef": SIDECARS_ONLY, "from": [{"targetRef": ALL, "default": _log_backends(1)}] * n}},
    ),
    Shape("MeshAccessLog", "rules", lambda n: {"spec": {"rules": [{"default": _log_backends(1)}] * n}}),
    Shape("MeshFaultInjection", "rules", _rules(_FAULT)),
    Shape(
        "MeshFaultInjection",
        "rules x faults",
        lambda n: {
            "spec": {"rules": [{"matches": [_client(m) for m in range(500)], "default": {"http": _FAULT["http"] * n}}]}
        },
    ),
    Shape("MeshFaultInjection", "from", _from(lambda _: _FAULT)),
    Shape(
        "MeshFaultInjection",
        "from by tags",
        _by_overlapping_tags(lambda n: {"http": [{"abort": {"httpStatus": 500, "percentage": n % 100}}]}),
    ),
    Shape("MeshRateLimit", "rules", _rules(_LIMIT)),
    Shape("MeshRateLimit", "rules by name x by server name", _rules_crossed(_LIMIT)),
    Shape(
        "MeshRateLimit",
        "hostnames x headers of gateways",
        lambda n: {
            "spec": {
                "targetRef": {"kind": "MeshGateway", "name": "edge"},
                "to": [
                    {
                        "targetRef": ALL,
                        "default": {
                            "local": {
                                "http": {
                                    "requestRate": {"num": 3, "interval": "1s"},
                                    "onRateLimit": {"headers": {"add": _headers(n)}},
                                }
                            }
                        },
                    }
                ],
            }
        },
        lambda: iter((*_many_hosts(), _route(_http_rules(10)))),
    ),
    Shape("MeshTrafficPermission", "allow x deny", _permissions),
    Shape("MeshTrafficPermission", "from, by turns", _from(lambda n: {"action": "Allow" if n % 2 else "Deny"})),
    Shape(
        "MeshTrafficPermission",
        "from by tags, by turns",
        _by_overlapping_tags(lambda n: {"action": "Allow" if n % 2 else "Deny"}),
    ),
    Shape("MeshTLS", "from", lambda n: {"spec": {"from": [{"targetRef": ALL, "default": {"mode": "Strict"}}] * n}}),
    Shape(
        "MeshTrace",
        "tags",
        _default(
            lambda n: {
                "backends": [{"type": "Zipkin", "zipkin": {"url": "http://z:1/a"}}],
                "tags": [{"name": f"t{i}", "literal": "x"} for i in range(n)],
            }
        ),
    ),
    Shape(
        "MeshMetric",
        "applications",
        _default(
            lambda n: {
                "applications": [{"name": f"a{i}", "path": "/m", "port": 1 + i % 60_000} for i in range(n)],
                "backends": [{"type": "Prometheus", "prometheus": {"port": 5670, "path": "/metrics"}}],
            }
        ),
    ),
    Shape(
        "MeshMetric",
        "profiles",
        _default(
            lambda n: {
                "sidecar": {"profiles": {"exclude": [{"type": "Regex", "match": f"a{i}.*"} for i in range(n)]}},
                "backends": [{"type": "Prometheus", "prometheus": {"port": 5670, "path": "/metrics"}}],
            }
        ),
    ),
    Shape("MeshPassthrough", "appendMatch", _default(_exits)),
    Shape(
        "MeshPassthrough",
        "addresses x ports",
        _default(
            lambda n: {
                "passthroughMode": "Matched",
                "appendMatch": [
                    {
                        "type": "CIDR",
                        "value": f"10.{i >> 8 & 255}.{i & 255}.0/24",
                        "port": 1 + i // 2,
                        "protocol": "tcp",
                    }
                    for i in range(n)
                ],
            }
        ),
    ),
    Shape("MeshProxyPatch", "modifications x clusters", _default(_patches), _many_ports),
    Shape("MeshProxyPatch", "jsonPatches x clusters", _default(_json_patches), _many_ports),
    Shape("MeshProxyPatch", "large patches x listeners", _default(_large_patches), _many_ports),
    Shape("MeshProxyPatch", "growing patches x listeners", _default(_growing_patches), _many_ports),
    Shape("MeshProxyPatch", "added filters x listeners", _default(_added_filters), _many_ports),
    Shape(
        "MeshIdentity",
        "matchLabels",
        lambda n: {
            "spec": {
                "selector": {"dataplane": {"matchLabels": {f"k{i}": "v" for i in range(n)}}},
                "spiffeID": {"path": "/x"},
                "provider": {
                    "type": "Bundled",
                    "bundled": {"autogenerate": {"enabled": True}, "insecureAllowSelfSigned": True},
                },
            }
        },
    ),
    Shape(
        "MeshTrust",
        "caBundles",
        lambda n: {
            "spec": {"trustDomain": "t.example", "caBundles": [{"type": "Pem", "pem": {"value": certificate()}}] * n}
        },
    ),
    Shape(
        "MeshOpenTelemetryBackend",
        "(one)",
        lambda n: {"spec": {"endpoint": {"address": "o" * min(n, 60), "port": 4317}}},
    ),
    Shape("Secret", "data", lambda n: {"data": "YWFh" * n}),
    Shape("GlobalSecret", "data", lambda n: {"data": "YWFh" * n}),
    Shape("TrafficRoute", "http", _to_all(_legacy_routes), is_legacy=True),
    Shape("TrafficRoute", "split", _to_all(_legacy_split), is_legacy=True),
    Shape(
        "TrafficRoute",
        "http x split",
        _to_all(
            lambda n: {
                "http": [{"match": {"path": {"exact": f"/{i}"}}, **_legacy_split(50)} for i in range(n)],
                "destination": {"kuma.io/service": "s0"},
            }
        ),
        is_legacy=True,
    ),
    Shape(
        "TrafficRoute",
        "sources x destinations",
        _connections({"destination": {"kuma.io/service": "s0"}}),
        is_legacy=True,
    ),
    Shape(
        "TrafficPermission",
        "sources x destinations",
        lambda n: {key: value for key, value in _connections({})(n).items() if key != "conf"},
        is_legacy=True,
    ),
    Shape(
        "TrafficPermission",
        "sources",
        lambda n: {key: value for key, value in _many_sources({})(n).items() if key != "conf"},
        is_legacy=True,
    ),
    Shape("TrafficLog", "sources x destinations", _connections({"backend": "file"}), is_legacy=True),
    Shape(
        "TrafficTrace",
        "selectors",
        lambda n: {
            "selectors": [{"match": {"kuma.io/service": "*", f"k{i}": "v"}} for i in range(n)],
            "conf": {"backend": "zipkin"},
        },
        is_legacy=True,
    ),
    Shape("RateLimit", "sources", _many_sources({"http": {"requests": 3, "interval": "1s"}}), is_legacy=True),
    Shape("FaultInjection", "sources", _many_sources({"abort": {"httpStatus": 500, "percentage": 1}}), is_legacy=True),
    Shape(
        "HealthCheck",
        "requestHeadersToAdd",
        _to_all(
            lambda n: {
                "interval": "1s",
                "timeout": "1s",
                "unhealthyThreshold": 1,
                "healthyThreshold": 1,
                "http": {
                    "path": "/",
                    "requestHeadersToAdd": [{"header": {"key": f"x-{i}", "value": "v"}} for i in range(n)],
                },
            }
        ),
        is_legacy=True,
    ),
    Shape(
        "CircuitBreaker", "sources x destinations", _connections({"thresholds": {"maxConnections": 3}}), is_legacy=True
    ),
    Shape("Retry", "sources x destinations", _connections({"tcp": {"maxConnectAttempts": 3}}), is_legacy=True),
    Shape("Timeout", "sources x destinations", _connections({"connectTimeout": "3s"}), is_legacy=True),
    Shape("ProxyTemplate", "modifications", _legacy_modifications, is_legacy=True),
    Shape("VirtualOutbound", "selectors x tag sets", _virtual_outbounds, _with_many_tags, is_legacy=True),
    Shape(
        "ExternalService",
        "tags",
        lambda n: {
            "networking": {"address": "h.example:443"},
            "tags": {"kuma.io/service": "outside", **{f"k{i}": "v" for i in range(n)}},
        },
        is_legacy=True,
    ),
)
