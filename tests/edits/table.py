"""The edits: each is a few states of some documents, all of which serve every call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tests.edits.field import ALLOW_ALL, GATEWAY_ROUTES, PROTOCOLS, Field, gateway_listeners, gateway_route_to
from tests.edits.workloads import HOST
from tests.support.edge import certified
from tests.support.loopback import free_port
from tests.support.mesh import (
    MESH,
    Document,
    http_route,
    mesh_gateway,
    mesh_item,
    policy,
    prefix,
    rule,
    secret,
    tcp_route,
)

State: TypeAlias = list[Document]
"""Some documents. What a state leaves out is as it was at the start."""


@dataclass(frozen=True, slots=True)
class Edit:
    """States that follow each other in a circle: an edit leads from one to the next."""

    states: Sequence[State]
    way: Sequence[State] = ()
    """States that lead to the first, and back from it in the end. The step from there to the start is not judged."""

    proxies_tcp: bool = False
    """HTTP is proxied as TCP in one of the states. Envoy cuts such connections at the end of the drain time, without a
    word to the client, so that clients end theirs before."""

    turns_away: Sequence[str] = ()
    """The kinds of call that one of the states does not serve."""


EditOf: TypeAlias = Callable[[Field], Edit]


SIDECARS: Final = {"targetRef": {"kind": "Mesh", "proxyTypes": ["Sidecar"]}}
CA: Final = {"name": "ca-1", "type": "builtin"}


def _mesh(mode: str, **more: Any) -> Document:
    return {**MESH, "mtls": {"enabledBackend": "ca-1", "backends": [{**CA, "mode": mode}]}, **more}


def _rules(kind: str, default: Document, name: str = "edited") -> Document:
    return {"type": kind, "mesh": "default", "name": name, "spec": {"rules": [{"default": default}]}}


def _both(kind: str, default: Document) -> list[Document]:
    """For what proxies call, and for what they serve."""
    return [policy(kind, "edited-to", mesh_item(default)), _rules(kind, default, "edited-rules")]


def _outbounds(mesh: Field, change: Callable[[Any], None]) -> Document:
    def changed(document: Any) -> None:
        for outbound in document["networking"]["outbound"]:
            change(outbound)

    return mesh.changed("Dataplane", "client", changed)


def _inbounds(mesh: Field, change: Callable[[Any], None]) -> Document:
    def changed(document: Any) -> None:
        for inbound in document["networking"]["inbound"]:
            change(inbound)

    return mesh.changed("Dataplane", "backend", changed)


def _services(mesh: Field, change: Callable[[Any], None], *names: str) -> list[Document]:
    return [mesh.changed("MeshService", name, lambda document: change(document["spec"]["ports"][0])) for name in names]


def _to_alternatives(outbound: Any) -> None:
    outbound["backendRef"]["name"] += "-alt"


def _to_tags(outbound: Any) -> None:
    outbound["tags"] = {"kuma.io/service": outbound.pop("backendRef")["name"]}


def outbound_backend_ref(mesh: Field) -> Edit:
    return Edit([[], [_outbounds(mesh, _to_alternatives)]])


def tag_outbounds(mesh: Field) -> Edit:
    return Edit([[], [_outbounds(mesh, _to_tags)]])


def outbound_port(mesh: Field) -> Edit:
    """Both ports are there for a while; new connections go to the port that stays, which is the last."""
    before = mesh.documents["Dataplane", "client"]["networking"]["outbound"]
    after = [{**outbound, "port": free_port(mesh.client_host)} for outbound in before]
    states = ([*before, *after], after, [*after, *before])
    return Edit([[], *([_with_outbounds(mesh, outbounds)] for outbounds in states)])


def _with_outbounds(mesh: Field, outbounds: list[Document]) -> Document:
    return mesh.changed("Dataplane", "client", lambda document: document["networking"].update(outbound=outbounds))


def service_removed(mesh: Field) -> Edit:
    """A service that is called is removed with the outbounds that called it, and is back later."""
    called, others = _outbounds(mesh, _to_alternatives), [_fresh(mesh, name) for name in PROTOCOLS]
    using_others = _outbounds(mesh, lambda outbound: outbound["backendRef"].update(_fresh_ref(outbound)))
    return Edit([[], [*others, using_others], [called]])


def _fresh(mesh: Field, name: str) -> Document:
    document = mesh.copy("MeshService", name)
    document["name"] = f"{name}-fresh"
    return document


def _fresh_ref(outbound: Any) -> Document:
    return {"name": f"{outbound['backendRef']['name']}-fresh"}


def timeouts(_: Field) -> Edit:
    short = {"connectionTimeout": "4s", "idleTimeout": "50m", "http": {"streamIdleTimeout": "20m"}}
    other = {"connectionTimeout": "3s", "idleTimeout": "40m", "http": {"maxConnectionDuration": "1h"}}
    return Edit([[], _both("MeshTimeout", short), _both("MeshTimeout", other)])


def access_log(mesh: Field) -> Edit:
    backends = {"backends": [{"type": "File", "file": {"path": str(mesh.folder / "access.log")}}]}
    return Edit([[], _both("MeshAccessLog", backends)])


def tracing(_: Field) -> Edit:
    zipkin = {"type": "Zipkin", "zipkin": {"url": "http://127.0.0.1:9/api/v2/spans", "apiVersion": "httpJson"}}
    spec = {"default": {"backends": [zipkin]}}
    return Edit([[], [{"type": "MeshTrace", "mesh": "default", "name": "edited", "spec": spec}]])


def _protocol(port: Any, protocol: str) -> None:
    port["appProtocol"] = protocol


def http_to_tcp(mesh: Field) -> Edit:
    return Edit([[], _services(mesh, lambda port: _protocol(port, "tcp"), "http", "ws")], proxies_tcp=True)


def http2_to_tcp(mesh: Field) -> Edit:
    """Not of a service that the gateway calls, which would speak HTTP/1 with it then."""
    return Edit([[], _services(mesh, lambda port: _protocol(port, "tcp"), "http2")], proxies_tcp=True)


def http2_to_grpc(mesh: Field) -> Edit:
    as_grpc = _services(mesh, lambda port: _protocol(port, "grpc"), "http2")
    as_http2 = _services(mesh, lambda port: _protocol(port, "http2"), "grpc")
    return Edit([[], [*as_grpc, *as_http2]])


def inbound_http_to_tcp(mesh: Field) -> Edit:
    """Callers' proxies end their connections, too, before Envoy cuts them at the end of the drain time."""
    short = policy("MeshTimeout", "short", mesh_item({"http": {"maxConnectionDuration": "500ms"}}))

    def change(inbound: Any) -> None:
        inbound["tags"]["kuma.io/protocol"] = "tcp"

    return Edit([[short], [short, _inbounds(mesh, change)]], proxies_tcp=True)


