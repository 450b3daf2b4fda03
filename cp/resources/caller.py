"""The calling side: what the endpoints and listeners that a proxy is given can depend on."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias

from cp.resources.client import is_grpc_client
from cp.resources.dataplane import ZONE_TAG
from cp.resources.resource import Resource

Tags: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Caller:
    """A proxy as those see it who decide over its outbounds. Proxies that look the same are given the same."""

    zone: str = ""
    tags: Tags = ()
    """Those that some policy looks at."""

    told: tuple[tuple[str, str | Tags], ...] = ()
    """What its listeners have to say about it, because some policy asks for that."""

    is_grpc: bool = False
    """Whether it is no proxy but a gRPC client, which takes only a part of what an Envoy does."""


def caller_of(dataplane: Resource, names: AbstractSet[str]) -> Caller:
    """The zone of a proxy, and those of its tags that have one of these names."""
    tags = dataplane.derived(_tags)
    zone = tags.get(ZONE_TAG) or dataplane.zone
    looked_at = tuple((name, tags[name]) for name in sorted(names) if name in tags)
    return Caller(zone, looked_at, is_grpc=is_grpc_client(dataplane))


def _tags(dataplane: Resource) -> dict[str, str]:
    """The tags of all of its inbounds; of several values of one name the first in alphabetical order."""
    networking = dataplane.spec.networking
    gateway = networking.gateway.tags if networking.gateway is not None else None
    carried = (gateway, *(inbound.tags for inbound in networking.inbound or ()))
    tag_values: dict[str, str] = {}
    for name, value in sorted(tag for tags in carried for tag in (tags or {}).items()):
        tag_values.setdefault(name, value)
    return tag_values
