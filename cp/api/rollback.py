"""`POST /_rollback`: documents as they were at a revision, in one write: all of them or, if one cannot be, none.

With `?dryRun=true` the answer is the same, and nothing is written. See record 0080.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response

from cp.access.keys import is_made_here, is_of_tokens
from cp.access.rights import AccessDecision
from cp.api.attempts import attempted
from cp.api.body import decoded, text_of
from cp.api.caller import ApiCaller, caller_of, logged_names
from cp.api.collaborators import Collaborators
from cp.api.errors import ApiError, bad_request, invalid
from cp.api.near import not_found
from cp.api.past import mesh_of, named
from cp.api.planning import Planner, is_dry_run
from cp.api.powers import WriteRights, document_changes
from cp.api.revisions import past_of_changed
from cp.api.rollouts_ended import ended_by_write
from cp.api.writes import REVISION_HEADER, conflict, is_of_mesh, must_be_writable
from cp.model.checkpoint import Checkpoint, checked
from cp.model.document import Document
from cp.model.names import Key
from cp.model.registration import is_registered, written_by_hand
from cp.model.secret_names import is_of_authority, is_trust_record
from cp.model.violation import Finding, Severity
from cp.model.wording import few
from cp.resources.kinds import Kinds
from cp.resources.parse import parse
from cp.resources.rollout import ROLLOUT_KIND
from cp.store.past import PastDocuments, RecentPast
from cp.store.port import ABSENT, Delete, Put, Stored

_TITLE: Final = "Could not roll back"
_MESH: Final = "Mesh"
_DATAPLANE: Final = "Dataplane"
_LARGEST: Final = 256 * 1024
_MOST_NAMED: Final = 10
_REVISION: Final = "revision"
_NOT_ALL: Final = "may not even read all that would be rolled back; name a mesh, or what to roll back"

_NOT_PREVIEWED: Final = "what would go back has changed since it was looked at; look at it again"

log = structlog.get_logger()


class RollbackChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Resources of a type, or one of them."""

    type: str
    name: str = ""

    def is_of(self, key: Key) -> bool:
        return key.type == self.type and self.name in {"", key.name}


class RollbackBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How far back, and what: all that people write, unless `mesh` or `only` say less."""

    revision: int
    mesh: str = ""
    only: list[RollbackChoice] = []
    delete_meshes: bool = False
    """Whether Meshes may go that were made since, with all that is in them."""

    def takes(self, key: Key) -> bool:
        return self.mesh in {"", mesh_of(key)} and (not self.only or self.is_named(key))

    def misspelt(self, keys: Iterable[Key]) -> ApiError | None:
        """The answer about a name that none of these keys has; None if each has one."""
        known = {key for key in keys if self.mesh in {"", mesh_of(key)} or key.type == _MESH}
        if self.mesh and self.mesh not in (meshes := set(map(mesh_of, known))):
            return not_found(_MESH, self.mesh, meshes)
        for choice in self.only:
            of_type = {key.name for key in known if key.type == choice.type and self.mesh in {"", mesh_of(key)}}
            if choice.name and choice.name not in of_type:
                return not_found(choice.type, choice.name, of_type)
        return None

    def is_named(self, key: Key) -> bool:
        return any(choice.is_of(key) for choice in self.only)


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """What a rollback writes, and what it leaves as it is, with the reason."""

    writes: tuple[Put | Delete, ...]
    left_out: Mapping[Key, str]
    gone_with_mesh: frozenset[Key]
    """What was made for a Mesh that goes: whoever may delete the Mesh may delete it."""

    @property
    def deleted_meshes(self) -> list[Key]:
        return [write.key for write in self.writes if isinstance(write, Delete) and write.key.type == _MESH]


class RollbackHandler:
    """The handler. What is written again is checked as if somebody wrote it now."""

    def __init__(self, collaborators: Collaborators, planner: Planner) -> None:
        self._api = collaborators
        self._planner = planner

    async def __call__(self, request: Request) -> Response:
        is_dry = is_dry_run(request)
        if not is_dry:
            must_be_writable(self._api)
        wanted = _wanted(await text_of(request, self._api.body_limit, _LARGEST))
        return await attempted(lambda: self._roll_back(request, wanted, is_dry=is_dry))

    async def _roll_back(self, request: Request, wanted: RollbackBody, *, is_dry: bool) -> Response:
        past, work = await past_of_changed(request, self._api, wanted.revision, _REVISION), self._api.works.documents
        await self._must_name_something(request, wanted, past)
        plan = await work.do(request, lambda checkpoint: self._plan(request, wanted, past, checkpoint))
        ended = ended_by_write(self._api.state.loaded_world, (write.key for write in plan.writes))
        tag = _tag(wanted, plan, ended)
        if not is_dry and request.headers.get("if-match", "*") not in {"*", tag}:
            raise conflict(_NOT_PREVIEWED)
        if not is_dry and not wanted.delete_meshes:
            _must_keep_meshes(plan)
        stored_by_key = {stored.document.key: stored for stored in past.contents.stored}
        of_plan: dict[str, Any] = {}
        if not is_dry and plan.writes and self._planner.is_preflighted(request):
            of_plan = await self._planner.must_pass(request, plan.writes, stored_by_key)
        headers = {"etag": tag} if is_dry else await self._write(request, wanted, plan)
        if is_dry:
            of_plan = await self._planner.answer(request, plan.writes, stored_by_key)
        caller = caller_of(request)
        answer = await work.json(
            request, lambda _: _answer(plan, set(stored_by_key), wanted.revision, caller, ended) | of_plan
        )
        answer.headers.update(headers)
        return answer

    async def _must_name_something(self, request: Request, wanted: RollbackBody, past: RecentPast) -> None:
        """Check that each mesh and resource that is named is there, or was. Raises `ApiError`: its name is wrong."""
        work, caller = self._api.works.documents, caller_of(request)

        def mistake(stored: Iterable[Stored], checkpoint: Checkpoint) -> ApiError | None:
            keys = (*(change.key for change in past.changes), *(resource.document.key for resource in stored))
            return wanted.misspelt(filter(caller.may_see_key, checked(keys, checkpoint)))

        if (wanted.mesh or wanted.only) and await work.do(request, partial(mistake, ())) is not None:
            stored = (await self._api.contents(request)).stored  # all of it, where that is worth it
            if (error := await work.do(request, partial(mistake, stored))) is not None:
                raise error

    async def _write(self, request: Request, wanted: RollbackBody, plan: RollbackPlan) -> dict[str, str]:
        if not plan.writes:
            return {}
        author, traces = self._planner.author(request, f"rollback to {wanted.revision}"), self._planner.traces(request)
        revision = await self._api.store.write(*plan.writes, author=author)
        resources = logged_names([write.key for write in plan.writes])
        log.info("api.rolled_back", to=wanted.revision, resources=resources, revision=revision, **traces)
        return {REVISION_HEADER: str(revision)}

    def _plan(self, request: Request, wanted: RollbackBody, past: RecentPast, checkpoint: Checkpoint) -> RollbackPlan:
        """What is to be written. Raises `ApiError` if the caller may not, or something could not be."""
        stored_by_key = {stored.document.key: stored for stored in past.contents.stored}
        caller, changed = caller_of(request), past.changed_between(wanted.revision, past.newest)
        knows_mesh = not wanted.mesh or caller.may_read_key(Key(_MESH, "", wanted.mesh))
        if wanted.only or not knows_mesh:  # whoever asks for something by its name is not told whether it is there
            changed = list(filter(caller.may_see_key, changed))
        plan = rollback_plan(wanted, stored_by_key, past.at(wanted.revision), changed)
        keys = dict.fromkeys(write.key for write in plan.writes if write.key not in plan.gone_with_mesh)
        if not all(map(caller.may_see_key, keys)):
            caller.must([AccessDecision(allowed=False, because=f"{caller.user} {_NOT_ALL}")])
        caller.must_write_keys(keys)
        documents = [write.document for write in plan.writes if isinstance(write, Put)]
        judged = document_changes((write for write in plan.writes if write.key in keys), stored_by_key)
        gateways = chain((stored.document for stored in past.contents.stored), documents)
        caller.must(WriteRights(caller, self._api.kinds, gateways).decisions(judged))
        faults = (*_faults(checked(documents, checkpoint), self._api.kinds), *_astray(plan, stored_by_key, caller))
        if faults:
            raise invalid(_TITLE, faults)
        return plan


def rollback_plan(
    wanted: RollbackBody, stored_by_key: Mapping[Key, Stored], past: PastDocuments, changed: Sequence[Key]
) -> RollbackPlan:
    """What brings documents back to how they were."""
    writes: list[Put | Delete] = []
    left_out: dict[Key, str] = {}
    for key in filter(wanted.takes, changed):
        now = stored_by_key[key].document if key in stored_by_key else None
        was = _as_written(past.documents.get(key), now)
        if was == now and key not in past.unreadable:
            continue
        reason = _reason_to_leave(key, now, past, is_named=wanted.is_named(key))
        if reason:
            left_out[key] = reason
        else:
            writes.append(_write_of(key, was, stored_by_key.get(key)))
    with_mesh = [*_gone_with_meshes(writes, stored_by_key)]
    for write in with_mesh:
        left_out.pop(write.key, None)
    gone = frozenset(write.key for write in with_mesh)
    return RollbackPlan((*_in_order_of_age(writes), *with_mesh), left_out, gone)


def _in_order_of_age(writes: Iterable[Put | Delete]) -> list[Put | Delete]:
    """Of resources without a date the first that is written is the oldest."""
    return sorted(
        writes, key=lambda write: (write.document.source.created if isinstance(write, Put) else "", write.key)
    )


def _as_written(was: Document | None, now: Document | None) -> Document | None:
    """What is noted of a proxy is about now."""
    return written_by_hand(was, now) if was is not None and was.key.type == _DATAPLANE else was


def _write_of(key: Key, was: Document | None, stored: Stored | None) -> Put | Delete:
    revision = ABSENT if stored is None else stored.revision
    return Delete(key, revision) if was is None else Put(was, revision)


def _reason_to_leave(key: Key, now: Document | None, past: PastDocuments, *, is_named: bool) -> str:
    """Why a document stays as it is; empty if it goes back."""
    sides = [document for document in (past.documents.get(key), now) if document is not None]
    if key in past.unreadable:
        return "how it was cannot be decrypted"
    if any(map(is_registered, sides)):
        return "its proxy registers it"
    if key in past.uncertain:
        return "its proxy registered it, and the log no longer has how it was"
    if is_trust_record(key) or key.type == ROLLOUT_KIND:
        return "the control plane alone writes it"
    if not is_named and (is_of_tokens(key) or any(map(is_of_authority, sides)) or any(map(is_made_here, sides))):
        return "it decides which tokens and certificates count; name it to have it as it was"
    return ""


def _must_keep_meshes(plan: RollbackPlan) -> None:
    """Check that no Mesh goes: whoever goes back does not expect that. Raises `ApiError`."""
    deleted = [str(key) for key in plan.deleted_meshes]
    if deleted:
        hint = "look at it with --dry-run, and roll back with --delete-meshes (`deleteMeshes`) if that is meant"
        reason = f"{few(deleted, _MOST_NAMED)} would be deleted, with all that came with it"
        raise bad_request("deleteMeshes", reason, hint, title=_TITLE)


def _gone_with_meshes(writes: Sequence[Put | Delete], stored_by_key: Mapping[Key, Stored]) -> Iterator[Delete]:
    """What was made for Meshes that go, and does not go by itself."""
    meshes = {write.key.name for write in writes if isinstance(write, Delete) and write.key.type == _MESH}
    keys = {write.key for write in writes}
    for key, stored in stored_by_key.items():
        if key.mesh in meshes and key not in keys and is_of_mesh(stored.document):
            yield Delete(key, stored.revision)


def _faults(documents: Iterable[Document], kinds: Kinds) -> Iterator[Finding]:
    """What was valid once need not be valid for this version."""
    for document in documents:
        yield from (finding for finding in parse(document, kinds).findings() if finding.severity is Severity.ERROR)


def _astray(plan: RollbackPlan, stored_by_key: Mapping[Key, Stored], caller: ApiCaller) -> Iterator[Finding]:
    """What would be in a mesh that would not be there. Where a document came from says nothing of that."""
    written = {write.key for write in plan.writes}
    deleted = {write.key for write in plan.writes if isinstance(write, Delete)}
    after = (stored_by_key.keys() | written) - deleted
    meshes = {key.name for key in after if key.type == _MESH}
    homeless = [key for key in sorted(after) if key.mesh and key.mesh not in meshes]
    for mesh in (key for key in sorted(written) if key.type == _MESH):
        if left := [key for key in homeless if key.mesh == mesh.name]:
            names = [str(key) for key in left if caller.may_see_key(key)] or ["something"]
            message = f"there would be no Mesh `{mesh.name}`, and {few(names, _MOST_NAMED)} would be left in it"
            yield _fault_of(mesh, message, "end what uses it, or name other meshes or resources to roll back")
    for key in homeless:
        if key in written and Key(_MESH, "", key.mesh) not in written:
            yield _fault_of(key, f"there would be no Mesh `{key.mesh}` for {key}", "roll the Mesh back too")


def _fault_of(key: Key, message: str, hint: str) -> Finding:
    return Finding("refers-to-nothing", Severity.ERROR, key, message, "mesh", hint)


def _wanted(text: str) -> RollbackBody:
    try:
        wanted = decoded(text, RollbackBody)
    except ValueError as error:
        body = '{"revision": …, "mesh": …, "only": [{"type": …, "name": …}], "deleteMeshes": …}'
        raise bad_request("", f"the body is not {body}: {error}", title=_TITLE) from None
    if wanted.revision < 0:
        raise bad_request(_REVISION, f"there is no revision {wanted.revision}", title=_TITLE)
    return wanted


def _answer(
    plan: RollbackPlan, stored_keys: set[Key], revision: int, caller: ApiCaller, ended: Mapping[Key, str]
) -> dict[str, Any]:
    warnings = {key: {"warnings": [sentence]} for key, sentence in ended.items()}
    resources = [
        {**named(write.key), "outcome": _outcome(write, stored_keys), **warnings.get(write.key, {})}
        for write in plan.writes
    ]
    left_out = [
        {**named(key), "reason": reason} for key, reason in sorted(plan.left_out.items()) if caller.may_read_key(key)
    ]
    return {"rolledBackTo": revision, "resources": resources, "leftOut": left_out}


def _tag(wanted: RollbackBody, plan: RollbackPlan, ended: Mapping[Key, str]) -> str:
    """Names what a rollback does: what it writes over which revisions of documents, and which rollouts it ends."""
    writes = [(str(write.key), isinstance(write, Put), write.based_on) for write in plan.writes]
    text = msgspec.json.encode(
        (wanted.revision, writes, sorted((str(key), sentence) for key, sentence in ended.items()))
    )
    return f'"{hashlib.sha256(text).hexdigest()[:16]}"'


def _outcome(write: Put | Delete, stored_keys: set[Key]) -> str:
    if isinstance(write, Delete):
        return "Deleted"
    return "Updated" if write.key in stored_keys else "Created"
