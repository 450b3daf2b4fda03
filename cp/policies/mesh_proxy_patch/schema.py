"""What may be written in a MeshProxyPatch."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from cp.resources.schema import Schema, SensitiveData, SensitiveText
from cp.resources.spec import PolicySpec

M = TypeVar("M")


class JsonPatch(Schema, frozen=True):
    """One operation of RFC 6902."""

    op: str = ""
    path: str | None = None
    value: SensitiveData = msgspec.UNSET
    from_: str | None = msgspec.field(name="from", default=None)


class ClusterMatch(Schema, frozen=True):
    origin: str | None = None
    name: str | None = None


class ListenerMatch(Schema, frozen=True):
    origin: str | None = None
    name: str | None = None
    tags: dict[str, str] | None = None


class FilterMatch(Schema, frozen=True):
    origin: str | None = None
    name: str | None = None
    listener_name: str | None = None
    listener_tags: dict[str, str] | None = None


class VirtualHostMatch(Schema, frozen=True):
    origin: str | None = None
    name: str | None = None
    route_configuration_name: str | None = None


class PatchChange(Schema, Generic[M], frozen=True):
    """What is done to the things that match."""

    operation: str = ""
    match: M | None = None
    value: SensitiveText | None = None
    json_patches: list[JsonPatch] | None = None


class Modification(Schema, frozen=True):
    """One of these."""

    cluster: PatchChange[ClusterMatch] | None = None
    listener: PatchChange[ListenerMatch] | None = None
    network_filter: PatchChange[FilterMatch] | None = None
    http_filter: PatchChange[FilterMatch] | None = None
    virtual_host: PatchChange[VirtualHostMatch] | None = None


class Conf(Schema, frozen=True):
    append_modifications: list[Modification] | None = None


class Spec(PolicySpec, frozen=True):
    default: Conf | None = None