def target_port(mesh: Field) -> Edit:
    """The same inbounds, by their numbers in place of their names."""
    numbers = {
        inbound["name"]: inbound["port"] for inbound in mesh.documents["Dataplane", "backend"]["networking"]["inbound"]
    }

    def change(port: Any) -> None:
        port["targetPort"] = numbers[port["targetPort"]]

    return Edit([[], _services(mesh, change, *PROTOCOLS)])


def service_port(mesh: Field) -> Edit:
    """A service gets a second port, callers move to it, and the first is removed."""
    services = [mesh.copy("MeshService", name) for name in PROTOCOLS]
    both = [_with_ports(document, 80, 81) for document in services]
    only = [_with_ports(document, 81) for document in services]
    moved = _outbounds(mesh, lambda outbound: outbound["backendRef"].update(port=81))
    routes = [_gateway_route(name, service, 81) for name, service in GATEWAY_ROUTES.items()]
    return Edit([[], both, [*both, moved, *routes], [*only, moved, *routes], [*both, moved, *routes], both])


def _with_ports(document: Document, *ports: int) -> Document:
    (port,) = document["spec"]["ports"]
    named = [{**port, "port": number, "name": f"p{number}" if number > 80 else port["name"]} for number in ports]
    return {**document, "spec": {**document["spec"], "ports": named}}


