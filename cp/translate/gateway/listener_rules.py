"""The rules of a gateway's listeners. Listeners that the same policies select share them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cp.model.failure import Failure
from cp.model.names import Key
from cp.resources.targets import HTTP_ROUTE, TCP_ROUTE
from cp.rules import PolicyRules
from cp.rules.gateways import RoutesByHost, listeners_alike, routes_by_host
from cp.rules.legacy.gateway_routes import failures_at, legacy_routes_by_host
from cp.rules.matching.profile import listener_tags, profile
from cp.rules.matching.profile import listeners as listeners_of
from cp.translate.effective import Effective, Rules, at_entrance, at_listener
from cp.translate.fragments import Confs
from cp.translate.gateway.proxy import GatewayProxy
from cp.translate.gateway.results import ClusterRules, PoliciesByKind
from cp.translate.view.gateways import ServedListener, ServedPort
from generators.envoy import names
from generators.proxy import Protocol


@dataclass(frozen=True, slots=True, eq=False)
class ListenerRules:
    """The rules of some listeners that the same policies select. Equal only to themselves."""

    rules: Rules
    of_calls: Rules
    """Those of all policies that are no routes: what all routes together come to holds for nobody."""

    policies: PoliciesByKind
    """All policies that are no routes, by kind."""

    http_routes: RoutesByHost
    tcp_routes: RoutesByHost

    mark: str = ""
    """What the names of the clusters end with to which its routes lead."""

    def routes(self, port: ServedPort) -> RoutesByHost:
        return self.http_routes if port.is_http else self.tcp_routes


class RulesOfListeners:
    """The rules of each listener of a proxy, and the confs to which they come."""

    def __init__(self, proxy: GatewayProxy) -> None:
        self._proxy = proxy
        self._by_index: dict[int, ListenerRules] = {}
        self.clusters: dict[str, ClusterRules] = {}
        """What holds for the clusters to which routes lead, by what their names end with."""

        self.failures: dict[Failure, None] = {}
        """Of MeshGatewayRoutes that were asked for routes, as far as there are some."""

        self._of_calls: dict[ListenerRules, tuple[Effective, Confs]] = {}
        self._of_clients: dict[frozenset[ListenerRules], tuple[Effective, Confs]] = {}
        self._read()

    def of(self, listener: ServedListener) -> ListenerRules:
        return self._by_index[listener.index]

    def routes(self, port: ServedPort, listener: ServedListener) -> RoutesByHost:
        """The routes of a listener: those of MeshGatewayRoutes where no newer kind of route is for it."""
        return self.of(listener).routes(port) or self._legacy_routes(port, listener)

    def of_calls(self, rules: ListenerRules) -> tuple[Effective, Confs]:
        """What holds for all routes of the listeners with these rules, and what of it is for hostnames."""
        if rules not in self._of_calls:
            policies = self._proxy.policies
            whole = at_listener(policies.defaults, rules.of_calls)
            self._of_calls[rules] = whole, self._proxy.confs(policies.host_writers, whole)
        return self._of_calls[rules]

    def of_clients(self, listeners: tuple[ServedListener, ...]) -> tuple[Effective, Confs]:
        """What holds for the clients of some listeners, and what of it is for their chain."""
        groups = dict.fromkeys(map(self.of, listeners))
        key = frozenset(groups)
        if key not in self._of_clients:
            indexes = tuple(listener.index for listener in listeners)
            rules = next(iter(groups)).rules if len(groups) == 1 else self._policies_at(indexes)
            policies = self._proxy.policies
            entrance = at_entrance(policies.entrance_defaults, rules)
            self._of_clients[key] = entrance, self._proxy.confs(policies.entrance_writers, entrance)
        return self._of_clients[key]

    def _read(self) -> None:
        kinds = [kind_rules for kind_rules in self._proxy.rules.values() if not kind_rules.shape.single]
        count = len(self._proxy.gateway.spec.listeners)
        groups = {group: self._rules_at(group) for group in listeners_alike(count, kinds)}
        of_clusters = {group: self._policies_of_clusters(of_group.rules) for group, of_group in groups.items()}
        marks = self._marks(of_clusters)
        for group, of_group in groups.items():
            mark = marks[of_clusters[group]]
            self.clusters[mark] = ClusterRules(of_group.of_calls, of_clusters[group])
            self._by_index |= dict.fromkeys(group, replace(of_group, mark=mark))

    def _rules_at(self, listeners: tuple[int, ...]) -> ListenerRules:
        """The rules of some listeners: those of the policies that select one of them, or are for whole proxies."""
        rules = self._policies_at(listeners)
        routes, known = self._proxy.policies.of_routes, self._proxy.policies.of_calls
        of_calls = rules.among(known | (rules.keys() - routes.keys()))
        policies = tuple(tuple(match.policy for match in kind_rules.matched) for kind_rules in of_calls.values())
        http_routes, tcp_routes = (self._routes(rules, protocol) for protocol in (Protocol.HTTP, Protocol.TCP))
        outbounds, limits = rules.legacy.policies_of_calls
        legacy = (*(match.policy for match in outbounds), *(limit for _, limit in limits))
        return ListenerRules(rules, of_calls, (*policies, legacy), http_routes, tcp_routes)

    def _policies_at(self, listeners: tuple[int, ...]) -> Rules:
        at_listeners = {
            kind: kind_rules if kind_rules.shape.single else kind_rules.at_listeners(listeners)
            for kind, kind_rules in self._proxy.rules.items()
        }
        return Rules(at_listeners, self._proxy.rules.legacy)

    def _legacy_routes(self, port: ServedPort, listener: ServedListener) -> RoutesByHost:
        proxy = self._proxy
        tags = listener_tags(profile(proxy.dataplane), proxy.gateway, listeners_of(proxy.gateway)[listener.index])
        self.failures |= dict.fromkeys(failures_at(proxy.world, proxy.mesh, tags))
        return legacy_routes_by_host(proxy.world, proxy.mesh, tags, HTTP_ROUTE if port.is_http else TCP_ROUTE)

    def _routes(self, rules: Rules, protocol: Protocol) -> RoutesByHost:
        kinds = (
            name for name, policy in self._proxy.policies.of_routes.items() if protocol in policy.gateway_protocols
        )
        of_protocol: PolicyRules | None = next((rules[name] for name in kinds if name in rules), None)
        return {} if of_protocol is None else routes_by_host(of_protocol)

    def _policies_of_clusters(self, rules: Rules) -> tuple[Key, ...]:
        kinds = (rules[kind] for kind in sorted(rules.keys() & self._proxy.policies.of_clusters))
        policies = (match.policy for kind_rules in kinds for match in kind_rules.matched)
        return tuple(policy.key for policy in policies if policy.derived(self._proxy.policies.is_about_clusters))

    def _marks(self, policies: Mapping[tuple[int, ...], tuple[Key, ...]]) -> Mapping[tuple[Key, ...], str]:
        """What the names of clusters end with for each set of policies: nothing for the most general set."""
        plain = min(policies.values(), key=len, default=())
        marks = {plain: ""}
        for group, of_group in policies.items():
            listener = self._proxy.gateway.spec.listeners[group[0]]
            marks.setdefault(of_group, names.gateway_mark(listener.host, listener.port or 0))
        return marks
