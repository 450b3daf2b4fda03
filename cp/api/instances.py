"""The control planes on one store: a list for people, and the answers that they give each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cp.access.tokens import TokenRefused
from cp.api.authentication import host_of
from cp.api.caller import unauthenticated
from cp.api.collaborators import Collaborators
from cp.api.errors import TOO_LARGE, UNAVAILABLE, ApiError, bad_request
from cp.model.moments import timestamp
from cp.serving.instances.circle import InstanceStanding
from cp.serving.instances.peers import PATH, TOKEN_HEADER

_LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a question: the names of some hundred thousand proxies."""


class InstanceHandler:
    """The handlers."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators

    @property
    def routes(self) -> Iterator[Route]:
        yield Route("/_instances", self.listing)
        yield Route(PATH, self.answer, methods=["POST"])

    async def listing(self, request: Request) -> Response:
        """Who shares the store, and how each is."""
        circle = self._api.circle
        standings = [] if circle is None else await self._api.works.questions.wait(request, circle.standings)
        return JSONResponse({"total": len(standings), "items": list(map(_standing, standings)), "next": None})

    async def answer(self, request: Request) -> Response:
        """What another control plane asks, in the messages of `koguma.v1`. It shows a token of its own."""
        circle = self._api.circle
        if circle is None or self._api.state.loaded_world is None:
            raise ApiError(UNAVAILABLE, "Not ready", "the store is being read", headers={"retry-after": "1"})
        token = request.headers.get(TOKEN_HEADER, "")
        try:
            await circle.let_in(token)
        except TokenRefused as refused:
            self._api.access.note_bad_token(host_of(request.scope), token)
            raise unauthenticated(refused.reason) from None
        try:
            answer = await circle.answer(await _content(request))
        except ValueError as error:
            raise bad_request("", str(error)) from None
        return Response(answer, media_type="application/x-protobuf")


async def _content(request: Request) -> bytes:
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > _LARGEST:
            raise ApiError(TOO_LARGE, "Too large", f"a question may have {_LARGEST} bytes")
    return bytes(content)


def _standing(standing: InstanceStanding) -> dict[str, Any]:
    instance, status = standing.instance, standing.status
    return {
        "id": instance.id,
        "name": instance.name,
        "address": instance.address,
        "version": instance.version,
        "started": timestamp(instance.started),
        "status": standing.state.value,
        "self": standing.is_own,
        "leads": standing.leads,
        "silentFor": round(standing.silence, 1),
        "revision": instance.revision if status is None else status.revision,
        "proxies": None if status is None else status.proxies,
        "reason": standing.reason or None,
    }