def _gateway_route(name: str, service: str, port: int) -> Document:
    document = gateway_route_to(name, service)
    (ref,) = document["spec"]["to"][0]["rules"][0]["default"]["backendRefs"]
    ref["port"] = port
    return document


def routes(_: Field) -> Edit:
    """Routes of one kind, then of the other, to other services."""
    http = [
        http_route(f"to-alt-{name}", name, rule(prefix("/"), to={f"{name}-alt": 1}))
        for name in ("http", "ws", "http2", "grpc")
    ]
    tcp = [_tcp_route(name) for name in PROTOCOLS]
    return Edit([[], [*http, _tcp_route("tcp")], tcp], proxies_tcp=True)


def _tcp_route(name: str) -> Document:
    reference = {"kind": "MeshService", "name": f"{name}-alt", "port": 80, "weight": 1}
    return tcp_route(f"tcp-to-alt-{name}", name, reference)


def mtls(_: Field) -> Edit:
    return Edit([[_mesh("PERMISSIVE")], [_mesh("STRICT")]], way=[[_mesh("PERMISSIVE")]])


def mtls_off_and_on(_: Field) -> Edit:
    """Callers and inbounds hear at the same time that mTLS is off, so that a few calls fail (record 0098)."""
    return Edit([[], [_mesh("PERMISSIVE")]])


def _strict(state: State) -> Edit:
    """Between nothing and a state, with mTLS."""
    strict = _mesh("STRICT")
    return Edit([[strict], [strict, *state]], way=[[_mesh("PERMISSIVE")]])


def permissions(_: Field) -> Edit:
    tags = {"kind": "MeshSubset", "tags": {"kuma.io/service": "client"}}
    items = [
        {"targetRef": {"kind": "Mesh"}, "default": {"action": "Allow"}},
        {"targetRef": tags, "default": {"action": "Allow"}},
        {"targetRef": {"kind": "MeshSubset", "tags": {"kuma.io/service": "other"}}, "default": {"action": "Deny"}},
    ]
    return _strict([{**ALLOW_ALL, "spec": {"from": items}}])


def mesh_tls(_: Field) -> Edit:
    return _strict([_rules("MeshTLS", {"tlsVersion": {"min": "TLS12", "max": "TLS13"}})])


def backend_ref_with_mtls(mesh: Field) -> Edit:
    return _strict([_outbounds(mesh, _to_alternatives)])


def rate_limit(_: Field) -> Edit:
    http = {"requestRate": {"num": 100_000, "interval": "1s"}}
    tcp = {"connectionRate": {"num": 100_000, "interval": "1s"}}
    spec = {**SIDECARS, "rules": [{"default": {"local": {"http": http, "tcp": tcp}}}]}
    return Edit([[], [{"type": "MeshRateLimit", "mesh": "default", "name": "edited", "spec": spec}]])


def fault_injection(_: Field) -> Edit:
    spec = {
        "from": [{"targetRef": {"kind": "Mesh"}, "default": {"http": [{"delay": {"percentage": 50, "value": "5ms"}}]}}]
    }
    document = {"type": "MeshFaultInjection", "mesh": "default", "name": "edited", "spec": {**SIDECARS, **spec}}
    return Edit([[], [document]])


def circuit_breaker(_: Field) -> Edit:
    limits = {"connectionLimits": {"maxConnections": 5000, "maxPendingRequests": 5000, "maxRequests": 5000}}
    return Edit([[], _both("MeshCircuitBreaker", limits)])


