"""What the control plane makes of one proxy, or of one policy, for those who ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from cp.api.collaborators import Collaborators
from cp.api.delivery_data import delivery_data, expectation
from cp.api.envoy_json import as_data
from cp.api.grpc_clients import is_certified_client
from cp.api.near import must_have_mesh, not_found
from cp.api.paging import Page, cut, page
from cp.api.parameters import is_asked
from cp.api.policy_delivery import policy_delivery
from cp.api.rollouts import proposals, rollout_note
from cp.identity.identities import identity_of
from cp.identity.security import security_of
from cp.insight.inspect import (
    AffectedProxy,
    SelectedProxy,
    affected_proxies,
    inspect_policies,
    inspect_rules,
    selected_proxies,
    selects_proxies,
)
from cp.insight.lint import of_gateway
from cp.model.checkpoint import Checkpoint
from cp.model.moments import moment
from cp.resources.assignment import assigned_world
from cp.resources.client import is_grpc_client
from cp.resources.kinds import Kind
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.snapshot import Snapshot

_DATAPLANE: Final = "Dataplane"
_MOST_VALUES: Final = 100_000
"""Values of a policy on one page, and those of one more proxy: some tens of megabytes."""


class InspectHandler:
    """The handlers that look at one proxy, or at one policy. What takes long is done beside the event loop."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators

    async def config(self, request: Request) -> Response:
        """Every Envoy resource by its type and name, as `_config` of Kuma."""
        world, dataplane = await self._proxy(request)
        snapshot = await self._api.works.questions.wait(request, lambda: self._snapshot(dataplane))
        not_enforced = [finding for finding in world.findings_of(dataplane.key) if finding.code == "not-enforced"]
        note = rollout_note(world, dataplane.key)

        def answer(checkpoint: Checkpoint) -> dict[str, Any]:
            warnings = [str(finding) for finding in (*not_enforced, *of_gateway(world, dataplane))]
            return {"xds": as_data(snapshot, checkpoint=checkpoint), **_with(warnings=warnings, rollout=note)}

        return await self._answer(request, answer)

    async def _snapshot(self, dataplane: Resource) -> Snapshot:
        is_certified = await is_certified_client(self._api.observed, dataplane)
        return await self._api.state.snapshot(dataplane, is_certified_client=is_certified)

    async def rules(self, request: Request) -> Response:
        """What the policies come to that select a proxy, as `_rules` of Kuma."""
        shadow = is_asked(request, "shadow")
        world, dataplane = await self._proxy(request)
        assigned, note = assigned_world(world, dataplane.key), rollout_note(world, dataplane.key)

        def answer(checkpoint: Checkpoint) -> dict[str, Any]:
            return inspect_rules(assigned, dataplane, checkpoint, shadow=shadow) | _with(rollout=note)

        return await self._answer(request, answer)

    async def policies(self, request: Request) -> Response:
        """The policies that select a proxy."""
        world, dataplane = await self._proxy(request)
        assigned, note = assigned_world(world, dataplane.key), rollout_note(world, dataplane.key)
        return await self._answer(request, lambda _: inspect_policies(assigned, dataplane) | _with(rollout=note))

    async def dataplanes(self, request: Request) -> Response:
        """The proxies that a policy selects, what of it survives on each, and whether the proxy has it."""
        world = await self._world()
        policy = self._resource(world, request, self._policy_kind(request))
        url, query, proposed = request.url, request.query_params, proposals(world, [policy.key.mesh])

        def affected(checkpoint: Checkpoint) -> tuple[Page[SelectedProxy], list[AffectedProxy]]:
            part = page(list(selected_proxies(world, policy, checkpoint)), query, _place)
            items = list(_of_few_values(affected_proxies(world, policy, part.items, checkpoint)))
            return cut(part, len(items), _place), items

        questions, observed = self._api.works.questions, self._api.observed
        part, items = await questions.do(request, affected)
        dataplanes = [proxy.dataplane for proxy in items]
        standing = await questions.wait(request, lambda: policy_delivery(observed, policy.key, dataplanes))

        def answer(_: Checkpoint) -> dict[str, Any]:
            return part.as_data(url, [standing.data(proxy) for proxy in items]) | _with(notLookedAt=proposed)

        return await self._answer(request, answer)

    async def delivery(self, request: Request) -> Response:
        """What a proxy was sent, took and refuses."""
        world, dataplane = await self._proxy(request)
        note = rollout_note(world, dataplane.key)
        questions = self._api.works.questions
        standing = await questions.wait(request, lambda: self._api.observed.delivery(dataplane.key))
        moves = await questions.wait(request, lambda: self._api.moves(world, [dataplane.mesh]))
        concerning = [move for move in moves if move.concerns(dataplane.key)]
        needs_certificates = is_grpc_client(dataplane) and security_of(world, dataplane.mesh) is not None
        why = _why_uncertified(world, dataplane)

        def answer(_: Checkpoint) -> dict[str, Any]:
            data = delivery_data(standing, concerning, needs_certificates=needs_certificates, why_uncertified=why)
            made = moment(dataplane.source.created)
            since = 0.0 if made is None else made.timestamp()
            return data | expectation(standing.presence, since, self._api.alike_since()) | _with(rollout=note)

        return await self._answer(request, answer)

    async def _answer(self, request: Request, function: Callable[[Checkpoint], Any]) -> Response:
        return await self._api.works.questions.json(request, function)

    async def _world(self) -> World:
        return await self._api.state.current()

    async def _proxy(self, request: Request) -> tuple[World, Resource]:
        """The World in force, and the Dataplane of a proxy. A rollout may have assigned it another World."""
        world = await self._world()
        return world, self._resource(world, request, self._api.kinds[_DATAPLANE])

    def _policy_kind(self, request: Request) -> Kind:
        kinds = {kind.plural: kind for kind in self._api.kinds.values() if selects_proxies(kind)}
        plural = request.path_params["plural"]
        if plural not in kinds:
            raise not_found("type of policy", plural, kinds)
        return kinds[plural]

    def _resource(self, world: World, request: Request, kind: Kind) -> Resource:
        mesh, name = request.path_params["mesh"], request.path_params["name"]
        must_have_mesh(world, mesh)
        table = world.table(kind.name, mesh)
        resource = table.get(name)
        if resource is None:
            raise not_found(kind.name, name, (known.name for known in table))
        return resource


def _why_uncertified(world: World, dataplane: Resource) -> str:
    """Why a proxy may have no certificate though it should have one; empty where it needs none."""
    identity = identity_of(world, dataplane)
    if identity is None or is_grpc_client(dataplane):  # such a client has one only if it asks for it
        return ""
    if identity.fault is not None:
        return identity.fault.message
    return "nobody signs one for it yet; if that stays so, `koguma lint` says why"


def _with(**fields: Any) -> dict[str, Any]:
    """Those that say something."""
    return {name: value for name, value in fields.items() if value}


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
