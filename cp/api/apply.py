"""`POST /_apply`: many resources in one write: all of them or, if something is wrong with one, none.

They are one revision, so proxies are told once what all of them together come to. Whoever pushes them may have a name,
and then have those deleted that carry it and are no longer among them. With `?dryRun=true` the answer is the
same, and nothing is written; with `&plan=true` beside it, it has what that would come to for proxies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response

from cp.api.attempts import attempted
from cp.api.body import decoded, must_be_small, place_of, text_of
from cp.api.caller import caller_of, logged_names
from cp.api.closed_meshes import closed_by_write
from cp.api.collaborators import Collaborators
from cp.api.errors import TOLD, ApiError, bad_request, invalid
from cp.api.near import instead
from cp.api.planning import Planner, is_dry_run
from cp.api.powers import WriteRights, document_changes
from cp.api.pruning import Leftovers, leftovers, managed_elsewhere, must_be_manager, released
from cp.api.rollout_orders import RolloutOrder, RolloutScope, RolloutTerms, rollout_put
from cp.api.rollouts_ended import ended_by_write
from cp.api.writes import (
    REVISION_HEADER,
    derived_from,
    is_same,
    must_be_for_people,
    must_be_writable,
    outcome_of,
)
from cp.insight.destinations import brings_destinations, warnings_of_destinations
from cp.insight.enforcement import needs_mtls, warnings_without_mtls
from cp.insight.report import ValidationReport, examine
from cp.insight.roots import may_bring_roots, warnings_of_roots
from cp.model.checkpoint import Checkpoint, checked
from cp.model.document import Document
from cp.model.managed import managed
from cp.model.names import Key
from cp.model.registration import written_by_hand
from cp.model.source import FileReading, read_documents
from cp.model.violation import Finding, Severity, Violation
from cp.resources.engine import with_engine
from cp.resources.parse import INVALID, UNWRITABLE, finding, parse
from cp.resources.world import World
from cp.store.clock import utc
from cp.store.port import Delete, Put, Stored

_TITLE: Final = "Could not apply resources"
_MOST_QUOTES: Final = 400_000
"""Of 50,000 resources, with four texts each."""

MOST_RESOURCES: Final = 2000
"""In one request, except by administrators: proxies of all meshes wait until its resources have been read."""

log = structlog.get_logger()


class ApplySource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Some documents as they are written, and the place where they stand: `file:line`."""

    text: str
    place: str = ""

    @property
    def reading(self) -> FileReading:
        must_be_small(self.text, self.place or "resources")
        place = place_of(self.place)
        return read_documents(self.text, place.file, first_line=place.line)


class ApplyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    resources: list[ApplySource]
    managed_by: str = ""
    """Who pushes them. The name is written into each as a label."""

    prune: bool = False
    """Whether what carries that label and is not among them is deleted."""

    rollout: RolloutOrder | None = None
    """How they come to proxies; None: all of them get it at once."""


@dataclass(frozen=True, slots=True)
class ApplyOrder:
    """What is asked for: documents as they were written, and under which name."""

    report: ValidationReport
    managed_by: str = ""
    prunes: bool = False
    rollout: RolloutTerms | None = None

    @property
    def keys(self) -> list[Key]:
        return [document.key for document in self.report.documents]


