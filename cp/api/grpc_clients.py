"""What gRPC clients without a proxy say of themselves, and no document does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cp.api.collaborators import ProxyObservations
from cp.model.names import Key
from cp.resources.client import grpc_clients
from cp.resources.resource import Resource
from cp.resources.world import World


async def certified_clients(observed: ProxyObservations, world: World) -> Mapping[Key, bool]:
    """Whether the libraries of gRPC clients find certificates, as far as that is known."""
    tables = (world.table("Dataplane", mesh.name) for mesh in world.table("Mesh"))
    return await _known(observed, [key for table in tables for key in table.derived(grpc_clients)])


async def is_certified_client(observed: ProxyObservations, dataplane: Resource) -> bool:
    """Whether a Dataplane is a gRPC client whose library finds certificates."""
    return (await _known(observed, [dataplane.key])).get(dataplane.key, False)


async def _known(observed: ProxyObservations, dataplanes: Iterable[Key]) -> Mapping[Key, bool]:
    presences = await observed.presences(dataplanes)
    answers = ((key, presence.finds_certificates) for key, presence in presences.items())
    return {key: finds_certificates for key, finds_certificates in answers if finds_certificates is not None}
