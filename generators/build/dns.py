"""The DNS listener, which resolves names for the workload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from envoy.config.core.v3.address_pb2 import SocketAddress
from envoy.config.core.v3.base_pb2 import TrafficDirection
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.udp.dns_filter.v3.dns_filter_pb2 import DnsFilterConfig

from generators.envoy import names
from generators.envoy.edit import pack, set_address

if TYPE_CHECKING:
    from generators.proxy import Hosts

_ANSWER_SECONDS: Final = 30
"""The TTL of answers; Envoy accepts no shorter one."""

_RESOLVER_SECONDS: Final = 5
_PENDING: Final = 256


def dns_listener(hosts: Hosts) -> Iterator[tuple[str, Listener]]:
    """The DNS listener: it answers for names of the mesh, and asks the machine's resolvers for all others."""
    listener = Listener(name=names.DNS, traffic_direction=TrafficDirection.OUTBOUND)
    set_address(listener.address, names.LOOPBACK, hosts.port)
    listener.address.socket_address.protocol = SocketAddress.UDP
    listener.udp_listener_config.SetInParent()
    config = DnsFilterConfig(stat_prefix=names.DNS)
    for name, address in hosts.names:
        domain = config.server_config.inline_dns_table.virtual_domains.add(name=name)
        domain.endpoint.address_list.address.append(address)
        domain.answer_ttl.seconds = _ANSWER_SECONDS
    config.client_config.resolver_timeout.seconds = _RESOLVER_SECONDS
    config.client_config.max_pending_lookups = _PENDING
    listener.listener_filters.add(name=names.DNS_FILTER, typed_config=pack(config))
    yield listener.name, listener
