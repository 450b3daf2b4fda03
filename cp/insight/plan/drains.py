"""Which connections Envoy ends because of a change.

Envoy takes the routes of a listener, and secrets, without touching a connection. A listener of which filter chains
alone are different keeps the connections of all chains that stay as they are; any other difference replaces it:
https://www.envoyproxy.io/docs/envoy/latest/configuration/listeners/lds

Envoy closes its HTTP connections to hosts that a cluster loses, and to those of a cluster that changes or goes: what
waits for requests at once, all else after the requests under way. It opens new ones when a request needs one. TCP
connections that it forwards stay. Endpoints that are no longer sent stay in use until their cluster goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cp.insight.comparison import ChangedResource, Decode
from cp.model.wording import few
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, PackedResource

_CHAINS: Final = "filterChains"
_DEFAULT_CHAIN: Final = "defaultFilterChain"
_OF_CHAINS: Final = frozenset({_CHAINS, _DEFAULT_CHAIN})
_GENTLY: Final = "each after its requests under way"


def drain(change: ChangedResource, decode: Decode) -> str:
    """Which connections Envoy ends because of a change, in words; empty: none."""
    if change.before is None:
        return ""
    if change.type_url == CLUSTER:
        return f"HTTP connections to its hosts, {_GENTLY}"
    if change.is_large and change.type_url in {LISTENER, ENDPOINTS}:
        return "connections, as it may be: it is too large to say which"
    if change.type_url == LISTENER:
        return _of_listener(change.before, change.after, decode)
    if change.type_url == ENDPOINTS and change.after is not None:
        return _of_endpoints(decode(change.before), decode(change.after))
    return ""


def _of_listener(old: PackedResource, new: PackedResource | None, decode: Decode) -> str:
    before = decode(old)
    if before.get("address", {}).get("socketAddress", {}).get("protocol") == "UDP":
        return ""
    if new is None:
        return "all connections to the listener"
    return _of_changed_listener(before, decode(new))


def _of_changed_listener(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    if _without_chains(before) != _without_chains(after):
        return "all connections to the listener, which is replaced as a whole"
    kept = [chain for _, chain in _chains(after)]
    gone = [name for name, chain in _chains(before) if chain not in kept]
    if _DEFAULT_CHAIN in before and before[_DEFAULT_CHAIN] != after.get(_DEFAULT_CHAIN):
        gone.append("default filter chain")
    return f"connections to the listener that came by its {few(gone)}" if gone else ""


def _without_chains(listener: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in listener.items() if name not in _OF_CHAINS}


def _chains(listener: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for place, chain in enumerate(listener.get(_CHAINS, ())):
        yield f"filter chain {chain.get('name') or place}", chain


def _of_endpoints(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    present = set(_addresses(after))
    gone = [address for address in dict.fromkeys(_addresses(before)) if address not in present]
    return f"HTTP connections to {few(gone)}, {_GENTLY}" if gone else ""


def _addresses(assignment: Mapping[str, Any]) -> Iterator[str]:
    for locality in assignment.get("endpoints", ()):
        for host in locality.get("lbEndpoints", ()):
            address = host.get("endpoint", {}).get("address", {})
            socket = address.get("socketAddress", {})
            yield f"{socket['address']}:{socket.get('portValue', 0)}" if socket else str(address)
