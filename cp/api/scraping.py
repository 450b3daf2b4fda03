"""`GET /_prometheus/targets`: which proxies Prometheus is to ask for metrics, in the form of its `http_sd`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cp.access.rights import INSPECTION, AccessRequest, Verb
from cp.api.caller import caller_of
from cp.api.collaborators import Collaborators
from cp.api.near import not_found
from cp.insight.scraping import ScrapeTargets
from cp.model.checkpoint import Checkpoint
from cp.policies import Policies, discover
from cp.resources.world import World


class ScrapeHandler:
    """The handler. Prometheus asks every few seconds; rules of proxies are remembered with the World."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators
        self._policies: Policies = discover()

    @property
    def routes(self) -> Iterator[Route]:
        yield Route("/_prometheus/targets", self.targets)

    async def targets(self, request: Request) -> Response:
        """Those of all meshes that the caller may look into, or of one mesh; for all collectors, or for one."""
        world = await self._api.state.current()
        meshes = self._meshes(request, world)
        client = request.query_params.get("client")

        def answer(checkpoint: Checkpoint) -> list[dict[str, Any]]:
            targets = ScrapeTargets(self._policies, world).of_meshes(meshes, checkpoint)
            return [
                {"targets": [target.authority], "labels": target.labels}
                for target in targets
                if client is None or target.client in {"", client}
            ]

        return await self._api.works.questions.json(request, answer)

    def _meshes(self, request: Request, world: World) -> list[str]:
        caller, wanted = caller_of(request), request.query_params.get("mesh")
        names = [mesh.name for mesh in world.table("Mesh")]
        if wanted is None:
            return [name for name in names if caller.may_read("Dataplane", name) and caller.may_inspect(name)]
        caller.must(caller.decision(AccessRequest(Verb.READ, kind, wanted)) for kind in ("Dataplane", INSPECTION))
        if wanted not in names:
            raise not_found("Mesh", wanted, names)
        return [wanted]
