"""API listeners: the first resource that a gRPC client asks for, by the name in its target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.http.fault.v3.fault_pb2 import HTTPFault
from envoy.extensions.filters.http.router.v3.router_pb2 import Router
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
    HttpFilter,
)

from generators.envoy import names
from generators.envoy.edit import pack

_KNOWN_FILTERS: Final = (HTTPFault.DESCRIPTOR,)
"""The HTTP filters that gRPC clients implement, without the router, which must be the last."""


def api_listeners(targets: Sequence[str], listener: Listener) -> Iterator[Listener]:
    """A listener for each target; none for a TCP listener, which a gRPC client cannot use."""
    manager = _manager(listener)
    if manager is None:
        return
    reduced = pack(_grpc_manager(manager))
    for target in targets:
        api_listener = Listener(name=target)
        api_listener.api_listener.api_listener.CopyFrom(reduced)
        yield api_listener


def _manager(listener: Listener) -> HttpConnectionManager | None:
    manager = HttpConnectionManager()
    for chain in listener.filter_chains:
        for network_filter in chain.filters:
            if network_filter.typed_config.Unpack(manager):
                return manager
    return None


def _grpc_manager(manager: HttpConnectionManager) -> HttpConnectionManager:
    reduced = HttpConnectionManager(stat_prefix=manager.stat_prefix)
    reduced.rds.CopyFrom(manager.rds)
    limit = manager.common_http_protocol_options
    if limit.HasField("max_stream_duration"):
        reduced.common_http_protocol_options.max_stream_duration.CopyFrom(limit.max_stream_duration)
    filters = {
        http_filter.name: http_filter for http_filter in reversed(manager.http_filters) if _is_known(http_filter)
    }
    reduced.http_filters.extend(reversed(filters.values()))
    reduced.http_filters.append(HttpFilter(name=names.ROUTER, typed_config=pack(Router())))
    return reduced


def _is_known(http_filter: HttpFilter) -> bool:
    return any(http_filter.typed_config.Is(descriptor) for descriptor in _KNOWN_FILTERS)
