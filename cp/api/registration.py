"""A proxy registers its Dataplane, says that it is about to end, and takes the Dataplane with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cp.api.body import text_of
from cp.api.collaborators import Collaborators
from cp.api.crud import OWNER_HEADER, REVISION_HEADER, conflict
from cp.api.errors import bad_request
from cp.api.near import not_found
from cp.model.names import Key
from cp.model.registration import DRAINING, OWNER, label, labelled
from cp.store.port import Conflict, Put, Stored

_ATTEMPTS: Final = 5
"""Times that a label is written again because somebody else wrote the Dataplane meanwhile."""

log = structlog.get_logger()


class Leaving(msgspec.Struct, frozen=True):
    """Which run of a proxy is about to end."""

    owner: str


class Registration:
    """The handler of proxies that are about to end."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators

    @property
    def routes(self) -> Iterator[Route]:
        yield Route("/meshes/{mesh}/dataplanes/{name}/_drain", self.drain, methods=["POST"])

    async def drain(self, request: Request) -> Response:
        """The addresses of a proxy are endpoints no longer. Its configuration is kept up to date until it has ended."""
        key = Key("Dataplane", request.path_params["mesh"], request.path_params["name"])
        leaving = _leaving(await text_of(request, self._api.body_limit))
        for attempt in range(_ATTEMPTS):
            try:
                revision = await self._mark(await self._owned(key, leaving.owner), leaving.owner)
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            break
        log.info("proxy.draining", resource=str(key), revision=revision)
        return JSONResponse({}, headers={REVISION_HEADER: str(revision)})

    async def _owned(self, key: Key, owner: str) -> Stored:
        """The Dataplane, unless another run of the proxy has registered it since."""
        stored = await self._api.store.get(key)
        if stored is None:
            raise not_found(key.type, key.name, ())
        must_be_owned(stored, owner)
        return stored

    async def _mark(self, stored: Stored, owner: str) -> int:
        """The revision from which on it drains."""
        if label(stored.document, DRAINING) == owner:
            return stored.revision
        return await self._api.store.write(Put(labelled(stored.document, draining=owner), stored.revision))


def must_be_owned(stored: Stored, owner: str) -> None:
    actual = label(stored.document, OWNER)
    if actual not in {"", owner}:
        raise conflict(f"{stored.document.key} belongs to another run of the proxy, which registered it later")


def _leaving(text: str) -> Leaving:
    try:
        leaving = msgspec.json.decode(text, type=Leaving)
    except msgspec.DecodeError as error:
        raise bad_request("", f"not who is about to end: {error}") from None
    if not leaving.owner:
        raise bad_request(
            "owner", "must not be empty", f"send what the Dataplane was registered with, as {OWNER_HEADER}"
        )
    return leaving
