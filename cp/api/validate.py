"""`POST /validate`: what would be wrong with some documents, without storing anything."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cp.api.body import reading_of
from cp.api.collaborators import Collaborators
from cp.api.errors import TOLD
from cp.insight.report import examine


class ValidateHandler:
    """The handler of documents that nobody stores."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators

    async def __call__(self, request: Request) -> Response:
        reading = await reading_of(request, self._api.works.documents, self._api.body_limit)
        return await self._api.works.documents.json(
            request, lambda _: examine([reading], self._api.kinds).as_data(TOLD)
        )
