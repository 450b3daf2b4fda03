"""Which policies select a proxy, what an item is for, and which of two items is stronger."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.oracle.reading import Data, Documents, Resource

_ROUTES: Final = {"MeshHTTPRoute", "MeshTCPRoute"}
_KINDS: Final = (
    *("Mesh", "Dataplane", "MeshSubset", "MeshGateway", "MeshService"),
    *("MeshExternalService", "MeshMultiZoneService", "MeshServiceSubset", "MeshHTTPRoute", "MeshTCPRoute"),
)
"""From the weakest to the strongest (document 002, Merging configuration; matching and merging, Who wins)."""

_OLD: Final = re.compile("([^_]+)_([^_]+)_svc(?:_([0-9]+))?")
_ORIGINS: Final = ("global", "", "zone")
_ROLES: Final = ("system", "producer", "consumer", "workload-owner")


@dataclass(frozen=True, eq=False)
class Item:
    """An item of `to`, with the policy that has it."""

    policy: Resource
    index: int
    target: Data
    conf: Any

    @property
    def top(self) -> Data:
        return top(self.policy)


def top(policy: Resource) -> Data:
    """Without a target a policy is for the whole mesh (document 000, API)."""
    return policy.spec.get("targetRef") or {"kind": "Mesh"}


def selects(documents: Documents, policy: Resource, proxy: Resource) -> bool:
    """A shadow policy is for nobody, and one of a namespace's consumers for the proxies of that namespace."""
    if policy.labels.get("kuma.io/effect") == "shadow":
        return False
    if policy.role in {"consumer", "workload-owner"} and policy.namespace != proxy.namespace:
        return False
    return _is_in_zone(policy, proxy) and _targets(documents, policy, top(policy), proxy)


def _is_in_zone(policy: Resource, proxy: Resource) -> bool:
    """A policy of one zone is for no proxy of another, unless a producer wrote it (Zones and namespaces)."""
    zone = policy.labels.get("kuma.io/zone")
    if policy.labels.get("kuma.io/origin") != "zone" or not zone or policy.role == "producer":
        return True
    return proxy.labels.get("kuma.io/zone", zone) == zone


def _targets(documents: Documents, policy: Resource, target: Data, proxy: Resource) -> bool:
    """Document 002, Writing a targetRef; matching and merging, Which proxies."""
    kind = target["kind"]
    if kind in {"Mesh", "MeshSubset"}:
        return has_type(proxy, target.get("proxyTypes")) and _has_tags(proxy, target.get("tags") or {})
    if kind in {"MeshService", "MeshServiceSubset"}:
        return _has_tags(proxy, {"kuma.io/service": target.get("name"), **(target.get("tags") or {})})
    if kind == "Dataplane":
        return _is_dataplane(policy, target, proxy)
    if kind == "MeshHTTPRoute":
        return any(_targets(documents, route, top(route), proxy) for route in routes_before(documents, policy, target))
    return False  # a MeshGateway: builtin gateways have no outbounds


def has_type(proxy: Resource, types: list[str] | None) -> bool:
    """An empty list means all proxies (document 002, proxyTypes)."""
    return not types or ("Gateway" if proxy.spec["networking"].get("gateway") else "Sidecar") in types


def _has_tags(proxy: Resource, tags: Mapping[str, str | None]) -> bool:
    """One inbound has all of them; a delegated gateway has tags of its own."""
    return any(carries(carried, tags) for carried in all_tags(proxy)) or not tags


def carries(carried: Mapping[str, str], tags: Mapping[str, str | None]) -> bool:
    return all(carried.get(name) == value or (value == "*" and name in carried) for name, value in tags.items())


def all_tags(proxy: Resource) -> Iterator[Mapping[str, str]]:
    networking = proxy.spec["networking"]
    yield from (inbound.get("tags") or {} for inbound in networking.get("inbound") or [])
    if networking.get("gateway"):
        yield networking["gateway"].get("tags") or {}


