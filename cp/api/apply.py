"""`POST /_apply`: many resources in one write: all of them or, if something is wrong with one, none.

They are one revision, so proxies are told once what all of them together come to. With `?dryRun=true` the answer is the
same, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response

from cp.access.rights import AccessDecision
from cp.api.body import decoded, must_be_few, place_of, text_of
from cp.api.caller import caller_of, few
from cp.api.collaborators import Collaborators
from cp.api.crud import ATTEMPTS, REVISION_HEADER, derived_from, is_same, must_be_for_people, must_be_writable
from cp.api.errors import TOLD, ApiError, bad_request, invalid
from cp.api.near import instead
from cp.api.sources import decisions_on_sources
from cp.insight.enforcement import needs_mtls, warnings_without_mtls
from cp.insight.report import ValidationReport, examine
from cp.model.checkpoint import Checkpoint, checked
from cp.model.document import Document
from cp.model.names import Key
from cp.model.registration import written_by_hand
from cp.model.source import FileReading, read_documents
from cp.model.violation import Finding, Severity, Violation
from cp.resources.parse import finding
from cp.store.port import Conflict, Put, Stored

_TITLE: Final = "Could not apply resources"
_MOST_QUOTES: Final = 400_000
"""Of 50,000 resources, with four texts each."""

log = structlog.get_logger()


class ApplySource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Some documents as they are written, and the place where they stand: `file:line`."""

    text: str
    place: str = ""

    @property
    def reading(self) -> FileReading:
        must_be_few(self.text)
        place = place_of(self.place)
        return read_documents(self.text, place.file, first_line=place.line)


class ApplyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    resources: list[ApplySource]


