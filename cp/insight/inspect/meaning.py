"""Values without a meaning at a place: for what is spoken there, or because nothing passes by it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from cp.insight.inspect.places import ProxyPlace
from cp.insight.meaning import has_meaning
from cp.insight.parts import DestinationParts
from cp.policies import Policy
from cp.resources.client import is_grpc_client
from cp.resources.resource import Resource
from cp.translate.view.proxies import inbounds
from cp.translate.view.redirected import redirection
from generators.proxy import Protocol

_HTTP_ROUTE: Final = "MeshHTTPRoute"
_TCP_ROUTE: Final = "MeshTCPRoute"
_OF_CLIENT: Final = "has no effect: a gRPC client without a proxy does nothing of what it says"
_NO_GRPC: Final = "has no effect: a gRPC client calls only what understands gRPC"
_NOT_SERVED: Final = "has no effect: the inbound is not served"
_NOT_REDIRECTED: Final = (
    "has no effect: the Dataplane has no `networking.transparentProxying`, so calls to places outside of the mesh do "
    "not come by"
)


def traits(dataplane: Resource) -> tuple[object, ...]:
    """All of a proxy on which it depends what has a meaning there, beside what it calls."""
    return is_grpc_client(dataplane), _is_passed(dataplane), tuple(_spoken_at(dataplane).items())


def why_meaningless(  # noqa: PLR0913  # all that is known of the field
    policy: Policy[Any],
    dataplane: Resource,
    place: ProxyPlace,
    path: str,
    *,
    beside: Iterable[str],
    parts: DestinationParts | None,
) -> str:
    """Why a field says nothing there; empty where it says something. `parts` is what is served of a destination."""
    if is_grpc_client(dataplane) and not policy.is_for_grpc_clients:
        return _OF_CLIENT
    if place.is_whole:
        return _NOT_REDIRECTED if policy.is_for_captured_calls and not _is_passed(dataplane) else ""
    if is_grpc_client(dataplane) and place.destination is not None and not _is_called(parts, by=policy):
        return _NO_GRPC
    if place.inbound is None:
        return _in_protocol(policy, path, beside, _spoken_to(parts))
    spoken = _spoken_at(dataplane).get(place.inbound)
    return _NOT_SERVED if spoken is None else _in_protocol(policy, path, beside, spoken)


def _is_called(parts: DestinationParts | None, *, by: Policy[Any]) -> bool:
    """Whether a client calls a destination itself, or by routes of others, which pass by its own routes."""
    return parts is not None and bool(parts.entries or not by.is_route)


def _spoken_to(parts: DestinationParts | None) -> Protocol | None:
    """What a proxy speaks to a destination that it calls."""
    return parts.entries[0].outbound.protocol if parts is not None and parts.entries else None


def _in_protocol(policy: Policy[Any], path: str, beside: Iterable[str], protocol: Protocol | None) -> str:
    kind = policy.kind.name
    if protocol is None:
        return ""
    if kind == _HTTP_ROUTE and not protocol.is_http:
        return f"has no effect: a {kind} has no meaning where {protocol} is spoken"
    if kind == _TCP_ROUTE and protocol.is_http:
        return f"has no effect: where there is a {_HTTP_ROUTE}, that one counts"
    return (
        "" if has_meaning(policy, path, protocol, beside) else f"has no effect: no meaning where {protocol} is spoken"
    )


def _is_passed(dataplane: Resource) -> bool:
    """Whether calls to places outside of the mesh pass by."""
    return redirection(dataplane) is not None


def _spoken_at(dataplane: Resource) -> dict[int, Protocol]:
    """What is spoken at the inbounds that are served, by their ports."""
    return {inbound.port: inbound.protocol for _, inbound in inbounds(dataplane)}
