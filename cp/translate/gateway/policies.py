"""The policies by what they do on gateways: which of them write where, and which of them change clusters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain as chained
from typing import Any

import msgspec

from cp.policies import Policies, Policy
from cp.resources.resource import Resource
from cp.resources.schema import decode
from cp.translate.effective import ConfWriters, entrance_defaults, gateway_defaults, has_hook
from cp.translate.fragments import Task, build, confs
from cp.translate.gateway.results import HostResult, SwitchedFilters
from generators.proxy import Backend, Protocol


class GatewayPolicies:
    """All policies, sorted once for all gateways."""

    def __init__(self, policies: Policies) -> None:
        self.of_routes = {policy.kind.name: policy for policy in policies if policy.is_route}
        self.of_calls = frozenset(policy.kind.name for policy in policies) - self.of_routes.keys()
        """The kinds that are no routes: also those of which a mesh has none, as legacy policies come to them."""

        self.defaults = gateway_defaults(policies)
        self.entrance_defaults = entrance_defaults(policies)
        self.chain_writers = ConfWriters(policies, ("listener", "routes_with_own_confs"))
        self.row_writers = ConfWriters(policies, ("routes_with_own_confs",))
        self.host_writers = ConfWriters(policies, ("listener", "route", "routes_with_own_confs"))
        self.entrance_writers = ConfWriters(policies, ("entrance",))
        self.finishers = ConfWriters(policies, ("finish",))
        self.of_clusters = {
            policy.kind.name: policy for policy in policies if has_hook(policy, "cluster", "endpoints", "arrange")
        }
        self._switching = [policy for policy in policies if has_hook(policy, "switched_filters")]

    def is_about_clusters(self, resource: Resource) -> bool:
        """Whether a policy can change clusters or endpoints. One for which that is hard to tell is said to."""
        policy = self.of_clusters[resource.type]
        confs = [conf for item in resource.data.get("to") or () if (conf := item.get("default"))]
        if has_hook(policy, "endpoints", "arrange"):
            return bool(confs)
        return any(_has_null(conf) or _changes_clusters(policy, conf) for conf in confs)

    def switched_filters(self, confs: Iterable[tuple[str, bytes]]) -> SwitchedFilters:
        """The filters that rows with these confs switch on. The longest list has all filters of the others in it."""
        distinct = frozenset(confs)
        by_kind = {
            policy.kind.name: [_switched_filters(policy, text) for kind, text in distinct if kind == policy.kind.name]
            for policy in self._switching
        }
        return {kind: filters for kind, choices in by_kind.items() if (filters := max(choices, key=len, default=()))}

    def needed_filters(self, hosts: Iterable[HostResult]) -> tuple[bytes, ...]:
        """The filters that the rows of some hostnames switch on, in the order of the policies."""
        needed: dict[str, tuple[bytes, ...]] = {}
        for host in hosts:
            for kind, filters in host.filters.items():
                needed[kind] = max(needed.get(kind, ()), filters, key=len)
        in_order = (needed.get(policy.kind.name, ()) for policy in self._switching)
        return tuple(chained.from_iterable(in_order))


def _switched_filters(policy: Policy[Any], text: bytes) -> tuple[bytes, ...]:
    filters = policy.switched_filters(decode(policy.conf, msgspec.json.decode(text)))
    return tuple(http_filter.SerializeToString(deterministic=True) for http_filter in filters)


def _has_null(data: Any) -> bool:
    """Whether something is removed that a weaker policy says."""
    if isinstance(data, Mapping):
        return any(map(_has_null, data.values()))
    return data is None


def _changes_clusters(policy: Policy[Any], conf: Mapping[str, Any]) -> bool:
    """Whether a conf by itself changes the cluster of some service."""
    written = {policy.kind.name: conf}
    sites = (Backend("", "", protocol) for protocol in Protocol)
    return any(_content(Task(site, confs(written)), policy) != _content(Task(site), policy) for site in sites)


def _content(task: Task, policy: Policy[Any]) -> list[bytes]:
    return [packed.body for packed in build(task, [policy])]
