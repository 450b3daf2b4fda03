"""One outbound of a class: listener and routes for an address, their effective confs, and the fragment built from them.

Of two classes here, `OutboundAddress` is what a workload calls, and the generators' `Outbound` is what is built for it:
the destination behind that address, with its protocol and its routes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from cp.model.dependency import Name
from cp.model.failure import Failure, OverLimit, failure
from cp.model.names import Destination
from cp.policies import Policies
from cp.resources.caller import Caller
from cp.resources.limits import DestinationRoom
from cp.resources.world import World
from cp.rules import RouteRule, routes
from cp.rules.merging import MergedConf
from cp.rules.routes import routes_of
from cp.translate.dependencies import names_in, names_of
from cp.translate.effective import CalledService, ConfWriters, Effective, Rules, defaults, of_destination
from cp.translate.failed import failure_of_part
from cp.translate.fragments import Confs, Fragment, FragmentCache, RouteConfs, Task
from cp.translate.view.backends import BackendResolver
from cp.translate.view.outbound_address import OutboundAddress
from cp.translate.view.services import cluster_name, exists, outside_of, protocol_of
from cp.translate.view.sidecars import sidecar_of_caller
from generators.proxy import Outbound, Protocol, Route

FIXED_BYTES: Final = 2_200
"""The bytes of an outbound beside its rows and the contents of its resources."""

_ANSWER: Final = "an answer of 500"
_NO_ANSWER: Final = "closed connections"
_NO_CALL: Final = "calls that fail"


@dataclass(frozen=True, slots=True, eq=False)
class OutboundResult:
    """One outbound of a class: listener and routes, their effective confs, and the fragment built from them."""

    address: OutboundAddress
    """What the workload calls. Proxies do not listen at a virtual address (`OutboundAddress.is_bound`)."""

    outbound: Outbound
    """The destination with its routes, for the generators."""

    effective: Effective
    """What holds for the destination, whichever route a call takes."""

    of_routes: Mapping[str, Effective]
    """What holds for calls by some of its routes, by `Route.owner`.

    Routes have one owner if the same confs hold for them (`BackendResolver.owner`).
    """

    route_rules: Mapping[str, RouteRule]
    """The rule of route resources behind each owner; the last rule, if there are several."""

    task: Task
    fragment: Fragment
    uses: tuple[Destination, ...]
    """The destinations to which its routes lead: each needs a backend."""

    depends_on: frozenset[Name]
    """The names of everything that it depends on: its destination, its routes, and what those refer to.

    A name is in here whether or not there is such a resource (record 0054).
    """

    size: int = 0
    """The estimated bytes that it takes of the room for outbounds; 0 if it is left out."""

    kept_bytes: int = 0
    """The bytes that it takes of the room of the proxy, beside `FIXED_BYTES`; 0 if it is left out."""


class OutboundStage:
    """From the rules of a class to its outbounds."""

    def __init__(self, policies: Policies, fragments: FragmentCache) -> None:
        self._fragments = fragments
        self._route_policies = [policy for policy in policies if policy.is_route]
        self._defaults = defaults(policies, "outbound_default")
        self._writers = ConfWriters(policies, ("listener", "route", "finish"))

    def result(  # noqa: PLR0913  # all on which it depends
        self, world: World, mesh: str, rules: Rules, address: OutboundAddress, caller: Caller, *, room: DestinationRoom
    ) -> OutboundResult:
        """One outbound. After a fault of ours it answers HTTP with 500 and the reason, and closes TCP connections.

        A gRPC client gets no reason: it cannot have a route that answers by itself.
        """
        part = f"the listener of {address.destination.service}"
        try:
            result = self._result(world, mesh, rules, address, caller, room=room)
        except Exception as error:  # noqa: BLE001  # whatever it is, all other outbounds are served
            result = _without_routes(address, failure(error, part), Protocol.HTTP)
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
        # A TCP listener has one route, and TCP policies write into the listener: so it gets the conf of the route.
        whole = effective if outbound.protocol.is_http else of_routes.get(outbound.routes[0].owner, effective)
        confs = self._writers.confs(world, mesh, whole)
        return Task(outbound, confs, self._route_confs(world, mesh, confs, of_routes), is_grpc=is_grpc)

    def _result(  # noqa: PLR0913  # all on which it depends
        self, world: World, mesh: str, rules: Rules, address: OutboundAddress, caller: Caller, *, room: DestinationRoom
    ) -> OutboundResult:
        destination = address.destination
        resolver = BackendResolver(world, mesh, destination, caller.withheld)
        protocol = self._protocol(world, mesh, rules, resolver)
        is_outside = outside_of(world, mesh, destination, caller.withheld) is not None
        called = CalledService(destination, protocol, is_outside)
        outbound = self._outbound(rules, _outbound(address, protocol), destination, resolver)
        outbound = replace(outbound, sidecar=sidecar_of_caller(caller))
        if caller.is_grpc:
            outbound = _called_by_grpc(outbound)
        effective = of_destination(self._defaults, rules, called)
        of_routes = {
            name: of_destination(self._defaults, rules, called, rule.contributors, rule.hash)
            for name, rule in resolver.route_rules.items()
        }
        task = self.task(world, mesh, outbound, effective, of_routes, is_grpc=caller.is_grpc)
        try:
            size = self._fragments.take(room, task)
            (fragment,), kept = self._fragments.get_within(room, task)
        except OverLimit as over:
            return _without_routes(address, failure(over), protocol)
        task = fragment.task or task
        outbound = task.site if isinstance(task.site, Outbound) else outbound
        own_names = {*names_of(destination), *_names_of_routes(resolver), *resolver.names_referred_to}
        is_callable = bool(outbound.names) or not caller.is_grpc  # a gRPC client calls names, not addresses
        return OutboundResult(
            address=address,
            outbound=outbound,
            effective=effective,
            of_routes=of_routes,
            route_rules=resolver.route_rules,
            task=task,
            fragment=fragment,
            uses=tuple(resolver.used) if is_callable else (),
            depends_on=names_in(effective, *of_routes.values()).union(own_names),
            size=size,
            kept_bytes=kept,
        )

    def _protocol(self, world: World, mesh: str, rules: Rules, resolver: BackendResolver) -> Protocol:
        """What a destination speaks; and one that nobody serves, what those speak to whom a TrafficRoute leads."""
        destination = resolver.destination
        if destination.is_real or exists(world, mesh, destination):
            return protocol_of(world, mesh, destination)
        legacy = rules.legacy.of_service(destination.service, Protocol.HTTP)
        confs = [conf for policy in self._route_policies if (conf := legacy.get(policy.kind.name)) is not None]
        backends = resolver.led_to(rule for conf in confs for rule in routes_of(conf))
        protocols = {protocol_of(world, mesh, backend) for backend in backends}
        return protocols.pop() if len(protocols) == 1 else Protocol.TCP

    def _outbound(
        self, rules: Rules, outbound: Outbound, destination: Destination, resolver: BackendResolver
    ) -> Outbound:
        """The destination with its routes: those that policies give it, or one to itself."""
        for policy in self._route_policies:
            kind_rules = rules.get(policy.kind.name)
            rows = routes(kind_rules, destination) if kind_rules is not None else None
            if rows is not None:
                outbound = policy.shape(rows, outbound, resolver)
        if not outbound.routes and not destination.is_real:
            outbound = self._by_legacy_routes(
                rules.legacy.of_service(destination.service, outbound.protocol), outbound, resolver
            )
        if outbound.routes:
            return outbound
        return replace(outbound, routes=(resolver.unmatched(),))

    def _by_legacy_routes(
        self, legacy: Mapping[str, MergedConf], outbound: Outbound, resolver: BackendResolver
    ) -> Outbound:
        """The destination with the routes of a TrafficRoute, where no policy with a targetRef gives it any."""
        for policy in self._route_policies:
            if not outbound.routes and (conf := legacy.get(policy.kind.name)) is not None:
                outbound = policy.shape(routes_of(conf), outbound, resolver)
        return outbound

    def _route_confs(self, world: World, mesh: str, of_whole: Confs, of_routes: Mapping[str, Effective]) -> RouteConfs:
        """Those of the routes' confs that differ from what holds for the whole."""
        differing = (
            (name, tuple(conf for conf in self._writers.confs(world, mesh, effective) if conf not in of_whole))
            for name, effective in sorted(of_routes.items())
        )
        return tuple((name, confs) for name, confs in differing if confs)

    def _unavailable(self, task: Task, cause: Failure) -> Fragment:
        """A listener in its place, as `result` says. If that cannot be built either, there is none."""
        if not isinstance(task.site, Outbound):
            return Fragment((), failure=cause)
        route = Route("failed", unavailable_reason=f"{cause.kind or 'koguma'}: {cause.reason}")
        fragment = self._fragments.get(Task(replace(task.site, routes=(route,)), is_grpc=task.is_grpc))
        instead = _served_instead(task.site, is_grpc=task.is_grpc) if fragment.failure is None else cause.instead
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


def _without_routes(address: OutboundAddress, cause: Failure, protocol: Protocol) -> OutboundResult:
    """Return an outbound without routes. After a fault of ours, HTTP is assumed: the protocol may not be known."""
    outbound = replace(_outbound(address, protocol), routes=(Route("failed", unavailable_reason=cause.reason),))
    task, fragment = Task(outbound), Fragment((), failure=cause)
    return OutboundResult(address, outbound, {}, {}, {}, task, fragment, (), names_of(address.destination))


def _served_instead(outbound: Outbound, *, is_grpc: bool) -> str:
    """What an outbound serves that could not be made, in words for the operator."""
    if is_grpc:
        return _NO_CALL
    return _ANSWER if outbound.protocol.is_http else _NO_ANSWER


def _called_by_grpc(outbound: Outbound) -> Outbound:
    """The outbound of a gRPC client: it makes calls of gRPC alone, and has no name for services without HTTP/2."""
    if outbound.protocol in {Protocol.GRPC, Protocol.HTTP2}:
        return replace(outbound, protocol=Protocol.GRPC)
    return replace(outbound, names=())


def _names_of_routes(resolver: BackendResolver) -> set[Name]:
    return {(route.type, route.name) for rule in resolver.route_rules.values() for route in rule.contributors}
