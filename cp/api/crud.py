"""Resources over HTTP as Kuma has them: PUT, GET, list and DELETE, each write guarded against lost updates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, Final

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cp.access.keys import is_made_here
from cp.api.attempts import ATTEMPTS, attempted
from cp.api.body import document_of
from cp.api.caller import caller_of, logged_names
from cp.api.closed_meshes import closed_by_write
from cp.api.collaborators import Collaborators
from cp.api.errors import (
    BAD_REQUEST,
    FORBIDDEN,
    METHOD_NOT_ALLOWED,
    PRECONDITION_FAILED,
    TOLD,
    ApiError,
    RequestFault,
    bad_request,
    invalid,
)
from cp.api.kuma_only import KUMA_ONLY, OVERVIEW
from cp.api.near import not_found
from cp.api.numbers import natural, shortened
from cp.api.paging import Page, page, place_of, wanted
from cp.api.past import named
from cp.api.payload import etag, payload, universal
from cp.api.planning import Planner, is_dry_run, is_looked_ahead
from cp.api.plurals import kind_of_plural
from cp.api.revisions import AT, contents_at, must_be_known, without_contents
from cp.api.rollouts_ended import ended_by_write
from cp.api.sources import decisions_on_sources
from cp.api.work import is_small
from cp.insight.enforcement import needs_mtls, warnings_without_mtls
from cp.insight.roots import may_bring_roots, warnings_of_roots
from cp.model import registration
from cp.model.checkpoint import Checkpoint, checked
from cp.model.document import Document
from cp.model.names import Key
from cp.model.secret_names import is_of_authority, is_trust_record
from cp.model.violation import Finding, Violation
from cp.resources.engine import with_engine
from cp.resources.initial_policies import is_initial
from cp.resources.kinds import Kind
from cp.resources.labels import is_value
from cp.resources.parse import ParsedDocument, parse
from cp.resources.redaction import holds_secrets
from cp.resources.rollout import ROLLOUT_KIND
from cp.store.outcome import must_find
from cp.store.port import ABSENT, Author, Contents, Delete, Put, ReadOnly, Store, Stored

REVISION_HEADER: Final = "koguma-revision"
"""The revision that a write made. It is not there where the write changed nothing."""

OWNER_HEADER: Final = "koguma-owner"
"""The run of a proxy that registers its Dataplane, or takes it away: nobody else's is."""

_PRECONDITIONS: Final = frozenset({"if-match", "if-none-match"})
_TITLE: Final = "Could not process a resource"
_MESH: Final = "Mesh"
_DATAPLANE: Final = "Dataplane"
_LISTED: Final = 20
_OK: Final = 200
_CREATED: Final = 201

log = structlog.get_logger()


