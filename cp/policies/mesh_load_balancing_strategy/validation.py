"""What must hold of a MeshLoadBalancingStrategy beyond its schema, and what is deprecated in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cp.model.duration import Duration
from cp.model.target import TargetRef
from cp.model.violation import Violation, at
from cp.policies import in_spec
from cp.policies.mesh_load_balancing_strategy.schema import (
    AffinityTag,
    Conf,
    Cookie,
    CrossZone,
    Failover,
    HashPolicy,
    LeastRequest,
    LoadBalancer,
    LocalityAwareness,
    Maglev,
    RingHash,
    Spec,
)
from cp.resources import deprecated
from cp.resources.checks import (
    above_zero,
    absent,
    incomplete,
    must_be_set,
    number,
    percentage,
    printable,
    within,
)
from cp.resources.kinds import DocumentMeta
from cp.resources.targets import GATEWAY, HTTP_ROUTE, PROXIES, TCP_ROUTE, AllowedTargets

_SERVICES: Final = ("Mesh", "MeshService", "MeshMultiZoneService")
TARGETS: Final = AllowedTargets(
    top=(*PROXIES, GATEWAY),
    to=(*_SERVICES, HTTP_ROUTE, TCP_ROUTE),
    to_gateway=(*_SERVICES, HTTP_ROUTE, TCP_ROUTE),
    http_route=("hashPolicies",),
    tcp_route=("hashPolicies",),
)

LARGEST_RING: Final = 8_000_000
DEFAULT_RING: Final = 1024
LARGEST_TABLE: Final = 5_000_011
_FEWEST_CHOICES: Final = 2
_OF_CONNECTIONS: Final = frozenset({"Connection", "SourceIP", "FilterState"})
_FIELD_OF_TYPE: Final = {
    "Header": "header",
    "Cookie": "cookie",
    "Connection": "connection",
    "SourceIP": "connection",
    "QueryParameter": "queryParameter",
    "FilterState": "filterState",
}


@in_spec
def validate(spec: Spec, meta: DocumentMeta) -> Iterator[Violation]:
    yield from TARGETS.violations(spec, meta)
    if not spec.to and spec.top.kind != "Dataplane":
        yield incomplete("to", "says nothing", "give it an item, for example for `kind: Mesh`")
    for index, item in enumerate(spec.to or ()):
        conf = item.default or Conf()
        if spec.top.kind == GATEWAY and conf.load_balancer is not None and item.target_ref.kind in _SERVICES[1:]:
            hint = "write `kind: Mesh`, or remove `loadBalancer`"
            message = "a gateway has one load balancer for all services"
            yield Violation(f"to[{index}].targetRef.kind", message, hint)
        yield from at(f"to[{index}].default", _conf(conf, item.target_ref))


def _conf(conf: Conf, target: TargetRef) -> Iterator[Violation]:
    yield from at("hashPolicies", _hash_policies(conf.hash_policies))
    if target.kind == TCP_ROUTE:
        yield from at("hashPolicies", _of_connections(conf.hash_policies or []))
    if conf.load_balancer is not None:
        yield from at("loadBalancer", _load_balancer(conf.load_balancer, is_twice=conf.hash_policies is not None))
    if conf.locality_awareness is not None:
        yield from at("localityAwareness", _locality(conf.locality_awareness, target))


def _of_connections(policies: list[HashPolicy]) -> Iterator[Violation]:
    for index, policy in enumerate(policies):
        if policy.type is not None and policy.type not in _OF_CONNECTIONS:
            message = f"a {TCP_ROUTE} sees no requests, so {policy.type} means nothing to it"
            yield Violation(f"[{index}].type", message, "write Connection or FilterState")


def _load_balancer(balancer: LoadBalancer, *, is_twice: bool) -> Iterator[Violation]:
    if balancer.type is None:
        yield incomplete("type", hint="RoundRobin, LeastRequest, RingHash, Random or Maglev")
    if balancer.type == "LeastRequest" and balancer.least_request is not None:
        yield from at("leastRequest", _least_request(balancer.least_request))
    if balancer.type == "RingHash" and balancer.ring_hash is not None:
        yield from at("ringHash", _ring_hash(balancer.ring_hash))
    if balancer.type == "Maglev" and balancer.maglev is not None:
        yield from at("maglev", _maglev(balancer.maglev))
    for name, nested in (("ringHash", balancer.ring_hash), ("maglev", balancer.maglev)):
        if is_twice and nested is not None and nested.hash_policies is not None:
            hint = "keep the ones beside `loadBalancer`"
            yield Violation(f"{name}.hashPolicies", "stand beside `loadBalancer` already", hint)


def _least_request(conf: LeastRequest) -> Iterator[Violation]:
    if conf.choice_count is not None and conf.choice_count < _FEWEST_CHOICES:
        yield Violation("choiceCount", f"must be 2 or more, not `{conf.choice_count}`", "leave it out for 2")
    bias = None if conf.active_request_bias is None else number(conf.active_request_bias)
    if conf.active_request_bias is not None and (bias is None or bias < 0):
        message = f"must be a number, 0 or more, not `{conf.active_request_bias}`"
        yield Violation("activeRequestBias", message, "leave it out for 1")


def _ring_hash(conf: RingHash) -> Iterator[Violation]:
    """Envoy stops taking any cluster while one has a ring that is smaller than its minimum."""
    yield from within("minRingSize", conf.min_ring_size, 1, LARGEST_RING)
    yield from within("maxRingSize", conf.max_ring_size, 1, LARGEST_RING)
    least = DEFAULT_RING if conf.min_ring_size is None else conf.min_ring_size
    if conf.max_ring_size is not None and conf.max_ring_size < least:
        given = "" if conf.min_ring_size is not None else ", which is what it is if left out"
        yield Violation("maxRingSize", f"must not be below the `minRingSize` of {least}{given}", "lower `minRingSize`")
    yield from at("hashPolicies", _hash_policies(conf.hash_policies))


def _maglev(conf: Maglev) -> Iterator[Violation]:
    """Envoy stops taking any cluster while one has a table whose size is not prime."""
    yield from within("tableSize", conf.table_size, 1, LARGEST_TABLE)
    if conf.table_size is not None and 0 < conf.table_size <= LARGEST_TABLE and not _is_prime(conf.table_size):
        following = next(size for size in range(conf.table_size, LARGEST_TABLE + 1) if _is_prime(size))
        yield Violation("tableSize", f"must be a prime number, not `{conf.table_size}`", f"write `{following}`")
    yield from at("hashPolicies", _hash_policies(conf.hash_policies))


def _is_prime(value: int) -> bool:
    return value > 1 and all(value % divisor for divisor in range(2, int(value**0.5) + 1))


def _hash_policies(policies: list[HashPolicy] | None) -> Iterator[Violation]:
    for index, policy in enumerate(policies or ()):
        yield from at(f"[{index}]", _hash_policy(policy))


def _hash_policy(policy: HashPolicy) -> Iterator[Violation]:
    if policy.type is None:
        yield incomplete("type", hint="Header, Cookie, Connection, QueryParameter or FilterState")
        return
    name = _FIELD_OF_TYPE[policy.type]
    if name not in policy.wire():
        yield absent(name, f"must be set for the type {policy.type}")
    for path, value in (
        ("header.name", policy.header and policy.header.name),
        ("cookie.name", policy.cookie and policy.cookie.name),
        ("queryParameter.name", policy.query_parameter and policy.query_parameter.name),
        ("filterState.key", policy.filter_state and policy.filter_state.key),
    ):
        if value == "" and path.startswith(f"{name}."):
            yield incomplete(path)
    if policy.header is not None:
        yield from printable("header.name", policy.header.name)
    if policy.cookie is not None:
        yield from at("cookie", _cookie(policy.cookie))
    if policy.type == "Cookie" and policy.cookie and not (policy.cookie.path or "/").startswith("/"):
        yield Violation("cookie.path", f"must begin with a slash, not `{policy.cookie.path}`")


def _cookie(cookie: Cookie) -> Iterator[Violation]:
    yield from printable("name", cookie.name)
    yield from printable("path", cookie.path)
    if cookie.ttl is not None and cookie.ttl < Duration():
        yield Violation("ttl", f"must not be negative, not `{cookie.ttl}`", "`0s` makes it last as long as the browser")


def _locality(locality: LocalityAwareness, target: TargetRef) -> Iterator[Violation]:
    if locality.local_zone is not None:
        yield from at("localZone", _affinity(locality.local_zone.affinity_tags or []))
    if locality.cross_zone is None:
        return
    if target.kind == "MeshService" and (target.section_name or target.labels):
        hint = "a MeshMultiZoneService has endpoints in several zones"
        yield Violation("crossZone", "has no meaning: a MeshService has endpoints in its own zone alone", hint)
    yield from at("crossZone", _cross_zone(locality.cross_zone))


def _affinity(tags: list[AffinityTag]) -> Iterator[Violation]:
    for index, tag in enumerate(tags):
        yield from must_be_set(f"affinityTags[{index}].key", tag.key, "the name of a tag")
        yield from above_zero(f"affinityTags[{index}].weight", tag.weight)
    weights = [tag.weight for tag in tags if tag.weight is not None]
    if weights and len(weights) != len(tags):
        yield Violation("affinityTags", "some have a `weight`, and some have none", "give one to all, or to none")


def _cross_zone(cross_zone: CrossZone) -> Iterator[Violation]:
    for index, failover in enumerate(cross_zone.failover or ()):
        yield from at(f"failover[{index}]", _failover(failover))
    if cross_zone.failover_threshold is not None:
        share = cross_zone.failover_threshold.percentage
        if share is None:
            yield absent("failoverThreshold.percentage", "must be set")
        yield from percentage("failoverThreshold.percentage", share, allow_zero=False)


def _failover(failover: Failover) -> Iterator[Violation]:
    if failover.from_ is not None:
        yield from must_be_set("from.zones", failover.from_.zones, "or leave `from` out for all zones")
        for index, zone in enumerate(failover.from_.zones or ()):
            yield from must_be_set(f"from.zones[{index}]", zone)
    yield from must_be_set("to.type", failover.to.type, "Any, AnyExcept, Only or None")
    if failover.to.type in {"Any", "None"} and failover.to.zones:
        yield Violation("to.zones", f"have no meaning with the type {failover.to.type}", "remove them")
    if failover.to.type in {"AnyExcept", "Only"}:
        yield from must_be_set("to.zones", failover.to.zones, f"which zones {failover.to.type} means")


def deprecations(spec: Spec, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from deprecated.top_kind(spec)
    for path, _, conf in spec.confs():
        balancer = conf.load_balancer if conf is not None else None
        if balancer is not None:
            yield from at(f"spec.{path}.loadBalancer", _nested_deprecated(balancer))
        if conf is not None:
            yield from at(f"spec.{path}.hashPolicies", _source_ip_deprecated(conf.hash_policies or []))


def _nested_deprecated(balancer: LoadBalancer) -> Iterator[Violation]:
    for name, nested in (("ringHash", balancer.ring_hash), ("maglev", balancer.maglev)):
        if nested is not None and nested.hash_policies is not None:
            path = f"{name}.hashPolicies"
            yield Violation(path, "are deprecated here", "write `hashPolicies` beside `loadBalancer`")
            yield from at(path, _source_ip_deprecated(nested.hash_policies))


def _source_ip_deprecated(policies: list[HashPolicy]) -> Iterator[Violation]:
    for index, policy in enumerate(policies):
        if policy.type == "SourceIP":
            hint = "write `type: Connection` and `connection: {sourceIP: true}`"
            yield Violation(f"[{index}].type", "the type SourceIP is deprecated", hint)
