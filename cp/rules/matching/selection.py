"""Whether one policy selects one dataplane, and which parts of it.

See docs/concepts/matching-and-merging.md#which-proxies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cp.model.names import Identity
from cp.model.target import TargetRef
from cp.resources.resource import EFFECT_LABEL, Resource
from cp.resources.world import Table, World
from cp.rules.matching.order import top_of
from cp.rules.matching.profile import (
    DataplaneProfile,
    DataplaneSignature,
    ProfileSection,
    carries,
    listener_tags,
    listeners,
)

SERVICE_TAG: Final = "kuma.io/service"
_IN_OWN_NAMESPACE: Final = frozenset({"consumer", "workload-owner"})


@dataclass(frozen=True, slots=True)
class MatchedPolicy:
    """A policy that selects a dataplane: the whole of it, or some of its parts."""

    policy: Resource
    inbounds: tuple[int, ...] = ()
    """Which inbounds, by their place; embedded listeners count on after the last inbound."""

    listeners: tuple[int, ...] = ()
    """Which listeners of the MeshGateway, for a builtin gateway."""


def is_shadow(policy: Resource) -> bool:
    """A policy that is only looked at, and has no effect."""
    return policy.labels.get(EFFECT_LABEL) == "shadow"


def in_force(policies: Iterable[Resource]) -> Iterator[Resource]:
    """Those that are not only looked at."""
    return (policy for policy in policies if not is_shadow(policy))


def select(world: World, policy: Resource, of: DataplaneSignature) -> MatchedPolicy | None:
    """The policy with the parts that it selects, or None. Policies that name a dataplane are not asked here."""
    return _select(world, policy, policy, of)


def _select(world: World, policy: Resource, selector: Resource, of: DataplaneSignature) -> MatchedPolicy | None:
    """As `select`; `selector` has the target: the policy itself, or the route that stands for it."""
    if not (_of_zone(selector, of) and _of_namespace(selector, of.profile)):
        return None
    target = top_of(selector)
    if target.kind == "MeshHTTPRoute":
        routes = routes_at_top(world.table(target.kind, policy.mesh), policy) if selector is policy else ()
        return _joined(policy, (_select(world, policy, route, of) for route in routes))
    return _by_target(policy, target, of)


def _joined(policy: Resource, found: Iterable[MatchedPolicy | None]) -> MatchedPolicy | None:
    """What several routes select for the policy that names them."""
    some = [matched for matched in found if matched is not None]
    inbounds = {index for matched in some for index in matched.inbounds}
    chosen = {index for matched in some for index in matched.listeners}
    return MatchedPolicy(policy, tuple(sorted(inbounds)), tuple(sorted(chosen))) if some else None


def _by_target(policy: Resource, target: TargetRef, of: DataplaneSignature) -> MatchedPolicy | None:
    match target.kind:
        case "Mesh" | "MeshSubset":
            return _by_tags(policy, target.tags, of) if _is_of_type(target, of.profile) else None
        case "MeshService" | "MeshServiceSubset":
            return _by_tags(policy, {SERVICE_TAG: target.name or ""} | (target.tags or {}), of)
        case "MeshGateway":
            return _by_gateway(policy, target, of)
        case "Dataplane":
            return by_labels(policy, target, of)
    return None


def _is_of_type(target: TargetRef, profile: DataplaneProfile) -> bool:
    return not target.proxy_types or profile.proxy_type in target.proxy_types


def _of_zone(policy: Resource, of: DataplaneSignature) -> bool:
    """A policy of another zone stays there, unless a producer wrote it for all who call."""
    if policy.role == "producer" or policy.origin != "zone" or not policy.zone:
        return True
    proxy = of.profile if of.gateway is None else of.gateway
    return proxy.origin != "zone" or proxy.zone in {"", policy.zone}


def _of_namespace(policy: Resource, profile: DataplaneProfile) -> bool:
    if policy.role not in _IN_OWN_NAMESPACE:
        return True
    return bool(policy.namespace) and policy.namespace == profile.namespace


def _by_tags(policy: Resource, selector: Mapping[str, str] | None, of: DataplaneSignature) -> MatchedPolicy | None:
    profile = of.profile
    inbounds = tuple(i for i, found in enumerate(profile.sections) if carries(dict(found.tags), selector))
    whole = _is_a_whole(profile) and carries(dict(profile.gateway_tags), selector)
    chosen = _listeners(selector, of)
    return MatchedPolicy(policy, inbounds, chosen) if inbounds or chosen or whole else None


def _by_gateway(policy: Resource, target: TargetRef, of: DataplaneSignature) -> MatchedPolicy | None:
    if of.gateway is None or of.gateway.display_name != target.name:
        return None
    chosen = _listeners(target.tags, of)
    return MatchedPolicy(policy, (), chosen) if chosen else None


def _listeners(selector: Mapping[str, str] | None, of: DataplaneSignature) -> tuple[int, ...]:
    gateway = of.gateway
    if gateway is None:
        return ()
    tags = (listener_tags(of.profile, gateway, listener) for listener in listeners(gateway))
    return tuple(i for i, found in enumerate(tags) if carries(found, selector))


def by_labels(policy: Resource, target: TargetRef, of: DataplaneSignature) -> MatchedPolicy | None:
    """A target of kind Dataplane without a name: all of them, or those with these labels. Never a builtin gateway."""
    labels = dict(of.labels)
    if any(labels.get(name) != value for name, value in (target.labels or {}).items()):
        return None
    return by_section(policy, target, of.profile)


def by_section(policy: Resource, target: TargetRef, profile: DataplaneProfile) -> MatchedPolicy | None:
    """A dataplane that is selected, or the one section of it that is meant."""
    if profile.gateway_type == "BUILTIN":
        return None
    inbounds = tuple(i for i, found in enumerate(profile.sections) if _is_called(found, target.section_name))
    whole = _is_a_whole(profile) and not target.section_name
    return MatchedPolicy(policy, inbounds) if inbounds or whole else None


def _is_a_whole(profile: DataplaneProfile) -> bool:
    """Whether a dataplane is selected though no part of it is."""
    return profile.gateway_type == "DELEGATED" or profile.only_calls


def by_name(policy: Resource, target: TargetRef, dataplane: Resource, of: DataplaneSignature) -> MatchedPolicy | None:
    """A target that names one dataplane: the one of its zone and namespace.

    See docs/concepts/matching-and-merging.md#which-proxies.
    """
    namespace = target.namespace or policy.namespace
    wanted = Identity("Dataplane", policy.mesh, target.name or "", policy.zone, namespace)
    if dataplane.identity != wanted or not (_of_zone(policy, of) and _of_namespace(policy, of.profile)):
        return None
    return by_section(policy, target, of.profile)


def _is_called(section: ProfileSection, name: str | None) -> bool:
    return not name or name in section.names


def routes_at_top(routes: Table, policy: Resource) -> tuple[Resource, ...]:
    """The routes that a policy names at its top level: those of its own zone and namespace, else all so called.

    The name is a display name, and so several routes can have it (Kuma asks for nothing else, and takes one of them).
    """
    named = routes.derived(_by_display_name).get(top_of(policy).name or "", ())
    own = tuple(route for route in named if (route.zone, route.namespace) == (policy.zone, policy.namespace))
    return own or tuple(named)


def _by_display_name(table: Table) -> Mapping[str, list[Resource]]:
    found: dict[str, list[Resource]] = {}
    for resource in table:
        found.setdefault(resource.display_name, []).append(resource)
    return found