class ResourceHandler:
    """The handlers of everything that is stored."""

    def __init__(self, collaborators: Collaborators, planner: Planner) -> None:
        self._api = collaborators
        self._store: Store = collaborators.store
        self._planner = planner

    async def get(self, request: Request) -> Response:
        if request.path_params["plural"] in KUMA_ONLY:
            return await self._of_kuma_only(request)
        kind, key = self._named(request)
        reveals = _reveals(request, kind)
        is_past = AT in request.query_params
        stored = await (self._existing_at(request, key) if is_past else self._existing(request, key))
        form, data = request.query_params.get("format", ""), stored.document.data
        answer = await self._api.works.resources.json(
            request, lambda _: _shown(payload(stored, kind, form, reveals=reveals), is_past), is_small=is_small(data)
        )
        if not is_past:  # what is written is based on what is there now
            answer.headers["etag"] = etag(stored.revision)
        if reveals:
            answer.headers["cache-control"] = "no-store"
            log.info("api.revealed", resource=str(key), **caller_of(request).traces)
        return answer

    async def listing(self, request: Request) -> Response:
        """The resources of one mesh, of a global kind, or of a kind in all meshes."""
        if request.path_params["plural"] in KUMA_ONLY:
            return await self._of_kuma_only(request)
        kind = self._kind(request)
        mesh, is_past = request.path_params.get("mesh"), AT in request.query_params
        contents = await (self._readable_at if is_past else self.readable)(request, mesh)

        def answer(checkpoint: Checkpoint) -> dict[str, Any]:
            part = page_of(contents, kind, mesh, request, checkpoint)
            items = [_shown(universal(stored, kind), is_past) for stored in checked(part.items, checkpoint)]
            return part.as_data(request.url, items) | (_untold(contents, kind, mesh, request) if is_past else {})

        return await self._api.works.resources.json(request, answer)

    async def _of_kuma_only(self, request: Request) -> Response:
        """There is no resource of a type that Koguma has not: its lists are empty."""
        plural, mesh = request.path_params["plural"], request.path_params.get("mesh")
        name = request.path_params.get("name", OVERVIEW)
        if mesh is not None:
            await self._must_have_mesh(request, mesh)
        if name != OVERVIEW:
            raise not_found(KUMA_ONLY[plural], name, (), "Koguma does not have this type of Kuma's")
        return JSONResponse({"total": 0, "items": [], "next": None})

    async def readable(self, request: Request, mesh: str | None) -> Contents:
        """Everything that is stored, or an answer that says that there is no such mesh."""
        if mesh is not None:
            await self._must_have_mesh(request, mesh)
        return await self._api.contents(request)

    async def _readable_at(self, request: Request, mesh: str | None) -> Contents:
        """Everything that was stored at a revision, or an answer that says that there was no such mesh."""
        contents = await contents_at(request, self._api)
        meshes = await self._api.works.resources.do(request, lambda _: _names_of(contents, _MESH, ""))
        if mesh is not None and mesh not in meshes:
            must_be_known(contents, Key(_MESH, "", mesh))
            raise not_found("Mesh", mesh, meshes)
        return contents

    async def _existing_at(self, request: Request, key: Key) -> Stored:
        contents = await self._readable_at(request, key.mesh or None)

        def search(_: Checkpoint) -> Stored:
            for stored in contents.stored:
                if stored.document.key == key:
                    return stored
            must_be_known(contents, key)
            raise not_found(key.type, key.name, _names_of(contents, key.type, key.mesh))

        return await self._api.works.resources.do(request, search)

    async def existing(self, request: Request, kind: Kind, mesh: str, name: str) -> Stored:
        """One resource, or an answer with what is near."""
        return await self._existing(request, Key(kind.name, mesh, name))

    async def put(self, request: Request) -> Response:
        is_dry = is_dry_run(request)
        if not is_dry:
            must_be_writable(self._api)
        _, key = self._named(request)
        must_be_for_people([key])
        documents = self._api.works.documents
        document = await document_of(request, documents, self._api.body_limit)
        read = await documents.do(request, lambda _: self._understood(document, key), is_small=is_small(document.data))
        world = self._api.state.loaded_world
        caller_of(request).must([caller_of(request).proxy_decision(read.resource, key, world)])
        of_trust = await self._of_trust(request, read.document)
        if is_dry:
            return await self._try(request, read, of_trust)
        of_preflight = await self._preflight(request, read.document)
        ended = ended_by_write(world, [key])
        before, revision = await self._store_document(read.document, request)
        traces = self._traces(request, key)
        log.info("api.stored", resource=str(key), revision=revision, new=before is None, **traces)
        is_changed = before is None or revision != before.revision
        of_write = [*await self._warnings(read, of_trust), *(ended.values() if is_changed else ())]
        status = _CREATED if before is None else _OK
        made = {REVISION_HEADER: str(revision)} if is_changed else {}
        headers = {"etag": etag(revision), **made}
        return JSONResponse(_with_warnings(of_preflight, of_write), status, headers=headers)

    async def _warnings(self, read: ParsedDocument, of_trust: Iterable[Violation]) -> list[str]:
        all_warnings = (*read.warnings, *await self._without_mtls(read.document), *of_trust, *_left_out(read.document))
        return [str(warning) for warning in islice(all_warnings, TOLD)]

    async def _preflight(self, request: Request, document: Document) -> dict[str, Any]:
        """Show an Envoy what the write comes to, if it is to be asked. Proxies register whatever it may say."""
        if _is_of_run(request, document.key) or not self._planner.is_preflighted(request):
            return {}
        write, before = await self._to_write(document, request)
        companions = map(Put, self._api.companions(write.document)) if before is None else ()
        return await self._planner.must_pass(request, [*companions, write], await self._stored(request))

    async def _try(self, request: Request, read: ParsedDocument, of_trust: Iterable[Violation]) -> Response:
        """What a write would do. It is refused as the write would be."""
        write, before = await self._to_write(read.document, request)
        must_find(write, before)
        companions = map(Put, self._api.companions(write.document)) if before is None else ()
        warnings = await self._warnings(read, of_trust)
        outcome = {**named(write.key), "outcome": outcome_of(before, write.document)}
        shown = {**outcome, "warnings": warnings} if warnings else outcome
        return await self._plan(request, [*companions, write], [shown])

    async def _plan(
        self, request: Request, writes: Sequence[Put | Delete], outcomes: Sequence[Mapping[str, Any]]
    ) -> Response:
        stored_by_key = await self._stored(request) if is_looked_ahead(request) else {}
        plan = await self._planner.answer(request, writes, stored_by_key)
        return await self._api.works.resources.json(request, lambda _: {"resources": list(outcomes), **plan})

    async def _stored(self, request: Request) -> Mapping[Key, Stored]:
        return {stored.document.key: stored for stored in (await self._api.contents(request)).stored}

    async def _without_mtls(self, document: Document) -> list[Violation]:
        """What has no effect because the mesh has no mTLS."""
        if not needs_mtls(document):
            return []
        return _violations(warnings_without_mtls(await self._api.state.current(), [document]))

    async def _of_trust(self, request: Request, document: Document) -> list[Violation]:
        """What has to be compared with what is there before the write.

        That is authorities that Envoy would take for one another, and meshes in which nobody may call anybody then.
        """
        closed = _violations(await closed_by_write(self._api, request, [document]))
        if not may_bring_roots(document):
            return closed
        world = await self._api.state.current()
        alike = await self._api.works.documents.do(request, lambda _: _violations(warnings_of_roots(world, [document])))
        return [*alike, *closed]

    async def delete(self, request: Request) -> Response:
        is_dry = is_dry_run(request)
        if not is_dry:
            must_be_writable(self._api)
        kind, key = self._named(request)
        if is_trust_record(key):
            caller_of(request).must_be_administrator(f"delete {key}, which says whom proxies trust")
        if key.type == ROLLOUT_KIND:
            must_be_for_people([key])
        stored = await self._existing(request, key)
        members = await self._members(stored.document, request) if kind.name == _MESH else []
        deletion = Delete(key, _owned(request, stored) or _based_on(request, stored))
        if is_dry:
            must_find(deletion, stored)
            outcomes = [{**named(write.key), "outcome": "Deleted"} for write in (*members, deletion)]
            return await self._plan(request, [*members, deletion], outcomes)
        of_preflight: dict[str, Any] = {}
        if not _is_of_run(request, key) and self._planner.is_preflighted(request):
            writes = [*members, deletion]
            of_preflight = await self._planner.must_pass(request, writes, await self._stored(request))
        of_write = list(ended_by_write(self._api.state.loaded_world, [key]).values())
        revision = await self._store.write(*members, deletion, author=self._author(request, key))
        with_it = logged_names([member.key for member in members])
        log.info("api.deleted", resource=str(key), with_it=with_it, revision=revision, **self._traces(request, key))
        return JSONResponse(_with_warnings(of_preflight, of_write), headers={REVISION_HEADER: str(revision)})

    def _author(self, request: Request, key: Key) -> Author:
        if _is_of_run(request, key):
            return caller_of(request).author(registration.WAY)
        return self._planner.author(request, request.method)

    def _traces(self, request: Request, key: Key) -> dict[str, Any]:
        return caller_of(request).traces if _is_of_run(request, key) else self._planner.traces(request)

    async def _store_document(self, document: Document, request: Request) -> tuple[Stored | None, int]:
        """Store a document. Answers with what was there before, and the document's revision.

        What is noted of a proxy, and the engine of a Mesh, come from what was read, so that has to be the last. Whoever
        names a revision hears of a conflict; for anybody else it is read again.
        """
        names_revision = not _PRECONDITIONS.isdisjoint(request.headers.keys())
        author = self._author(request, document.key)

        async def attempt() -> tuple[Stored | None, int]:
            write, before = await self._to_write(document, request)
            return before, await self._write(write.document, before, write.based_on, author)

        return await attempted(attempt, 1 if names_revision else ATTEMPTS)

    async def _to_write(self, document: Document, request: Request) -> tuple[Put, Stored | None]:
        """How a document is to be written now, and what is there. Raises `ApiError` if the caller may not."""
        before = await self._stored_or_none(request, document.key)
        caller = caller_of(request)
        known = None if before is None else before.document
        caller.must(decisions_on_sources(caller, self._api.kinds, document, known))
        names_revision = not _PRECONDITIONS.isdisjoint(request.headers.keys())
        based_on = _based_on(request, before) if names_revision else derived_from(document.key, before)
        return Put(self._as_stored(document, known, request), based_on), before

    async def _write(self, document: Document, before: Stored | None, based_on: int | None, author: Author) -> int:
        """Store a document, and what belongs to it when it is new. Answers with the document's revision."""
        companions = self._api.companions(document) if before is None else ()
        try:
            revision = await self._store.write(*map(Put, companions), Put(document, based_on), author=author)
        except ReadOnly:
            if before is None or before.document != registration.unlabelled(document):
                raise
            return before.revision  # it says the same already: a proxy brings what stands in the folder too
        return before.revision if before is not None and is_same(before, document) else revision

    def _as_stored(self, document: Document, known: Document | None, request: Request) -> Document:
        """What is stored of a document, where that depends on what is there already."""
        if document.key.type == _MESH:
            return with_engine(document, known, self._api.engine)
        return _stamped(document, known, request) if document.key.type == _DATAPLANE else document

    def _understood(self, document: Document, key: Key) -> ParsedDocument:
        read = parse(document, self._api.kinds)
        violations = (*_misplaced(document, key), *read.violations)
        if violations:
            faulty = ParsedDocument(document, None, tuple(dict.fromkeys(violations)))
            raise invalid(_TITLE, faulty.findings())
        return read

    def _kind(self, request: Request) -> Kind:
        """The kind in the URL, by its plural name."""
        plural = request.path_params["plural"]
        in_mesh = "mesh" in request.path_params
        if plural in KUMA_ONLY:
            raise not_found("type of resource", plural, (), f"Koguma does not have Kuma's {KUMA_ONLY[plural]}")
        kind = kind_of_plural(plural, self._api.kinds)
        if kind is None or (in_mesh and kind.is_global):
            known = (known.plural for known in self._api.kinds.values() if not (in_mesh and known.is_global))
            raise not_found("type of resource", plural, known)
        return kind

    def _named(self, request: Request) -> tuple[Kind, Key]:
        kind, mesh = self._kind(request), request.path_params.get("mesh", "")
        if not kind.is_global and not mesh:
            raise not_found("path", request.url.path, (), f"write /meshes/MESH/{kind.plural}/NAME")
        return kind, Key(kind.name, mesh, request.path_params["name"])

    async def _existing(self, request: Request, key: Key) -> Stored:
        stored = await self._stored_or_none(request, key)
        if stored is None:
            raise not_found(key.type, key.name, await self._names(request, key.type, key.mesh))
        return stored

    async def _stored_or_none(self, request: Request, key: Key) -> Stored | None:
        """What is stored of a name, or an answer that says that there is no such mesh. It is read at one time."""
        mesh = Key(_MESH, "", key.mesh)
        stored_by_key = await self._store.find(key, mesh)
        if key.mesh and mesh not in stored_by_key:
            raise await self._no_mesh(request, key.mesh)
        return stored_by_key.get(key)

    async def _must_have_mesh(self, request: Request, mesh: str) -> None:
        if await self._store.get(Key(_MESH, "", mesh)) is None:
            raise await self._no_mesh(request, mesh)

    async def _no_mesh(self, request: Request, mesh: str) -> ApiError:
        return not_found("Mesh", mesh, await self._names(request, _MESH, ""), f"create it with PUT /meshes/{mesh}")

    async def _names(self, request: Request, type_: str, mesh: str) -> Iterator[str]:
        contents = await self._api.contents(request)
        keys = (stored.document.key for stored in contents.stored)
        return (key.name for key in keys if key.type == type_ and key.mesh == mesh)

    async def _members(self, mesh: Document, request: Request) -> list[Delete]:
        """What a Mesh takes with it: what it came with, as it came, and more only if the request says so."""
        contents, is_wanted = await self._api.contents(request), request.query_params.get("cascade") == "true"
        caller = caller_of(request)

        def members_of_mesh(checkpoint: Checkpoint) -> list[Delete]:
            documents = (stored.document for stored in checked(contents.stored, checkpoint))
            members = [document for document in documents if document.key.mesh == mesh.key.name]
            added = sorted(member.key for member in members if not is_of_mesh(member))
            if added and not is_wanted:
                raise _still_used(mesh.key, added)
            caller.must_write_keys(added)
            return [Delete(member.key) for member in members]

        return await self._api.works.resources.do(request, members_of_mesh)


