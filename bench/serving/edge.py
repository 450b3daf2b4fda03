"""The mesh of a run with gateways: many hostnames, over HTTPS and in plain HTTP, and the documents that edits write."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bench.serving import mesh
from cp.model.document import Document

HTTPS: Final = "https"
HTTP: Final = "http"
ROUTES: Final = 5
"""How many routes each hostname has."""


@dataclass(frozen=True, slots=True)
class Edge:
    """The size of the gateways, and the ports on which they listen."""

    hostnames: int
    services: int
    ports: tuple[tuple[str, int], ...]
    """By protocol."""


def documents(edge: Edge) -> Iterator[Document]:
    """One sidecar that calls every service, and two gateways to the same services."""
    yield from mesh.documents(1, edge.services)
    for protocol, port in edge.ports:
        yield mesh.of(_proxy(protocol))
        yield mesh.of(_gateway(edge, protocol, port))
        for host in range(edge.hostnames):
            for number in range(ROUTES):
                yield mesh.of(route(protocol, host, number, (host * ROUTES + number) % edge.services))


def proxy_name(protocol: str) -> str:
    return f"edge-{protocol}"


def certificates(edge: Edge) -> Iterator[dict[str, Any]]:
    return (certificate(number) for number in range(edge.hostnames))


def certificate(host: int) -> dict[str, Any]:
    """A certificate for one hostname, new each time."""
    data = base64.b64encode(_pem(_hostname(host))).decode()
    return {"type": "Secret", "mesh": mesh.MESH, "name": f"certificate-{host}", "data": data}


def route(protocol: str, host: int, number: int, service: int) -> dict[str, Any]:
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": f"/{number}"}}],
        "default": {"backendRefs": [{"kind": "MeshService", "name": f"s{service}", "port": 80}]},
    }
    to = [{"targetRef": {"kind": "Mesh"}, "hostnames": [_hostname(host)], "rules": [rule]}]
    return _of_gateway("MeshHTTPRoute", f"{protocol}-{host}-{number}", protocol, to)


def timeout_of_route(protocol: str, seconds: int) -> dict[str, Any]:
    target = {"kind": "MeshHTTPRoute", "name": f"{protocol}-1-1"}
    return _of_gateway("MeshTimeout", f"{protocol}-route", protocol, [_timeout(target, seconds)])


def timeout_of_all(protocol: str, seconds: int) -> dict[str, Any]:
    return _of_gateway("MeshTimeout", f"{protocol}-all", protocol, [_timeout({"kind": "Mesh"}, seconds)])


def _timeout(target: dict[str, Any], seconds: int) -> dict[str, Any]:
    return {"targetRef": target, "default": {"http": {"requestTimeout": f"{seconds}s"}}}


def _of_gateway(type_: str, name: str, protocol: str, to: list[dict[str, Any]]) -> dict[str, Any]:
    top = {"kind": "MeshGateway", "name": proxy_name(protocol)}
    return {"type": type_, "mesh": mesh.MESH, "name": name, "spec": {"targetRef": top, "to": to}}


def _hostname(number: int) -> str:
    return f"h{number}.example.com"


def _proxy(protocol: str) -> dict[str, Any]:
    gateway = {"type": "BUILTIN", "tags": {"kuma.io/service": proxy_name(protocol)}}
    networking = {"address": "127.0.0.1", "gateway": gateway}
    return {"type": "Dataplane", "mesh": mesh.MESH, "name": proxy_name(protocol), "networking": networking}


def _gateway(edge: Edge, protocol: str, port: int) -> dict[str, Any]:
    """With TLS each hostname has a listener and a certificate; without, one listener is for all."""
    listeners: list[dict[str, Any]] = [{"port": port, "protocol": "HTTP"}]
    if protocol == HTTPS:
        listeners = [_listener(port, number) for number in range(edge.hostnames)]
    selectors = [{"match": {"kuma.io/service": proxy_name(protocol)}}]
    conf = {"listeners": listeners}
    return {
        "type": "MeshGateway",
        "mesh": mesh.MESH,
        "name": proxy_name(protocol),
        "selectors": selectors,
        "conf": conf,
    }


def _listener(port: int, number: int) -> dict[str, Any]:
    tls = {"mode": "TERMINATE", "certificates": [{"secret": f"certificate-{number}"}]}
    return {"port": port, "protocol": "HTTPS", "hostname": _hostname(number), "tls": tls}


def _pem(host: str) -> bytes:
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
    issued = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return issued.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM) + private
