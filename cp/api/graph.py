"""The graph of a mesh: services, how their proxies are, who calls whom as it is served, and what some Envoys count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from cp.api.collaborators import Collaborators
from cp.api.errors import stopping
from cp.api.graph_traffic import Requests, TrafficSample, sampled
from cp.api.grpc_clients import certified_clients
from cp.api.kept_work import KeptWork
from cp.api.near import must_have_mesh
from cp.api.parameters import is_asked
from cp.api.rollouts import rollout_sentences
from cp.insight.graph import CallerGroup, GraphCall, GraphMaker, GraphPoint, GraphRoute, GraphService, MeshGraph
from cp.model.checkpoint import Checkpoint, checked
from cp.model.names import Key
from cp.policies import discover
from cp.resources.world import World
from cp.serving.delivery import ProxyState
from cp.serving.instances.fleet import Fleet
from cp.translate.compiler import Compiler

_MOST_ROUTES: Final = 20
"""Rows of one destination that are told. Of the others, those that lead elsewhere are too; the rest is counted."""

_NAMED: Final = 20
"""Proxies of one service that are named because they refuse something, and because something failed."""

_NOT_ASKED: Final = TrafficSample()
_Numbers: TypeAlias = Mapping[GraphPoint, int]
_Outcome: TypeAlias = tuple[GraphPoint | None, str, float]
"""A service, the section of it, and the share; or why a row answers with an error."""


class _GraphWork:
    """The last graph of each mesh, and what it came to."""

    def __init__(self) -> None:
        self.compiler = Compiler(discover())
        self.makers: dict[str, GraphMaker] = {}
        self.graphs: dict[str, tuple[World, frozenset[Key], MeshGraph]] = {}


class GraphHandler:
    """The handler. It is worked out beside the event loop, once for each World, with what the last one came to."""

    def __init__(self, collaborators: Collaborators, fleet: Fleet) -> None:
        self._api, self._fleet = collaborators, fleet
        self._kept = KeptWork(_GraphWork)

    async def __call__(self, request: Request) -> Response:
        """`?traffic=true` asks some Envoys what they have counted."""
        is_traffic_asked = is_asked(request, "traffic")
        world, mesh = await self._api.state.current(), request.path_params["mesh"]
        must_have_mesh(world, mesh)
        work = self._api.works.graphs
        await work.wait(request, self._fleet.refreshed_with_world)
        if self._api.state.is_stopping:
            raise stopping()
        clients = await work.wait(request, lambda: certified_clients(self._api.observed, world))
        certified = frozenset(key for key, finds_certificates in clients.items() if finds_certificates)
        states = {proxy.key: proxy.state for proxy in self._fleet.proxies() if proxy.key.mesh == mesh}
        graph = await work.do(request, lambda checkpoint: self._graph(world, mesh, certified, checkpoint))
        self._kept.keep_for_a_while()
        traffic = _NOT_ASKED
        if is_traffic_asked:
            traffic = await work.wait(request, lambda: sampled(self._api.envoys, graph, states))
        head = {"mesh": mesh, "revision": world.revision, **_rollout(world, mesh), **_sample(traffic)}
        return await work.json(request, lambda checkpoint: head | graph_data(graph, states, checkpoint, traffic))

    def _graph(self, world: World, mesh: str, certified: frozenset[Key], checkpoint: Checkpoint) -> MeshGraph:
        work = self._kept.value
        known = work.graphs.get(mesh)
        if known is not None and known[:2] == (world, certified):
            return known[2]
        meshes = {known.name for known in world.table("Mesh")}
        for name in work.makers.keys() - meshes:
            work.makers.pop(name)
            work.graphs.pop(name, None)
        work.compiler.certified_clients = certified
        graph = work.makers.setdefault(mesh, GraphMaker(work.compiler)).graph(world, mesh, checkpoint)
        work.graphs[mesh] = (world, certified, graph)
        return graph


def graph_data(
    graph: MeshGraph, states: Mapping[Key, ProxyState], checkpoint: Checkpoint, traffic: TrafficSample = _NOT_ASKED
) -> dict[str, Any]:
    """A graph in which services are named by their place in the list."""
    numbers = {service.point: number for number, service in enumerate(graph.services)}
    of_groups = traffic.by_group or [None] * len(graph.groups)
    groups = checked(zip(graph.groups, of_groups, strict=True), checkpoint)
    return {
        "services": [_service(service, states) for service in checked(graph.services, checkpoint)],
        "groups": [_group(group, numbers, requests) for group, requests in groups if group.calls],
        **({"failed": [key.name for key in graph.failed]} if graph.failed else {}),
    }


def _rollout(world: World, mesh: str) -> dict[str, Any]:
    """That a rollout is under way: some proxies are served what it proposes, and that is not in the graph."""
    sentences = rollout_sentences(world, [mesh])
    return {"rollout": sentences[0]} if sentences else {}


def _sample(traffic: TrafficSample) -> dict[str, Any]:
    """How many Envoys were asked, and how many answered."""
    if traffic.at is None:
        return {}
    return {"traffic": {"at": traffic.at, "asked": traffic.asked, "answered": traffic.answered}}


def _service(service: GraphService, states: Mapping[Key, ProxyState]) -> dict[str, Any]:
    of_proxies = {key: states.get(key, ProxyState.UNKNOWN) for key in service.proxies}

    def named(wanted: ProxyState) -> list[str]:
        return [key.name for key, state in of_proxies.items() if state is wanted][:_NAMED]

    return {
        "kind": service.point.kind,
        "name": service.point.name,
        "outside": service.is_outside,
        "protocols": service.protocols,
        "proxies": {state.value: count for state, count in sorted(Counter(of_proxies.values()).items())},
        "refusing": named(ProxyState.REFUSED),
        "failed": named(ProxyState.FAILED),
    }


def _group(group: CallerGroup, numbers: _Numbers, requests: Requests | None) -> dict[str, Any]:
    """`requests` are what some of its proxies have counted, by the cluster; None: none of them was heard."""
    return {
        "callers": [numbers[point] for point in group.callers],
        "proxies": len(group.proxies),
        "calls": [_call(call, numbers, requests) for call in group.calls],
    }


def _call(call: GraphCall, numbers: _Numbers, requests: Requests | None) -> dict[str, Any]:
    """What clients call at a gateway is no service, and has a `hostname` in place of `to`."""
    called = {"to": numbers[call.called]} if call.called in numbers else {"hostname": call.called.name}
    listed = _listed_routes(call.routes)
    more = len(call.routes) - len(listed)
    return {
        **called,
        "section": call.section,
        "protocol": call.protocol,
        "routes": [_route(route, numbers, requests) for route in listed],
        **({"moreRoutes": more} if more > 0 else {}),
    }


def _listed_routes(routes: Sequence[GraphRoute]) -> list[GraphRoute]:
    """The first rows, and each further one of which something is in no row before: a service, a share, an error."""
    known: set[_Outcome] = set()
    listed: list[GraphRoute] = []
    for route in routes:
        outcomes = _outcomes(route)
        if len(listed) < _MOST_ROUTES or not outcomes <= known:
            listed.append(route)
            known |= outcomes
    return listed


def _outcomes(route: GraphRoute) -> set[_Outcome]:
    total = sum(split.weight for split in route.splits)
    shares = {(split.point, split.section, split.weight / total if total else 0.0) for split in route.splits}
    copies = {(copy.point, f"copies to {copy.section}", copy.percentage) for copy in route.copies}
    return {*shares, *copies, *([(None, route.reason, 0.0)] if route.reason else ())}


def _route(route: GraphRoute, numbers: _Numbers, requests: Requests | None) -> dict[str, Any]:
    def destination(to: GraphPoint | None, section: str, cluster: str) -> dict[str, Any]:
        counted = {} if requests is None else {"requests": requests.get(cluster, 0)}
        return {"to": None if to is None else numbers[to], "section": section, **counted}

    splits = [
        {**destination(split.point, split.section, split.cluster), "weight": split.weight} for split in route.splits
    ]
    copies = [
        {**destination(copy.point, copy.section, copy.cluster), "percentage": copy.percentage} for copy in route.copies
    ]
    reason = {"reason": route.reason} if route.reason else {}
    return {
        "owner": route.owner,
        "path": route.path,
        "splits": splits,
        **({"copies": copies} if copies else {}),
        **reason,
    }