class ApplyHandler:
    """The handler of what is written together."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators

    async def __call__(self, request: Request) -> Response:
        is_dry_run = request.query_params.get("dryRun") == "true"
        if not is_dry_run:
            must_be_writable(self._api)
        text, work = await text_of(request, self._api.body_limit), self._api.works.documents
        report = await work.do(request, partial(self._examined, text))
        await work.do(request, lambda _: caller_of(request).must_write(report.documents))
        await work.do(request, lambda _: must_be_for_people(document.key for document in report.documents))
        for attempt in range(ATTEMPTS):
            try:
                return await self._applied(request, report, is_dry_run=is_dry_run)
            except Conflict:  # somebody wrote a Dataplane meanwhile
                if attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _applied(self, request: Request, examined: ValidationReport, *, is_dry_run: bool) -> Response:
        work = self._api.works.documents
        stored = (await self._api.contents(request)).stored
        there = await work.do(
            request, lambda checkpoint: {item.document.key: item for item in checked(stored, checkpoint)}
        )
        await work.do(request, lambda _: caller_of(request).must(self._on_sources(request, examined.documents, there)))
        report = await self._with_mtls_judged(await work.do(request, lambda _: self._checked(examined, there)))
        headers = {} if is_dry_run else await self._write(request, report.documents, there)
        answer = await work.json(request, lambda _: {"resources": list(_outcomes(report, there))})
        answer.headers.update(headers)
        return answer

    async def _write(
        self, request: Request, documents: Sequence[Document], there: Mapping[Key, Stored]
    ) -> dict[str, str]:
        """Store everything. Answers with the headers that say which revision that made, if it made one."""
        writes, changed = await self._api.works.documents.do(
            request,
            lambda checkpoint: (
                list(checked(self._writes(documents, there), checkpoint)),
                any(not is_same(there.get(document.key), document) for document in checked(documents, checkpoint)),
            ),
        )
        revision = await self._api.store.write(*writes)
        resources = few([document.key for document in documents])
        log.info("api.applied", resources=resources, revision=revision, **caller_of(request).traces)
        return {REVISION_HEADER: str(revision)} if changed else {}

    async def _with_mtls_judged(self, report: ValidationReport) -> ValidationReport:
        """The same with warnings about what has no effect because its mesh has no mTLS."""
        if not any(map(needs_mtls, report.documents)):
            return report
        warnings = warnings_without_mtls(await self._api.state.current(), report.documents)
        return replace(report, findings=(*report.findings, *warnings))

    def _on_sources(
        self, request: Request, documents: Sequence[Document], there: Mapping[Key, Stored]
    ) -> Iterator[AccessDecision]:
        for document in documents:
            before = there.get(document.key)
            known = None if before is None else before.document
            yield from decisions_on_sources(caller_of(request), self._api.kinds, document, known)

    def _examined(self, text: str, checkpoint: Checkpoint) -> ValidationReport:
        pieces = checked(_wanted(text).resources, checkpoint)
        return examine((piece.reading for piece in pieces), self._api.kinds)

    def _checked(self, report: ValidationReport, there: Mapping[Key, Stored]) -> ValidationReport:
        faults = (*report.errors, *self._astray(report.documents, there))
        if faults:
            raise invalid(_TITLE, faults)
        return replace(report, documents=tuple(_by_hand(document, there) for document in report.documents))

    def _astray(self, documents: Sequence[Document], there: Mapping[Key, Stored]) -> Iterator[Finding]:
        """What is in a mesh that is not there, and does not come along."""
        meshes = {key.name for key in (*there, *(document.key for document in documents)) if key.type == "Mesh"}
        hints: dict[str, str] = {}
        for document in documents:
            mesh = document.key.mesh
            if mesh and mesh not in meshes:
                if mesh not in hints and len(hints) < TOLD:  # a hint costs a look at every mesh
                    hints[mesh] = instead(mesh, meshes)
                violation = Violation("mesh", f"there is no Mesh `{mesh}`", hints.get(mesh) or "apply it too")
                yield finding(document, "refers-to-nothing", Severity.ERROR, violation)

    def _writes(self, documents: Sequence[Document], there: Mapping[Key, Stored]) -> Iterator[Put]:
        """What new ones bring along stands first: whoever writes it himself wins."""
        new = (document for document in documents if document.key not in there)
        yield from (Put(companion) for document in new for companion in self._api.companions(document))
        yield from (Put(document, derived_from(document.key, there.get(document.key))) for document in documents)


def _by_hand(document: Document, there: Mapping[Key, Stored]) -> Document:
    """Who owns a Dataplane is not for documents to say."""
    if document.key.type != "Dataplane":
        return document
    before = there.get(document.key)
    return written_by_hand(document, None if before is None else before.document)


def _wanted(text: str) -> ApplyBody:
    texts = text.count('"') - text.count('\\"')  # where a text begins or ends; some more, if it ends with a backslash
    if texts > _MOST_QUOTES:
        raise _not_one("there are too many resources in it; send them in several requests")
    try:
        wanted = decoded(text, ApplyBody)
    except ValueError as error:
        raise _not_one(str(error)) from None
    if not wanted.resources:
        raise _not_one("there are no resources in it")
    return wanted


def _not_one(reason: str) -> ApiError:
    return bad_request("", f'the body is not {{"resources": [{{"text": …, "place": …}}]}}: {reason}', title=_TITLE)


def _outcomes(report: ValidationReport, there: Mapping[Key, Stored]) -> Iterator[dict[str, Any]]:
    warnings: dict[Key | None, list[str]] = {}
    for warning in report.warnings:
        warnings.setdefault(warning.resource, []).append(str(warning))
    for document in report.documents:
        key = document.key
        yield {
            "type": key.type,
            **({"mesh": key.mesh} if key.mesh else {}),
            "name": key.name,
            "outcome": _outcome(there.get(key), document),
            **({"warnings": warnings[key]} if key in warnings else {}),
        }


def _outcome(before: Stored | None, document: Document) -> str:
    if before is None:
        return "Created"
    return "Unchanged" if before.document == document else "Updated"
