"""The edge: builtin gateways with all sorts of listeners, the certificates of these, routes and policies on them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Final

import trustme

from tests.random_mesh import confs
from tests.random_mesh.routes import backend
from tests.random_mesh.words import (
    DATAPLANES,
    GATEWAYS,
    MISSING,
    NAMESPACES,
    PORTS,
    ROUTES,
    SERVICES,
    TCP_ROUTES,
    Data,
    Home,
    Make,
    several,
    sometimes,
    team,
    weighted,
)

LISTENED: Final = (None, "*", "a.example.com", "b.example.com", "*.example.com", "*.a.example.com", "*.com", "c.test")
"""The hostnames of listeners: some cover others, and some have nothing in common."""

ROUTED: Final = (*LISTENED[1:], "x.a.example.com", "A.Example.com", "*.TEST", "nobody.here")
"""The hostnames of routes."""

CALLED: Final = (
    *("a.example.com", "A.EXAMPLE.com", "b.example.com", "x.a.example.com", "y.x.a.example.com", "z.example.com"),
    *("example.com", "other.com", "c.test", "d.test", "nowhere", "10.0.0.1", "a.example.com:8080", "c.test:443"),
)
"""The hosts that clients ask for."""

LISTENER_PORTS: Final = (8080, 8081, 8443, 9000)
CERTIFICATES: Final = ("cert-a", "cert-b", "cert-c")
PATHS: Final = ("/", "/api", "/api/v1", "/slow")
_LISTENER_TAGS: Final = ("x", "y")
_PROTOCOLS: Final = ("HTTP", "HTTP", "HTTP", "HTTPS", "HTTPS", "TCP", "TLS", "TLS")


def proxy(chance: Random) -> Data:
    """A builtin gateway. Several may be of one MeshGateway, and none of them of any."""
    number = chance.randrange(len(DATAPLANES))
    tags = {"kuma.io/service": chance.choice([*GATEWAYS, GATEWAYS[0]]), **sometimes(chance, 0.5, team(chance))}
    networking = {"address": f"127.0.0.{number + 1}", "gateway": {"type": "BUILTIN", "tags": tags}}
    return Home().named("Dataplane", DATAPLANES[number], {}, networking=networking)


def gateway(chance: Random) -> Data:
    """A MeshGateway. Several may want one proxy, and two may have one display name."""
    name = chance.choice(GATEWAYS)
    home = Home(namespace=chance.choice(NAMESPACES)) if chance.random() < 0.1 else Home()
    tags = sometimes(chance, 0.3, {"tags": {"listener": chance.choice(_LISTENER_TAGS)}})
    selectors = [{"match": _selected(chance, name)}]
    return home.named("MeshGateway", name, {}, selectors=selectors, **tags, conf={"listeners": _listeners(chance)})


def _selected(chance: Random, name: str) -> Data:
    service = weighted([(6, lambda _: name), (1, lambda _: "*"), (1, lambda drawn: drawn.choice(GATEWAYS))])(chance)
    return {"kuma.io/service": service, **sometimes(chance, 0.2, team(chance))}


def _listeners(chance: Random) -> list[Data]:
    ports = chance.sample(LISTENER_PORTS, chance.choice([1, 2, 2, 3]))
    made = [listener for port in ports for listener in _of_port(chance, port)]
    chance.shuffle(made)
    return made


def _of_port(chance: Random, port: int) -> list[Data]:
    """The listeners of a port have one protocol and one limit, and no hostname twice."""
    protocol, hostnames = chance.choice(_PROTOCOLS), chance.sample(LISTENED[1:], chance.choice([1, 1, 2, 3, 4]))
    limit = sometimes(chance, 0.2, {"resources": {"connectionLimit": chance.choice([100, 1000])}})
    return [_listener(chance, port, protocol, hostname) | limit for hostname in hostnames]


def _listener(chance: Random, port: int, protocol: str, hostname: str) -> Data:
    named = {} if hostname == "*" and chance.random() < 0.5 else {"hostname": hostname}
    tags = {"listener": chance.choice(_LISTENER_TAGS), **sometimes(chance, 0.3, team(chance))}
    listener = {"port": port, "protocol": protocol, **named, **sometimes(chance, 0.6, {"tags": tags})}
    if protocol == "HTTP":
        return listener | sometimes(chance, 0.05, {"crossMesh": True})
    if protocol == "TLS" and chance.random() < 0.5:
        return listener | {"tls": {"mode": "PASSTHROUGH"}}
    return listener | ({} if protocol == "TCP" else {"tls": {"mode": "TERMINATE", "certificates": _sources(chance)}})


def _sources(chance: Random) -> list[Data]:
    """Mostly one certificate; some are not there."""
    names = chance.sample(CERTIFICATES, chance.choice([1, 1, 1, 2]))
    if chance.random() < 0.1:
        return [{"inlineString": _pairs()[0]}]
    return [{"secret": name} for name in names]


def certificate(chance: Random) -> Data:
    """A Secret with a certificate and its key; now and then one of another sort, or nothing of use."""
    text = chance.choice([*_pairs(), *_pairs(), "neither"])
    data = b64encode(text.encode()).decode()
    return {"type": "Secret", "mesh": "default", "name": chance.choice(CERTIFICATES), "data": data}


@cache
def _pairs() -> tuple[str, ...]:
    """Certificates with their keys, of both sorts of keys. Made anew in each run: nothing depends on what they say."""
    sorts = (trustme.KeyType.ECDSA, trustme.KeyType.RSA, trustme.KeyType.ECDSA)
    issued = [trustme.CA(key_type=sort).issue_cert("*.example.com", "c.test", key_type=sort) for sort in sorts]
    return tuple(pair.private_key_and_cert_chain_pem.bytes().decode() for pair in issued)


def top(chance: Random) -> Data:
    """A gateway, and now and then those of its listeners that have a tag."""
    name = chance.choice([*GATEWAYS, GATEWAYS[0], GATEWAYS[0]])
    tags = chance.choice([{"listener": chance.choice(_LISTENER_TAGS)}, team(chance), {"listener": "*"}])
    return {"kind": "MeshGateway", "name": name, **sometimes(chance, 0.4, {"tags": tags})}


def http_route(chance: Random) -> Data:
    spec = {"targetRef": top(chance), "to": several(chance, _http_item, 1, 3)}
    return _home(chance).named("MeshHTTPRoute", chance.choice(ROUTES), {}, spec=spec)


def _home(chance: Random) -> Home:
    """Most without a namespace; a route in one is another route of that name."""
    return Home() if chance.random() < 0.8 else Home(namespace=chance.choice(NAMESPACES))


def _http_item(chance: Random) -> Data:
    hostnames = chance.sample(ROUTED, chance.choice([1, 1, 2, 3]))
    rules = several(chance, _rule, 1, 3)
    return {"targetRef": {"kind": "Mesh"}, **sometimes(chance, 0.6, {"hostnames": hostnames}), "rules": rules}


def _rule(chance: Random) -> Data:
    """Few paths, so that rules of several routes have the same matches."""
    filters = weighted([(6, lambda _: []), (1, _redirects), (1, _rewrites), (1, _headers), (1, _mirrors)])(chance)
    matches = several(chance, _match, 1, 2)
    if any(changes_prefix(each) for each in filters):
        matches = [{**match, "path": {"type": "PathPrefix", "value": "/api"}} for match in matches]
    backends = several(chance, _backend, 1, 3)
    if any(each["type"] == "RequestRedirect" for each in filters) and chance.random() < 0.7:
        return {"matches": matches, "default": {"filters": filters}}
    return {"matches": matches, "default": {**({"filters": filters} if filters else {}), "backendRefs": backends}}


def changes_prefix(http_filter: Data) -> bool:
    conf: Data = http_filter.get("requestRedirect") or http_filter.get("urlRewrite") or {}
    return bool(conf.get("path", {}).get("type") == "ReplacePrefixMatch")


def _match(chance: Random) -> Data:
    kind, value = chance.choice(["Exact", "PathPrefix", "PathPrefix", "RegularExpression"]), chance.choice(PATHS)
    match: Data = {"path": {"type": kind, "value": f"{value}.*" if kind == "RegularExpression" else value}}
    match = {} if chance.random() < 0.1 else match
    match |= sometimes(chance, 0.2, {"method": chance.choice(["GET", "POST"])})
    match |= sometimes(chance, 0.2, {"headers": several(chance, _header, 1, 2)})
    if chance.random() < 0.1:
        match["queryParams"] = [{"type": "Exact", "name": "q", "value": chance.choice(["1", "2"])}]
    return match or {"path": {"type": "PathPrefix", "value": "/"}}


def _header(chance: Random) -> Data:
    kind = chance.choice(["Exact", "Exact", "Present", "Absent", "Prefix", "RegularExpression"])
    value = {} if kind in {"Present", "Absent"} else {"value": chance.choice(["1", "2"])}
    return {"name": chance.choice(["x-version", "x-team"]), "type": kind, **value}


def _backend(chance: Random) -> Data:
    """One of those of sidecars' routes, or one of the few that are there mostly."""
    if chance.random() < 0.4:
        return backend(chance)
    weight = sometimes(chance, 0.4, {"weight": chance.choice([0, 1, 9])})
    port = sometimes(chance, 0.6, {"port": chance.choice(PORTS)})
    return {"kind": "MeshService", "name": chance.choice([*SERVICES, MISSING]), **port, **weight}


