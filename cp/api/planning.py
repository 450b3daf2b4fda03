"""`Planner`: what a write would do, for those who ask before they write. Nothing is written for it.

`?dryRun=true` on a write answers what would become of the resources, and with `&plan=true` also what that would come to
for proxies. See record 0086.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from starlette.requests import Request

from cp.api.caller import ApiCaller, caller_of
from cp.api.collaborators import Collaborators
from cp.api.envoy_json import decoded
from cp.api.errors import TOO_MANY, ApiError, bad_request
from cp.api.fair_turns import MeshBusy
from cp.api.grpc_clients import certified_clients
from cp.api.kept_work import KeptWork
from cp.api.parameters import is_asked
from cp.api.preflight import must_be_accepted, preflight_data, unavailable, warnings_of
from cp.api.shares import share_of
from cp.api.work import LARGEST_ANSWER
from cp.insight.lint import lint
from cp.insight.plan import (
    MeshPlan,
    Plan,
    PlanScope,
    ProxyChanges,
    failure_sentences,
    finding_changes,
    is_overwritten,
    mesh_plans,
    meshes_of,
    plan_data,
    planned_documents,
    proxy_changes,
)
from cp.model.checkpoint import Allowance, Checkpoint
from cp.model.document import Document
from cp.model.failure import Failure
from cp.model.names import Key
from cp.model.violation import Finding
from cp.policies import Policies, discover
from cp.resources.assignment import candidate_of
from cp.resources.world import World
from cp.serving.preflight.preflight import Preflight, PreflightOutcome
from cp.serving.preflight.scratch import EnvoyUnavailable
from cp.store.clock import utc
from cp.store.outcome import dated
from cp.store.port import Author, Delete, Put, Stored
from cp.translate.compiler import Compiler

_SKIPPED: Final = "without preflight"
_COMPUTING: Final = 30.0
"""Seconds of a turn of preflight, next to those of its Envoy. Others wait for their turns meanwhile."""

_RETRY: Final = {"retry-after": "5"}
_OUTDATED: Final = 60.0
"""Seconds for which findings are kept: certificates end with time."""

Changes = Mapping[Key, Document | None]
"""What a write would make of documents; None: it would delete them."""


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """What is asked, in one moment of the control plane."""

    world: World
    changes: Changes
    meshes: Sequence[str]
    """Those of which the proxies are looked at."""

    written_meshes: Sequence[str]
    """Those in which something is written, also where that changes nothing."""

    clients: Mapping[Key, bool]
    with_findings: bool


@dataclass(frozen=True, slots=True)
class _KnownFindings:
    """The findings of a World, of which those that would appear and vanish are told apart."""

    world: World
    clients: Mapping[Key, bool]
    at: float
    """When they were worked out: what is compared with them is worked out for the same moment."""

    findings: tuple[Finding, ...]


@dataclass(slots=True)
class _PlanWork:
    """What the last plan worked out."""

    compiler: Compiler
    findings: _KnownFindings | None = None


@dataclass(frozen=True, slots=True)
class _PreflightAnswer:
    """What an Envoy says, and in sentences what it could not be shown."""

    outcome: PreflightOutcome
    not_compared: tuple[str, ...]


class Planner:
    """Works out plans one after the other: each begins with what the last one worked out."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators
        self._policies: Policies = discover()
        self._kept = KeptWork(lambda: _PlanWork(Compiler(self._policies)))

    async def answer(
        self, request: Request, writes: Iterable[Put | Delete], stored_by_key: Mapping[Key, Stored]
    ) -> dict[str, Any]:
        """The part of an answer that says what writes would do, as far as that is asked for."""
        wants_plan, wants_preflight = is_asked(request, "plan"), is_asked(request, "preflight")
        if not is_looked_ahead(request):
            return {}
        question = await self._question(request, writes, stored_by_key)
        plan = await self._plan(request, question, stored_by_key) if wants_plan else {}
        if not wants_preflight:
            return plan
        answer = await self._preflight(request, question)
        return plan | {"preflight": preflight_data(answer.outcome, caller_of(request), answer.not_compared)}

    async def must_pass(
        self, request: Request, writes: Iterable[Put | Delete], stored_by_key: Mapping[Key, Stored]
    ) -> dict[str, Any]:
        """Show an Envoy what a write comes to. Returns what the answer has of that. Raises `ApiError` if it refuses."""
        answer, caller = (
            await self._preflight(request, await self._question(request, writes, stored_by_key)),
            caller_of(request),
        )
        must_be_accepted(request, answer.outcome)
        warnings = list(warnings_of(answer.outcome, caller, answer.not_compared))
        data = preflight_data(answer.outcome, caller, answer.not_compared)
        return {"preflight": data, **({"warnings": warnings} if warnings else {})}

    def is_preflighted(self, request: Request) -> bool:
        """Whether an Envoy is shown what a write comes to before it is made."""
        return is_asked(request, "preflight", default=self._api.preflights_writes)

    def author(self, request: Request, way: str) -> Author:
        """Who makes a change, for the history. A write that was to be shown to an Envoy and is not says so."""
        return caller_of(request).author(f"{way} {_SKIPPED}" if self._is_skipped(request) else way)

    def traces(self, request: Request) -> dict[str, Any]:
        """What the log says of who makes a change."""
        skipped = {"preflight": "skipped"} if self._is_skipped(request) else {}
        return caller_of(request).traces | skipped

    def _is_skipped(self, request: Request) -> bool:
        return self._api.preflights_writes and not self.is_preflighted(request)

    async def _question(
        self, request: Request, writes: Iterable[Put | Delete], stored_by_key: Mapping[Key, Stored]
    ) -> PlanQuestion:
        world, writes = await self._api.state.current(), tuple(writes)
        changes = await self._api.works.plans.do(request, lambda _: dict(_changes(writes, stored_by_key)))
        written_meshes = meshes_of((write.key for write in writes), world)
        clients = await self._api.works.questions.wait(request, lambda: certified_clients(self._api.observed, world))
        with_findings = is_asked(request, "findings", default=True)
        return PlanQuestion(world, changes, meshes_of(changes, world), written_meshes, clients, with_findings)

    async def _plan(
        self, request: Request, question: PlanQuestion, stored_by_key: Mapping[Key, Stored]
    ) -> dict[str, Any]:
        caller = caller_of(request)
        seen = replace(question, meshes=[mesh for mesh in question.meshes if caller.may_compare(mesh)])

        def data(checkpoint: Checkpoint) -> dict[str, Any]:
            known = {key: stored_by_key[key].document for key in question.changes if key in stored_by_key}
            documents = planned_documents(known, question.changes)
            plan = plan_data(Plan(documents, *self._answer(seen, caller, checkpoint)), checkpoint)
            not_compared = plan["notCompared"] + list(_rolled_out(seen))
            return plan | {"notCompared": not_compared, "rollouts": list(_under_way(question, caller))}

        plan = await self._api.works.plans.do(request, data)
        self._kept.keep_for_a_while()
        closed = [mesh for mesh in question.meshes if mesh not in seen.meshes and caller.may_read("Mesh", mesh)]
        return {"plan": {"revision": seen.world.revision, **plan, **({"meshesNotTold": closed} if closed else {})}}

    async def _preflight(self, request: Request, question: PlanQuestion) -> _PreflightAnswer:
        """What an Envoy says to what is new to proxies of all meshes, whoever asks: it is about what they would get."""
        preflight = self._api.preflight
        if preflight is None:
            raise bad_request("preflight", "this control plane has no Envoy to ask", "set KOGUMA_PREFLIGHT_ENVOY")
        try:
            with self._api.works.turns.queued(share_of(caller_of(request), request.scope), question.meshes) as turn:
                await self._api.works.preflights.wait(request, turn.wait)
                outcome, failures = await self._judged(request, question, preflight)
        except MeshBusy as error:
            self._api.metrics.api_limited.labels("preflights").inc()
            raise ApiError(TOO_MANY, "Too many preflights", f"{error}; send it again later", headers=_RETRY) from None
        except EnvoyUnavailable as error:
            raise unavailable(request, error) from None
        caller = caller_of(request)
        failures = {key: failure for key, failure in failures.items() if caller.may_compare(key.mesh)}
        meshes = filter(caller.may_compare, question.meshes)
        return _PreflightAnswer(outcome, (*failure_sentences(failures), *_not_shown(question, meshes)))

    async def _judged(
        self, request: Request, question: PlanQuestion, preflight: Preflight
    ) -> tuple[PreflightOutcome, Mapping[Key, Failure]]:
        """Return the answer of an Envoy, and the proxies that cannot be compiled. Raises `EnvoyUnavailable`."""
        works, longest = self._api.works, _COMPUTING + preflight.within
        try:
            async with asyncio.timeout(longest):
                changes = await works.plans.do(request, lambda checkpoint: self._proxy_changes(question, checkpoint))
                self._kept.keep_for_a_while()
                proxies, written = changes.proxies, question.changes.keys()
                outcome = await works.preflights.wait(request, lambda: preflight.outcome(proxies, written))
        except TimeoutError:
            raise EnvoyUnavailable(f"to compute the change takes longer than {longest:g} s") from None
        return outcome, changes.failures

    def _proxy_changes(self, question: PlanQuestion, checkpoint: Checkpoint) -> ProxyChanges:
        planned = question.world.next(question.changes, question.world.revision + 1)
        scope = PlanScope(question.world, planned, question.changes, question.meshes)
        return proxy_changes(scope, self._compiler_for(scope, question.clients), checkpoint)

    def _answer(
        self, question: PlanQuestion, caller: ApiCaller, checkpoint: Checkpoint
    ) -> tuple[tuple[MeshPlan, ...], tuple[Finding, ...], tuple[Finding, ...]]:
        world, changes = question.world, question.changes
        if not changes:
            return (), (), ()
        planned = world.next(changes, world.revision + 1)
        meshes = self._meshes(PlanScope(world, planned, changes, question.meshes), question.clients, checkpoint)
        if not question.with_findings:
            return meshes, (), ()
        known = self._findings_of(question, checkpoint)
        after = lint(self._policies, planned, checkpoint, known.at, question.clients)
        new, gone = finding_changes(known.findings, after)
        return meshes, tuple(filter(caller.may_know, new)), tuple(filter(caller.may_know, gone))

    def _meshes(self, scope: PlanScope, clients: Mapping[Key, bool], checkpoint: Checkpoint) -> tuple[MeshPlan, ...]:
        compiler = self._compiler_for(scope, clients)
        return tuple(mesh_plans(scope, compiler, decoded, checkpoint, Allowance(LARGEST_ANSWER)))

    def _compiler_for(self, scope: PlanScope, clients: Mapping[Key, bool]) -> Compiler:
        """The compiler of the last plan, which knows most of this one."""
        compiler = self._kept.value.compiler
        compiler.certified_clients = frozenset(key for key, is_certified in clients.items() if is_certified)
        compiler.keep_only(resource.key for resource in scope.before if resource.type == "Dataplane")
        return compiler

    def _findings_of(self, question: PlanQuestion, checkpoint: Checkpoint) -> _KnownFindings:
        """The findings of a World, which are kept: the next plan is likely to begin there too."""
        world, clients, now = question.world, question.clients, time.time()
        work = self._kept.value
        known = work.findings
        if known is None or known.world is not world or known.clients != clients or now - known.at > _OUTDATED:
            findings = lint(self._policies, world, checkpoint, now, clients)
            known = work.findings = _KnownFindings(world, clients, now, findings)
        return known


