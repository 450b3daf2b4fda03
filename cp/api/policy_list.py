"""All policies of a mesh, with how many proxies each selects: for a list from which one goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cp.api.caller import ApiCaller, caller_of
from cp.api.collaborators import Collaborators
from cp.api.near import must_have_mesh
from cp.insight.inspect import selection_counts, selects_proxies
from cp.model.checkpoint import Checkpoint, checked
from cp.model.names import Key
from cp.resources.resource import Resource
from cp.resources.world import World


class PolicyListHandler:
    """The handler."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators

    async def __call__(self, request: Request) -> Response:
        """Those that the caller may read."""
        world, mesh = await self._api.state.current(), request.path_params["mesh"]
        must_have_mesh(world, mesh)
        caller = caller_of(request)

        def answer(checkpoint: Checkpoint) -> dict[str, Any]:
            counts = selection_counts(world, mesh, checkpoint)
            policies = checked(_policies(world, mesh, caller), checkpoint)
            items = [_item(policy, counts) for policy in policies]
            return {"mesh": mesh, "revision": world.revision, "items": items}

        return await self._api.works.questions.json(request, answer)


def _policies(world: World, mesh: str, caller: ApiCaller) -> list[Resource]:
    kinds = sorted(
        kind.name for kind in world.kinds.values() if selects_proxies(kind) and caller.may_read(kind.name, mesh)
    )
    return [policy for name in kinds for policy in world.table(name, mesh)]


def _item(policy: Resource, counts: Mapping[Key, int]) -> dict[str, Any]:
    """`targetRef` is whom it is for, as it is written; null where it says nothing at the top."""
    spec, source = policy.document.data.get("spec"), policy.source
    place = {"file": source.file, "line": source.line("")} if source.file else {}
    return {
        "type": policy.type,
        "plural": policy.kind.plural,
        "mesh": policy.mesh,
        "name": policy.name,
        "targetRef": spec.get("targetRef") if isinstance(spec, Mapping) else None,
        "proxies": counts.get(policy.key, 0),
        **place,
    }
