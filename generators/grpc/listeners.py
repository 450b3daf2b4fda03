"""API listeners: what a gRPC client asks for first, by the name that stands in its target."""

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

_TAKEN: Final = (HTTPFault.DESCRIPTOR,)
"""The filters that act in a client, beside the router, which must be the last."""


def api_listeners(targets: Sequence[str], listener: Listener) -> Iterator[Listener]:
    """One for each name. What is carried as TCP is nothing for a gRPC client."""
    manager = _manager(listener)
    if manager is None:
        return
    taken = pack(_taken_manager(manager))
    for target in targets:
        api_listener = Listener(name=target)
        api_listener.api_listener.api_listener.CopyFrom(taken)
        yield api_listener


def _manager(listener: Listener) -> HttpConnectionManager | None:
    manager = HttpConnectionManager()
    for chain in listener.filter_chains:
        for network_filter in chain.filters:
            if network_filter.typed_config.Unpack(manager):
                return manager
    return None


def _taken_manager(manager: HttpConnectionManager) -> HttpConnectionManager:
    taken = HttpConnectionManager(stat_prefix=manager.stat_prefix)
    taken.rds.CopyFrom(manager.rds)
    limit = manager.common_http_protocol_options
    if limit.HasField("max_stream_duration"):
        taken.common_http_protocol_options.max_stream_duration.CopyFrom(limit.max_stream_duration)
    filters = {
        http_filter.name: http_filter for http_filter in reversed(manager.http_filters) if _is_taken(http_filter)
    }
    taken.http_filters.extend(reversed(filters.values()))
    taken.http_filters.append(HttpFilter(name=names.ROUTER, typed_config=pack(Router())))
    return taken


def _is_taken(http_filter: HttpFilter) -> bool:
    return any(http_filter.typed_config.Is(descriptor) for descriptor in _TAKEN)
