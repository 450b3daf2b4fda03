"""Resources over HTTP as Kuma has them: PUT and DELETE, each guarded against lost updates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cp.api.attempts import ATTEMPTS, attempted
from cp.api.body import document_of
from cp.api.caller import caller_of, logged_names
from cp.api.closed_meshes import closed_by_write
from cp.api.collaborators import Collaborators
from cp.api.errors import BAD_REQUEST, TOLD, ApiError, RequestFault, bad_request, invalid
from cp.api.numbers import natural, shortened
from cp.api.parameters import is_asked
from cp.api.past import named
from cp.api.payload import etag
from cp.api.planning import Planner, is_dry_run, is_looked_ahead
from cp.api.powers import ChangedDocument, WriteRights
from cp.api.proxy_rates import LARGEST_DATAPLANE
from cp.api.resource_reader import ResourceReader
from cp.api.rollouts_ended import ended_by_write
from cp.api.work import is_small
from cp.api.writes import (
    OWNER_HEADER,
    REVISION_HEADER,
    conflict,
    derived_from,
    is_of_mesh,
    is_same,
    must_be_for_people,
    must_be_run,
    must_be_writable,
    outcome_of,
)
from cp.insight.destinations import brings_destinations, warnings_of_destinations
from cp.insight.enforcement import needs_mtls, warnings_without_mtls
from cp.insight.roots import may_bring_roots, warnings_of_roots
from cp.model import registration
from cp.model.checkpoint import Checkpoint, checked
from cp.model.document import Document
from cp.model.names import Key
from cp.model.secret_names import is_trust_record
from cp.model.source import LARGEST
from cp.model.violation import Finding, Violation
from cp.resources.engine import with_engine
from cp.resources.parse import ParsedDocument, parse
from cp.resources.rollout import ROLLOUT_KIND
from cp.store.outcome import must_find
from cp.store.port import ABSENT, Author, Delete, Put, ReadOnly, Store, Stored

_PRECONDITIONS: Final = frozenset({"if-match", "if-none-match"})
_TITLE: Final = "Could not process a resource"
_MESH: Final = "Mesh"
_DATAPLANE: Final = "Dataplane"
_LISTED: Final = 20
_OK: Final = 200
_CREATED: Final = 201

log = structlog.get_logger()


class ResourceWriter:
    """The handlers of what is written."""

    def __init__(self, collaborators: Collaborators, planner: Planner, reader: ResourceReader) -> None:
        self._api = collaborators
        self._store: Store = collaborators.store
        self._planner = planner
        self._reader = reader

    async def put(self, request: Request) -> Response:
        is_dry = is_dry_run(request)
        if not is_dry:
            must_be_writable(self._api)
        _, key = self._reader.named(request)
        must_be_for_people([key])
        documents = self._api.works.documents
        most = LARGEST if caller_of(request).proxy is None else LARGEST_DATAPLANE
        document = await document_of(request, documents, self._api.body_limit, most)
        read = await documents.do(request, lambda _: self._understood(document, key), is_small=is_small(document.data))
        world = self._api.state.loaded_world
        caller_of(request).must([caller_of(request).proxy_decision(read.resource, key, world)])
        if read.tolerated:
            await self._must_be_stored(request, read)
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
        of_world = (*await self._without_mtls(read.document), *await self._of_destinations(read.document))
        all_warnings = (*read.warnings, *of_world, *of_trust, *_left_out(read.document))
        return [str(warning) for warning in islice(all_warnings, TOLD)]

    async def _preflight(self, request: Request, document: Document) -> dict[str, Any]:
        """Show an Envoy what the write comes to, if it is to be asked. Proxies register whatever it may say."""
        if self._is_of_run(request, document.key) or not self._planner.is_preflighted(request):
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

    async def _of_destinations(self, document: Document) -> list[Violation]:
        """Services that not all proxies can call, as the mesh has too many."""
        if not brings_destinations(document):
            return []
        return _violations(warnings_of_destinations(await self._api.state.current(), [document]))

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
        kind, key = self._reader.named(request)
        if is_trust_record(key):
            caller_of(request).must_be_administrator(f"delete {key}, which says whom proxies trust")
        if key.type == ROLLOUT_KIND:
            must_be_for_people([key])
        stored = await self._reader.existing(request, key)
        await self._must_change(request, [ChangedDocument(stored.document, None)])
        members = await self._members(stored.document, request) if kind.name == _MESH else []
        deletion = Delete(key, _owned(request, stored) or _based_on(request, stored))
        if is_dry:
            must_find(deletion, stored)
            outcomes = [{**named(write.key), "outcome": "Deleted"} for write in (*members, deletion)]
            return await self._plan(request, [*members, deletion], outcomes)
        of_preflight: dict[str, Any] = {}
        if not self._is_of_run(request, key) and self._planner.is_preflighted(request):
            writes = [*members, deletion]
            of_preflight = await self._planner.must_pass(request, writes, await self._stored(request))
        of_write = list(ended_by_write(self._api.state.loaded_world, [key]).values())
        revision = await self._store.write(*members, deletion, author=self._author(request, key))
        with_it = logged_names([member.key for member in members])
        log.info("api.deleted", resource=str(key), with_it=with_it, revision=revision, **self._traces(request, key))
        return JSONResponse(_with_warnings(of_preflight, of_write), headers={REVISION_HEADER: str(revision)})

    def _author(self, request: Request, key: Key) -> Author:
        if self._is_of_run(request, key):
            return caller_of(request).author(registration.WAY)
        return self._planner.author(request, request.method)

    def _traces(self, request: Request, key: Key) -> dict[str, Any]:
        return caller_of(request).traces if self._is_of_run(request, key) else self._planner.traces(request)

    def _is_of_run(self, request: Request, key: Key) -> bool:
        """Whether a run of a proxy registers its Dataplane, or takes it away. Anybody can write the header."""
        says_so = key.type == _DATAPLANE and bool(request.headers.get(OWNER_HEADER))
        return says_so and self._api.is_of_proxy(caller_of(request))

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
        before = await self._reader.stored_or_none(request, document.key)
        known = None if before is None else before.document
        as_stored = self._as_stored(document, known, request)
        await self._must_change(request, [ChangedDocument(known, as_stored)])
        names_revision = not _PRECONDITIONS.isdisjoint(request.headers.keys())
        based_on = _based_on(request, before) if names_revision else derived_from(document.key, before)
        return Put(as_stored, based_on), before

    async def _must_change(self, request: Request, changes: Iterable[ChangedDocument]) -> None:
        """Check the rights that writes take beyond those to the kinds. Raises `ApiError`."""
        caller, changes = caller_of(request), list(changes)
        meshes = {change.key.mesh for change in changes if change.key.type == _DATAPLANE}
        world = await self._api.state.current() if meshes else None
        tables = [] if world is None else [world.table("MeshGateway", mesh) for mesh in meshes]
        gateways = (gateway.document for table in tables for gateway in table)
        rights = WriteRights(caller, self._api.kinds, gateways)
        small = all(is_small(document.data) for change in changes for document in change.documents)
        await self._api.works.documents.do(request, lambda _: caller.must(rights.decisions(changes)), is_small=small)

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

    async def _must_be_stored(self, request: Request, read: ParsedDocument) -> None:
        """Check that a document with tolerated faults is as it is stored. Raises `ApiError`."""
        before = await self._reader.stored_or_none(request, read.document.key)
        known = None if before is None else before.document
        if known is None or self._as_stored(read.document, known, request) != known:
            raise invalid(_TITLE, read.as_written.findings())

    async def _members(self, mesh: Document, request: Request) -> list[Delete]:
        """What a Mesh takes with it: what it came with, as it came, and more only if the request says so."""
        contents, is_wanted = await self._api.contents(request), is_asked(request, "cascade")
        caller = caller_of(request)

        def members_of_mesh(checkpoint: Checkpoint) -> list[Delete]:
            documents = (stored.document for stored in checked(contents.stored, checkpoint))
            members = [document for document in documents if document.key.mesh == mesh.key.name]
            added = sorted(member.key for member in members if not is_of_mesh(member))
            if added and not is_wanted:
                raise _still_used(mesh.key, added)
            caller.must_write_keys(added)
            gone = (ChangedDocument(member, None) for member in members if not is_of_mesh(member))
            caller.must(WriteRights(caller, self._api.kinds).decisions(checked(gone, checkpoint)))
            return [Delete(member.key) for member in members]

        return await self._api.works.resources.do(request, members_of_mesh)


def _stamped(document: Document, known: Document | None, request: Request) -> Document:
    """What is stored of a Dataplane: who registered it is in a header, and never in the document."""
    if owner := must_be_run(request.headers.get(OWNER_HEADER, ""), OWNER_HEADER):
        return registration.registered(document, known, owner, ready=False)
    return registration.written_by_hand(document, known)


def _with_warnings(answer: Mapping[str, Any], warnings: Sequence[str]) -> dict[str, Any]:
    together = [*warnings, *answer.get("warnings", ())]
    return {**answer, "warnings": together} if together else dict(answer)


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