def _names_of(contents: Contents, type_: str, mesh: str) -> list[str]:
    keys = (stored.document.key for stored in contents.stored)
    return [key.name for key in keys if key.type == type_ and key.mesh == mesh]


def _shown(data: dict[str, Any], is_past: bool) -> dict[str, Any]:  # noqa: FBT001  # the only question there is
    """A resource as it was has no date of its last change: the history has it."""
    return {name: value for name, value in data.items() if not (is_past and name == "modificationTime")}


def is_of_mesh(document: Document) -> bool:
    """Whether nobody wrote a document, but a control plane did for a Mesh."""
    is_own = is_made_here(document) or is_of_authority(document) or document.key.type == ROLLOUT_KIND
    return is_initial(document) or is_own


def derived_from(key: Key, before: Stored | None) -> int | None:
    """The revision that a write must find, as what is noted of a proxy, or the engine of a Mesh, comes from it.

    Of other kinds it may be any.
    """
    if key.type not in {_DATAPLANE, _MESH}:
        return None
    return ABSENT if before is None else before.revision


def _stamped(document: Document, known: Document | None, request: Request) -> Document:
    """What is stored of a Dataplane: who registered it is in a header, and never in the document."""
    if owner := must_be_run(request.headers.get(OWNER_HEADER, ""), OWNER_HEADER):
        return registration.registered(document, known, owner, ready=False)
    return registration.written_by_hand(document, known)


