"""One outbound of a class: its listener and routes, what holds for them, and what is built from that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from cp.model.dependency import Name
from cp.model.failure import Failure, failure
from cp.model.names import Destination
from cp.policies import Policies
from cp.resources.caller import Caller
from cp.resources.world import World
from cp.rules import RouteRule, routes
from cp.translate.dependencies import names_in, names_of
from cp.translate.effective import ConfWriters, Effective, Rules, defaults, of_destination
from cp.translate.failed import failure_of_part
from cp.translate.fragments import Confs, Fragment, FragmentCache, RouteConfs, Task
from cp.translate.view.backends import BackendResolver
from cp.translate.view.outbound_address import OutboundAddress
from cp.translate.view.services import cluster_name, protocol_of
from cp.translate.view.sidecars import sidecar_of_caller
from generators.proxy import Outbound, Protocol, Route

_UNAVAILABLE: Final = "an answer of 500"


@dataclass(frozen=True, slots=True, eq=False)
class OutboundResult:
    """One outbound of a class: what it is, what holds for it, and what is built from that."""

    address: OutboundAddress
    outbound: Outbound
    effective: Effective
    of_routes: Mapping[str, Effective]
    """What holds for the routes to which the same route resources contribute, by their name (`RouteRule.name`)."""

    route_rules: Mapping[str, RouteRule]
    """The rules of route resources that it has rows from, by the same names."""

    task: Task
    fragment: Fragment
    uses: tuple[Destination, ...]
    """The destinations to which its routes lead."""

    depends_on: frozenset[Name]
    """Everything that it depends on: its destination, its routes, and what those refer to, be it there or not."""


class OutboundStage:
    """From the rules of a class to its outbounds."""

    def __init__(self, policies: Policies, fragments: FragmentCache) -> None:
        self._fragments = fragments
        self._route_policies = [policy for policy in policies if policy.is_route]
        self._defaults = defaults(policies, "outbound_default")
        self._writers = ConfWriters(policies, ("listener", "route", "finish"))

    def result(self, world: World, mesh: str, rules: Rules, address: OutboundAddress, caller: Caller) -> OutboundResult:
        """One outbound. Where a fault of ours is in the way, it answers every call with 500 and the reason."""
        part = f"the listener of {address.destination.service}"
        try:
            result = self._result(world, mesh, rules, address, caller)
        except Exception as error:  # noqa: BLE001  # whatever it is, all other outbounds are served
            result = _without_routes(address, failure(error, part))
        cause = result.fragment.failure
        if cause is None:
            return result
        return replace(
            result, fragment=self._unavailable(result.task, failure_of_part(cause, part, rules, result.effective))
        )

    def task(  # noqa: PLR0913  # all on which it depends
        self,
        world: World,
        mesh: str,
        outbound: Outbound,
        effective: Effective,
        of_routes: Mapping[str, Effective],
        *,
        is_grpc: bool,
    ) -> Task:
        """The generator's task for an outbound, from the effective confs of the outbound and of its routes."""
        # What holds for a TCP route holds for the listener as a whole: it has one route.
        whole = effective if outbound.protocol.is_http else of_routes.get(outbound.routes[0].owner, effective)
        confs = self._writers.confs(world, mesh, whole)
        return Task(outbound, confs, self._route_confs(world, mesh, confs, of_routes), is_grpc=is_grpc)

    def _result(
        self, world: World, mesh: str, rules: Rules, address: OutboundAddress, caller: Caller
    ) -> OutboundResult:
        destination = address.destination
        resolver = BackendResolver(world, mesh, destination)
        outbound = replace(self._outbound(world, mesh, rules, address, resolver), sidecar=sidecar_of_caller(caller))
        if caller.is_grpc:
            outbound = _called_by_grpc(outbound)
        effective = of_destination(self._defaults, rules, destination)
        of_routes = {
            name: of_destination(self._defaults, rules, destination, rule.contributors, rule.hash)
            for name, rule in resolver.route_rules.items()
        }
        task = self.task(world, mesh, outbound, effective, of_routes, is_grpc=caller.is_grpc)
        names = {*names_of(destination), *_owners(resolver), *resolver.names_referred_to}
        return OutboundResult(
            address=address,
            outbound=outbound,
            effective=effective,
            of_routes=of_routes,
            route_rules=resolver.route_rules,
            task=task,
            fragment=self._fragments.get(task),
            uses=tuple(resolver.used) if outbound.names or not caller.is_grpc else (),
            depends_on=names_in(effective, *of_routes.values()).union(names),
        )

    def _outbound(
        self, world: World, mesh: str, rules: Rules, address: OutboundAddress, resolver: BackendResolver
    ) -> Outbound:
        """The destination with its routes: those that policies give it, or one to itself."""
        destination = address.destination
        outbound = _outbound(address, protocol_of(world, mesh, destination))
        for policy in self._route_policies:
            kind_rules = rules.get(policy.kind.name)
            rows = routes(kind_rules, destination) if kind_rules is not None else None
            if rows is not None:
                outbound = policy.shape(rows, outbound, resolver)
        if outbound.routes:
            return outbound
        return replace(outbound, routes=(resolver.unmatched(),))

    def _route_confs(self, world: World, mesh: str, of_whole: Confs, of_routes: Mapping[str, Effective]) -> RouteConfs:
        """Those of the routes' confs that differ from what holds for the whole."""
        differing = (
            (name, tuple(conf for conf in self._writers.confs(world, mesh, effective) if conf not in of_whole))
            for name, effective in sorted(of_routes.items())
        )
        return tuple((name, confs) for name, confs in differing if confs)

    def _unavailable(self, task: Task, cause: Failure) -> Fragment:
        """A listener that answers with the reason. If that cannot be built either, it is left out."""
        if not isinstance(task.site, Outbound):
            return Fragment((), failure=cause)
        route = Route("failed", unavailable_reason=f"{cause.kind or 'koguma'}: {cause.reason}")
        fragment = self._fragments.get(Task(replace(task.site, routes=(route,)), is_grpc=task.is_grpc))
        instead = _UNAVAILABLE if fragment.failure is None else cause.instead
        return Fragment(fragment.resources, failure=replace(cause, instead=instead))


def _outbound(address: OutboundAddress, protocol: Protocol) -> Outbound:
    destination = address.destination
    return Outbound(
        cluster_name(destination),
        destination.service,
        address.address,
        address.port,
        protocol,
        is_bound=address.is_bound,
        names=address.names,
    )


def _without_routes(address: OutboundAddress, cause: Failure) -> OutboundResult:
    """An outbound of which nothing is known any more but where it is."""
    outbound = replace(_outbound(address, Protocol.HTTP), routes=(Route("failed", unavailable_reason=cause.reason),))
    task, fragment = Task(outbound), Fragment((), failure=cause)
    return OutboundResult(address, outbound, {}, {}, {}, task, fragment, (), names_of(address.destination))


def _called_by_grpc(outbound: Outbound) -> Outbound:
    """Its calls are gRPC's, whatever else is carried there. Where gRPC is not understood, there is nothing to call."""
    if outbound.protocol in {Protocol.GRPC, Protocol.HTTP2}:
        return replace(outbound, protocol=Protocol.GRPC)
    return replace(outbound, names=())


def _owners(resolver: BackendResolver) -> set[Name]:
    return {(route.type, route.name) for rule in resolver.route_rules.values() for route in rule.contributors}