def _redirects(chance: Random) -> list[Data]:
    redirect: Data = {
        **sometimes(chance, 0.6, {"scheme": chance.choice(["http", "https"])}),
        **sometimes(chance, 0.4, {"hostname": "else.where"}),
        **sometimes(chance, 0.3, {"port": chance.choice([80, 443, 8443])}),
        **sometimes(chance, 0.7, {"statusCode": chance.choice([301, 302, 303, 307, 308])}),
        **sometimes(chance, 0.4, {"path": _path_change(chance)}),
    }
    return [{"type": "RequestRedirect", "requestRedirect": redirect}]


def _rewrites(chance: Random) -> list[Data]:
    hosts: list[Data] = [{}, {"hostname": "in.side"}, {"hostToBackendHostname": True}]
    host = chance.choice(hosts)
    rewrite = {**host, **sometimes(chance, 0.6, {"path": _path_change(chance)})}
    return [{"type": "URLRewrite", "urlRewrite": rewrite or {"hostname": "in.side"}}]


def _path_change(chance: Random) -> Data:
    if chance.random() < 0.5:
        return {"type": "ReplaceFullPath", "replaceFullPath": chance.choice(["/new", "/"])}
    return {"type": "ReplacePrefixMatch", "replacePrefixMatch": chance.choice(["/new", "/", "/new/v2"])}


