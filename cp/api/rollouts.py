"""The rollouts of meshes: how far they have come, and to pause, continue or abort them. See record 0088."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import msgspec
import structlog
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cp.api.attempts import attempted
from cp.api.body import decoded, text_of
from cp.api.caller import ApiCaller, caller_of
from cp.api.collaborators import Collaborators
from cp.api.errors import bad_request
from cp.api.near import must_have_mesh, not_found
from cp.api.powers import ChangedDocument, WriteRights
from cp.api.writes import REVISION_HEADER, conflict, must_be_writable
from cp.model.moments import timestamp
from cp.model.names import Key
from cp.resources.assignment import Candidate, candidate_of
from cp.resources.redaction import redacted
from cp.resources.resource import Resource
from cp.resources.rollout import (
    ROLLOUT_KIND,
    RolloutSpec,
    RolloutState,
    changes_of,
    rollout_document,
    rollout_key,
)
from cp.resources.world import World
from cp.serving.rollouts.keeper import ended
from cp.store.clock import utc
from cp.store.port import Conflict, Put, Stored

_LARGEST: Final = 1024

log = structlog.get_logger()


class RolloutCommand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to become of a rollout. With its number only if it is still that one."""

    action: Literal["pause", "continue", "abort"]
    number: int | None = None


class RolloutHandler:
    """The handlers."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators

    @property
    def routes(self) -> Iterator[Route]:
        yield Route("/_rollouts", self.listing)
        yield Route("/meshes/{mesh}/_rollout", self.get)
        yield Route("/meshes/{mesh}/_rollout", self.post, methods=["POST"])

    async def listing(self, request: Request) -> Response:
        """The rollout of each mesh: the one that is under way, or the last."""
        world, caller = await self._api.state.current(), caller_of(request)
        rollouts = [world.get(rollout_key(mesh.name)) for mesh in world.table("Mesh")]
        shown = [rollout for rollout in rollouts if rollout is not None and caller.may_read(ROLLOUT_KIND, rollout.mesh)]
        return JSONResponse({"items": [rollout_data(rollout) for rollout in shown]})

    async def get(self, request: Request) -> Response:
        """The rollout of a mesh, with the documents that it proposes, as far as the caller may read them."""
        world, caller = await self._api.state.current(), caller_of(request)
        rollout = _rollout_of(world, request.path_params["mesh"])
        return await self._api.works.resources.json(
            request, lambda _: rollout_data(rollout) | {"documents": list(self._documents(rollout, caller))}
        )

    def _documents(self, rollout: Resource, caller: ApiCaller) -> Iterator[dict[str, Any]]:
        for key, document in changes_of(rollout.mesh, rollout.spec).items():
            if document is not None and caller.may_read_key(key):
                yield dict(redacted(self._api.kinds[key.type], document.data))

    async def post(self, request: Request) -> Response:
        must_be_writable(self._api)
        command = _command(await text_of(request, self._api.body_limit, _LARGEST))
        return await attempted(lambda: self._commanded(request, command))  # again where it has come further meanwhile

    async def _commanded(self, request: Request, command: RolloutCommand) -> Response:
        world, caller = await self._api.state.current(), caller_of(request)
        rollout = _rollout_of(world, request.path_params["mesh"])
        spec: RolloutSpec = rollout.spec
        caller.must_write_keys(resource.key(rollout.mesh) for resource in spec.resources)
        if command.action == "continue":
            caller.must(WriteRights(caller, self._api.kinds).decisions(_document_changes(world, rollout)))
        next_spec = _next_spec(command, rollout.mesh, spec, caller)
        put = Put(rollout_document(rollout.mesh, next_spec), await self._revision(rollout))
        revision = await self._api.store.write(put, author=caller.author(f"rollout {command.action}"))
        log.info("rollout.commanded", mesh=rollout.mesh, number=spec.number, action=command.action, **caller.traces)
        data = rollout_data(rollout) | _state_data(next_spec)
        return JSONResponse(data, headers={REVISION_HEADER: str(revision)})

    async def _revision(self, rollout: Resource) -> int:
        stored: Stored | None = await self._api.store.get(rollout.key)
        if stored is None or stored.document != rollout.document:
            raise Conflict(rollout.key, 0, 0 if stored is None else stored.revision)
        return stored.revision


def _rollout_of(world: World, mesh: str) -> Resource:
    must_have_mesh(world, mesh)
    rollout = world.get(rollout_key(mesh))
    if rollout is None:
        raise not_found("rollout of mesh", mesh, (), "`koguma apply --rollout` begins one")
    return rollout


def _document_changes(world: World, rollout: Resource) -> Iterator[ChangedDocument]:
    """Yield what a rollout proposes in place of what is stored."""
    for key, proposed in changes_of(rollout.mesh, rollout.spec).items():
        stored = world.get(key)
        if stored is not None or proposed is not None:
            yield ChangedDocument(None if stored is None else stored.document, proposed)


def _command(text: str) -> RolloutCommand:
    try:
        return decoded(text, RolloutCommand)
    except ValueError as error:
        raise bad_request("", f'the body is not {{"action": "pause|continue|abort", "number": …}}: {error}') from None


def _next_spec(command: RolloutCommand, mesh: str, spec: RolloutSpec, caller: ApiCaller) -> RolloutSpec:
    """What becomes of a rollout by a command. Raises `ApiError` where it cannot."""
    name = f"rollout {spec.number} of mesh {mesh}"
    if command.number not in {None, spec.number}:
        raise conflict(f"there is no rollout {command.number} of mesh {mesh} any more; the last is {spec.number}")
    if not spec.is_under_way:
        raise conflict(f"{name} is {spec.course}")
    is_paused, now = spec.state == "Paused", timestamp(utc())
    if command.action == "abort":
        return ended(spec, "Aborted", f"aborted by {caller.user.name}", now)
    if is_paused is (command.action == "pause"):
        raise conflict(f"{name} is {'paused already' if is_paused else 'not paused'}")
    state: RolloutState = "Going" if is_paused else "Paused"
    return replace(spec, state=state, since=now, reason=None if is_paused else f"paused by {caller.user.name}")


def rollout_data(rollout: Resource) -> dict[str, Any]:
    """A rollout as it is answered to machines, without what it proposes."""
    spec: RolloutSpec = rollout.spec
    return {
        "mesh": rollout.mesh,
        "number": spec.number,
        "author": spec.author,
        "begun": spec.begun,
        "steps": spec.steps,
        "hold": str(spec.hold),
        "until": spec.until,
        "resources": [
            {"type": resource.type, "mesh": rollout.mesh, "name": resource.name, "change": resource.change}
            for resource in spec.resources
        ],
        **_state_data(spec),
    }


def _state_data(spec: RolloutSpec) -> dict[str, Any]:
    return {
        "state": spec.state,
        "underWay": spec.is_under_way,
        "course": spec.course,
        "step": spec.step,
        "since": spec.since,
        "reached": spec.reached,
        "proxies": spec.proxies,
        "reason": spec.reason,
    }


def rollout_note(world: World, dataplane: Key) -> str:
    """What a rollout that is under way means for a proxy; empty where none is."""
    candidate = candidate_of(world, dataplane.mesh)
    if candidate is None:
        return ""
    served = "what it proposes" if dataplane.name in candidate.proxies else "what is stored"
    return f"rollout {candidate.spec.number} is under way ({candidate.spec.course}): this proxy is served {served}"


def proposals(world: World, meshes: Iterable[str]) -> list[str]:
    """What is proposed in some meshes, of which nothing is said where only what is stored is looked at."""
    return [candidate.proposal for _, candidate in _under_way(world, meshes)]


def rollout_sentences(world: World, meshes: Iterable[str]) -> list[str]:
    """What is under way in some meshes."""
    return [candidate.standing for _, candidate in _under_way(world, meshes)]


def _under_way(world: World, meshes: Iterable[str]) -> Iterator[tuple[str, Candidate]]:
    for mesh in meshes:
        if (candidate := candidate_of(world, mesh)) is not None:
            yield mesh, candidate
