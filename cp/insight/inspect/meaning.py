"""Values without a meaning in a scope, because of the protocol there or because no calls reach it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from cp.insight.inspect.scopes import ConfScope
from cp.insight.meaning import has_meaning
from cp.insight.parts import DestinationParts
from cp.policies import Policy
from cp.resources.client import is_grpc_client
from cp.resources.resource import Resource
from cp.resources.targets import HTTP_ROUTE, TCP_ROUTE
from cp.translate.view.proxies import inbounds
from cp.translate.view.redirected import redirection
from generators.proxy import Protocol

_OF_CLIENT: Final = "has no effect: a gRPC client without a proxy does nothing of what it says"
_OF_GATEWAYS: Final = "has no effect: gateways do it for those that they call, and this is no gateway"
_NO_GRPC: Final = "has no effect: a gRPC client calls only what understands gRPC"
_NOT_SERVED: Final = "has no effect: the inbound is not served"
_NOT_REDIRECTED: Final = (
    "has no effect: the Dataplane has no `networking.transparentProxying`, so calls to places outside of the mesh do "
    "not come by"
)


def traits(dataplane: Resource) -> tuple[object, ...]:
    """The facts about a proxy, other than its destinations, that decide which values have a meaning there."""
    return is_grpc_client(dataplane), _captures_calls(dataplane), tuple(_protocols(dataplane).items())


def meaningless_reason(  # noqa: PLR0913  # all that is known of the field
    policy: Policy[Any],
    dataplane: Resource,
    scope: ConfScope,
    path: str,
    *,
    conf_fields: Iterable[str],
    parts: DestinationParts | None,
) -> str:
    """Why a field has no meaning in a scope; empty if it has one. `parts` are those of the scope's destination."""
    if is_grpc_client(dataplane) and not policy.is_for_grpc_clients:
        return _OF_CLIENT
    if scope.is_whole_proxy:
        return _NOT_REDIRECTED if policy.is_for_captured_calls and not _captures_calls(dataplane) else ""
    if scope.destination is not None and policy.is_for_calls_of_gateways and not dataplane.spec.is_builtin_gateway:
        return _OF_GATEWAYS
    if is_grpc_client(dataplane) and scope.destination is not None and not _is_called(parts, by=policy):
        return _NO_GRPC
    if scope.inbound_index is None:
        protocol = _protocol_to(parts)
        return _route_reason(scope, protocol) or _protocol_reason(policy, path, conf_fields, protocol)
    protocol = _protocols(dataplane).get(scope.inbound_index)
    return _NOT_SERVED if protocol is None else _protocol_reason(policy, path, conf_fields, protocol)


def _is_called(parts: DestinationParts | None, *, by: Policy[Any]) -> bool:
    """Whether a gRPC client calls a destination.

    It may call it by routes of other services only; then the destination's own routes are not on the way.
    """
    return parts is not None and bool(parts.outbounds or not by.is_route)


def _protocol_to(parts: DestinationParts | None) -> Protocol | None:
    """The protocol of the outbounds to a destination; None without outbounds."""
    return parts.outbounds[0].outbound.protocol if parts is not None and parts.outbounds else None


def _route_reason(scope: ConfScope, protocol: Protocol | None) -> str:
    """Why the routes of a scope take nothing."""
    is_http_alone = any(route.type == HTTP_ROUTE for route in scope.contributors)
    if protocol is None or protocol.is_http or not is_http_alone:
        return ""
    return f"has no effect: a {HTTP_ROUTE} has no meaning where {protocol} is spoken"


def _protocol_reason(policy: Policy[Any], path: str, conf_fields: Iterable[str], protocol: Protocol | None) -> str:
    kind = policy.kind.name
    if protocol is None:
        return ""
    if kind == HTTP_ROUTE and not protocol.is_http:
        return f"has no effect: a {kind} has no meaning where {protocol} is spoken"
    if kind == TCP_ROUTE and protocol.is_http:
        return f"has no effect: where there is a {HTTP_ROUTE}, that one counts"
    return (
        ""
        if has_meaning(policy, path, protocol, conf_fields)
        else f"has no effect: no meaning where {protocol} is spoken"
    )


def _captures_calls(dataplane: Resource) -> bool:
    """Whether the machine redirects calls to the proxy that leave the mesh."""
    return redirection(dataplane) is not None


def _protocols(dataplane: Resource) -> dict[int, Protocol]:
    """The protocols of the inbounds that are served, by their places in the Dataplane."""
    return {index: inbound.protocol for index, inbound in inbounds(dataplane)}