def health_check(_: Field) -> Edit:
    checks = {"interval": "200ms", "timeout": "2s", "unhealthyThreshold": 3, "healthyThreshold": 1, "tcp": {}}
    return Edit([[], [policy("MeshHealthCheck", "edited", mesh_item({**checks, "http": {"disabled": True}}))]])


def retry(_: Field) -> Edit:
    default = {"http": {"numRetries": 2}, "grpc": {"numRetries": 2}, "tcp": {"maxConnectAttempt": 3}}
    return Edit([[], [policy("MeshRetry", "edited", mesh_item(default))]])


def load_balancing(_: Field) -> Edit:
    default = {"loadBalancer": {"type": "LeastRequest"}}
    return Edit([[], [policy("MeshLoadBalancingStrategy", "edited", mesh_item(default))]])


def metric(mesh: Field) -> Edit:
    port = free_port(mesh.client_host)
    backends = [{"type": "Prometheus", "prometheus": {"port": port, "path": "/metrics"}}]
    spec = {"targetRef": {"kind": "Dataplane", "name": "client"}, "default": {"backends": backends}}
    return Edit([[], [{"type": "MeshMetric", "mesh": "default", "name": "edited", "spec": spec}]])


def proxy_patch(_: Field) -> Edit:
    listener = {"listener": {"operation": "Patch", "value": "perConnectionBufferLimitBytes: 524288"}}
    cluster = {"cluster": {"operation": "Patch", "value": "connectTimeout: 4s"}}
    patches = [
        {
            "type": "MeshProxyPatch",
            "mesh": "default",
            "name": f"edited-{number}",
            "spec": {"default": {"appendModifications": [modification]}},
        }
        for number, modification in enumerate((listener, cluster))
    ]
    return Edit([[], patches])


def inbound_tags(mesh: Field) -> Edit:
    return Edit([[], [_inbounds(mesh, lambda inbound: inbound["tags"].update(version="2"))]])


def service_probe(mesh: Field) -> Edit:
    return Edit([[], [_inbounds(mesh, lambda inbound: inbound.update(serviceProbe={"tcp": {}}))]])


def gateway_hostnames(mesh: Field) -> Edit:
    wide = gateway_listeners(mesh, "*.example.com", "edge-cert")
    return Edit([[], [mesh_gateway("edge", *wide)]])


def gateway_certificates(mesh: Field) -> Edit:
    """Another Secret, and another content of the same Secret."""
    other = [secret("edge-other", certified(HOST)), mesh_gateway("edge", *gateway_listeners(mesh, HOST, "edge-other"))]
    return Edit([[], other, [secret("edge-cert", certified(HOST))]])


def gateway_routes(_: Field) -> Edit:
    return Edit([[], [gateway_route_to(name, f"{service}-alt") for name, service in GATEWAY_ROUTES.items()]])


def gateway_listener_added(mesh: Field) -> Edit:
    more = {"port": free_port(mesh.gateway_host), "protocol": "HTTP", "hostname": "*", "tags": {"to": "http"}}
    return Edit([[], [mesh_gateway("edge", *gateway_listeners(mesh, HOST, "edge-cert"), more)]])


def by_name(*edits: EditOf) -> dict[str, EditOf]:
    return {edit.__name__.replace("_", "-"): edit for edit in edits}


EDITS: Final = by_name(
    outbound_backend_ref,
    outbound_port,
    tag_outbounds,
    service_removed,
    service_port,
    target_port,
    timeouts,
    access_log,
    tracing,
    http_to_tcp,
    http2_to_tcp,
    http2_to_grpc,
    inbound_http_to_tcp,
    routes,
    mtls,
    mtls_off_and_on,
    permissions,
    mesh_tls,
    backend_ref_with_mtls,
    rate_limit,
    fault_injection,
    circuit_breaker,
    health_check,
    retry,
    load_balancing,
    metric,
    proxy_patch,
    inbound_tags,
    service_probe,
    gateway_hostnames,
    gateway_certificates,
    gateway_routes,
    gateway_listener_added,
)
