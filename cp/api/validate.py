"""`POST /validate`: what would be wrong with some documents, without storing anything."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cp.api.body import reading_of
from cp.api.collaborators import Collaborators
from cp.api.report import examine


class Validate:
    """The handler of documents that nobody stores."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators

    async def __call__(self, request: Request) -> Response:
        reading = await reading_of(request, self._api.body_limit)
        report = await asyncio.to_thread(examine, [reading], self._api.kinds)
        return JSONResponse(report.as_data())
