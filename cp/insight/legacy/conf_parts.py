"""Where confs hold for what a legacy policy is for, and what the policies build there when they have some conf."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from cp.insight.effects import Build, built, confs_of, of_cluster
from cp.insight.gateways import CALL_HOOKS, GatewayPart, build_of, can_act, gateway_parts
from cp.insight.parts import fragments_of
from cp.model.canonical import canonical_json
from cp.model.names import Destination
from cp.policies import Policy
from cp.resources.world import World
from cp.rules.merging import Conf, MergedConf
from cp.translate.backend import BackendResult, endpoints_to_arrange
from cp.translate.compiler import CompiledProxy
from cp.translate.effective import Effective, has_hook, of_proxy, rules_of
from cp.translate.fragments import Task
from cp.translate.inbound import InboundResult
from cp.translate.outbound import OutboundResult
from cp.translate.view.backend_refs import resolved_data
from cp.translate.view.services import protocol_of

Policies: TypeAlias = Mapping[str, Policy[Any]]
"""By the kinds of which they are."""

_CLUSTER_HOOKS: Final = ("cluster", "endpoints", "arrange")


@dataclass(frozen=True, slots=True)
class ConfPart:
    """A part of a proxy where a conf holds."""

    policy: Policy[Any]
    conf: MergedConf
    key: Hashable
    """Parts with equal keys are built alike from equal confs."""

    build: Build
    protocol: str = ""
    """The protocol that is spoken there; empty for a part of a proxy as a whole."""


@dataclass(frozen=True, slots=True)
class ConfParts:
    """The parts of one proxy."""

    world: World
    policies: Policies
    proxy: CompiledProxy

    def of_service(self, service: str) -> Iterator[ConfPart]:
        """What a proxy has for a service that it calls by its tag, or to which its routes lead."""
        for result in self.proxy.proxy_class.outbounds.values():
            if is_by_tag(result.address.destination, service):
                yield from self._of_outbound(result)
        for backend in self.proxy.proxy_class.backends.values():
            if is_by_tag(backend.destination, service):
                yield from self._of_backend(backend)
        gateway = self.proxy.proxy_class.gateway
        for part in () if gateway is None else gateway_parts(gateway):
            if part.service is not None and is_by_tag(part.service, service):
                yield from self._of_gateway_part(part)

    def of_proxy(self) -> Iterator[ConfPart]:
        """What a proxy has as a whole: each of its ports is a part. Of those that are built alike, one."""
        tasks = {(type(task.site), getattr(task.site, "protocol", ""), task.is_grpc): task for task in self._tasks()}
        for policy, conf in self._confs(of_proxy(rules_of(self.world, self.proxy.dataplane))):
            for key, task in tasks.items() if has_hook(policy, *CALL_HOOKS) else ():
                yield ConfPart(policy, conf, key, self._resolved(_of_task(task, policy)))

    def of_finished(self) -> Iterator[tuple[str, MergedConf]]:
        """The lists of changes to what is finished, by the kinds of policies that make them."""
        for policy, conf in self._confs(of_proxy(rules_of(self.world, self.proxy.dataplane))):
            if policy.change_list:
                yield policy.kind.name, conf

    def changes(self) -> frozenset[tuple[str, str]]:
        """The changes of finished resources that found something to change: the kind of policy, and the path."""
        return frozenset(used for fragment in fragments_of(self.proxy) for used in fragment.used)

    def _of_outbound(self, result: OutboundResult) -> Iterator[ConfPart]:
        outbound = result.outbound
        leads_somewhere = any(row.splits for row in outbound.routes)
        key = outbound.protocol, leads_somewhere, outbound.is_bound, bool(outbound.names), result.task.is_grpc
        for effective in (result.effective, *result.of_routes.values()):
            for policy, conf in self._confs(effective):
                if has_hook(policy, *CALL_HOOKS):
                    build = self._resolved(_of_task(result.task, policy))
                    yield ConfPart(policy, conf, key, build, outbound.protocol)

    def _of_backend(self, backend: BackendResult) -> Iterator[ConfPart]:
        mesh, destination = self.proxy.dataplane.mesh, backend.destination
        protocol, caller = protocol_of(self.world, mesh, destination), self.proxy.proxy_class.caller
        sort = "cluster", protocol, caller.is_grpc, caller.is_gateway
        for policy, conf in self._confs(backend.effective):
            if has_hook(policy, *_CLUSTER_HOOKS):
                endpoints = endpoints_to_arrange(self.world, mesh, destination, caller)
                build = self._resolved(of_cluster(policy, backend, endpoints, caller))
                of_endpoints = (destination, caller) if has_hook(policy, "endpoints", "arrange") else ()
                yield ConfPart(policy, conf, (*sort, *of_endpoints), build, protocol)

    def _of_gateway_part(self, part: GatewayPart) -> Iterator[ConfPart]:
        """A row of a gateway that leads to one service. What leads to several has nothing of any."""
        for policy, conf in self._confs(part.effective):
            if can_act(policy, part):
                key = part.chain.task.site, () if part.row is None else part.row.splits
                yield ConfPart(policy, conf, key, self._resolved(build_of(policy, part)), part.protocol)

    def _confs(self, effective: Effective) -> Iterator[tuple[Policy[Any], MergedConf]]:
        of_kinds = ((self.policies[kind], conf) for kind, conf in effective.items() if kind in self.policies)
        return ((policy, conf) for policy, conf in of_kinds if not policy.is_route)

    def _tasks(self) -> Iterable[Task]:
        proxy_class = self.proxy.proxy_class
        yield from (reached.task for reached in self.proxy.inbounds)
        yield from (result.task for result in proxy_class.outbounds.values())
        if proxy_class.gateway is not None:
            yield from (chain.task for chain in proxy_class.gateway.chains.values())

    def _resolved(self, build: Build) -> Build:
        """The same with references resolved, as when it is served."""
        return lambda conf: build(dict(resolved_data(self.world, self.proxy.dataplane.mesh, conf)))


def is_by_tag(destination: Destination, service: str) -> bool:
    return not destination.is_real and destination.service == service


def _of_task(task: Task, policy: Policy[Any]) -> Build:
    return lambda conf: built(Task(task.site, confs_of(policy, conf), is_grpc=task.is_grpc), policy)


def of_clients(policy: Policy[Any], reached: InboundResult, kri: str) -> Build:
    """What a policy builds of an inbound when what one legacy policy says of some clients there is another conf.

    Of the others only those are built that can keep it from any effect: those for the same clients, or for all.
    """
    everybody = dict(reached.task.clients).get(policy.kind.name, ())
    matches = {canonical_json({}), *(match for match, _, by in everybody if by == kri)}
    clients = tuple(client for client in everybody if client[0] in matches)

    def make(conf: Conf) -> object:
        changed = tuple(
            (match, canonical_json(conf) if by == kri else of_others, by) for match, of_others, by in clients
        )
        return built(replace(reached.task, confs=(), clients=((policy.kind.name, changed),)), policy)

    return make
