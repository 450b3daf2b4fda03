"""The feed: what is new, as server-sent events, for whoever shows it and does not want to ask again and again.

A reader has a place, and no queue: what it is sent is made when it can take it, however much has happened since its
place. Of proxies that is how they are then, and of writes each one, or that there were more than are remembered.

See record 0090, and the HTML standard, 9.2, for the form.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from cp.api.caller import caller_of
from cp.api.collaborators import Collaborators
from cp.api.delivery import seconds_of
from cp.api.errors import STOPPING, UNAVAILABLE, ApiError, stopping
from cp.api.feed_reader import FeedPlace, FeedReader, FeedSources, event
from cp.api.lasting import CountedStream, LastingAnswers
from cp.api.shares import WaitingLimits, WaitingShares
from cp.model.duration import LONGEST_WAIT
from cp.serving.instances.fleet import EVERY, Fleet

PATH: Final = "/_feed"

LIMITS: Final = WaitingLimits("feeds", most=200, most_without_token=100, most_of_caller=20)

_BEGIN: Final = b"retry: 2000\n\n"
_HEARTBEAT: Final = b":\n\n"
_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
_RETRY: Final = {"retry-after": "1"}


@dataclass(frozen=True, slots=True)
class FeedPace:
    """In seconds."""

    pause: float = EVERY
    """How often a reader is sent something, at the most."""

    judged: float = 2.0
    """After which it is looked again whether a reader's token is still good, and what it opens."""

    heartbeat: float = 15.0


class FeedHandler:
    """The handler, with what all feeds share."""

    def __init__(self, collaborators: Collaborators, fleet: Fleet, pace: FeedPace = FeedPace()) -> None:
        self._api, self._pace = collaborators, pace
        self._sources = FeedSources.of(fleet, collaborators.store, lambda: collaborators.follows)
        self._lasting = LastingAnswers(collaborators)
        self._shares = WaitingShares(LIMITS, collaborators.metrics)

    async def __call__(self, request: Request) -> Response:
        """`?since=ID`, or `Last-Event-ID`, to go on from there; `?wait=30s` to end after that time."""
        if self._api.state.is_stopping:
            raise stopping()
        if self._api.state.loaded_world is None:
            raise ApiError(
                UNAVAILABLE, "Not ready", "the store is being read, and nothing is served yet", headers=_RETRY
            )
        wait = seconds_of(request.query_params.get("wait", str(LONGEST_WAIT)))
        since = request.headers.get("last-event-id") or request.query_params.get("since")
        place = None if since is None else FeedPlace.parse(since)
        reader = FeedReader(caller_of(request), self._sources, place)
        give_back = self._shares.take(caller_of(request), request.scope)
        events = self._events(request, reader, wait)
        return CountedStream(events, give_back, media_type="text/event-stream", headers=_HEADERS)

    async def _events(self, request: Request, reader: FeedReader, wait: float) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        sent_at = judged_at = loop.time()
        end = sent_at + wait
        yield _BEGIN
        while True:
            if loop.time() - judged_at >= self._pace.judged:
                judged_at = loop.time()
                if reason := self._judge(request, reader):
                    yield event("end", {"reason": reason})
                    return
            await self._sources.refresh()
            content = await reader.news() or (_HEARTBEAT if loop.time() - sent_at >= self._pace.heartbeat else b"")
            if self._api.state.is_stopping:  # how proxies are was asked before, but may have been answered since
                yield event("end", {"reason": STOPPING, "stopping": True})
                return
            if content:
                sent_at = loop.time()
                yield content
            if loop.time() >= end:
                return
            await asyncio.sleep(min(self._pace.pause, max(0.0, end - loop.time())))

    def _judge(self, request: Request, reader: FeedReader) -> str:
        """Look again who reads, and what he may. Returns why he may not any longer."""
        try:
            reader.judge(self._lasting.caller(request, PATH))
        except ApiError as error:
            return error.detail
        return ""