class ApplyHandler:
    """The handler of what is written together."""

    def __init__(self, collaborators: Collaborators, planner: Planner) -> None:
        self._api = collaborators
        self._planner = planner

    async def __call__(self, request: Request) -> Response:
        is_dry = is_dry_run(request)
        if not is_dry:
            must_be_writable(self._api)
        text, work = await text_of(request, self._api.body_limit), self._api.works.documents
        order = await work.do(request, partial(self._order, text))
        _must_be_few(request, len(order.report.documents))
        await work.do(request, lambda _: caller_of(request).must_write(order.report.documents))
        await work.do(request, lambda _: must_be_for_people(order.keys))
        # Again where somebody wrote a Dataplane or a Mesh meanwhile, or what is to be deleted.
        return await attempted(lambda: self._apply(request, order, is_dry=is_dry))

    async def _apply(self, request: Request, order: ApplyOrder, *, is_dry: bool) -> Response:
        work = self._api.works.documents
        stored = (await self._api.contents(request)).stored
        stored_by_key = await work.do(
            request, lambda checkpoint: {item.document.key: item for item in checked(stored, checkpoint)}
        )
        report = await work.do(request, lambda _: self._checked(order, stored_by_key))
        left = await work.do(request, lambda _: _leftovers(request, order, stored_by_key, report.documents))
        await work.do(request, lambda _: self._must_change(request, report.documents, left, stored_by_key))
        report = await self._with_destinations_counted(await self._with_mtls_judged(report))
        report = await self._with_roots_judged(request, report)
        report = await self._with_closed_meshes(request, report)
        writes: Iterable[Put | Delete] = chain(self._writes(report.documents, stored_by_key), left.writes)
        plan = await self._look_ahead(request, writes, stored_by_key, is_dry=is_dry)
        world = None if order.rollout is not None else self._api.state.loaded_world  # before the write
        rollout = await self._rollout(request, order.rollout, report.documents, stored_by_key, left)
        if is_dry or (order.rollout is not None and rollout is None):
            headers = {}
        elif rollout is not None:
            headers = await self._begin(request, rollout, _named(report.documents, left))
        else:
            headers = await self._write(request, report.documents, stored_by_key, left)
        more = plan if is_dry else {**plan, **_begun(rollout)}
        answer = await work.json(
            request,
            lambda _: {
                "resources": [*_outcomes(report, stored_by_key, world), *_outcomes_of_leftovers(left, order, world)],
                **more,
            },
        )
        answer.headers.update(headers)
        return answer

    async def _look_ahead(
        self, request: Request, writes: Iterable[Put | Delete], stored_by_key: Mapping[Key, Stored], *, is_dry: bool
    ) -> dict[str, Any]:
        """What the answer has of what the write comes to. Raises `ApiError` if an Envoy was to be asked and refuses."""
        if is_dry:
            return await self._planner.answer(request, writes, stored_by_key)
        if not self._planner.is_preflighted(request):
            return {}
        return await self._planner.must_pass(request, writes, stored_by_key)

    async def _write(
        self, request: Request, documents: Sequence[Document], stored_by_key: Mapping[Key, Stored], left: Leftovers
    ) -> dict[str, str]:
        """Store everything. Answers with the headers that say which revision that made, if it made one."""
        writes, changed = await self._api.works.documents.do(
            request,
            lambda checkpoint: (
                list(checked(self._writes(documents, stored_by_key), checkpoint)),
                any(
                    not is_same(stored_by_key.get(document.key), document)
                    for document in checked(documents, checkpoint)
                ),
            ),
        )
        revision = await self._api.store.write(*writes, *left.writes, author=self._planner.author(request, "apply"))
        log.info("api.applied", **_named(documents, left), revision=revision, **self._planner.traces(request))
        return {REVISION_HEADER: str(revision)} if changed or left.deleted else {}

    async def _rollout(
        self,
        request: Request,
        terms: RolloutTerms | None,
        documents: Sequence[Document],
        stored_by_key: Mapping[Key, Stored],
        left: Leftovers,
    ) -> Put | None:
        """What begins a rollout; None where none is asked for, or nothing is to change."""
        if terms is None:
            return None
        scope = RolloutScope(documents, stored_by_key, left, self._api.kinds, caller_of(request).user.name, utc())
        return await self._api.works.documents.do(request, lambda _: rollout_put(terms, scope))

    async def _begin(self, request: Request, rollout: Put, proposed: Mapping[str, list[str]]) -> dict[str, str]:
        revision = await self._api.store.write(rollout, author=self._planner.author(request, "apply"))
        traces = self._planner.traces(request)
        log.info("rollout.begun", resource=str(rollout.key), **proposed, revision=revision, **traces)
        return {REVISION_HEADER: str(revision)}

    async def _with_mtls_judged(self, report: ValidationReport) -> ValidationReport:
        """The same with warnings about what has no effect because its mesh has no mTLS."""
        if not any(map(needs_mtls, report.documents)):
            return report
        warnings = warnings_without_mtls(await self._api.state.current(), report.documents)
        return replace(report, findings=(*report.findings, *warnings))

    async def _with_destinations_counted(self, report: ValidationReport) -> ValidationReport:
        """The same with warnings about services that not all proxies can call, as their mesh has too many."""
        if not any(map(brings_destinations, report.documents)):
            return report
        warnings = warnings_of_destinations(await self._api.state.current(), report.documents)
        return replace(report, findings=(*report.findings, *warnings))

    async def _with_roots_judged(self, request: Request, report: ValidationReport) -> ValidationReport:
        """The same with warnings about authorities that Envoy would take for one another."""
        if not any(map(may_bring_roots, report.documents)):
            return report
        world = await self._api.state.current()
        warnings = await self._api.works.documents.do(
            request, lambda _: tuple(warnings_of_roots(world, report.documents))
        )
        return replace(report, findings=(*report.findings, *warnings))

    async def _with_closed_meshes(self, request: Request, report: ValidationReport) -> ValidationReport:
        """The same with warnings about meshes in which nobody may call anybody then."""
        warnings = await closed_by_write(self._api, request, report.documents)
        return replace(report, findings=(*report.findings, *warnings))

    def _must_change(
        self, request: Request, documents: Sequence[Document], left: Leftovers, stored_by_key: Mapping[Key, Stored]
    ) -> None:
        """Check the rights that writes take beyond those to the kinds. Raises `ApiError`."""
        changes = document_changes([*map(Put, documents), *left.writes], stored_by_key)
        gateways = chain((stored.document for stored in stored_by_key.values()), documents)
        caller = caller_of(request)
        caller.must(WriteRights(caller, self._api.kinds, gateways).decisions(changes))

    def _order(self, text: str, checkpoint: Checkpoint) -> ApplyOrder:
        wanted = _wanted(text)
        must_be_manager(wanted.managed_by, _TITLE, prunes=wanted.prune)
        pieces = checked(wanted.resources, checkpoint)
        report = examine((piece.reading for piece in pieces), self._api.kinds)
        rollout = None if wanted.rollout is None else RolloutTerms.of(wanted.rollout)
        return ApplyOrder(report, wanted.managed_by, wanted.prune, rollout)

    def _checked(self, order: ApplyOrder, stored_by_key: Mapping[Key, Stored]) -> ValidationReport:
        report, name = order.report, order.managed_by
        elsewhere = managed_elsewhere(report.documents, stored_by_key, name) if name else ()
        as_stored = (self._as_stored(document, stored_by_key) for document in report.documents)
        documents = tuple(managed(document, name) if name else document for document in as_stored)
        report = self._with_tolerated(replace(report, documents=documents), stored_by_key)
        faults = (*report.errors, *self._astray(documents, stored_by_key), *elsewhere)
        if faults:
            raise invalid(_TITLE, faults)
        return report

    def _with_tolerated(self, report: ValidationReport, stored_by_key: Mapping[Key, Stored]) -> ValidationReport:
        """The report, in which documents that stay as they are stored have no fault that is tolerated there."""
        if report.is_valid:
            return report
        invalid_keys = {finding.resource for finding in report.errors if finding.code == INVALID}
        same = (document for document in report.documents if _is_stored(document, stored_by_key))
        reads = [parse(document, self._api.kinds) for document in same if document.key in invalid_keys]
        tolerated = {read.document.key: read for read in reads if read.tolerated}
        faults = {fault for read in tolerated.values() for fault in read.as_written.findings()}
        kept = (finding for finding in report.findings if finding not in faults)
        unwritable = chain.from_iterable(read.findings() for read in tolerated.values())
        return replace(report, findings=(*kept, *(finding for finding in unwritable if finding.code == UNWRITABLE)))

    def _as_stored(self, document: Document, stored_by_key: Mapping[Key, Stored]) -> Document:
        """What is stored of a document, where that depends on what is there already.

        Who owns a Dataplane is not for documents to say.
        """
        stored = stored_by_key.get(document.key)
        before = None if stored is None else stored.document
        if document.key.type == "Mesh":
            return with_engine(document, before, self._api.engine)
        return written_by_hand(document, before) if document.key.type == "Dataplane" else document

    def _astray(self, documents: Sequence[Document], stored_by_key: Mapping[Key, Stored]) -> Iterator[Finding]:
        """What is in a mesh that is not there, and does not come along."""
        meshes = {key.name for key in (*stored_by_key, *(document.key for document in documents)) if key.type == "Mesh"}
        hints: dict[str, str] = {}
        for document in documents:
            mesh = document.key.mesh
            if mesh and mesh not in meshes:
                if mesh not in hints and len(hints) < TOLD:  # a hint costs a look at every mesh
                    hints[mesh] = instead(mesh, meshes)
                violation = Violation("mesh", f"there is no Mesh `{mesh}`", hints.get(mesh) or "apply it too")
                yield finding(document, "refers-to-nothing", Severity.ERROR, violation)

    def _writes(self, documents: Sequence[Document], stored_by_key: Mapping[Key, Stored]) -> Iterator[Put]:
        """What new ones bring along stands first: whoever writes it himself wins."""
        new = (document for document in documents if document.key not in stored_by_key)
        yield from (Put(companion) for document in new for companion in self._api.companions(document))
        yield from (
            Put(document, derived_from(document.key, stored_by_key.get(document.key))) for document in documents
        )


