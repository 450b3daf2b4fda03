"""The filter chain of a listener that takes a connection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from cp.insight.simulate.conditions import UnsimulatedFeature
from generators.envoy import names

if TYPE_CHECKING:
    from envoy.config.listener.v3.listener_components_pb2 import FilterChain, FilterChainMatch
    from envoy.config.listener.v3.listener_pb2 import Listener

    from cp.insight.simulate.request import Call

_SIMULATED: Final = {"server_names", "transport_protocol"}
_ANY: Final = ""


def filter_chain_of(listener: Listener, call: Call) -> FilterChain | None:
    """The chain that takes a connection; None if it is closed at once.

    Envoy compares one property after the other and never goes back to one: once a name is found, only the chains with
    this very name are left. Server names come before the protocol, and the longest name that fits before shorter ones.
    https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/listener/v3/listener_components.proto#config-listener-v3-filterchainmatch
    """
    _check_simulated(listener)
    is_seen = any(listener_filter.name == names.TLS_INSPECTOR for listener_filter in listener.listener_filters)
    name = (call.server_name or "") if is_seen else ""
    protocol = "tls" if call.is_over_tls and is_seen else "raw_buffer"
    named = _narrowed(listener.filter_chains, lambda match: match.server_names or (_ANY,), _patterns(name))
    chains = _narrowed(named, lambda match: (match.transport_protocol,), (protocol, _ANY))
    if chains:
        return chains[0]
    return listener.default_filter_chain if listener.HasField("default_filter_chain") else None


def terminates_tls(chain: FilterChain) -> bool:
    """Whether clients of a chain have to speak TLS, which ends there."""
    if not chain.HasField("transport_socket"):
        return False
    if chain.transport_socket.name != names.TLS_SOCKET:
        raise UnsimulatedFeature(f"the transport socket {chain.transport_socket.name}")
    return True


def _check_simulated(listener: Listener) -> None:
    for chain in listener.filter_chains:
        if any(field.name not in _SIMULATED for field, _ in chain.filter_chain_match.ListFields()):
            raise UnsimulatedFeature(f"the listener {listener.name}, which chooses among filter chains")


def _narrowed(
    chains: Iterable[FilterChain], values_of: Callable[[FilterChainMatch], Sequence[str]], values: Iterable[str]
) -> list[FilterChain]:
    """The chains that have the first of some values that any of them has."""
    known = list(chains)
    having = ([chain for chain in known if value in values_of(chain.filter_chain_match)] for value in values)
    return next((narrowed for narrowed in having if narrowed), [])


def _patterns(name: str) -> list[str]:
    """A name, and the patterns that it fits, the longest first."""
    lower = name.lower()
    parts = lower.split(".")
    wildcards = [f"*.{'.'.join(parts[index:])}" for index in range(1, len(parts))]
    return [lower, *wildcards, _ANY] if lower else [_ANY]
