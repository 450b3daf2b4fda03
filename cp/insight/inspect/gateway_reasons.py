"""Why a value has no effect on a builtin gateway: at a listener, for some routes, for its clients, or on a cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, Final

from cp.insight.effects import Build, FieldEffect, effect, of_cluster
from cp.insight.gateways import GatewayPart, build_of, can_act, gateway_parts
from cp.insight.inspect.scopes import ConfScope, is_route, level_hostname, levels_of_kind, part_scope
from cp.insight.meaning import has_meaning
from cp.model.hosts import common
from cp.policies import Policy
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.merging import MergedConf, put
from cp.translate.backend import BackendResult, endpoints_to_arrange
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.effective import has_hook
from cp.translate.gateway import GatewayResult, HostResult
from cp.translate.proxy_class import ProxyClass
from cp.translate.view.backend_refs import resolved_data
from cp.translate.view.backends import MarkedDestination
from cp.translate.view.services import protocol_of
from generators.proxy import Protocol

_OF_CLUSTERS: Final = "has no effect on a listener: it is about the services to which routes lead"
_OF_ROUTES: Final = "has no effect on the cluster: it is about the listeners and the routes that lead there"
_NOT_OF_GATEWAYS: Final = "has no effect on a listener of a gateway"
_NOT_OF_CLIENTS: Final = "has no effect: on a gateway this policy says nothing about clients"
_BEHIND_OTHERS: Final = "has no effect: routes for narrower hostnames take every request"


class GatewayReasons:
    """The reasons for values of one policy. Parts of a gateway that are built alike share an answer."""

    def __init__(self, compiler: Compiler, world: World, policy: Resource) -> None:
        self._compiler, self._world, self._policy = compiler, world, policy
        self._acting: dict[Hashable, bool] = {}
        self._parts: dict[ProxyClass, Mapping[ConfScope, list[GatewayPart]]] = {}

    def reason(self, proxy: CompiledProxy, scope: ConfScope, path: str, conf_fields: Iterable[str]) -> str:
        """Why a field has no effect in a scope of a gateway; empty if it has one."""
        gateway = proxy.proxy_class.gateway
        if gateway is None:
            return ""
        if scope.destination is not None:
            return self._of_cluster(proxy, scope, path, conf_fields)
        if is_route(self._policy.kind):
            return "" if self._is_tried(gateway, scope) else _BEHIND_OTHERS
        reasons = [self._of_part(part, path, conf_fields) for part in self._parts_of(proxy.proxy_class, gateway)[scope]]
        return "" if "" in reasons else next(iter(reasons), "")

    def confs_of_clusters(self, proxy: CompiledProxy) -> Iterator[tuple[ConfScope, MergedConf]]:
        """What holds for the clusters to which routes lead."""
        for scope, backend in _backends(proxy).items():
            if (conf := backend.effective.get(self._policy.type)) is not None:
                yield scope, conf

    @property
    def _kind(self) -> Policy[Any]:
        return self._compiler.policies[self._policy.type]

    def _of_part(self, part: GatewayPart, path: str, conf_fields: Iterable[str]) -> str:
        conf = part.effective[self._policy.type]
        rows = () if part.host is None else part.host.routes
        splits = rows if part.row is None else part.row.splits
        key = conf, part.chain.task.site, part.is_of_clients, part.row is None, splits
        if self._acts(key, conf, path, build_of(self._kind, part), is_able=can_act(self._kind, part)):
            return ""
        if part.is_of_clients and not can_act(self._kind, part):
            return _NOT_OF_CLIENTS
        is_of_clusters = has_hook(self._kind, "cluster", "endpoints", "arrange")
        otherwise = _OF_CLUSTERS if is_of_clusters else _NOT_OF_GATEWAYS
        return self._meaningless(path, conf_fields, part.protocol) or otherwise

    def _of_cluster(self, proxy: CompiledProxy, scope: ConfScope, path: str, conf_fields: Iterable[str]) -> str:
        backend = _backends(proxy).get(scope)
        if backend is None:
            return ""
        if _parts_clusters(self._kind, proxy):
            return ""
        mesh, conf = proxy.dataplane.mesh, backend.effective[self._policy.type]
        caller = proxy.proxy_class.caller
        endpoints = endpoints_to_arrange(self._world, mesh, backend.destination, caller)
        build = of_cluster(self._kind, backend, endpoints, caller)
        if self._acts((conf, backend.tasks[0].site), conf, path, build, is_able=True):
            return ""
        protocol = protocol_of(self._world, mesh, backend.destination)
        return self._meaningless(path, conf_fields, protocol) or _OF_ROUTES

    def _acts(self, key: Hashable, conf: MergedConf, path: str, build: Build, *, is_able: bool) -> bool:
        """Whether a field does something. Of one that is removed nothing is built, and nothing is said."""
        if path not in conf.fields:
            return True
        if (path, key) not in self._acting:
            self._acting[path, key] = is_able and _is_felt(conf, path, self._resolved(build))
        return self._acting[path, key]

    def _resolved(self, build: Build) -> Build:
        """The same with references resolved, as when it is served."""
        return lambda conf: build(dict(resolved_data(self._world, self._policy.mesh, conf)))

    def _meaningless(self, path: str, conf_fields: Iterable[str], protocol: Protocol) -> str:
        is_meant = has_meaning(self._kind, path, protocol, conf_fields)
        return "" if is_meant else f"has no effect: no meaning where {protocol} is spoken"

    def _is_tried(self, gateway: GatewayResult, scope: ConfScope) -> bool:
        """Whether requests for some hostname come to the routes of the policy."""
        return any(
            self._policy.identity in rule.contributors
            for host in gateway.hosts.values()
            if host.port.port == scope.listener_port and self._has_routes_for(host, scope.hostname)
            for rule in host.route_rules.values()
        )

    def _has_routes_for(self, host: HostResult, hostname: str) -> bool:
        return any(
            common(host.listener.hostname, level_hostname(level)) == hostname
            for level in levels_of_kind(host, self._policy.kind)
            if any(item.policy is self._policy for item in level.items)
        )

    def _parts_of(self, proxy_class: ProxyClass, gateway: GatewayResult) -> Mapping[ConfScope, list[GatewayPart]]:
        """The parts of each scope: routes with the same confs can do several things."""
        if proxy_class not in self._parts:
            parts: defaultdict[ConfScope, list[GatewayPart]] = defaultdict(list)
            for part in gateway_parts(gateway):
                parts[part_scope(part)].append(part)
            self._parts[proxy_class] = parts
        return self._parts[proxy_class]


def _is_felt(conf: MergedConf, path: str, build: Build) -> bool:
    """Whether something else is built without a field, or with one of the values that it overrides."""
    if effect(build, conf.value, path) is not FieldEffect.NONE:
        return True
    overridden = (loser.value for loser in conf.fields[path].losers if loser.value is not None)
    return any(build(put(conf.value, path, value)) != build(conf.value) for value in overridden)


def _parts_clusters(policy: Policy[Any], proxy: CompiledProxy) -> bool:
    """Whether listeners have clusters of their own because of a policy, whatever it says of them."""
    gateway = proxy.proxy_class.gateway
    return gateway is not None and len(gateway.clusters) > 1 and has_hook(policy, "endpoints", "arrange")


def _backends(proxy: CompiledProxy) -> Mapping[ConfScope, BackendResult]:
    """The clusters to which routes of a gateway lead."""
    backends = proxy.proxy_class.backends.items()
    marked = ((key.mark if isinstance(key, MarkedDestination) else "", backend) for key, backend in backends)
    return {ConfScope(backend.destination, mark=mark): backend for mark, backend in marked}
