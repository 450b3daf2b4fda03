"""What was: who changed what and when, and what differs between two revisions, in documents and for proxies.

See record 0080.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cp.api.caller import ApiCaller, caller_of
from cp.api.collaborators import Collaborators
from cp.api.envoy_json import decoded
from cp.api.errors import bad_request
from cp.api.near import not_found
from cp.api.numbers import natural, shortened
from cp.api.parameters import is_asked
from cp.api.revisions import past_since, revision_of
from cp.api.work import LARGEST_ANSWER
from cp.insight.comparison import (
    MOST_FIELDS,
    ChangedResource,
    MeshComparison,
    changed_fields,
    mesh_comparison,
    size_of_field,
)
from cp.insight.fields import ABSENT, ChangedField
from cp.insight.lint import lint
from cp.insight.plan import Plan, PlanScope, finding_changes, mesh_plans, meshes_of, plan_data, planned_documents
from cp.model.checkpoint import Allowance, Checkpoint, checked
from cp.model.document import Document
from cp.model.moments import timestamp
from cp.model.names import Key
from cp.model.registration import is_registration
from cp.model.violation import Finding
from cp.policies import Policies, discover
from cp.resources.kinds import Kinds
from cp.resources.redaction import redacted
from cp.resources.rollout import ROLLOUT_KIND, is_step
from cp.resources.world import World
from cp.store.past import RecentPast, whole_writes
from cp.store.port import ChangeNote
from cp.translate.compiler import Compiler

_FROM: Final = "from"
_TO: Final = "to"
_DEFAULT_SIZE: Final = 100
_LARGEST_SIZE: Final = 1000
_AT_ONCE: Final = 200
"""Changes that are read together, without their documents."""

_MOST_READ: Final = 2000
"""Changes that are read for one answer, where most of them may be left out."""


@dataclass(frozen=True, slots=True)
class WantedChanges:
    """Which changes are wanted besides those that people make."""

    registrations: bool
    steps: bool
    """Those that say how far a rollout has come."""

    def lacks_registration(self, change: ChangeNote) -> bool:
        return not self.registrations and is_registration(change.author.origin)

    def lacks_step(self, change: ChangeNote) -> bool:
        return not self.steps and is_step(change.key, change.author.origin)


PEOPLE_ALONE: Final = WantedChanges(registrations=False, steps=False)


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Changes, newest first, and the revision of the last one that was read for them."""

    changes: Sequence[ChangeNote]
    end: int
    is_last: bool
    registrations_left_out: int
    steps_left_out: int


