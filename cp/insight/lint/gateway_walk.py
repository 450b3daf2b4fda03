"""Every decision at a builtin gateway: over its routes, and over what holds for them, for its clients and clusters.

Rules are those of a listener alone, because a policy may be for some listeners.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from cp.insight.effects import Build, of_cluster
from cp.insight.gateways import GatewayPart, build_of, can_act, gateway_parts
from cp.insight.lint.gateway_decisions import GatewayDecision, GatewayTableDecision
from cp.policies import Policy
from cp.resources.kinds import Kind
from cp.resources.world import World
from cp.rules import CombinedConf, gateway_levels
from cp.rules.merging import NOTHING, Conf, MergedConf
from cp.translate.backend import BackendResult, endpoints_to_arrange
from cp.translate.compiler import CompiledProxy
from cp.translate.effective import Rules, has_hook
from cp.translate.gateway import GatewayResult
from cp.translate.view.backend_refs import resolved_data
from cp.translate.view.backends import MarkedDestination
from cp.translate.view.services import protocol_of

_Policies: TypeAlias = Mapping[str, Policy[Any]]
_Defaults: TypeAlias = Mapping[str, MergedConf]

_CLUSTER_HOOKS: Final = ("cluster", "endpoints", "arrange")


@dataclass(frozen=True, slots=True)
class GatewayWalk:
    """One proxy of a MeshGateway."""

    world: World
    policies: _Policies
    proxy: CompiledProxy
    gateway: GatewayResult
    defaults: _Defaults
    """What holds for what a gateway calls."""

    entrance_defaults: _Defaults
    cluster_defaults: _Defaults

    def decisions(self) -> Iterator[GatewayDecision | GatewayTableDecision]:
        for part in gateway_parts(self.gateway):
            yield from self._of_clients(part) if part.is_of_clients else self._of_calls(part)
        for key, backend in self.proxy.proxy_class.backends.items():
            yield from self._of_backend(backend, key.mark if isinstance(key, MarkedDestination) else "")
        yield from self.tables()

    def tables(self) -> Iterator[GatewayTableDecision]:
        for port in self.gateway.served.ports:
            hosts = (host for key, host in self.gateway.hosts.items() if key.port == port.port)
            left_out = {host.hostname for host in hosts if host.basis.over is not None}
            for listener in port.listeners:
                for kind, rules in self._rules((listener.index,)).items():
                    policy = self.policies[kind]
                    if policy.is_route and any(
                        protocol.is_http is port.is_http for protocol in policy.gateway_protocols
                    ):
                        yield GatewayTableDecision(rules, port, listener, left_out)

    def _rules(self, listeners: tuple[int, ...]) -> Rules:
        rules = self.proxy.proxy_class.rules
        return Rules({kind: of_kind.at_listeners(listeners) for kind, of_kind in rules.items()}, rules.legacy)

    def _of_calls(self, part: GatewayPart) -> Iterator[GatewayDecision]:
        indexes = (part.host.listener.index,) if part.host is not None else ()
        via = () if part.rule is None else part.rule.contributors
        for kind, rules in self._rules(indexes).items():
            policy = self.policies[kind]
            if rules.shape.to and not policy.is_route and can_act(policy, part):
                levels = gateway_levels(rules, via, part.service)
                yield from self._of_part(part, rules.kind, levels, self.defaults.get(kind))

    def _of_clients(self, part: GatewayPart) -> Iterator[GatewayDecision]:
        shared = tuple(listener.index for listener in part.port.listeners)
        own = tuple(listener.index for listener in part.port.listeners if listener.hostname == part.hostname)
        for kind, rules in self._rules(own if part.port.tells_names else shared).items():
            shape = rules.shape
            if (shape.from_ or shape.rules) and not shape.side_by_side and can_act(self.policies[kind], part):
                for_all = rules.inbound(None).for_all
                levels = () if for_all is None else (for_all,)
                yield from self._of_part(part, rules.kind, levels, self.entrance_defaults.get(kind))

    def _of_part(
        self, part: GatewayPart, kind: Kind, levels: tuple[CombinedConf, ...], default: MergedConf | None
    ) -> Iterator[GatewayDecision]:
        if levels:
            merged = part.effective.get(kind.name, NOTHING)
            build = self._resolved(build_of(self.policies[kind.name], part))
            place = f"listener {part.port.port} of MeshGateway {self._name}"
            yield GatewayDecision(kind, levels, merged, default, part.protocol, part.service, place, build)

    def _of_backend(self, backend: BackendResult, mark: str) -> Iterator[GatewayDecision]:
        mesh, destination = self.proxy.dataplane.mesh, backend.destination
        clusters = self.gateway.clusters
        for kind, rules in (clusters[mark].rules if clusters else self.proxy.proxy_class.rules).items():
            policy = self.policies[kind]
            levels = gateway_levels(rules, (), destination) if rules.shape.to and not policy.is_route else ()
            if levels and has_hook(policy, *_CLUSTER_HOOKS):
                caller = self.proxy.proxy_class.caller
                endpoints = endpoints_to_arrange(self.world, mesh, destination, caller)
                build = self._resolved(of_cluster(policy, backend, endpoints, caller))
                merged, default = backend.effective.get(kind, NOTHING), self.cluster_defaults.get(kind)
                protocol = protocol_of(self.world, mesh, destination)
                place = f"MeshGateway {self._name}{mark}"
                yield GatewayDecision(rules.kind, levels, merged, default, protocol, destination, place, build)

    def _resolved(self, build: Build) -> Build:
        """The same with references resolved, as when it is served."""
        return partial(_with_references, self.world, self.proxy.dataplane.mesh, build)

    @property
    def _name(self) -> str:
        return "" if self.gateway.gateway is None else self.gateway.gateway.name


def _with_references(world: World, mesh: str, build: Build, conf: Conf) -> object:
    return build(dict(resolved_data(world, mesh, conf)))
