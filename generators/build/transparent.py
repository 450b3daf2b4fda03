"""The catch-all listeners of a proxy: they take all connections that the machine redirects to it.

Each passes a connection on to the listener whose address it was sent to, whether that listener is bound or not. A
connection for no listener goes to the address to which it was sent, as far as the capture lets it: always, never, or
only through an exit (`exits`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from envoy.config.core.v3.base_pb2 import TrafficDirection
from envoy.config.listener.v3.listener_components_pb2 import FilterChain
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.listener.original_dst.v3.original_dst_pb2 import OriginalDst

from generators.build.exits import add_exits, original_address_cluster, tcp_filter
from generators.envoy import names
from generators.envoy.edit import pack, set_address
from generators.proxy import Passthrough

if TYPE_CHECKING:
    from envoy.config.cluster.v3.cluster_pb2 import Cluster
    from envoy.config.route.v3.route_pb2 import RouteConfiguration
    from google.protobuf.message import Message

    from generators.proxy import Capture

_LOOP: Final = "loop"
"""The filter chain for connections that were sent to the proxy's own port."""

_UNASSIGNED: Final = "nobodys"
"""The filter chain for virtual addresses that no destination of the proxy has."""

_Resource: TypeAlias = "Listener | Cluster | RouteConfiguration"


@dataclass(frozen=True, slots=True)
class _Family:
    """IPv4 or IPv6."""

    name: str
    """As it stands in the names of listeners and clusters."""

    anywhere: str
    """The address that stands for every address of the machine."""

    source: str
    """The address from which a proxy calls its own workload, so that such a call is not redirected once more."""


_IPV4: Final = _Family("ipv4", "0.0.0.0", "127.0.0.6")  # noqa: S104  # what is redirected can have been sent anywhere
_IPV6: Final = _Family("ipv6", "::", "::6")


def catch_all(capture: Capture) -> Iterator[tuple[str, Message]]:
    """The catch-all listeners, and the clusters for connections that no other listener takes."""
    for family in (_IPV4, _IPV6) if capture.has_ipv6 else (_IPV4,):
        for message in (*_outbound(capture, family), *_inbound(capture, family)):
            yield message.name, message


def _outbound(capture: Capture, family: _Family) -> Iterable[_Resource]:
    name = names.passthrough("outbound", family.name)
    listener = _listener(name, TrafficDirection.OUTBOUND, family, capture.outbound_port)
    if family is _IPV4 and capture.virtual_network:
        unassigned = listener.filter_chains.add(name=_UNASSIGNED, filters=[tcp_filter(names.MISSING_CLUSTER, name)])
        address, _, bits = capture.virtual_network.partition("/")
        unassigned.filter_chain_match.prefix_ranges.add(address_prefix=address).prefix_len.value = int(bits)
    if capture.passthrough is Passthrough.MATCHED:
        return (listener, *add_exits(listener, capture.exits))
    is_open = capture.passthrough is Passthrough.ALL
    listener.filter_chains.add().filters.append(tcp_filter(name if is_open else names.MISSING_CLUSTER, name))
    return (listener, original_address_cluster(name)) if is_open else (listener,)


def _inbound(capture: Capture, family: _Family) -> Iterator[_Resource]:
    port = capture.inbound_port if family is _IPV4 else capture.inbound_port_v6
    if port == 0:
        return
    name = names.passthrough("inbound", family.name)
    listener = _listener(name, TrafficDirection.INBOUND, family, port)
    listener.filter_chains.add().filters.append(tcp_filter(name, name))
    yield listener
    cluster = original_address_cluster(name)
    source = cluster.upstream_bind_config.source_address
    source.address, source.port_value = family.source, 0
    yield cluster


def _listener(name: str, direction: TrafficDirection.ValueType, family: _Family, port: int) -> Listener:
    """A catch-all listener. Connections sent to its own port were not redirected; passing them on would be a loop."""
    listener = Listener(name=name, traffic_direction=direction)
    set_address(listener.address, family.anywhere, port)
    listener.use_original_dst.value = True
    # Envoy adds this filter itself, but behind the inspectors, whose port conditions need the original address.
    listener.listener_filters.add(name=names.ORIGINAL_DST, typed_config=pack(OriginalDst()))
    loop = FilterChain(name=_LOOP, filters=[tcp_filter(names.MISSING_CLUSTER, name)])
    loop.filter_chain_match.destination_port.value = port
    listener.filter_chains.append(loop)
    return listener