def _is_of_run(request: Request, key: Key) -> bool:
    """Whether a run of a proxy registers its Dataplane, or takes it away."""
    return key.type == _DATAPLANE and bool(request.headers.get(OWNER_HEADER))


def must_be_run(owner: str, field: str) -> str:
    """The id of a run of a proxy, which is written as a label of its Dataplane: nobody makes that invalid so."""
    if not is_value(owner):
        hint = "use letters and digits, 63 at most, as `koguma dp run` does"
        raise bad_request(field, f"`{shortened(owner)}` is no id of a run of a proxy", hint)
    return owner


def _with_warnings(answer: Mapping[str, Any], warnings: Sequence[str]) -> dict[str, Any]:
    together = [*warnings, *answer.get("warnings", ())]
    return {**answer, "warnings": together} if together else dict(answer)


def outcome_of(before: Stored | None, document: Document) -> str:
    """What a write makes of a resource."""
    if before is None:
        return "Created"
    return "Unchanged" if before.document == document else "Updated"


def _violations(findings: Iterable[Finding]) -> list[Violation]:
    return [Violation(finding.path, finding.message, finding.hint) for finding in findings]


def _left_out(document: Document) -> Iterator[Violation]:
    """Labels that look as if whoever wrote them were a proxy, such as in what was read and is written again."""
    if document.key.type == _DATAPLANE and registration.has_labels_of_ours(document):
        names = ", ".join(sorted(registration.LABELS))
        yield Violation("labels", f"{names} are written by the control plane alone, and were left out", "remove them")


