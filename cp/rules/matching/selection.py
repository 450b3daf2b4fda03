"""Whether one policy selects one dataplane, and which parts of it.

See docs/concepts/matching-and-merging.md#which-proxies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from cp.model.names import Identity
from cp.model.target import TargetRef
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.gateway import carries
from cp.resources.resource import EFFECT_LABEL, Resource
from cp.resources.targets import HTTP_ROUTE
from cp.resources.world import Table, World
from cp.rules.matching.order import top_of
from cp.rules.matching.profile import (
    DataplaneProfile,
    DataplaneSignature,
    ListenersByTags,
    ProfileSection,
)

_IN_OWN_NAMESPACE: Final = frozenset({"consumer", "workload-owner"})


@dataclass(frozen=True, slots=True)
class MatchedPolicy:
    """A policy that selects a dataplane as a whole, or some of its inbounds or listeners."""

    policy: Resource
    inbounds: tuple[int, ...] = ()
    """The indexes of inbounds; those of embedded listeners follow the last inbound."""

    listeners: tuple[int, ...] = field(default=(), hash=False)  # they may be a thousand, and the policy tells enough
    """The indexes of listeners of the MeshGateway, for a builtin gateway."""


def is_shadow(policy: Resource) -> bool:
    """Whether a policy is only shown, and has no effect."""
    return policy.labels.get(EFFECT_LABEL) == "shadow"


def in_force(policies: Iterable[Resource]) -> Iterator[Resource]:
    """The policies that have an effect."""
    return (policy for policy in policies if not is_shadow(policy))


def select(world: World, policy: Resource, signature: DataplaneSignature) -> MatchedPolicy | None:
    """The policy with the parts that it selects, or None. Policies that name a dataplane are selected by `by_name`."""
    return _select(world, policy, policy, signature)


def _select(world: World, policy: Resource, selector: Resource, signature: DataplaneSignature) -> MatchedPolicy | None:
    """As `select`. `selector` has the target: it is the policy, or a route that the policy names at its top."""
    if not (_of_zone(selector, signature) and _of_namespace(selector, signature.profile)):
        return None
    target = top_of(selector)
    if target.kind == HTTP_ROUTE:
        routes = routes_at_top(world.table(target.kind, policy.mesh), policy) if selector is policy else ()
        return _joined(policy, (_select(world, policy, route, signature) for route in routes))
    return _by_target(policy, target, signature)


def _joined(policy: Resource, selections: Iterable[MatchedPolicy | None]) -> MatchedPolicy | None:
    """All that several routes select, for the policy that names them; None if they select nothing."""
    matches = [matched for matched in selections if matched is not None]
    inbounds = {index for matched in matches for index in matched.inbounds}
    chosen = {index for matched in matches for index in matched.listeners}
    return MatchedPolicy(policy, tuple(sorted(inbounds)), tuple(sorted(chosen))) if matches else None


def _by_target(policy: Resource, target: TargetRef, signature: DataplaneSignature) -> MatchedPolicy | None:
    match target.kind:
        case "Mesh" | "MeshSubset":
            return _by_tags(policy, target.tags, signature) if _is_of_type(target, signature.profile) else None
        case "MeshService" | "MeshServiceSubset":
            return _by_tags(policy, {SERVICE_TAG: target.name or ""} | (target.tags or {}), signature)
        case "MeshGateway":
            return _by_gateway(policy, target, signature)
        case "Dataplane":
            return by_labels(policy, target, signature)
    return None


def _is_of_type(target: TargetRef, profile: DataplaneProfile) -> bool:
    return not target.proxy_types or profile.proxy_type in target.proxy_types


def _of_zone(policy: Resource, signature: DataplaneSignature) -> bool:
    """Return True if a policy applies in the zone of a proxy. A policy of another zone does only for producers."""
    if policy.role == "producer" or policy.origin != "zone" or not policy.zone:
        return True
    proxy = signature.profile if signature.gateway is None else signature.gateway
    return proxy.zone in {"", policy.zone}


def _of_namespace(policy: Resource, profile: DataplaneProfile) -> bool:
    if policy.role not in _IN_OWN_NAMESPACE:
        return True
    return bool(policy.namespace) and policy.namespace == profile.namespace


def _by_tags(
    policy: Resource, selector: Mapping[str, str] | None, signature: DataplaneSignature
) -> MatchedPolicy | None:
    profile = signature.profile
    inbounds = tuple(i for i, section in enumerate(profile.sections) if carries(dict(section.tags), selector))
    whole = _is_a_whole(profile) and carries(dict(profile.gateway_tags), selector)
    chosen = _listeners(selector, signature)
    return MatchedPolicy(policy, inbounds, chosen) if inbounds or chosen or whole else None


def _by_gateway(policy: Resource, target: TargetRef, signature: DataplaneSignature) -> MatchedPolicy | None:
    if signature.gateway is None or signature.gateway.display_name != target.name:
        return None
    chosen = _listeners(target.tags, signature)
    return MatchedPolicy(policy, (), chosen) if chosen else None


def _listeners(selector: Mapping[str, str] | None, signature: DataplaneSignature) -> tuple[int, ...]:
    if signature.gateway is None:
        return ()
    return signature.gateway.derived(ListenersByTags).carrying(selector, signature.profile.gateway_tags)


def by_labels(policy: Resource, target: TargetRef, signature: DataplaneSignature) -> MatchedPolicy | None:
    """A target of kind Dataplane without a name: all dataplanes, or those with its labels. Never a builtin gateway."""
    labels = dict(signature.labels)
    if any(labels.get(name) != value for name, value in (target.labels or {}).items()):
        return None
    return by_section(policy, target, signature.profile)


def by_section(policy: Resource, target: TargetRef, profile: DataplaneProfile) -> MatchedPolicy | None:
    """A dataplane that the target selects, with all of its sections or the one that the target names."""
    if profile.gateway_type == "BUILTIN":
        return None
    inbounds = tuple(i for i, section in enumerate(profile.sections) if _is_called(section, target.section_name))
    whole = _is_a_whole(profile) and not target.section_name
    return MatchedPolicy(policy, inbounds) if inbounds or whole else None


def _is_a_whole(profile: DataplaneProfile) -> bool:
    """Whether a dataplane can be selected as a whole, without any section."""
    return profile.gateway_type == "DELEGATED" or profile.only_calls


def by_name(
    policy: Resource, target: TargetRef, dataplane: Resource, signature: DataplaneSignature
) -> MatchedPolicy | None:
    """A target that names one dataplane: the one of its zone and namespace.

    See docs/concepts/matching-and-merging.md#which-proxies.
    """
    namespace = target.namespace or policy.namespace
    identity = Identity("Dataplane", policy.mesh, target.name or "", policy.zone, namespace)
    if dataplane.identity != identity or not (_of_zone(policy, signature) and _of_namespace(policy, signature.profile)):
        return None
    return by_section(policy, target, signature.profile)


def _is_called(section: ProfileSection, name: str | None) -> bool:
    return not name or name in section.names


def routes_at_top(routes: Table, policy: Resource) -> tuple[Resource, ...]:
    """The routes that a policy names at its top level: those of its own zone and namespace, else all with the name.

    The name is a display name, so several routes can have it. Kuma takes any one of them.
    """
    named = routes.derived(_by_display_name).get(top_of(policy).name or "", ())
    own = tuple(route for route in named if (route.zone, route.namespace) == (policy.zone, policy.namespace))
    return own or tuple(named)


def _by_display_name(table: Table) -> Mapping[str, list[Resource]]:
    resources: dict[str, list[Resource]] = {}
    for resource in table:
        resources.setdefault(resource.display_name, []).append(resource)
    return resources
