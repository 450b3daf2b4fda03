"""All proxies at once, in few bytes: for pages that show thousands, and follow the feed from there."""

from __future__ import annotations

from functools import cache
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cp.api.caller import caller_of
from cp.api.collaborators import Collaborators
from cp.api.errors import stopping
from cp.api.feed_reader import FeedPlace
from cp.api.fleet_data import COLUMNS, rows_by_mesh
from cp.api.near import must_have_mesh
from cp.model.checkpoint import Checkpoint, checked
from cp.model.names import Key
from cp.serving.instances.fleet import Fleet

_DATAPLANE = "Dataplane"


class FleetHandler:
    """The handler."""

    def __init__(self, collaborators: Collaborators, fleet: Fleet) -> None:
        self._api, self._fleet = collaborators, fleet

    async def __call__(self, request: Request) -> Response:
        """`?mesh=default` for those of one mesh."""
        caller, mesh = caller_of(request), request.query_params.get("mesh", "")
        if mesh:
            caller.must_read_key(Key(_DATAPLANE, mesh, ""))
            must_have_mesh(await self._api.state.current(), mesh)
        await self._api.state.current()
        await self._api.works.resources.wait(request, self._fleet.refreshed_with_world)
        if self._api.state.is_stopping:
            raise stopping()
        fleet, proxies = self._fleet, self._fleet.proxies()
        head = {
            "id": str(FeedPlace.in_fleet(fleet, caller)),
            "revision": fleet.revision,
            "silent": fleet.silent,
            "columns": COLUMNS,
        }
        may_read = cache(lambda name: caller.may_read(_DATAPLANE, name))

        def answer(checkpoint: Checkpoint) -> dict[str, Any]:
            listed = (proxy for proxy in checked(proxies, checkpoint) if mesh in {"", proxy.key.mesh})
            return head | {"meshes": rows_by_mesh(proxy for proxy in listed if may_read(proxy.key.mesh))}

        return await self._api.works.resources.json(request, answer)