def _owned(request: Request, stored: Stored) -> int | None:
    """The revision at which a Dataplane belongs to the run that takes it away; nothing where nobody says to be one."""
    owner = request.headers.get(OWNER_HEADER)
    if owner is None:
        return None
    if registration.label(stored.document, registration.OWNER) != owner:
        raise conflict(f"{stored.document.key} was not registered by this run of the proxy, or by a later one since")
    return stored.revision


def page_of(contents: Contents, kind: Kind, mesh: str | None, request: Request, checkpoint: Checkpoint) -> Page[Stored]:
    """One page of the resources of a kind, in a mesh or in all: those that the caller may read."""
    accepts, caller = wanted(request.query_params), caller_of(request)
    is_readable = cache(lambda mesh_or_name: caller.may_read(kind.name, mesh_or_name))
    accepted = [
        stored
        for stored in checked(contents.stored, checkpoint)
        if stored.document.key.type == kind.name
        and mesh in {None, stored.document.key.mesh}
        and is_readable(stored.document.key.name if kind.name == _MESH else stored.document.key.mesh)
        and accepts(stored)
    ]
    return page(accepted, request.query_params, place_of)


def _untold(contents: Contents, kind: Kind, mesh: str | None, request: Request) -> dict[str, Any]:
    """What is left out of a list of the past because nobody knows how it was."""
    caller = caller_of(request)
    of_kind = (key for key in without_contents(contents) if key.type == kind.name and mesh in {None, key.mesh})
    keys = [named(key) for key in of_kind if caller.may_read_key(key)]
    return {"unreadable": keys} if keys else {}


