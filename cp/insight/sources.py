"""`ResourceSource`: what an Envoy resource of a proxy was made of, read from the results from which it is served."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from cp.model.dependency import Name
from cp.model.memo import IdentityDict
from cp.resources.world import World
from cp.rules import PolicyRules
from cp.rules.merging import Origin
from cp.translate.compiler import CompiledProxy
from cp.translate.effective import Effective, Rules, rules_of
from cp.translate.fragments import Fragment, Task
from cp.translate.gateway.results import ChainResult, GatewayResult, HostResult, JoinedResult
from cp.translate.inbound import rules_side_by_side
from cp.translate.outbound import OutboundResult
from cp.translate.proxy_class import ProxyClass
from cp.translate.view.proxies import inbounds

ResourceName: TypeAlias = tuple[str, str]
"""The type and the name of a resource."""

WHOLE = ""
"""In place of a route: what holds whichever route a call takes."""

ENTRANCE = "clients"
"""In place of a route: what holds for the clients of a gateway."""


@dataclass(frozen=True, slots=True, eq=False)
class ResourceSource:
    """A fragment and what it was made of."""

    fragment: Fragment
    task: Task
    kinds: frozenset[str]
    """The kinds of policies that wrote in it."""

    by_route: Mapping[str, Effective]
    """The effective confs, by the route for which they hold (`Route.owner`), or `WHOLE`."""

    structure: tuple[Origin, ...] = ()
    """Who decides which routes and filters it has: the policies of routes, and the rules for some of the clients."""

    names: frozenset[Name] = field(default_factory=frozenset)
    """The names of the services that it is about."""

    parts: Mapping[str, ResourceSource] = field(default_factory=dict)
    """The sources of which it was put together, by their hostnames; of most resources there are none."""

    @property
    def confs(self) -> tuple[Effective, ...]:
        return tuple(self.by_route.values())


class SourceIndex:
    """Finds what resources were made of, in one World. What proxies of a class have in common is indexed once."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._by_gateway: IdentityDict[GatewayResult, Mapping[ResourceName, ResourceSource]] = IdentityDict()
        self._by_class: IdentityDict[ProxyClass, Mapping[ResourceName, ResourceSource]] = IdentityDict()

    def shared(self, proxy: CompiledProxy, type_url: str, name: str) -> ResourceSource | None:
        """The source of a resource that a proxy has in common with its class; None if it is no such resource."""
        proxy_class = proxy.proxy_class
        known = self._by_class.get(proxy_class)
        if known is None:
            self._by_class.put(proxy_class, known := _indexed(_of_class(proxy_class)))
        return known.get((type_url, name))

    def own(self, proxy: CompiledProxy, type_url: str, name: str) -> ResourceSource | None:
        """The source of a resource that only this proxy has."""
        return _indexed(_of_proxy(rules_of(self.world, proxy.dataplane), proxy)).get((type_url, name))

    def of(self, proxy: CompiledProxy, type_url: str, name: str) -> ResourceSource | None:
        """The source of a resource, also of one that was put together for a gateway."""
        joined = self._of_gateway(proxy.proxy_class.gateway).get((type_url, name))
        return joined or self.shared(proxy, type_url, name) or self.own(proxy, type_url, name)

    def _of_gateway(self, gateway: GatewayResult | None) -> Mapping[ResourceName, ResourceSource]:
        if gateway is None:
            return {}
        known = self._by_gateway.get(gateway)
        if known is None:
            self._by_gateway.put(gateway, known := _indexed(_of_gateway(gateway)))
        return known


def _indexed(sources: Iterable[ResourceSource]) -> Mapping[ResourceName, ResourceSource]:
    return {(packed.type_url, packed.name): source for source in sources for packed in source.fragment}


def _of_class(proxy_class: ProxyClass) -> Iterator[ResourceSource]:
    for outbound in proxy_class.outbounds.values():
        by_route = {WHOLE: outbound.effective, **outbound.of_routes}
        writers, structure = _writers(outbound.task), _routes(outbound)
        yield ResourceSource(outbound.fragment, outbound.task, writers, by_route, structure, outbound.depends_on)
    for backend in proxy_class.backends.values():
        for task, fragment in zip(backend.tasks, backend.fragments, strict=True):
            by_route = {WHOLE: backend.effective}
            yield ResourceSource(fragment, task, _writers(task), by_route, names=backend.depends_on)


def _of_gateway(gateway: GatewayResult) -> Iterator[ResourceSource]:
    for name, table in gateway.tables.items():
        yield _joined(
            table, {key.hostname: _of_host(host) for key, host in gateway.hosts.items() if host.table == name}
        )
    for port, listener in gateway.listeners.items():
        chains = {key.hostname: chain for key, chain in gateway.chains.items() if key.port == port}
        yield _joined(listener, {hostname: _of_chain(chain) for hostname, chain in chains.items()})


def _of_host(host: HostResult) -> ResourceSource:
    by_route = {WHOLE: host.effective, **host.of_routes}
    structure = tuple(origin for rule in host.route_rules.values() for origin in rule.origins)
    return ResourceSource(host.fragment, host.task, _writers(host.task), by_route, structure, host.depends_on)


def _of_chain(chain: ChainResult) -> ResourceSource:
    kinds = frozenset(kind for kind, _ in chain.task.downstream)
    return ResourceSource(chain.fragment, chain.task, kinds, {ENTRANCE: chain.entrance})


def _joined(joined: JoinedResult, parts: Mapping[str, ResourceSource]) -> ResourceSource:
    kinds = frozenset[str]().union(*(part.kinds for part in parts.values()))
    structure = tuple(origin for part in parts.values() for origin in part.structure)
    names = frozenset[Name]().union(*(part.names for part in parts.values()))
    return ResourceSource(joined.fragment, joined.task, kinds, {}, structure, names, parts)


def _of_proxy(rules: Rules, proxy: CompiledProxy) -> Iterator[ResourceSource]:
    for (index, _), inbound in zip(inbounds(proxy.dataplane), proxy.inbounds, strict=True):
        task = inbound.task
        clients = rules.keys() & {kind for kind, _ in task.clients}
        of_clients = tuple(origin for kind in sorted(clients) for origin in _of_clients(rules[kind], index))
        yield ResourceSource(inbound.fragment, task, _writers(task), {WHOLE: inbound.effective}, of_clients)
    sidecar = proxy.sidecar
    yield ResourceSource(sidecar.fragment, sidecar.task, _writers(sidecar.task), {WHOLE: sidecar.effective})


def _writers(task: Task) -> frozenset[str]:
    return frozenset(kind for confs in (task.confs, *(of_route for _, of_route in task.routes)) for kind, _ in confs)


def _routes(outbound: OutboundResult) -> tuple[Origin, ...]:
    return tuple(dict.fromkeys(origin for rule in outbound.route_rules.values() for origin in rule.origins))


def _of_clients(rules: PolicyRules, index: int) -> Iterator[Origin]:
    if rules.shape.side_by_side:
        yield from (origin for _, combined in rules_side_by_side(rules, index) for origin in combined.origins)
        return
    for subset in rules.from_(index).rules if rules.shape.from_ else ():
        yield from subset.combined.origins
    for rule in rules.inbound(index).for_some:
        yield from rule.combined.origins
