"""To which listeners of a builtin gateway a MeshGatewayRoute is bound, which of its rules take requests there, and why
not: a route with a targetRef is for the listener, a newer one has the same matches, or nobody asks for its hostnames.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cp.insight.gateways import served_rules
from cp.insight.legacy.places import OVERRIDDEN, UNFITTING, UNREACHED, LegacyPlace, with_place
from cp.insight.legacy.values import LegacyValue
from cp.model.hosts import ANY_HOST, common
from cp.model.paths import step, steps
from cp.resources.resource import Resource
from cp.resources.targets import HTTP_ROUTE, TCP_ROUTE
from cp.resources.world import World
from cp.rules import RouteRule
from cp.rules.gateways import routes_by_host
from cp.rules.legacy.gateway_routes import GATEWAY_ROUTE, TCP, is_selected, place_of_rule, places_of_rules
from cp.rules.matching.profile import listener_tags, profile
from cp.rules.matching.profile import listeners as listeners_of
from cp.rules.merging import Origin, Setting
from cp.translate.compiler import CompiledProxy
from cp.translate.gateway import GatewayResult, HostResult
from cp.translate.view.gateways import ServedListener, ServedPort

_HTTP: Final = "http"
_BEHIND_OTHERS: Final = "has no effect: routes for the same or for narrower hostnames take every request"
_ONE_RULE: Final = "has no effect: of several rules for TCP the first counts"


@dataclass(frozen=True, slots=True)
class BoundRoutes:
    """The MeshGatewayRoutes of one proxy of a MeshGateway."""

    world: World
    proxy: CompiledProxy
    served: GatewayResult

    def places(self, only: Resource | None = None) -> Iterator[LegacyPlace]:
        """The listeners to which each is bound, or one of them."""
        routes = self.world.table(GATEWAY_ROUTE, self.proxy.dataplane.mesh) if only is None else (only,)
        for route in routes:
            for port in self.served.served.ports:
                for listener in port.listeners:
                    if is_selected(route, self._tags(listener)):
                        yield self._at_listener(route, port, listener)

    def _tags(self, listener: ServedListener) -> Mapping[str, str]:
        gateway = self.served.gateway
        assert gateway is not None  # noqa: S101  # without one there are no listeners
        return listener_tags(profile(self.proxy.dataplane), gateway, listeners_of(gateway)[listener.index])

    def _at_listener(self, route: Resource, port: ServedPort, listener: ServedListener) -> LegacyPlace:
        where = f"on listener {port.port}" + ("" if listener.hostname == ANY_HOST else f" for {listener.hostname}")
        is_http = _HTTP in (route.data.get("conf") or {})
        if port.is_http is not is_http:
            reason = f"the listener is for {port.protocol}, and the route for {'HTTP' if is_http else 'TCP'}"
            return LegacyPlace(route, where, UNFITTING, reason)
        if newer := ", ".join(self._with_target_ref(port, listener)):
            reason = f"{newer} is for this listener, so no {GATEWAY_ROUTE} is asked there"
            return LegacyPlace(route, where, OVERRIDDEN, reason)
        hostnames = (route.data["conf"].get(_HTTP) or {}).get("hostnames") or (ANY_HOST,)
        if not any(common(listener.hostname, hostname.lower()) for hostname in hostnames):
            return LegacyPlace(route, where, UNREACHED, f"the listener takes none of {', '.join(hostnames)}")
        return _judged(LegacyPlace(route, where, values=tuple(self._values(route, port, listener))))

    def _with_target_ref(self, port: ServedPort, listener: ServedListener) -> Iterator[str]:
        """The routes with a targetRef that are for a listener."""
        of_kind = self.proxy.proxy_class.rules.get(HTTP_ROUTE if port.is_http else TCP_ROUTE)
        of_listener = None if of_kind is None else of_kind.at_listeners((listener.index,))
        if of_listener is not None and routes_by_host(of_listener):
            for match in of_listener.matched:
                source = match.policy.source
                yield with_place(match.policy.key, source.file, source.line(""))

    def _values(self, route: Resource, port: ServedPort, listener: ServedListener) -> Iterator[LegacyValue]:
        hosts = self.served.hosts_by_listener().get(listener.index, [])
        served = [rule for host in hosts for rule in _served(host, port)]
        own = {place_of_rule(route, rule.matches) for rule in served if rule.origin.policy == route.key}
        for path, rule in _rules(route):
            origin = Origin(route.key, route.identity, "conf", path=path, source=route.source)
            setting = Setting(origin, rule, path)
            if path in own:
                yield LegacyValue(setting)
            elif not port.is_http:
                yield LegacyValue(setting, idle_reason=_ONE_RULE if own else _BEHIND_OTHERS)
            else:
                yield self._unserved(route, setting, served)

    def _unserved(self, route: Resource, setting: Setting, served: Sequence[RouteRule]) -> LegacyValue:
        path = setting.path
        same = next((rule for rule in served if path in places_of_rules(route, rule.matches)), None)
        owner = None if same is None else self.world.get(same.origin.policy)
        if same is None or owner is None:
            return LegacyValue(setting, idle_reason=_BEHIND_OTHERS)
        place = place_of_rule(owner, same.matches)
        origin = Origin(owner.key, owner.identity, "conf", path=place, source=owner.source)
        return LegacyValue(setting, overridden_by=Setting(origin, _at(owner, place), place))


def gateway_route_places(world: World, proxy: CompiledProxy, only: Resource | None = None) -> Iterator[LegacyPlace]:
    """What the MeshGatewayRoutes do that are bound to listeners of a proxy, or one of them."""
    served = proxy.proxy_class.gateway
    if served is not None and served.gateway is not None:
        yield from BoundRoutes(world, proxy, served).places(only)


def _judged(place: LegacyPlace) -> LegacyPlace:
    if any(value.is_in_force for value in place.values):
        return place
    stronger = [value.overridden_by.origin for value in place.values if value.overridden_by is not None]
    names = dict.fromkeys(with_place(origin.policy, origin.file, origin.line) for origin in stronger)
    if names:
        reason = f"{', '.join(names)} has the same matches"
        return LegacyPlace(place.policy, place.where, OVERRIDDEN, reason, place.values)
    reason = next((value.idle_reason for value in place.values), "it has no rules")
    return LegacyPlace(place.policy, place.where, UNREACHED, reason.removeprefix("has no effect: "), place.values)


def _served(host: HostResult, port: ServedPort) -> Iterator[RouteRule]:
    return (rule for _, rule, _ in served_rules(host)) if port.is_http else iter(host.route_rules.values())


def _rules(route: Resource) -> Iterator[tuple[str, Any]]:
    """The rules of a route with their places, as they are written."""
    for protocol in (_HTTP, TCP):
        conf = (route.data.get("conf") or {}).get(protocol) or {}
        for index, rule in enumerate(conf.get("rules") or ()):
            yield step(f"conf.{protocol}.rules", index), rule


def _at(route: Resource, path: str) -> Any:
    value: Any = route.data
    for name in steps(path):
        value = value[name]
    return value
