"""One proxy as the control plane sees it: the configuration that it is served."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cp.api.collaborators import Collaborators
from cp.api.envoy_json import as_data
from cp.api.near import not_found
from cp.resources.resource import Resource

_DATAPLANE: Final = "Dataplane"


class Inspect:
    """The handlers that look at one proxy."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators

    async def config(self, request: Request) -> Response:
        """Every Envoy resource by its type and name, as `_config` of Kuma."""
        snapshot = await self._api.state.snapshot(self._dataplane(request))
        return JSONResponse({"xds": await asyncio.to_thread(as_data, snapshot)})

    def _dataplane(self, request: Request) -> Resource:
        world, mesh, name = self._api.state.world, request.path_params["mesh"], request.path_params["name"]
        if world.mesh(mesh) is None:
            raise not_found("Mesh", mesh, (found.name for found in world.table("Mesh")))
        dataplanes = world.table(_DATAPLANE, mesh)
        found = dataplanes.get(name)
        if found is None:
            raise not_found(_DATAPLANE, name, (known.name for known in dataplanes))
        return found
