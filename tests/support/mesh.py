"""Documents that nearly every test with real proxies needs, so that each test shows only what it is about."""

from base64 import b64encode
from dataclasses import dataclass, field
from typing import Any

from tests.support.loopback import Address, free_port, new_host

Document = dict[str, Any]

MESH: Document = {"type": "Mesh", "name": "default", "skipCreatingInitialPolicies": ["*"]}


@dataclass(frozen=True, slots=True)
class Proxy:
    """A dataplane with addresses of its own: one inbound called `http`, any number of outbounds."""

    name: str
    service: str
    workload: Address | None = None
    """Where the service behind its inbound listens."""

    tags: dict[str, str] = field(default_factory=dict)
    backends: tuple[str, ...] = ()
    """What it calls: MeshServices (`backend`, `backend:8080`), with `tag=` values of `kuma.io/service`, and with
    `external=` MeshExternalServices."""

    protocol: str = "http"
    mesh: str = "default"
    gateway: str = ""
    """BUILTIN or DELEGATED for a gateway, which has no inbounds."""

    host: str = field(default_factory=new_host)
    ports: dict[str, int] = field(default_factory=dict)

    def port(self, use: str) -> int:
        """A port of its own for each use, the same each time it is asked for."""
        return self.ports.setdefault(use, free_port(self.host))

    @property
    def inbound(self) -> Address:
        return Address(self.host, self.port("inbound"))

    @property
    def admin(self) -> Address:
        return Address(self.host, self.port("admin"))

    def outbound(self, backend: str | None = None) -> Address:
        """Where its workload calls a backend; without a name, the first."""
        return Address(self.host, self.port(backend or self.backends[0]))

    @property
    def document(self) -> Document:
        networking: Document = {
            "address": self.host,
            "admin": {"port": self.admin.port},
            "outbound": [self._outbound(backend) for backend in self.backends],
        }
        if self.gateway:
            tags = {"kuma.io/service": self.service, **self.tags}
            networking |= {"gateway": {"type": self.gateway, "tags": tags}}
        else:
            networking |= {"inbound": [self._inbound()]}
        if self.gateway == "BUILTIN":
            del networking["outbound"]
        return {"type": "Dataplane", "mesh": self.mesh, "name": self.name, "networking": networking}

    def _inbound(self) -> Document:
        workload = self.workload or Address(self.host, self.port("nobody"))
        tags = {"kuma.io/service": self.service, "kuma.io/protocol": self.protocol, **self.tags}
        service = {"serviceAddress": workload.host, "servicePort": workload.port}
        return {"name": "main", "port": self.inbound.port, **service, "tags": tags}

    def _outbound(self, backend: str) -> Document:
        where = {"address": self.host, "port": self.outbound(backend).port}
        if backend.startswith("tag="):
            return {**where, "tags": {"kuma.io/service": backend.removeprefix("tag=")}}
        if backend.startswith("external="):
            return {**where, "backendRef": {"kind": "MeshExternalService", "name": backend.removeprefix("external=")}}
        name, _, port = backend.partition(":")
        return {**where, "backendRef": {"kind": "MeshService", "name": name, "port": int(port or 80)}}


def bare_dataplane(name: str, service: str, workload: Address, state: str = "Ready", **tags: str) -> Document:
    """A dataplane whose inbound is the workload itself."""
    tags = {"kuma.io/service": service, **{key.replace("__", "/"): value for key, value in tags.items()}}
    inbound = {"name": "main", "port": workload.port, "state": state, "tags": tags}
    networking = {"address": workload.host, "inbound": [inbound]}
    return {"type": "Dataplane", "mesh": "default", "name": name, "networking": networking}


def mesh_service(name: str, protocol: str = "http", mesh: str = "default", **tags: str) -> Document:
    """A service on port 80 whose endpoints are the inbounds with these tags, or with its name."""
    selected = {key.replace("__", "/"): value for key, value in tags.items()} or {"kuma.io/service": name}
    port = {"name": "main", "port": 80, "targetPort": "main", "appProtocol": protocol}
    spec = {"selector": {"dataplaneTags": selected}, "ports": [port]}
    return {"type": "MeshService", "mesh": mesh, "name": name, "spec": spec}


