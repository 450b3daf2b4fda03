"""What an operator should know about the resources that a control plane has."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cp.api.caller import caller_of
from cp.api.collaborators import Collaborators
from cp.api.findings import finding_sources, findings_of
from cp.api.near import must_have_mesh
from cp.api.rollouts import proposals
from cp.insight.lint import of_mesh
from cp.insight.report import lint_data
from cp.model.checkpoint import Checkpoint
from cp.policies import Policies, discover
from cp.resources.world import World


class LintHandler:
    """The handlers. Working out what holds for every proxy takes a while, and is done beside the event loop."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators
        self._policies: Policies = discover()

    @property
    def routes(self) -> Iterator[Route]:
        yield Route("/_lint", self.everything)
        yield Route("/meshes/{mesh}/_lint", self.one_mesh)

    async def everything(self, request: Request) -> Response:
        caller, world = caller_of(request), await self._api.state.current()
        meshes = [mesh.name for mesh in world.table("Mesh")]
        closed = [mesh for mesh in meshes if not caller.may_inspect(mesh)]
        if closed == meshes:
            caller.must_inspect(closed)
        return await self._answer(request, world, closed=[mesh for mesh in closed if caller.may_read("Mesh", mesh)])

    async def one_mesh(self, request: Request) -> Response:
        mesh, world = request.path_params["mesh"], await self._api.state.current()
        must_have_mesh(world, mesh)
        return await self._answer(request, world, mesh)

    def _inspected(self, request: Request, world: World, mesh: str) -> Iterator[str]:
        """The meshes of which the caller may know how proxies are."""
        names = [mesh] if mesh else [mesh_resource.name for mesh_resource in world.table("Mesh")]
        return (name for name in names if caller_of(request).may_inspect(name))

    async def _answer(self, request: Request, world: World, mesh: str = "", closed: Sequence[str] = ()) -> Response:
        """What is to be said of the resources, and what proxies say to what follows from them.

        `closed` are meshes that the caller knows and may not look into: silence about them would read as praise.
        """
        may_know = caller_of(request).may_know
        questions, meshes = self._api.works.questions, list(self._inspected(request, world, mesh))
        sources = await finding_sources(self._api, world, meshes, partial(questions.wait, request))
        proposed = proposals(world, meshes)

        def answer(checkpoint: Checkpoint) -> dict[str, Any]:
            findings = findings_of(self._policies, sources, checkpoint, time.time())
            data = lint_data(tuple(filter(may_know, of_mesh(findings, mesh) if mesh else findings)))
            data |= {"meshesNotTold": sorted(closed)} if closed else {}
            return data | ({"notLookedAt": proposed} if proposed else {})

        return await questions.json(request, answer)
