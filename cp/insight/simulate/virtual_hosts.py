"""The virtual host of a route table that takes a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cp.insight.simulate.conditions import UnsimulatedFeature

if TYPE_CHECKING:
    from envoy.config.route.v3.route_components_pb2 import VirtualHost
    from envoy.config.route.v3.route_pb2 import RouteConfiguration

_NOT_AT_ALL = (0, 0)


def virtual_host_of(table: RouteConfiguration, authority: str) -> VirtualHost | None:
    """The virtual host with the domain that fits best: the same name, the longest `*.a.b`, the longest `a.*`, then `*`.

    https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/route/v3/route_components.proto#config-route-v3-virtualhost
    """
    if table.vhost_header or table.HasField("vhds"):
        raise UnsimulatedFeature(f"the virtual hosts of {table.name}")
    name = authority.lower()
    if table.ignore_port_in_host_matching:
        name = _without_port(name)
    hosts = enumerate(table.virtual_hosts)
    fits = ((_fit(domain.lower(), name), -index) for index, host in hosts for domain in host.domains)
    best_fit, negative_index = max(fits, default=(_NOT_AT_ALL, 0))  # of equal fits, the first in the table
    if best_fit == _NOT_AT_ALL:
        return None
    host = table.virtual_hosts[-negative_index]
    if host.HasField("matcher") or host.require_tls:
        raise UnsimulatedFeature(f"the virtual host {host.name}")
    return host


def _fit(domain: str, name: str) -> tuple[int, int]:
    """How well a domain fits a name: the rank of the kind of domain, zero for no fit, and then its length."""
    if domain == "*":
        return 1, 0
    if domain.startswith("*"):
        return (3, len(domain)) if name.endswith(domain[1:]) and len(name) >= len(domain) else _NOT_AT_ALL
    if domain.endswith("*"):
        return (2, len(domain)) if name.startswith(domain[:-1]) and len(name) >= len(domain) else _NOT_AT_ALL
    return (4, len(domain)) if domain == name else _NOT_AT_ALL


def _without_port(name: str) -> str:
    """The host without what follows its last colon, a number or not, unless that colon is part of an IPv6 address."""
    host, colon, port = name.rpartition(":")
    return host if colon and "]" not in port else name
