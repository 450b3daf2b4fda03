"""How far changes have come: at once, or line by line until every proxy that they concern has answered."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Annotated, Any, Final

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cp.api.body import decoded, text_of
from cp.api.caller import ApiCaller, caller_of
from cp.api.collaborators import Collaborators, ProxyObservations
from cp.api.delivery_data import progress_data
from cp.api.errors import ApiError, bad_request
from cp.api.lasting import CountedStream, LastingAnswers
from cp.api.numbers import LARGEST, natural, shortened
from cp.api.rollouts import rollout_sentences
from cp.api.shared_progress import SharedProgress
from cp.api.shares import WaitingLimits, WaitingShares
from cp.insight.report import finding_data
from cp.model.duration import LONGEST_WAIT, Duration
from cp.model.failure import OVER_LIMIT
from cp.model.names import Key, dataplane_key
from cp.resources.assignment import is_held
from cp.resources.world import World
from cp.serving.delivery import ChangeProgress, Presence
from cp.serving.instances.returns import ReturnWatch, WholeProgress, whole_progress

_PATH: Final = "/_delivery"
_LARGEST_BODY: Final = 1024 * 1024
"""Bytes of a question: some thousand resources have room in it, and it is read in a few milliseconds."""


_MOST: Final = 10_000

_EXPLAINED: Final = 3
"""Proxies over a limit of which the findings are told; each costs a question to whoever serves it."""

LIMITS: Final = WaitingLimits("waiting requests", most=1000, most_without_token=200, most_of_caller=50)

log = structlog.get_logger()

_BEGIN_MOVES: Final = frozenset({"Mesh", "MeshIdentity", "MeshTrust", "Secret"})
"""The kinds that say who signs, who is trusted, and how callers speak."""


class ProgressQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which changes, and for how long to wait for them."""

    revisions: list[Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]] = []
    resources: list[str] = []
    wait: str | None = None