def _is_dataplane(policy: Resource, target: Data, proxy: Resource) -> bool:
    if target.get("name"):
        return _is_named(policy, target, proxy)
    return bool(target.get("labels", {}).items() <= proxy.all_labels.items())


def _is_named(policy: Resource, target: Data, resource: Resource) -> bool:
    """By the display name, in the zone of the policy, in the namespace that is named or else that of the policy."""
    identity = resource.identity
    namespace = target.get("namespace") or policy.namespace
    target_identity = (target["name"], namespace, policy.labels.get("kuma.io/zone", ""))
    return (identity.name, identity.namespace, identity.zone) == target_identity


def named(documents: Documents, policy: Resource, target: Data) -> list[Resource]:
    """The resources that a target means: one by its name, or all with its labels."""
    target_labels = (target.get("labels") or _old_labels(target)).items()
    if target_labels:
        return [resource for resource in documents.of(target["kind"]) if target_labels <= resource.all_labels.items()]
    return [resource for resource in documents.of(target["kind"]) if _is_named(policy, target, resource)]


def _old_labels(target: Data) -> Data:
    """`a_ns_svc` and `a_ns_svc_8080` are services by display name and namespace (matching and merging)."""
    old = _OLD.fullmatch(target.get("name") or "") if _may_be_old(target) else None
    return {} if old is None else {"kuma.io/display-name": old[1], "k8s.kuma.io/namespace": old[2]}


def old_port(target: Data) -> int | None:
    """The port of an old name such as `a_ns_svc_8080`."""
    old = _OLD.fullmatch(target.get("name") or "") if _may_be_old(target) else None
    return None if old is None or old[3] is None else int(old[3])


def _may_be_old(target: Data) -> bool:
    return bool(target["kind"] == "MeshService" and not target.get("sectionName"))


def routes_before(documents: Documents, policy: Resource, target: Data) -> list[Resource]:
    """The older way names routes by their display name alone: those where the policy stands, else all of that name
    (matching and merging, The old way to name a route).
    """
    so_called = [route for route in documents.of(target["kind"]) if route.identity.name == target["name"]]
    return [route for route in so_called if _is_named(policy, {"name": target["name"]}, route)] or so_called


def items(documents: Documents, kind: str, proxy: Resource, *, by_tag: bool = False) -> list[Item]:
    """All items of one kind of policy that are about the calls of a proxy, the weakest first.

    For calls by tag the target of an item does not count, only where it stands (Kuma 2.14, the rules of subsets).
    """
    policies = [policy for policy in documents.of(kind) if selects(documents, policy, proxy)]
    selected = [
        Item(policy, index, item["targetRef"], item.get("rules" if kind in _ROUTES else "default"))
        for policy in policies
        for index, item in enumerate(policy.items("to"))
    ]
    return sorted(selected, key=lambda item: strength(item, {"kind": "Mesh"} if by_tag else item.target))


def strength(item: Item, target: Data) -> tuple[Any, ...]:
    """Matching and merging, Who wins: the first difference decides."""
    labels = item.policy.labels
    return (
        _KINDS.index(item.top["kind"]),
        bool(item.top.get("name")) if item.top["kind"] == "Dataplane" else False,
        bool(item.top.get("sectionName")) if item.top["kind"] == "Dataplane" else False,
        _ORIGINS.index(labels.get("kuma.io/origin", "")),
        _ROLES.index(item.policy.role),
        _KINDS.index(target["kind"]),
        bool(target.get("sectionName")) if target["kind"] == "MeshService" else False,
        _backwards(item.policy.identity.name),
        _backwards(item.policy.stored),
        item.index,
    )


def _backwards(name: str) -> tuple[int, ...]:
    """Of `aaa` and `bbb`, `aaa` wins, and so comes last."""
    return (*(-ord(letter) for letter in name), 1)
