"""What an operator should know about the resources that a control plane has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cp.api.collaborators import Collaborators
from cp.api.near import not_found
from cp.api.report import linted
from cp.delivery import finding, grouped
from cp.lint import in_order, lint, of_mesh
from cp.model.violation import Finding
from cp.policies import Policies, discover
from cp.resources.world import World


class Lint:
    """The handlers. Working out what holds for every proxy takes a while, and is done beside the event loop."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators
        self._policies: Policies = discover()

    @property
    def routes(self) -> Iterator[Route]:
        yield Route("/_lint", self.everything)
        yield Route("/meshes/{mesh}/_lint", self.one_mesh)

    async def everything(self, _request: Request) -> Response:
        return JSONResponse(linted(await self._findings(await self._api.state.current())))

    async def one_mesh(self, request: Request) -> Response:
        mesh, world = request.path_params["mesh"], await self._api.state.current()
        if world.mesh(mesh) is None:
            raise not_found("Mesh", mesh, (found.name for found in world.table("Mesh")))
        return JSONResponse(linted(tuple(of_mesh(await self._findings(world), mesh))))

    async def _findings(self, world: World) -> tuple[Finding, ...]:
        """What is to be said of the resources, and what proxies say to what follows from them."""
        refused = map(finding, grouped(await self._api.observed.complaints()))
        return in_order((*refused, *await asyncio.to_thread(lint, self._policies, world)))
