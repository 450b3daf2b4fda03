"""A gateway at the edge of a mesh, and clients that come from outside."""

import socket
import ssl
from dataclasses import dataclass
from typing import Final

import trustme
from cryptography import x509

from tests.support.client import Answer, ClientTls, Traffic, call
from tests.support.envoy import Envoy
from tests.support.loopback import Address
from tests.support.mesh import Document, Proxy, gateway_route, prefix, rule
from tests.support.playground import Playground

CA: Final = trustme.CA()
"""Whom all clients trust."""

RSA, ECDSA = trustme.KeyType.RSA, trustme.KeyType.ECDSA


@dataclass(frozen=True)
class Edge:
    """A builtin gateway with its mesh."""

    mesh: Playground
    proxy: Proxy

    @property
    def envoy(self) -> Envoy:
        return self.mesh.envoys[self.proxy.name]

    def address(self, use: str) -> Address:
        """Where it listens for some use: a port of its own for each."""
        return Address(self.proxy.host, self.proxy.port(use))

    def serves(self, *documents: Document) -> None:
        """Write documents, and wait until the gateway has answered them."""
        self.mesh.control_plane.apply(*documents)
        self.mesh.control_plane.in_force()


def certified(*names: str, key_type: trustme.KeyType = ECDSA) -> bytes:
    """A certificate and its key, as a Secret of a gateway has them."""
    issued = CA.issue_cert(*names, key_type=key_type)
    return issued.cert_chain_pems[0].bytes() + issued.private_key_pem.bytes()


def trusting(ciphers: str = "") -> ssl.SSLContext:
    """What a client trusts. With ciphers, it speaks TLS 1.2, where they tell which certificate it takes."""
    context = ssl.create_default_context()
    CA.configure_trust(context)
    if ciphers:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(ciphers)
    return context


def get(address: Address, host: str, sni: str | None = None, path: str = "/", **headers: str) -> Answer:
    """Ask for a host over TLS, on a connection for another one if there is an `sni`."""
    tls = ClientTls(trusting(), host.partition(":")[0] if sni is None else sni)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return call(address, path, headers={"Host": host, **named}, tls=tls, timeout=5)


def steady(address: Address, host: str, *, over_tls: bool = True) -> Traffic:
    """Steady requests for a host."""
    tls = ClientTls(trusting(), host) if over_tls else None
    return Traffic(address, per_second=25, headers={"Host": host}, tls=tls)


def shown(address: Address, host: str, ciphers: str = "") -> x509.Certificate:
    """The certificate that clients see who ask for a host."""
    with (
        socket.create_connection(address, 5) as connection,
        trusting(ciphers).wrap_socket(connection, server_hostname=host) as over_tls,
    ):
        return x509.load_der_x509_certificate(over_tls.getpeercert(binary_form=True) or b"")


def is_closed(address: Address, sni: str | None) -> bool:
    """Whether a client who asks for this name gets no TLS at all."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(address, 5) as connection, context.wrap_socket(connection, server_hostname=sni):
            return False
    except (ssl.SSLError, ConnectionError):
        return True


def all_to(service: str, *hostnames: str, gateway: str = "edge", **tags: str) -> Document:
    """A route for all requests to a service."""
    return gateway_route(f"to-{service}", gateway, rule(prefix("/"), to={service: 1}), hostnames=hostnames, **tags)