def _begun(rollout: Put | None) -> dict[str, Any]:
    if rollout is None:
        return {}
    return {"rollout": {"mesh": rollout.key.mesh, "number": rollout.document.data["spec"]["number"]}}


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


def _is_stored(document: Document, stored_by_key: Mapping[Key, Stored]) -> bool:
    """True if a document is stored with the same content, wherever it stands."""
    stored = stored_by_key.get(document.key)
    return stored is not None and stored.document == document


def _outcomes(
    report: ValidationReport, stored_by_key: Mapping[Key, Stored], world: World | None
) -> Iterator[dict[str, Any]]:
    warnings: dict[Key | None, list[str]] = {}
    for warning in report.warnings:
        warnings.setdefault(warning.resource, []).append(str(warning))
    for key, sentence in released(report.documents, stored_by_key):
        warnings.setdefault(key, []).append(sentence)
    changed = (document.key for document in report.documents if not is_same(stored_by_key.get(document.key), document))
    for key, sentence in ended_by_write(world, changed).items():
        warnings.setdefault(key, []).append(sentence)
    for document in report.documents:
        key = document.key
        yield {
            "type": key.type,
            **({"mesh": key.mesh} if key.mesh else {}),
            "name": key.name,
            "outcome": outcome_of(stored_by_key.get(key), document),
            **({"warnings": warnings[key]} if key in warnings else {}),
        }