class ProgressHandler:
    """The handler."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api, self._lasting = collaborators, LastingAnswers(collaborators)
        self._shares = WaitingShares(LIMITS, collaborators.metrics)
        self._shared = SharedProgress[WholeProgress]()
        self._returning = _OneAtATime(collaborators.observed)

    @property
    def routes(self) -> Iterator[Route]:
        yield Route(_PATH, self.get)
        yield Route(_PATH, self.post, methods=["POST"])

    async def get(self, request: Request) -> Response:
        """`?revision=7` and `&resource=MeshTimeout/default/slow` as often as needed, `&wait=30s` to wait."""
        query = request.query_params
        revisions = [_revision(text) for text in query.getlist("revision")]
        return await self._answer(request, ProgressQuery(revisions, query.getlist("resource"), query.get("wait")))

    async def post(self, request: Request) -> Response:
        """The same, for more than fits in a URL."""
        try:
            query = decoded(await text_of(request, self._api.body_limit, _LARGEST_BODY), ProgressQuery)
        except ValueError as error:
            raise bad_request("", f"not a question about changes: {error}") from None
        return await self._answer(request, query)

    async def _answer(self, request: Request, query: ProgressQuery) -> Response:
        if len(query.resources) + len(query.revisions) > _MOST:
            raise bad_request("", f"more than {_MOST} changes are too many to ask about at once")
        resources, caller = [_resource(text) for text in query.resources], caller_of(request)
        caller.must_inspect({resource.mesh for resource in resources})
        if query.wait is None:
            so_far = await self._api.works.questions.wait(request, lambda: self._so_far(query.revisions, resources))
            return JSONResponse(await self._line(caller, so_far, resources))
        wait = seconds_of(query.wait)
        give_back = self._shares.take(caller, request.scope)
        lines = self._lines(request, query.revisions, resources, wait)
        return CountedStream(lines, give_back, media_type="application/x-ndjson")

    async def _so_far(self, revisions: Collection[int], resources: Collection[Key]) -> WholeProgress:
        return [whole async for whole in self._progress(revisions, resources, 0)][-1]

    def _progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> AsyncIterator[WholeProgress]:
        api = self._api
        watch = ReturnWatch(self._returning, self._world, api.alike_since, time.time, _meshes(resources))
        return whole_progress(api.observed, watch, revisions, resources, within)

    def _world(self) -> World:
        return self._api.state.loaded_world or World.of((), self._api.kinds)

    async def _lines(
        self, request: Request, revisions: Collection[int], resources: Collection[Key], wait: float
    ) -> AsyncIterator[str]:
        """Until all is known, the time is over, or whoever waits may not know any more."""
        question = frozenset(revisions), frozenset(resources), wait
        async for whole in self._shared.results(question, lambda: self._progress(revisions, resources, wait)):
            try:
                caller = self._lasting.caller(request, _PATH)
                caller.must_inspect({resource.mesh for resource in resources})
            except ApiError as error:
                traces = caller_of(request).traces
                log.info("api.refused", method=request.method, path=_PATH, reason=error.detail, **traces)
                return
            yield json.dumps(await self._line(caller, whole, resources), ensure_ascii=False) + "\n"

    async def _line(self, caller: ApiCaller, whole: WholeProgress, resources: Collection[Key]) -> dict[str, Any]:
        """An answer; the last of them also has what goes on after it."""
        is_done = whole.progress.is_done
        data = _progress_data(caller, whole)
        return {
            **data,
            "leftOut": await self._left_out(data["limited"]) if is_done else [],
            "held": list(self._held(caller, whole.progress, resources)) if is_done else [],
            "moves": await self._moves(caller, resources) if is_done else [],
            "rollouts": await self._rollouts(caller, resources) if is_done else [],
        }

    def _held(self, caller: ApiCaller, progress: ChangeProgress, resources: Collection[Key]) -> Iterator[str]:
        """Of those that are waited for, those that a rollout serves something else in place of what was written."""
        waiting, world = _seen_by(caller, progress).waiting, self._world()
        return (proxy for proxy in waiting if is_held(world, dataplane_key(proxy), resources))

    async def _left_out(self, limited: Collection[str]) -> list[dict[str, Any]]:
        """Return the findings about the limits that some proxies exceed, of the first few of these."""
        standings = [await self._api.observed.delivery(dataplane_key(proxy)) for proxy in [*limited][:_EXPLAINED]]
        findings = dict.fromkeys(chain.from_iterable(standing.failed for standing in standings))
        return [finding_data(finding) for finding in findings if finding.code == OVER_LIMIT]

    async def _moves(self, caller: ApiCaller, resources: Collection[Key]) -> list[str]:
        """What goes on with mTLS since some resources were written: it comes later than what follows from them."""
        meshes = dict.fromkeys(key.mesh or key.name for key in resources if key.type in _BEGIN_MOVES)
        inspected = filter(caller.may_inspect, meshes)
        moves = await self._api.moves(await self._api.state.current(), inspected)
        return [f"mesh {move.mesh}: {sentence}" for move in moves for sentence in move.sentences]

    async def _rollouts(self, caller: ApiCaller, resources: Collection[Key]) -> list[str]:
        """What is under way where resources were written: some proxies are served what it proposes."""
        meshes = filter(caller.may_inspect, dict.fromkeys(key.mesh or key.name for key in resources))
        return rollout_sentences(await self._api.state.current(), meshes)


class _OneAtATime:
    """Proxies of which one question is answered after the other, so that many who wait do not hold up all others."""

    def __init__(self, observed: ProxyObservations) -> None:
        self._observed = observed
        self._turn = asyncio.Lock()

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]:
        async with self._turn:
            return await self._observed.presences(dataplanes)

    def progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> AsyncIterator[ChangeProgress]:
        return self._observed.progress(revisions, resources, within)


def _meshes(resources: Iterable[Key]) -> frozenset[str]:
    """Those of which proxies may be concerned; none: those of all meshes may."""
    meshes = {key.name if key.type == "Mesh" else key.mesh for key in resources}
    return frozenset() if "" in meshes else frozenset(meshes)


def _progress_data(caller: ApiCaller, whole: WholeProgress) -> dict[str, Any]:
    may_inspect = cache(caller.may_inspect)
    unknown = [proxy for proxy in whole.unknown if may_inspect(dataplane_key(proxy).mesh)]
    missing = len(whole.progress.waiting) + len(whole.unknown)
    returned = len(whole.returns.returned)
    data = progress_data(_seen_by(caller, whole.progress))
    return data | {"missing": missing, "returned": returned, "unknown": unknown}


def _seen_by(caller: ApiCaller, progress: ChangeProgress) -> ChangeProgress:
    """The progress with the proxies of meshes into which the caller may look; the others are only counted."""
    may_inspect = cache(caller.may_inspect)

    def shown(proxies: Iterable[str]) -> tuple[str, ...]:
        return tuple(proxy for proxy in proxies if may_inspect(dataplane_key(proxy).mesh))

    return replace(
        progress,
        refusing=shown(progress.refusing),
        waiting=shown(progress.waiting),
        gone=shown(progress.gone),
        failed=shown(progress.failed),
        limited=shown(progress.limited),
        nack_reports=tuple(report for report in progress.nack_reports if may_inspect(report.dataplane.mesh)),
    )


def _revision(text: str) -> int:
    revision = natural(text)
    if revision is None:
        hint = "take `Koguma-Revision` from the answer of a write"
        raise bad_request("revision", f"`{shortened(text)}` is no revision", hint)
    return revision


def _resource(text: str) -> Key:
    parts = text.split("/")
    if len(parts) not in {2, 3} or not all(parts):
        raise bad_request("resource", f"`{text}` is no resource", "write TYPE/MESH/NAME, or TYPE/NAME")
    return Key(parts[0], parts[1] if len(parts) > 2 else "", parts[-1])  # noqa: PLR2004  # type, mesh and name


def seconds_of(text: str) -> float:
    """How long a request waits at most."""
    try:
        wait = Duration.parse(text)
    except ValueError as error:
        raise bad_request("wait", str(error)) from None
    if not 0 <= wait.seconds <= LONGEST_WAIT.seconds:
        raise bad_request("wait", f"`{text}` is not between 0s and {LONGEST_WAIT}")
    return wait.seconds
