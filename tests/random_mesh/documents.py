"""One random document of some kind."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Final

from cp.model.document import Document
from tests.random_mesh import identities, proxies, routes, services
from tests.random_mesh.policies import SHAPES, policy
from tests.random_mesh.words import Data, Make, document_of

_CALLED: Final[dict[str, Make]] = {
    "Dataplane": proxies.dataplane,
    "MeshService": services.service,
    "MeshExternalService": services.service_outside,
    "MeshMultiZoneService": services.service_of_several_zones,
    "MeshHTTPRoute": routes.http_route,
    "MeshTCPRoute": routes.tcp_route,
}
DESTINATIONS: Final = tuple(_CALLED)
"""The kinds that decide where a call goes."""

_MAKES: Final[dict[str, Make]] = {
    **_CALLED,
    **{kind: partial(lambda kind, chance: policy(chance, kind), kind) for kind in SHAPES},
    "Mesh": proxies.mesh,
    "MeshGateway": proxies.gateway,
    "ExternalService": services.external_service,
    "Secret": services.secret,
    "MeshOpenTelemetryBackend": services.collector,
    "HostnameGenerator": services.names,
}

_OF_IDENTITIES: Final[dict[str, Make]] = {
    "MeshIdentity": identities.identity,
    "MeshTrust": identities.trust,
    "record of a MeshIdentity": identities.record,
}

CALLS: Final = (*DESTINATIONS, "MeshTimeout", "MeshRetry", "MeshCircuitBreaker", "MeshHealthCheck")
"""The kinds of a mesh in which policies for calls meet."""

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

_OFTEN: Final = {"Dataplane": 4, "MeshService": 4, "MeshHTTPRoute": 2, "MeshTimeout": 2, "MeshRetry": 2}


EVERY: Final = tuple(_MAKES)
IDENTIFIED: Final = (*DESTINATIONS, "Mesh", "MeshTLS", "MeshTrafficPermission", *_OF_IDENTITIES)
"""The kinds that decide by which names proxies know each other."""


def data(chance: Random, kinds: Sequence[str] = EVERY) -> Data:
    """A document as a file has it."""
    kind = chance.choices(kinds, [_OFTEN.get(kind, 1) for kind in kinds])[0]
    made: Data = {**_MAKES, **_OF_IDENTITIES}[kind](chance)
    return made


def random_document(chance: Random, kinds: Sequence[str] = EVERY) -> Document:
    return document_of(data(chance, kinds))