def external_service(name: str, *endpoints: Document, protocol: str = "http", **spec: Any) -> Document:
    """A service outside the mesh, on port 80."""
    match = {"type": "HostnameGenerator", "port": 80, "protocol": protocol}
    return {
        "type": "MeshExternalService",
        "mesh": "default",
        "name": name,
        "spec": {"match": match, "endpoints": list(endpoints), **spec},
    }


def legacy_external_service(
    name: str, service: str, address: str, tls: Document | None = None, **tags: Any
) -> Document:
    """An ExternalService, which is called by its tag."""
    all_tags = {"kuma.io/service": service, "kuma.io/protocol": "http", **tags}
    networking = {"address": address} | ({} if tls is None else {"tls": tls})
    return {"type": "ExternalService", "mesh": "default", "name": name, "networking": networking, "tags": all_tags}


def mesh_gateway(name: str, *listeners: Document) -> Document:
    """A gateway that listens like this, on the proxies of the service with its name."""
    selectors = [{"match": {"kuma.io/service": name}}]
    return {
        "type": "MeshGateway",
        "mesh": "default",
        "name": name,
        "selectors": selectors,
        "conf": {"listeners": list(listeners)},
    }


def listener(port: int, protocol: str = "HTTP", hostname: str = "*", *secrets: str, **more: Any) -> Document:
    """A listener of a gateway. With the names of Secrets it terminates TLS."""
    certificates = [{"secret": name} for name in secrets]
    tls = {"tls": {"mode": "TERMINATE", "certificates": certificates}} if certificates else {}
    return {"port": port, "protocol": protocol, "hostname": hostname, **tls, **more}


def gateway_route(name: str, gateway: str, *rules: Document, hostnames: tuple[str, ...] = (), **tags: str) -> Document:
    """An HTTP route for the listeners of a gateway with these tags."""
    item = {"targetRef": {"kind": "Mesh"}, "rules": list(rules)} | ({"hostnames": list(hostnames)} if hostnames else {})
    target = {"kind": "MeshGateway", "name": gateway} | ({"tags": tags} if tags else {})
    return policy("MeshHTTPRoute", name, item, target=target)


def secret(name: str, content: bytes) -> Document:
    return {"type": "Secret", "mesh": "default", "name": name, "data": b64encode(content).decode()}


def policy(kind: str, name: str, *to: Document, target: Document | None = None, mesh: str = "default") -> Document:
    """A policy with its `to` items."""
    spec: Document = {"targetRef": target} if target else {}
    return {"type": kind, "mesh": mesh, "name": name, "spec": {**spec, "to": list(to)}}


def service_item(name: str, default: Document) -> Document:
    return {"targetRef": {"kind": "MeshService", "name": name}, "default": default}


def route_item(name: str, default: Document, kind: str = "MeshHTTPRoute") -> Document:
    return {"targetRef": {"kind": kind, "name": name}, "default": default}


def mesh_item(default: Document) -> Document:
    return {"targetRef": {"kind": "Mesh"}, "default": default}


def request_timeout(duration: str) -> Document:
    return {"http": {"requestTimeout": duration}}


def subset(**tags: str) -> Document:
    return {"kind": "MeshSubset", "tags": {name.replace("__", "/"): value for name, value in tags.items()}}


def http_route(name: str, service: str, *rules: Document, target: Document | None = None) -> Document:
    item = {"targetRef": {"kind": "MeshService", "name": service}, "rules": list(rules)}
    return policy("MeshHTTPRoute", name, item, target=target)


def tcp_route(name: str, service: str, *backends: Document) -> Document:
    rules = [{"default": {"backendRefs": list(backends)}}]
    return policy("MeshTCPRoute", name, {"targetRef": {"kind": "MeshService", "name": service}, "rules": rules})


def rule(*matches: Document, to: dict[str, int] | None = None, **default: Any) -> Document:
    """One rule of a route: what it matches, and the backends with their weights."""
    backends = [backend(name, weight) for name, weight in (to or {}).items()]
    return {"matches": list(matches), "default": {**({"backendRefs": backends} if backends else {}), **default}}


def backend(name: str, weight: int = 1) -> Document:
    return {"kind": "MeshService", "name": name, "port": 80, "weight": weight}


def prefix(value: str) -> Document:
    return {"path": {"type": "PathPrefix", "value": value}}
