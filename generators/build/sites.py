"""What is built for each site: a draft for policies to write into, or messages that are finished as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from generators.build.dns import dns_listener
from generators.build.gateways import (
    certificate_secret,
    chain_listener,
    host_table,
    joined_table,
    port_listener,
    runtime_of_limits,
)
from generators.build.listeners import outbound_listener
from generators.build.transparent import catch_all
from generators.build.trust import trusted_roots
from generators.drafts import finished
from generators.proxy import (
    Capture,
    GatewayCertificate,
    GatewayChain,
    GatewayHost,
    GatewayLimits,
    GatewayPort,
    GatewayTable,
    Hosts,
    Outbound,
    Trust,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.message import Message

    from generators.drafts import Finished, ListenerDraft

ListenerSite: TypeAlias = Outbound | GatewayChain | GatewayHost
"""What has a listener of its own, or a part of one."""

_OfGateway: TypeAlias = GatewayCertificate | GatewayLimits | GatewayPort | GatewayTable


def listener_draft(site: ListenerSite) -> ListenerDraft:
    if isinstance(site, Outbound):
        return outbound_listener(site)
    return chain_listener(site) if isinstance(site, GatewayChain) else host_table(site)


def without_drafts(site: Capture | Hosts | Trust | _OfGateway) -> Iterator[Finished]:
    """What is built without drafts: no policy writes into it before it is finished."""
    match site:
        case Capture():
            return catch_all(site)
        case Hosts():
            return dns_listener(site)
        case Trust():
            return trusted_roots(site)
        case _:
            return map(finished, _of_gateway(site))


def _of_gateway(site: _OfGateway) -> Iterator[Message]:
    match site:
        case GatewayCertificate():
            return certificate_secret(site)
        case GatewayLimits():
            return runtime_of_limits(site)
        case GatewayPort():
            return port_listener(site)
        case GatewayTable():
            return joined_table(site)