def _must_be_few(request: Request, count: int) -> None:
    if count > MOST_RESOURCES and not caller_of(request).is_administrator:
        text = f"there are {count}, and {MOST_RESOURCES} are the most in one request"
        raise bad_request("resources", text, "apply them in parts, or have an administrator apply them", _TITLE)


def _leftovers(
    request: Request, order: ApplyOrder, stored_by_key: Mapping[Key, Stored], documents: Sequence[Document]
) -> Leftovers:
    """What goes, if something is to go: the caller has to have the right to write all of it."""
    if not order.prunes:
        return Leftovers()
    left = leftovers(stored_by_key.values(), documents, order.managed_by, _TITLE)
    caller_of(request).must_write_keys(left.keys)
    must_be_for_people(left.keys)
    return left


def _outcomes_of_leftovers(left: Leftovers, order: ApplyOrder, world: World | None) -> Iterator[dict[str, Any]]:
    ended = ended_by_write(world, left.keys)
    for key in left.keys:
        shown = {"type": key.type, **({"mesh": key.mesh} if key.mesh else {}), "name": key.name, "outcome": "Deleted"}
        yield {**shown, **({"warnings": [ended[key]]} if key in ended else {})}
    for key in left.kept:
        warning = f"no file of `{order.managed_by}` has {key} any more; to delete it with all in it: koguma delete mesh"
        yield {"type": key.type, "name": key.name, "outcome": "Kept", "warnings": [f"{warning} {key.name} --cascade"]}


def _named(documents: Iterable[Document], left: Leftovers) -> dict[str, list[str]]:
    """What a request writes, for a line of the log."""
    deleted = {"deleted": logged_names(left.keys)} if left.keys else {}
    return {"resources": logged_names([document.key for document in documents]), **deleted}