def _reveals(request: Request, kind: Kind) -> bool:
    """Whether secrets are to be shown, which only administrators may ask for."""
    if request.query_params.get("reveal") != "true" or not holds_secrets(kind):
        return False
    caller_of(request).must_be_administrator(f"read what is secret in a {kind.name}")
    return True


def must_be_writable(api: Collaborators) -> None:
    if api.read_only:
        raise read_only("this control plane is set to be read only (KUMA_API_SERVER_READ_ONLY)")


def must_be_for_people(keys: Iterable[Key]) -> None:
    """Check that the control plane alone does not write it: who could would have proxies trust anybody."""
    keys = list(keys)
    if any(key.type == ROLLOUT_KIND for key in keys):
        hint = "`koguma apply --rollout` begins one, and `koguma rollout` pauses or aborts it"
        raise ApiError(FORBIDDEN, "Access denied", f"the control plane alone writes a {ROLLOUT_KIND}; {hint}")
    refusals = [
        f"{key} says whom proxies trust, and the control plane alone writes it" for key in keys if is_trust_record(key)
    ]
    if refusals:
        hint = "give the Mesh or the MeshIdentity another authority, and it follows"
        faults = tuple(RequestFault("", refusal) for refusal in refusals[:TOLD])
        raise ApiError(FORBIDDEN, "Access denied", f"{refusals[0]}; {hint}", faults)


def read_only(reason: str) -> ApiError:
    return ApiError(METHOD_NOT_ALLOWED, "Method not allowed", reason, headers={"allow": "GET, HEAD"})


def conflict(reason: str) -> ApiError:
    return ApiError(PRECONDITION_FAILED, "Conflict", reason)


def _based_on(request: Request, before: Stored | None) -> int | None:
    """The revision that a write must find: of `If-Match` the one it names, of `If-None-Match: *` none."""
    if request.headers.get("if-none-match") == "*":
        return ABSENT
    wanted_tag = request.headers.get("if-match")
    if wanted_tag is None:
        return None
    if wanted_tag == "*":
        if before is None:
            raise conflict("there is no such resource, and If-Match: * asks for one")
        return before.revision
    revision = natural(wanted_tag.strip('"'))
    if revision is None:
        raise bad_request("If-Match", f"`{shortened(wanted_tag)}` is no revision", "take the ETag of an answer")
    return revision


def is_same(before: Stored | None, after: Document) -> bool:
    """Whether a write changes nothing: documents are equal wherever they stand, and these stand in one place."""
    return before is not None and before.document == after and before.document.source == after.source


def _misplaced(document: Document, key: Key) -> Iterator[Violation]:
    """Where the body contradicts the URL."""
    for field, given, from_url in (
        ("type", document.key.type, key.type),
        ("mesh", document.key.mesh, key.mesh),
        ("name", document.key.name, key.name),
    ):
        if given != from_url:
            yield Violation(field, f"{field} from the URL has to be the same as in body", f"write `{from_url}`")


def _still_used(mesh: Key, members: list[Key]) -> ApiError:
    shown = [RequestFault("mesh", f"still has {member}") for member in members[:_LISTED]]
    more = len(members) - len(shown)
    if more:
        shown.append(RequestFault("mesh", f"and {more} more"))
    detail = f"unable to delete mesh, there are still {len(members)} resources in {mesh.name}"
    hint = (
        f"delete them first, or all at once with `koguma delete mesh {mesh.name} --cascade` "
        f"(DELETE /meshes/{mesh.name}?cascade=true)"
    )
    return ApiError(BAD_REQUEST, "Could not delete a resource", f"{detail}; {hint}", tuple(shown))
