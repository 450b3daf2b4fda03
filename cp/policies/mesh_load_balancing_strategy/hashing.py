"""What a request or a connection is recognised by, so that it goes where others like it went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cp.policies.mesh_load_balancing_strategy.schema import Conf, Cookie, HashPolicy
from generators.envoy.edit import set_duration

if TYPE_CHECKING:
    from envoy.config.route.v3.route_components_pb2 import RouteAction
    from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy


def hash_policies(conf: Conf) -> Sequence[HashPolicy]:
    """Those beside the load balancer, or else those inside of the one that is chosen."""
    if conf.hash_policies is not None or conf.load_balancer is None:
        return conf.hash_policies or ()
    balancer = conf.load_balancer
    nested = {"RingHash": balancer.ring_hash, "Maglev": balancer.maglev}.get(balancer.type or "")
    return (nested.hash_policies if nested is not None else None) or ()


def write_of_requests(action: RouteAction, policies: Sequence[HashPolicy]) -> None:
    for policy in policies:
        if policy.type in {"Connection", "SourceIP"} and not is_by_source(policy):
            continue
        message = action.hash_policy.add(terminal=policy.terminal is True)
        if policy.type == "Header" and policy.header is not None:
            message.header.header_name = policy.header.name
        elif policy.type == "Cookie" and policy.cookie is not None:
            _write_cookie(message.cookie, policy.cookie)
        elif policy.type == "QueryParameter" and policy.query_parameter is not None:
            message.query_parameter.name = policy.query_parameter.name
        elif policy.type == "FilterState" and policy.filter_state is not None:
            message.filter_state.key = policy.filter_state.key
        else:
            message.connection_properties.source_ip = True


def write_of_connections(tcp: TcpProxy, policies: Sequence[HashPolicy]) -> None:
    """A connection has one hash policy: the first that applies to connections."""
    for policy in policies:
        if policy.type == "FilterState" and policy.filter_state is not None:
            tcp.hash_policy.add().filter_state.key = policy.filter_state.key
            return
        if policy.type in {"Connection", "SourceIP"} and is_by_source(policy):
            tcp.hash_policy.add().source_ip.SetInParent()
            return


def is_by_source(policy: HashPolicy) -> bool:
    """A connection has only its source address, so a policy without `sourceIP` means it too."""
    return policy.connection is None or policy.connection.source_ip is not False


def _write_cookie(message: RouteAction.HashPolicy.Cookie, cookie: Cookie) -> None:
    message.name = cookie.name
    set_duration(message.ttl, cookie.ttl)
    if cookie.path is not None:
        message.path = cookie.path
