"""Clients that a permission means by their tags, and whose certificates do not have them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias

from cp.identity.identities import is_unknown_by_tags, names_by_tags
from cp.identity.workloads import spiffe_id, workload_identities
from cp.resources.client import is_grpc_client
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules import PolicyItem
from cp.rules.items import items, tags_of
from generators.envoy.permissions import uri_conditions

Names: TypeAlias = Mapping[str, Collection[Resource]]
"""The Dataplanes by each of the names that their tags give them."""


def clients_by_name(world: World, mesh: str) -> Names:
    """The Dataplanes of a mesh whose proxies call others, by the names that their tags give them."""
    by_name: dict[str, dict[Resource, None]] = {}
    for dataplane in world.table("Dataplane", mesh):
        for name in () if is_grpc_client(dataplane) else names_by_tags(dataplane):
            by_name.setdefault(name, {})[dataplane] = None
    return {name: dataplanes.keys() for name, dataplanes in by_name.items()}


def meant_by_tags(item: PolicyItem, names: Names) -> Iterator[Resource]:
    """The clients that have all tags that an item of `from` asks for; nothing if it asks for none."""
    wanted = [uri.value for uri in uri_conditions({"tags": dict(tags_of(item) or ())}, item.policy.mesh)]
    fewest = min((names.get(name, ()) for name in wanted), key=len, default=())
    return (client for client in fewest if all(client in names.get(name, ()) for name in wanted))


def workload_name(world: World, dataplane: Resource) -> tuple[str, str]:
    """The MeshIdentity by which a proxy gets its certificate, now or soon, and its SPIFFE ID; empty if it has none."""
    for identity in workload_identities(world, dataplane.mesh).selecting(dataplane):
        name = spiffe_id(identity.resource, dataplane) if identity.spec.authority is not None else None
        if isinstance(name, str):
            return identity.name, name
    return "", ""


def certified_names(world: World, dataplane: Resource) -> tuple[str, ...]:
    """The names in the certificate of a proxy, now or soon."""
    _, spiffe_id = workload_name(world, dataplane)
    return (spiffe_id,) if spiffe_id else names_by_tags(dataplane)


def items_for_nobody(world: World, policy: Resource) -> Iterator[PolicyItem]:
    """The items of `from` that surely are for none of those whom they mean: nobody of them shows any tags."""
    names = clients_by_name(world, policy.mesh) if policy.data.get("from") else {}
    for item in items(policy).from_:
        meant = tuple(meant_by_tags(item, names))
        if meant and all(is_unknown_by_tags(world, client) and workload_name(world, client)[0] for client in meant):
            yield item
