"""One random document of some kind."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Final

from cp.model.document import Document
from cp.model.source import universal
from tests.random_mesh import gateway_routes, gateways, identities, legacy_policies, patches, proxies, routes, services
from tests.random_mesh.policies import SHAPES, policy
from tests.random_mesh.words import Data, Make, document_of


def _instead(make: Make, other: Make, share: float) -> Make:
    """One sort of document, and now and then another in its place.

    The other is drawn from the first, so that what comes later is as it would be without it.
    """

    def made(chance: Random) -> Data:
        drawn: Data = make(chance)
        derived = Random(repr(drawn))
        varied: Data = other(derived) if derived.random() < share else drawn
        return varied

    return made


def _http_route(chance: Random) -> Data:
    """Most of those for a gateway have hostnames and what else only they can have."""
    drawn = routes.http_route(chance)
    is_of_gateway = universal(drawn)["spec"].get("targetRef", {}).get("kind") == "MeshGateway"
    route: Data = _instead(lambda _: drawn, gateways.http_route, 0.8 if is_of_gateway else 0)(chance)
    return route


_CALLED: Final[dict[str, Make]] = {
    "Dataplane": proxies.dataplane,
    "MeshService": services.service,
    "MeshExternalService": services.service_outside,
    "MeshMultiZoneService": services.service_of_several_zones,
    "MeshHTTPRoute": _http_route,
    "MeshTCPRoute": _instead(routes.tcp_route, gateways.tcp_route, 0.1),
}
DESTINATIONS: Final = tuple(_CALLED)
"""The kinds that decide where a call goes."""

_MAKES: Final[dict[str, Make]] = {
    **_CALLED,
    **{kind: partial(lambda kind, chance: policy(chance, kind), kind) for kind in SHAPES},
    "Mesh": proxies.mesh,
    "MeshGateway": _instead(proxies.gateway, gateways.gateway, 0.7),
    "ExternalService": services.external_service,
    "Secret": _instead(services.secret, gateways.certificate, 0.4),
    "MeshOpenTelemetryBackend": services.collector,
    "HostnameGenerator": services.names,
}

_OF_PATCHES: Final[dict[str, Make]] = {"MeshProxyPatch": patches.patch}
_OF_IDENTITIES: Final[dict[str, Make]] = {
    "MeshIdentity": identities.identity,
    "MeshTrust": identities.trust,
    "record of a MeshIdentity": identities.record,
}

_OF_REACHABILITY: Final[dict[str, Make]] = {"redirected Dataplane": proxies.redirected}

_OF_THE_EDGE: Final[dict[str, Make]] = {
    "builtin gateway": gateways.proxy,
    "MeshGateway of the edge": gateways.gateway,
    "certificate of a gateway": gateways.certificate,
    "MeshHTTPRoute of a gateway": gateways.http_route,
    "MeshTCPRoute of a gateway": gateways.tcp_route,
    "policy of a gateway": gateways.policy,
    "MeshTrace of a gateway": gateways.trace,
    "MeshProxyPatch of a gateway": gateways.patch,
}


def _route_with_few_matches(chance: Random) -> Data:
    """So that several have rules with the same matches."""
    route = gateway_routes.route(chance)
    for rule in route["conf"].get("http", {}).get("rules", ()):
        rule["matches"] = [{"path": {"match": "PREFIX", "value": chance.choice(["/", "/api"])}}]
    return route


_OF_THE_LEGACY_EDGE: Final[dict[str, Make]] = {
    "MeshGatewayRoute": gateway_routes.route,
    "MeshGatewayRoute with few matches": _route_with_few_matches,
    "newer route of a gateway": gateways.http_route,
    "legacy policy of a gateway": legacy_policies.policy_of_gateway,
}

_OF_NAMES: Final[dict[str, Make]] = {"VirtualOutbound": gateway_routes.virtual_outbound_of_any_name}

CALLS: Final = (*DESTINATIONS, "MeshTimeout", "MeshRetry", "MeshCircuitBreaker", "MeshHealthCheck")
"""The kinds of a mesh in which policies for calls meet."""

PATCHED: Final = (*CALLS, *_OF_PATCHES, *_OF_PATCHES)
"""The same, with patches that write over what these policies write."""

_FELT: Final = {
    "MeshTimeout",
    "MeshRetry",
    "MeshCircuitBreaker",
    "MeshHealthCheck",
    "MeshFaultInjection",
    "MeshRateLimit",
}
HARMLESS: Final = tuple(kind for kind in _MAKES if kind not in {*_FELT, "MeshTrafficPermission", "MeshTLS"})
"""The kinds that cost no request of proxies that call other services than those of random meshes."""

_OFTEN: Final = {
    "Dataplane": 4,
    "MeshService": 4,
    "MeshHTTPRoute": 2,
    "MeshTimeout": 2,
    "MeshRetry": 2,
    "legacy Dataplane": 10,
    "builtin gateway": 6,
    "MeshGateway of the edge": 6,
    "redirected Dataplane": 4,
    "certificate of a gateway": 4,
    "policy of a gateway": 4,
    "MeshHTTPRoute of a gateway": 12,
    "MeshTCPRoute of a gateway": 4,
    "MeshGatewayRoute": 12,
    "MeshGatewayRoute with few matches": 12,
    "legacy policy of a gateway": 18,
}


EVERY: Final = tuple(_MAKES)
IDENTIFIED: Final = (*DESTINATIONS, "Mesh", "MeshTLS", "MeshTrafficPermission", *_OF_IDENTITIES)
"""The kinds that decide by which names proxies know each other."""

REACHED: Final = (
    *_OF_REACHABILITY,
    *("Dataplane", "MeshService", "MeshExternalService", "ExternalService", "Mesh", "MeshTimeout"),
    *("MeshTrafficPermission",) * 4,
)
"""The kinds that decide whom a proxy reaches where that is derived from permissions."""

EDGE: Final = (*DESTINATIONS, *_OF_THE_EDGE, "ExternalService", "MeshTimeout", "Secret", "Mesh")
"""The kinds of a mesh with builtin gateways, and of what stands behind them."""


LEGACY: Final = (
    *legacy_policies.MAKES,
    "MeshService",
    "MeshTimeout",
    "MeshRateLimit",
    "MeshTrafficPermission",
    "MeshHTTPRoute",
)
"""The kinds of a mesh in which legacy policies meet each other, and some with a targetRef."""


LEGACY_EDGE: Final = (
    *legacy_policies.MAKES,
    *_OF_THE_LEGACY_EDGE,
    "builtin gateway",
    "MeshGateway of the edge",
    "certificate of a gateway",
    "ExternalService",
    "policy of a gateway",
    "MeshHTTPRoute",
)
"""The kinds of a mesh with builtin gateways whose routes and policies are legacy ones, and some with a targetRef."""


NAMED: Final = (
    *("redirected Dataplane",) * 2,
    *("Dataplane", "MeshService", "ExternalService", "HostnameGenerator", "Mesh", "Timeout"),
    *("VirtualOutbound",) * 6,
)
"""The kinds that give names to what redirected workloads call."""


def data(chance: Random, kinds: Sequence[str] = EVERY) -> Data:
    """A document as a file has it."""
    kind = chance.choices(kinds, [_OFTEN.get(kind, 1) for kind in kinds])[0]
    makes = (
        _MAKES
        | _OF_PATCHES
        | _OF_IDENTITIES
        | _OF_REACHABILITY
        | _OF_THE_EDGE
        | _OF_THE_LEGACY_EDGE
        | legacy_policies.MAKES
        | _OF_NAMES
    )
    made: Data = makes[kind](chance)
    return made


def random_document(chance: Random, kinds: Sequence[str] = EVERY) -> Document:
    return document_of(data(chance, kinds))
