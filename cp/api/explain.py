"""Why a call of a proxy goes where it goes, for those who ask over HTTP."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cp.api.collaborators import Collaborators
from cp.api.errors import UNPROCESSABLE, ApiError, bad_request
from cp.api.near import not_found
from cp.insight.explain import AmbiguousCall, CallQuery, explain, parse_call
from cp.insight.simulate import UnsimulatedFeature
from cp.model.names import Key
from cp.policies import Policies, discover
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.compiler import Compiler

_TITLE = "Could not explain a call"


class ExplainHandler:
    """The handler. Explaining takes a while, and is done beside the event loop, with what the last one worked out."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators
        self._policies: Policies = discover()
        self._compiler = Compiler(self._policies)

    async def __call__(self, request: Request) -> Response:
        """`?call=GET http://backend:80/path`, and `&header=x-version: 2` as often as there are headers."""
        world = await self._api.state.current()
        dataplane = _dataplane(world, request)
        call = _call(request)
        return await self._api.works.explanations.json(request, lambda _: self._explained(world, dataplane, call))

    def _explained(self, world: World, dataplane: Resource, call: CallQuery) -> dict[str, Any]:
        try:
            return explain(self._compiler, self._policies, world, dataplane, call).as_json()
        except AmbiguousCall as unclear:
            raise bad_request("call", unclear.message, unclear.hint, _TITLE) from None
        except UnsimulatedFeature as why:
            raise ApiError(UNPROCESSABLE, _TITLE, f"what Envoy does with it cannot be told: {why}") from None


def _call(request: Request) -> CallQuery:
    given = request.query_params
    try:
        return parse_call(given.get("call", ""), tuple(given.getlist("header")))
    except AmbiguousCall as unclear:
        raise bad_request("call", unclear.message, unclear.hint, _TITLE) from None


def _dataplane(world: World, request: Request) -> Resource:
    mesh, name = request.path_params["mesh"], request.path_params["name"]
    if world.mesh(mesh) is None:
        raise not_found("Mesh", mesh, (mesh_resource.name for mesh_resource in world.table("Mesh")))
    dataplane = world.get(Key("Dataplane", mesh, name))
    if dataplane is None:
        raise not_found("Dataplane", name, (known.name for known in world.table("Dataplane", mesh)))
    return dataplane