def _changes(
    writes: Iterable[Put | Delete], stored_by_key: Mapping[Key, Stored]
) -> Iterator[tuple[Key, Document | None]]:
    """What writes would make of documents, without those that would stay the same. Of two writes the last counts.

    Of legacy policies the newest holds, so each has the date that it would have.
    """
    last = {write.key: write for write in dated(tuple(writes), stored_by_key, utc())}
    for key, write in last.items():
        stored = stored_by_key.get(key)
        after = write.document if isinstance(write, Put) else None
        if after != (None if stored is None else stored.document):
            yield key, after


def _rolled_out(question: PlanQuestion) -> Iterator[str]:
    """What rollouts that are under way mean for a plan, which looks at what is stored."""
    for mesh in question.meshes:
        if (candidate := candidate_of(question.world, mesh)) is not None:
            end = " and would go back with this write" if is_overwritten(candidate, question.changes) else ""
            yield f"{candidate.proposal}{end}"


def _under_way(question: PlanQuestion, caller: ApiCaller) -> Iterator[str]:
    """The rollouts for which some proxies may not be served what is stored, also where nothing would change."""
    candidates = (candidate_of(question.world, mesh) for mesh in filter(caller.may_compare, question.written_meshes))
    return (candidate.standing for candidate in candidates if candidate is not None)


def _not_shown(question: PlanQuestion, meshes: Iterable[str]) -> Iterator[str]:
    """What no Envoy is shown of rollouts that are under way."""
    for mesh in meshes:
        candidate = candidate_of(question.world, mesh)
        if candidate is not None and not is_overwritten(candidate, question.changes):
            yield f"{candidate.proposal}, beside this write, for proxies that are not served it yet"


def is_looked_ahead(request: Request) -> bool:
    """Whether a dry run is to say more than what becomes of the resources."""
    return is_asked(request, "plan") or is_asked(request, "preflight")


def is_dry_run(request: Request) -> bool:
    """Whether a write is only to be tried. To ask for a plan with a write that is made would be too late."""
    is_dry = is_asked(request, "dryRun")
    if not is_dry and is_asked(request, "plan"):
        raise bad_request("plan", "is told before a write alone", "add `dryRun=true`")
    return is_dry
