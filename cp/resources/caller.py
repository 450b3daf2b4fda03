"""`Caller`: what of a proxy the endpoints and listeners that it gets can depend on."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias

from cp.resources.client import is_grpc_client
from cp.resources.dataplane import ZONE_TAG
from cp.resources.resource import Resource

Tags: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CallerTls:
    """How a proxy that has an identity speaks TLS with others of its mesh."""

    domains: tuple[str, ...]
    """The trust domains whose names it accepts."""

    oldest: str = ""
    """The oldest version of TLS, as Envoy names it; empty: the default of Envoy."""


@dataclass(frozen=True, slots=True)
class Caller:
    """What of a proxy can influence its outbounds. Proxies with equal callers get equal outbounds."""

    zone: str = ""
    tags: Tags = ()
    """The tags that some policy looks at."""

    sidecar_fields: tuple[tuple[str, str | Tags], ...] = ()
    """The fields of its sidecar that its listeners need, because some policy puts them into the configuration."""

    is_grpc: bool = False
    """Whether it is a gRPC client, which reads only a part of what an Envoy does."""

    tls: CallerTls | None = None
    """How it speaks TLS with others of its mesh; None: not at all."""

    is_gateway: bool = False
    """Whether it is a builtin gateway."""

    withheld: frozenset[str] = frozenset()
    """The ExternalServices that it may not call, by name."""


def caller_of(dataplane: Resource, names: AbstractSet[str]) -> Caller:
    """The zone of a proxy, and those of its tags that have one of these names."""
    tags = dataplane.derived(_tags)
    zone = tags.get(ZONE_TAG) or dataplane.zone
    looked_at = tuple((name, tags[name]) for name in sorted(names) if name in tags)
    is_gateway = dataplane.spec.is_builtin_gateway
    return Caller(zone, looked_at, is_grpc=is_grpc_client(dataplane), is_gateway=is_gateway)


def _tags(dataplane: Resource) -> dict[str, str]:
    """The tags of the gateway and of all inbounds. Of several values of one tag, the first in the alphabet counts."""
    networking = dataplane.spec.networking
    gateway = networking.gateway.tags if networking.gateway is not None else None
    carried = (gateway, *(inbound.tags for inbound in networking.inbound or ()))
    tag_values: dict[str, str] = {}
    for name, value in sorted(tag for tags in carried for tag in (tags or {}).items()):
        tag_values.setdefault(name, value)
    return tag_values
