"""A proxy that registered its Dataplane says whether it takes requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cp.api.attempts import attempted
from cp.api.body import decoded, text_of
from cp.api.caller import caller_of
from cp.api.collaborators import Collaborators
from cp.api.errors import bad_request
from cp.api.near import not_found
from cp.api.writes import OWNER_HEADER, REVISION_HEADER, conflict, must_be_run, must_be_writable
from cp.model.names import Key
from cp.model.registration import NOT_READY, OWNER, READINESS_WAY, label, labelled
from cp.store.port import Author, Put, Stored

_LARGEST: Final = 4096
"""Bytes of what a proxy says; it is read on the event loop."""

log = structlog.get_logger()


class ReadinessReport(msgspec.Struct, frozen=True):
    """Whether a run of a proxy takes requests: not before it listens, and no more when it is about to end."""

    owner: str
    ready: bool


class RegistrationHandler:
    """The handler of what proxies say of themselves."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators

    @property
    def routes(self) -> Iterator[Route]:
        yield Route("/meshes/{mesh}/dataplanes/{name}/_readiness", self.readiness, methods=["POST"])

    async def readiness(self, request: Request) -> Response:
        """Whether the addresses of a proxy are endpoints. It gets its configuration either way."""
        key = Key("Dataplane", request.path_params["mesh"], request.path_params["name"])
        report = _reported(await text_of(request, self._api.body_limit, _LARGEST))
        caller = caller_of(request)
        author = caller.author(READINESS_WAY if self._api.is_of_proxy(caller) else request.method)

        async def attempt() -> int:
            return await self._mark(await self._owned(key, report.owner), report, author)

        revision = await attempted(attempt)
        traces = caller_of(request).traces
        if report.ready:
            log.info("proxy.ready", resource=str(key), revision=revision, **traces)
        else:
            log.info("proxy.draining", resource=str(key), revision=revision, **traces)
        return JSONResponse({}, headers={REVISION_HEADER: str(revision)})

    async def _owned(self, key: Key, owner: str) -> Stored:
        """The Dataplane, unless another run of the proxy has registered it since."""
        stored = await self._api.store.get(key)
        if stored is None:
            raise not_found(key.type, key.name, ())
        must_be_owned(stored, owner)
        return stored

    async def _mark(self, stored: Stored, report: ReadinessReport, author: Author) -> int:
        """The revision from which on it is as the proxy says."""
        if report.ready and label(stored.document, NOT_READY) not in {"", report.owner}:
            raise conflict(f"{stored.document.key} is run by another run of the proxy, which is not ready")
        document = labelled(stored.document, not_ready="" if report.ready else report.owner)
        if document is stored.document:
            return stored.revision
        must_be_writable(self._api)
        return await self._api.store.write(Put(document, stored.revision), author=author)


def must_be_owned(stored: Stored, owner: str) -> None:
    actual = label(stored.document, OWNER)
    if actual not in {"", owner}:
        raise conflict(f"{stored.document.key} belongs to another run of the proxy, which registered it later")


def _reported(text: str) -> ReadinessReport:
    try:
        report = decoded(text, ReadinessReport)
    except ValueError as error:
        raise bad_request("", f"not whether a proxy is ready: {error}") from None
    if not report.owner:
        raise bad_request(
            "owner", "must not be empty", f"send what the Dataplane was registered with, as {OWNER_HEADER}"
        )
    must_be_run(report.owner, "owner")
    return report
