"""What the control plane makes of one proxy, or of one policy, for those who ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from cp.api.collaborators import Collaborators
from cp.api.delivery_data import delivery_data
from cp.api.envoy_json import as_data
from cp.api.near import not_found
from cp.api.paging import cut, page
from cp.insight.inspect import (
    AffectedProxy,
    SelectedProxy,
    affected_proxies,
    inspect_policies,
    inspect_rules,
    selected_proxies,
)
from cp.model.checkpoint import Checkpoint
from cp.resources.kinds import Kind
from cp.resources.resource import Resource
from cp.resources.world import World

_DATAPLANE: Final = "Dataplane"
_MOST_VALUES: Final = 100_000
"""Values of a policy on one page, and those of one more proxy: some tens of megabytes."""


class InspectHandler:
    """The handlers that look at one proxy, or at one policy. What takes long is done beside the event loop."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators

    async def config(self, request: Request) -> Response:
        """Every Envoy resource by its type and name, as `_config` of Kuma."""
        world = await self._world()
        dataplane = self._dataplane(world, request)
        snapshot = await self._api.works.questions.wait(request, lambda: self._api.state.snapshot(dataplane))
        warnings = [str(finding) for finding in world.findings_of(dataplane.key) if finding.code == "not-enforced"]

        def answer(checkpoint: Checkpoint) -> dict[str, Any]:
            return {"xds": as_data(snapshot, checkpoint=checkpoint), **({"warnings": warnings} if warnings else {})}

        return await self._answer(request, answer)

    async def rules(self, request: Request) -> Response:
        """What the policies come to that select a proxy, as `_rules` of Kuma."""
        world, shadow = await self._world(), request.query_params.get("shadow") == "true"
        dataplane = self._dataplane(world, request)
        return await self._answer(request, partial(inspect_rules, world, dataplane, shadow=shadow))

    async def policies(self, request: Request) -> Response:
        """The policies that select a proxy."""
        world = await self._world()
        dataplane = self._dataplane(world, request)
        return await self._answer(request, lambda _: inspect_policies(world, dataplane))

    async def dataplanes(self, request: Request) -> Response:
        """The proxies that a policy selects, and what of it survives on each."""
        world = await self._world()
        policy = self._resource(world, request, self._policy_kind(request))
        url, query = request.url, request.query_params

        def answer(checkpoint: Checkpoint) -> dict[str, Any]:
            proxies = list(selected_proxies(world, policy, checkpoint))
            part = page(proxies, query, _place)
            items = list(_of_few_values(affected_proxies(world, policy, part.items, checkpoint)))
            return cut(part, len(items), _place).as_data(url, [proxy.data for proxy in items])

        return await self._answer(request, answer)

    async def delivery(self, request: Request) -> Response:
        """What a proxy was sent, took and refuses."""
        dataplane = self._dataplane(await self._world(), request)
        standing = await self._api.works.questions.wait(request, lambda: self._api.observed.delivery(dataplane.key))
        return await self._answer(request, lambda _: delivery_data(standing))

    async def _answer(self, request: Request, function: Callable[[Checkpoint], Any]) -> Response:
        return await self._api.works.questions.json(request, function)

    async def _world(self) -> World:
        return await self._api.state.current()

    def _dataplane(self, world: World, request: Request) -> Resource:
        return self._resource(world, request, self._api.kinds[_DATAPLANE])

    def _policy_kind(self, request: Request) -> Kind:
        kinds = {kind.plural: kind for kind in self._api.kinds.values() if kind.policy is not None}
        plural = request.path_params["plural"]
        if plural not in kinds:
            raise not_found("type of policy", plural, kinds)
        return kinds[plural]

    def _resource(self, world: World, request: Request, kind: Kind) -> Resource:
        mesh, name = request.path_params["mesh"], request.path_params["name"]
        if world.mesh(mesh) is None:
            raise not_found("Mesh", mesh, (mesh_resource.name for mesh_resource in world.table("Mesh")))
        table = world.table(kind.name, mesh)
        resource = table.get(name)
        if resource is None:
            raise not_found(kind.name, name, (known.name for known in table))
        return resource


def _of_few_values(proxies: Iterable[AffectedProxy]) -> Iterator[AffectedProxy]:
    """The first ones, until they are enough for one answer: what is left is on the next page."""
    values = 0
    for proxy in proxies:
        yield proxy
        values += len(proxy.effects)
        if values >= _MOST_VALUES:
            break


def _place(proxy: SelectedProxy) -> tuple[str, str]:
    return proxy.dataplane.key.mesh, proxy.dataplane.key.name
