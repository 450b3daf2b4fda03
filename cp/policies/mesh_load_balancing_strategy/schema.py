"""What may be written in a MeshLoadBalancingStrategy."""

from __future__ import annotations

from typing import Literal

import msgspec

from cp.model.duration import Duration
from cp.model.numbers import Natural
from cp.resources.schema import Number, Schema
from cp.resources.spec import PolicySpec, SpecItem


class NamedKey(Schema, frozen=True):
    name: str = ""


class Cookie(Schema, frozen=True):
    name: str = ""
    ttl: Duration | None = None
    path: str | None = None


class ConnectionHash(Schema, frozen=True):
    source_ip: bool | None = msgspec.field(name="sourceIP", default=None)


class FilterState(Schema, frozen=True):
    key: str = ""


class HashPolicy(Schema, frozen=True):
    """What makes two requests go to the same endpoint. The field has the name of the type."""

    type: Literal["Header", "Cookie", "Connection", "SourceIP", "QueryParameter", "FilterState"] | None = None
    terminal: bool | None = None
    header: NamedKey | None = None
    cookie: Cookie | None = None
    connection: ConnectionHash | None = None
    query_parameter: NamedKey | None = None
    filter_state: FilterState | None = None


class PlainBalancer(Schema, frozen=True):
    """Has nothing to be set."""


class LeastRequest(Schema, frozen=True):
    choice_count: Natural | None = None
    active_request_bias: Number | None = None


class RingHash(Schema, frozen=True):
    hash_function: Literal["XXHash", "MurmurHash2"] | None = None
    min_ring_size: Natural | None = None
    max_ring_size: Natural | None = None
    hash_policies: list[HashPolicy] | None = None


class Maglev(Schema, frozen=True):
    table_size: Natural | None = None
    hash_policies: list[HashPolicy] | None = None


class LoadBalancer(Schema, frozen=True):
    type: Literal["RoundRobin", "LeastRequest", "RingHash", "Random", "Maglev"] | None = None
    round_robin: PlainBalancer | None = None
    random: PlainBalancer | None = None
    least_request: LeastRequest | None = None
    ring_hash: RingHash | None = None
    maglev: Maglev | None = None


class AffinityTag(Schema, frozen=True):
    key: str = ""
    weight: Natural | None = None


class LocalZone(Schema, frozen=True):
    affinity_tags: list[AffinityTag] | None = None


class FromZones(Schema, frozen=True):
    zones: list[str] | None = None


class ToZones(Schema, frozen=True):
    type: Literal["None", "Only", "Any", "AnyExcept"] | None = None
    zones: list[str] | None = None


class Failover(Schema, frozen=True):
    from_: FromZones | None = msgspec.field(name="from", default=None)
    to: ToZones = ToZones()


class FailoverThreshold(Schema, frozen=True):
    percentage: Number | None = None


class CrossZone(Schema, frozen=True):
    failover: list[Failover] | None = None
    failover_threshold: FailoverThreshold | None = None


class LocalityAwareness(Schema, frozen=True):
    disabled: bool | None = None
    local_zone: LocalZone | None = None
    cross_zone: CrossZone | None = None


class Conf(Schema, frozen=True):
    load_balancer: LoadBalancer | None = None
    hash_policies: list[HashPolicy] | None = None
    locality_awareness: LocalityAwareness | None = None


class Spec(PolicySpec, frozen=True):
    to: list[SpecItem[Conf]] | None = None