def _headers(chance: Random) -> list[Data]:
    kind = chance.choice(["RequestHeaderModifier", "ResponseHeaderModifier"])
    field = kind[0].lower() + kind[1:]
    return [{"type": kind, field: {"set": [{"name": "x-route", "value": "yes"}]}}]


def _mirrors(chance: Random) -> list[Data]:
    ref = {"kind": "MeshService", "name": chance.choice([*SERVICES, MISSING]), "port": chance.choice(PORTS)}
    return [{"type": "RequestMirror", "requestMirror": {"backendRef": ref, "percentage": 50}}]


def tcp_route(chance: Random) -> Data:
    item = {"targetRef": {"kind": "Mesh"}, "rules": [{"default": {"backendRefs": several(chance, _backend, 1, 3)}}]}
    spec = {"targetRef": top(chance), "to": [item, *([item] if chance.random() < 0.1 else [])]}
    return _home(chance).named("MeshTCPRoute", chance.choice(TCP_ROUTES), {}, spec=spec)


_CONFS: Final[dict[str, Make]] = {
    "MeshTimeout": confs.timeouts,
    "MeshRetry": confs.retries,
    "MeshCircuitBreaker": confs.breaker,
    "MeshHealthCheck": confs.check,
    "MeshLoadBalancingStrategy": confs.balancing,
    "MeshAccessLog": confs.logged,
    "MeshRateLimit": confs.limit,
    "MeshFaultInjection": confs.faults,
}
_CONFS_OF_ROUTES: Final[dict[str, Make]] = {
    "MeshTimeout": confs.timeouts_of_route,
    "MeshRetry": confs.retries_of_route,
    "MeshAccessLog": confs.logged,
}
_CONFS_OF_TCP_ROUTES: Final[dict[str, Make]] = {
    "MeshTimeout": confs.timeouts_of_tcp_route,
    "MeshRetry": confs.retries_of_tcp_route,
    "MeshAccessLog": confs.logged,
}
_AT_TOP: Final = ("MeshTimeout", "MeshRetry", "MeshRateLimit")


