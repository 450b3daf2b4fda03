"""Why a call of a proxy goes where it goes, for those who ask over HTTP."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cp.api.collaborators import Collaborators
from cp.api.errors import UNPROCESSABLE, ApiError, bad_request
from cp.api.grpc_clients import is_certified_client
from cp.api.near import must_have_mesh, not_found
from cp.api.rollouts import rollout_note
from cp.insight.explain import AmbiguousCall, CallQuery, ProxyValues, explain, parse_call, proxy_of_gateway, unknown
from cp.insight.simulate import UnsimulatedFeature
from cp.model.names import Key
from cp.policies import Policies, discover
from cp.resources.assignment import assigned_world
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.serving.delivery import Delivery
from cp.translate.compiler import Compiler

_TITLE = "Could not explain a call"
_TITLE_OF_VALUES = "Could not tell values"


class ExplainHandler:
    """The handlers. Explaining takes a while, and is done beside the event loop, with what the last one worked out."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators
        self._policies: Policies = discover()
        self._compiler = Compiler(self._policies)

    async def __call__(self, request: Request) -> Response:
        """`?call=GET http://backend:80/path`, and `&header=x-version: 2` as often as there are headers."""
        world = await self._api.state.current()
        dataplane = _dataplane(world, request)
        call = _call(request)
        work = self._api.works.explanations
        moves = await work.wait(request, lambda: self._api.moves(world, [dataplane.mesh]))
        sentences = [sentence for move in moves for sentence in move.sentences]
        standing = await work.wait(request, lambda: self._api.observed.delivery(dataplane.key))
        certified = frozenset({dataplane.key} if standing.presence.finds_certificates else ())
        assigned, note = assigned_world(world, dataplane.key), rollout_note(world, dataplane.key)
        more = {"moves": sentences} | _standing_data(standing) | ({"rollout": note} if note else {})
        return await work.json(request, lambda _: self._explained(assigned, dataplane, call, certified) | more)

    async def values(self, request: Request) -> Response:
        """What holds at each inbound, and which outbounds there are; `?outbound=ADDRESS:PORT` asks what holds there."""
        world = await self._api.state.current()
        dataplane = _dataplane(world, request)
        outbound = request.query_params.get("outbound")
        certified = frozenset({dataplane.key} if await is_certified_client(self._api.observed, dataplane) else ())
        assigned, note = assigned_world(world, dataplane.key), rollout_note(world, dataplane.key)
        more = {"rollout": note} if note else {}
        work = self._api.works.explanations
        return await work.json(request, lambda _: self._values(assigned, dataplane, outbound, certified) | more)

    def _values(
        self, world: World, dataplane: Resource, outbound: str | None, certified: frozenset[Key]
    ) -> dict[str, Any]:
        self._compiler.certified_clients = certified

        def values() -> dict[str, Any]:
            of_proxy = ProxyValues(self._compiler, self._policies, world, dataplane)
            return of_proxy.listed() if outbound is None else of_proxy.outbound(outbound)

        try:
            return unknown.of_proxy(dataplane, values)
        except AmbiguousCall as unclear:
            raise bad_request("outbound", unclear.message, unclear.hint, _TITLE_OF_VALUES) from None
        except UnsimulatedFeature as why:
            raise ApiError(UNPROCESSABLE, _TITLE_OF_VALUES, str(why)) from None

    def _explained(
        self, world: World, dataplane: Resource, call: CallQuery, certified: frozenset[Key]
    ) -> dict[str, Any]:
        self._compiler.certified_clients = certified
        try:
            return explain(self._compiler, self._policies, world, dataplane, call).as_json()
        except AmbiguousCall as unclear:
            raise bad_request("call", unclear.message, unclear.hint, _TITLE) from None
        except UnsimulatedFeature as why:
            raise ApiError(UNPROCESSABLE, _TITLE, f"what Envoy does with it cannot be told: {why}") from None


def _standing_data(standing: Delivery) -> dict[str, Any]:
    """Whether the proxy does what is explained, and what it refuses of what it was sent."""
    of_types = (of_type for stream in standing.streams for of_type in stream.types)
    reports = (nack.report for of_type in of_types for nack in of_type.refusals)
    refused = dict.fromkeys(report.refused for report in reports if report is not None)
    return {"status": str(standing.presence.state)} | ({"refused": list(refused)} if refused else {})


def _call(request: Request) -> CallQuery:
    given = request.query_params
    try:
        return parse_call(given.get("call", ""), tuple(given.getlist("header")))
    except AmbiguousCall as unclear:
        raise bad_request("call", unclear.message, unclear.hint, _TITLE) from None


def _dataplane(world: World, request: Request) -> Resource:
    mesh, name = request.path_params["mesh"], request.path_params["name"]
    must_have_mesh(world, mesh)
    dataplane = world.get(Key("Dataplane", mesh, name)) or proxy_of_gateway(world, mesh, name)
    if dataplane is None:
        raise not_found("Dataplane", name, (known.name for known in world.table("Dataplane", mesh)))
    return dataplane
