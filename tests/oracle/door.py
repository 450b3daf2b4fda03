"""Who is let in by what a proxy is served: its RBAC filters, evaluated as Envoy documents them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from envoy.config.listener.v3.listener_components_pb2 import FilterChain
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.rbac.v3.rbac_pb2 import RBAC, Permission, Principal
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as http_rbac
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.rbac.v3 import rbac_pb2 as network_rbac
from envoy.type.matcher.v3.string_pb2 import StringMatcher

from cp.translate.packing import LISTENER
from cp.translate.snapshot import Snapshot

REFUSED: Final = "refused"
LET_IN: Final = "let in"
LOGGED: Final = "let in, and logged as one who might be denied"

_TLS: Final = "tls"
_PLAIN: Final = "raw_buffer"


@dataclass(frozen=True)
class Client:
    """What a client shows over TLS."""

    uris: tuple[str, ...]
    server_name: str = ""


def listener(snapshot: Snapshot, address: str, port: int) -> Listener | None:
    """The listener of an inbound; None if there is none."""
    decoded = (Listener.FromString(packed.body) for packed in snapshot.of(LISTENER))
    places = ((one.address.socket_address, one) for one in decoded)
    return next((one for at, one in places if (at.address, at.port_value) == (address, port)), None)


def lets_in(listener: Listener, client: Client | None) -> str:
    """What becomes of a client; without one: of a caller in plain text."""
    chain = _chain(listener, over_tls=client is not None)
    if chain is None:
        return REFUSED
    filters = list(_filters(chain))
    if client is None:
        assert not filters, "who shows nothing cannot be judged"
        return LET_IN
    if not all(_passes(rules, client) for rules, _ in filters if rules is not None):
        return REFUSED
    is_logged = any(not _passes(shadow, client) for _, shadow in filters if shadow is not None)
    return LOGGED if is_logged else LET_IN


def takes_tls(listener: Listener) -> bool:
    return _chain(listener, over_tls=True) is not None


def _chain(listener: Listener, *, over_tls: bool) -> FilterChain | None:
    """The chain that ends the TLS of the mesh, or that takes plain text."""
    for chain in listener.filter_chains:
        has_socket = chain.HasField("transport_socket")
        protocol = chain.filter_chain_match.transport_protocol
        if has_socket is over_tls and protocol in {"", _TLS if over_tls else _PLAIN}:
            return chain
    return None


def _filters(chain: FilterChain) -> Iterator[tuple[RBAC | None, RBAC | None]]:
    for network_filter in chain.filters:
        of_network, manager = network_rbac.RBAC(), HttpConnectionManager()
        if network_filter.typed_config.Unpack(of_network):
            yield _tables(of_network)
        elif network_filter.typed_config.Unpack(manager):
            for http_filter in manager.http_filters:
                of_http = http_rbac.RBAC()
                if http_filter.typed_config.Unpack(of_http):
                    yield _tables(of_http)


def _tables(message: network_rbac.RBAC | http_rbac.RBAC) -> tuple[RBAC | None, RBAC | None]:
    rules = message.rules if message.HasField("rules") else None
    is_judging = message.HasField("shadow_rules") and message.shadow_rules.action != RBAC.LOG
    return rules, message.shadow_rules if is_judging else None


def _passes(rules: RBAC, client: Client) -> bool:
    """ALLOW lets in who fits some policy, DENY who fits none."""
    fits = any(
        any(_permits(permission, client) for permission in policy.permissions)
        and any(_is(principal, client) for principal in policy.principals)
        for policy in rules.policies.values()
    )
    assert rules.action in {RBAC.ALLOW, RBAC.DENY}
    return fits if rules.action == RBAC.ALLOW else not fits


def _permits(permission: Permission, client: Client) -> bool:
    kind = permission.WhichOneof("rule")
    if kind == "any":
        return permission.any
    assert kind == "requested_server_name", kind
    return _fits(permission.requested_server_name, [client.server_name])


def _is(principal: Principal, client: Client) -> bool:
    match principal.WhichOneof("identifier"):
        case "any":
            return principal.any
        case "and_ids":
            return all(_is(inner, client) for inner in principal.and_ids.ids)
        case "not_id":
            return not _is(principal.not_id, client)
        case "authenticated":
            return _fits(principal.authenticated.principal_name, client.uris)
        case kind:
            raise AssertionError(kind)


def _fits(matcher: StringMatcher, texts: Iterable[str]) -> bool:
    match matcher.WhichOneof("match_pattern"):
        case "exact":
            return any(text == matcher.exact for text in texts)
        case "prefix":
            return any(text.startswith(matcher.prefix) for text in texts)
        case "contains":
            return any(matcher.contains in text for text in texts)
        case kind:
            raise AssertionError(kind)