class PastHandler:
    """The handlers. Secrets are hidden as everywhere, and nobody is told of what he may not read."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators
        self._policies: Policies = discover()

    @property
    def routes(self) -> Iterator[Route]:
        yield Route("/_history", self.history)
        yield Route("/_diff", self.difference)
        yield Route("/_diff/proxies", self.difference_for_proxies)
        yield Route("/_diff/plan", self.plan)

    async def history(self, request: Request) -> Response:
        """The newest changes of one resource or of all, without registrations and steps that are not wanted."""
        caller, key, store = caller_of(request), _key(request), self._api.store
        if key is not None:
            caller.must_read_key(key)
        before, size = revision_of(request, "before"), size_of(request)
        work = self._api.works.resources
        wanted = WantedChanges(*(is_asked(request, sort, default=True) for sort in ("registrations", "rollouts")))
        page = await work.wait(request, partial(history_page, self._api, key, size, before, wanted))
        oldest, newest = await store.oldest(), await store.revision()
        following = None if page.is_last or page.end <= oldest + 1 else page.end

        def answer(checkpoint: Checkpoint) -> dict[str, Any]:
            items = [_change(change) for change in checked(page.changes, checkpoint) if caller.may_read_key(change.key)]
            left_out = {"leftOut": page.registrations_left_out, "stepsLeftOut": page.steps_left_out}
            return {"items": items, "newest": newest, "oldest": oldest, "next": following, **left_out}

        return await work.json(request, answer)

    async def difference(self, request: Request) -> Response:
        """The documents that are not the same at two revisions, of all meshes or of one."""
        caller, (past, earlier, later) = caller_of(request), await self._between(request)
        mesh = request.query_params.get("mesh", "")

        def answer(checkpoint: Checkpoint) -> dict[str, Any]:
            readable = filter(caller.may_read_key, past.changed_between(*sorted((earlier, later))))
            keys = [key for key in readable if mesh in {"", mesh_of(key)}]
            if mesh and not keys:
                _must_have_been(mesh, past, caller)
            changes = _differences(past, (earlier, later), checked(keys, checkpoint), self._api.kinds)
            return {"from": earlier, "to": later, "changes": list(changes)}

        return await self._api.works.questions.json(request, answer)

    async def difference_for_proxies(self, request: Request) -> Response:
        """What proxies would be served at two revisions that is not the same."""
        caller, (past, earlier, later) = caller_of(request), await self._between(request)
        mesh = request.query_params.get("mesh", "")
        if mesh:
            caller.must_inspect([mesh])
            caller.must_read_key(Key("Dataplane", mesh, ""))

        def answer(checkpoint: Checkpoint) -> dict[str, Any]:
            worlds = self._world(past, earlier), self._world(past, later)
            meshes = sorted({resource.name for world in worlds for resource in world.table("Mesh")})
            if mesh and mesh not in meshes:
                raise not_found("Mesh", mesh, meshes)
            looked_into = [name for name in meshes if mesh in {"", name} and caller.may_compare(name)]
            comparisons = [mesh_comparison(worlds, name, self._policies, checkpoint) for name in looked_into]
            closed = [name for name in meshes if name not in looked_into and caller.may_read("Mesh", name)]
            note: dict[str, Any] = {"meshesNotTold": closed} if closed and not mesh else {}
            note |= _unreadable(past, (earlier, later), looked_into, caller)
            allowance = Allowance(LARGEST_ANSWER)
            meshes_told = [_comparison(comparison, checkpoint, allowance) for comparison in comparisons]
            return {"from": earlier, "to": later, "meshes": meshes_told} | note

        return await self._api.works.questions.json(request, answer)

    async def plan(self, request: Request) -> Response:
        """The way from one revision to another as a plan: with where values come from, and which connections end."""
        caller, (past, earlier, later) = caller_of(request), await self._between(request)
        with_findings = is_asked(request, "findings", default=True)

        def answer(checkpoint: Checkpoint) -> dict[str, Any]:
            before, wanted = past.at(earlier), past.at(later)
            unreadable = before.unreadable | wanted.unreadable
            changed = past.changed_between(*sorted((earlier, later)))
            keys = (key for key in changed if key not in unreadable and key.type != ROLLOUT_KIND)
            documents = {key: (before.documents.get(key), wanted.documents.get(key)) for key in keys}
            changes = {key: is_now for key, (was, is_now) in documents.items() if was != is_now}
            world = self._world(past, earlier)
            after = world.next(changes, later)
            meshes = meshes_of(changes, world, after)
            scope = PlanScope(world, after, changes, list(filter(caller.may_compare, meshes)))
            readable = {key: changes[key] for key in changes if caller.may_read_key(key)}
            of_meshes = mesh_plans(scope, Compiler(self._policies), decoded, checkpoint, Allowance(LARGEST_ANSWER))
            plan = Plan(
                planned_documents(before.documents, readable),
                tuple(of_meshes),
                *(self._finding_changes((world, after), caller, checkpoint) if with_findings else ()),
            )
            closed = [mesh for mesh in meshes if mesh not in scope.meshes and caller.may_read("Mesh", mesh)]
            note: dict[str, Any] = {"meshesNotTold": closed} if closed else {}
            of_unreadable = list(filter(caller.may_compare, meshes_of(unreadable, world, after)))
            note |= _unreadable(past, (earlier, later), of_unreadable, caller)
            return {"from": earlier, "to": later, "plan": plan_data(plan, checkpoint) | note}

        return await self._api.works.questions.json(request, answer)

    def _finding_changes(
        self, worlds: tuple[World, World], caller: ApiCaller, checkpoint: Checkpoint
    ) -> Iterator[tuple[Finding, ...]]:
        """The findings that appeared, and those that vanished, of those that the caller may know."""
        now = time.time()
        before, after = (lint(self._policies, world, checkpoint, now) for world in worlds)
        return (tuple(filter(caller.may_know, findings)) for findings in finding_changes(before, after))

    def _world(self, past: RecentPast, revision: int) -> World:
        return World.of(past.at(revision).documents.values(), self._api.kinds, revision)

    async def _between(self, request: Request) -> tuple[RecentPast, int, int]:
        """The past since the earlier of two revisions, and both as they are asked for. The second is the newest."""
        first, second = revision_of(request, _FROM), revision_of(request, _TO)
        if first is None:
            raise bad_request(_FROM, "is missing", "name the revision to compare with")
        past = await past_since(request, self._api, first if second is None else min(first, second), _FROM)
        newest = past.newest
        if (latest := max(first, second or 0)) > newest:
            parameter = _FROM if latest == first else _TO
            raise bad_request(parameter, f"there is no revision {latest} yet", f"the newest is {newest}")
        return past, first, newest if second is None else second


async def history_page(
    api: Collaborators, key: Key | None, size: int, before: int | None, wanted: WantedChanges
) -> HistoryPage:
    """So many of the newest changes that are wanted. There may be fewer if most are left out."""
    changes: list[ChangeNote] = []
    registrations = steps = 0
    async with api.reading:
        while len(changes) < size and registrations + steps < _MOST_READ:
            part = await whole_writes(partial(api.store.log, key), min(_AT_ONCE, size - len(changes)), before)
            kept = [change for change in part if not (wanted.lacks_registration(change) or wanted.lacks_step(change))]
            if not part or (changes and len(changes) + len(kept) > size):
                return HistoryPage(changes, before or 0, not part, registrations, steps)
            changes += kept
            registrations += sum(map(wanted.lacks_registration, part))
            steps += sum(map(wanted.lacks_step, part))
            before = part[-1].revision
    return HistoryPage(changes, before or 0, is_last=False, registrations_left_out=registrations, steps_left_out=steps)


def _must_have_been(mesh: str, past: RecentPast, caller: ApiCaller) -> None:
    """Raises `ApiError` for a mesh that is nowhere: its name is wrong."""
    keys = (stored.document.key for stored in past.contents.stored)
    meshes = {key.name for key in keys if key.type == "Mesh" and caller.may_read_key(key)}
    if mesh not in meshes:
        raise not_found("Mesh", mesh, meshes)


def _unreadable(
    past: RecentPast, revisions: tuple[int, int], meshes: Sequence[str], caller: ApiCaller
) -> dict[str, Any]:
    """What cannot be compared, as nobody can read how it was."""
    keys = sorted(frozenset[Key]().union(*(past.at(revision).unreadable for revision in revisions)))
    untold = [key for key in keys if key.mesh in {"", *meshes} and caller.may_read_key(key)]
    return {"unreadable": list(map(named, untold))} if untold else {}


def size_of(request: Request) -> int:
    """How many changes a page has."""
    text = request.query_params.get("size", str(_DEFAULT_SIZE))
    size = natural(text)
    if size is None or not 1 <= size <= _LARGEST_SIZE:
        raise bad_request("size", f"`{shortened(text)}` is no number from 1 to {_LARGEST_SIZE}")
    return size


def _key(request: Request) -> Key | None:
    """The resource of which the history is asked for; None if it is that of all."""
    kind, name = request.query_params.get("type", ""), request.query_params.get("name", "")
    if bool(kind) != bool(name):
        raise bad_request("name" if kind else "type", "is missing", "a resource has a type and a name")
    return Key(kind, request.query_params.get("mesh", ""), name) if kind else None


def _change(change: ChangeNote) -> dict[str, Any]:
    return {
        "revision": change.revision,
        "time": timestamp(change.at),
        "author": change.author.name,
        "origin": change.author.origin,
        **named(change.key),
        "change": word_of(change),
    }


def word_of(change: ChangeNote) -> str:
    """What a change did to its resource."""
    if change.is_unreadable:
        return "Unreadable"
    return _word(was_there=change.was_there, is_there=change.is_there, is_same=change.is_same)


def _word(*, was_there: bool, is_there: bool, is_same: bool) -> str:
    if not (was_there and is_there):
        return "Deleted" if was_there else "Created"
    return "Moved" if is_same else "Updated"


def mesh_of(key: Key) -> str:
    """The mesh that a resource belongs to. A Mesh belongs to itself."""
    return key.name if key.type == "Mesh" else key.mesh


def named(key: Key) -> dict[str, str]:
    """A resource, as answers name it."""
    return {"type": key.type, **({"mesh": key.mesh} if key.mesh else {}), "name": key.name}


def _differences(
    past: RecentPast, revisions: tuple[int, int], keys: Iterator[Key], kinds: Kinds
) -> Iterator[dict[str, Any]]:
    before, after = (past.at(revision) for revision in revisions)
    for key in sorted(keys):
        was, is_now = before.documents.get(key), after.documents.get(key)
        if key in before.unreadable | after.unreadable:
            yield {**named(key), "change": "Unreadable"}
        elif was != is_now:
            sides = {name: _shown(side, kinds) for name, side in (("before", was), ("after", is_now))}
            shown = {name: side for name, side in sides.items() if side is not None}
            is_secret = len(shown) > 1 and sides["before"] == sides["after"]
            yield {
                **named(key),
                "change": _word(was_there=was is not None, is_there=is_now is not None, is_same=was == is_now),
                **shown,
                **({"inSecretsAlone": True} if is_secret else {}),
            }


def _shown(document: Document | None, kinds: Kinds) -> Mapping[str, Any] | None:
    """A document without its secrets. What is in one of a type that we do not know may be a secret."""
    if document is None or document.key.type not in kinds:
        return None
    return redacted(kinds[document.key.type], document.data)


def _comparison(comparison: MeshComparison, checkpoint: Checkpoint, allowance: Allowance) -> dict[str, Any]:
    differences = [
        {
            "type": difference.resource.type,
            "name": difference.resource.name,
            "proxies": [proxy.name for proxy in difference.proxies],
            **_fields(difference.resource, allowance),
        }
        for difference in checked(comparison.differences, checkpoint)
    ]
    return {
        "mesh": comparison.mesh,
        "proxies": len(comparison.in_both),
        "added": [proxy.name for proxy in comparison.added],
        "removed": [proxy.name for proxy in comparison.removed],
        "differences": differences,
        **({"failed": [proxy.name for proxy in comparison.failures]} if comparison.failures else {}),
    }


def _fields(resource: ChangedResource, allowance: Allowance) -> dict[str, Any]:
    changed = changed_fields(resource, decoded)
    shown = changed[:MOST_FIELDS]
    for field in shown:
        allowance.take(size_of_field(field))
    more = {"moreFields": len(changed) - len(shown)} if len(changed) > len(shown) else {}
    return {"fields": list(map(_field, shown)), **more}


def _field(field: ChangedField) -> dict[str, Any]:
    """A side on which there is nothing is left out."""
    sides = (("before", field.before), ("after", field.after))
    return {"path": field.path, **{name: value for name, value in sides if value is not ABSENT}}