def policy(chance: Random) -> Data:
    """A policy for gateways, for some of their listeners, or for routes on them, in either of two ways."""
    kind = chance.choice(sorted(_CONFS))
    if kind in _AT_TOP and chance.random() < 0.2:
        spec = _of_route_at_top(chance, kind)
    else:
        target = {"kind": "Mesh", "proxyTypes": ["Gateway"]} if chance.random() < 0.2 else top(chance)
        spec = {"targetRef": target, "to": several(chance, lambda drawn: _item(drawn, kind), 1, 2)}
    return _home(chance).named(kind, f"edge-{chance.randrange(3)}", {}, spec=spec)


def _of_route_at_top(chance: Random, kind: str) -> Data:
    conf = confs.limit_of_requests(chance) if kind == "MeshRateLimit" else _CONFS_OF_ROUTES[kind](chance)
    target = {"kind": "MeshHTTPRoute", "name": chance.choice(ROUTES)}
    return {"targetRef": target, "to": [{"targetRef": {"kind": "Mesh"}, "default": conf}]}


def _item(chance: Random, kind: str) -> Data:
    if kind in _CONFS_OF_ROUTES and chance.random() < 0.4:
        return {"targetRef": _route(chance, "MeshHTTPRoute", ROUTES), "default": _CONFS_OF_ROUTES[kind](chance)}
    if kind in _CONFS_OF_TCP_ROUTES and chance.random() < 0.2:
        return {"targetRef": _route(chance, "MeshTCPRoute", TCP_ROUTES), "default": _CONFS_OF_TCP_ROUTES[kind](chance)}
    return {"targetRef": {"kind": "Mesh"}, "default": _CONFS[kind](chance)}


def _route(chance: Random, kind: str, names: tuple[str, ...]) -> Data:
    return {"kind": kind, "name": chance.choice([*names, *names, MISSING])}


def trace(chance: Random) -> Data:
    """A policy without a direction."""
    target = {"kind": "Mesh", "proxyTypes": ["Gateway"]} if chance.random() < 0.5 else {**top(chance)}
    target.pop("tags", None)
    spec = {"targetRef": target, "default": confs.collected(chance)}
    return Home().named("MeshTrace", f"edge-{chance.randrange(2)}", {}, spec=spec)


def patch(chance: Random) -> Data:
    """A change of a gateway's listeners, of their managers, or of its tables."""
    changes: list[Callable[[], Data]] = [
        lambda: {"listener": {"operation": "Patch", "value": "perConnectionBufferLimitBytes: 1024\n"}},
        lambda: {"virtualHost": {"operation": "Patch", "value": "includeRequestAttemptCount: true\n"}},
        lambda: {
            "httpFilter": {
                "operation": "AddFirst",
                "value": "name: envoy.filters.http.buffer\ntypedConfig:\n"
                "  '@type': type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer\n"
                "  maxRequestBytes: 1024\n",
            }
        },
    ]
    target: Data = {"targetRef": {"kind": "Mesh", "proxyTypes": ["Gateway"]}} if chance.random() < 0.5 else {}
    spec = {**target, "default": {"appendModifications": [chance.choice(changes)()]}}
    return Home().named("MeshProxyPatch", f"edge-{chance.randrange(2)}", {}, spec=spec)
