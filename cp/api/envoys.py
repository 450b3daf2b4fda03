"""What Envoys say of themselves: the links of their agents, and the questions that operators ask over these.

See record 0085.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec
import structlog
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from cp.api.body import decoded, text_of
from cp.api.caller import caller_of
from cp.api.collaborators import Collaborators
from cp.api.envoy_diff import NoConfigDump, compared_with_envoy
from cp.api.errors import CONFLICT, TOO_LARGE, UNAVAILABLE, ApiError, bad_request
from cp.api.lasting import LastingAnswers
from cp.api.near import not_found
from cp.api.parameters import choice
from cp.api.work import InPieces, encoded
from cp.model.checkpoint import Checkpoint
from cp.model.duration import Duration
from cp.model.envoy_questions import (
    DUMPED_TYPES,
    LARGEST_ANSWER,
    LARGEST_SENT,
    LEVELS,
    LONGEST_FILTER,
    LONGEST_LEVEL,
    USUAL_LEVEL,
    WARMING_TYPES,
    AgentFault,
    EnvoyAnswer,
    EnvoyQuestion,
    EnvoySubject,
    EnvoyUnanswered,
    NoAgent,
)
from cp.model.names import Key
from cp.model.secret_data import redacted
from cp.model.wording import printable
from cp.resources.client import is_grpc_client
from cp.resources.resource import Resource
from cp.serving.agent_links import AgentLinks, Judge, LinksFull, NotAsked

_ONE: Final = "/meshes/{mesh}/dataplanes/{name}"
_WITHIN: Final = 15.0
"""Seconds for an answer."""

_LARGEST: Final = 4096
_LONGEST_REASON: Final = 500
_SMALL: Final = 64 * 1024
_MOST_VALUES: Final = 1_500_000
_MOST_OBJECTS: Final = 250_000
"""Of one answer, lists included. An object without fields takes 3 bytes in it and 500 while it is read and redacted."""

_SUBJECTS: Final = 64
_FORMATS: Final = ("text", "json")
_PER_HALF_MINUTE: Final = {"retry-after": "30"}
_AGENT: Final = (
    "`koguma dp run` of this version or a later one has to run it, and to reach the control plane's HTTP API"
)

log = structlog.get_logger()


class LinkHello(msgspec.Struct, frozen=True):
    """What an agent says that holds a link: the run of its proxy, and what it can be asked."""

    owner: str = ""
    subjects: list[str] = []


class LogLevelRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Which level an Envoy's log is to have, and for how long."""

    level: str
    valid_for: str = ""


class AgentWord(msgspec.Struct, frozen=True):
    """An answer of an agent: what Envoy says, or why there is nothing."""

    answer: Any = None
    fault: str = ""


class EnvoyHandler:
    """The handlers."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api, self._links = collaborators, collaborators.envoys.own
        self._lasting = LastingAnswers(collaborators)

    @property
    def routes(self) -> Iterator[Route]:
        yield Route(f"{_ONE}/_link", self.hold, methods=["POST"])
        yield Route(f"{_ONE}/_link/{{question}}", self.take, methods=["POST"])
        yield Route(f"{_ONE}/_envoy/log_level", self.log_level, methods=["PUT"])
        yield Route(f"{_ONE}/_envoy/diff", self.diff)
        yield Route(f"{_ONE}/_envoy/{{subject}}", self.ask)
        yield Route(f"{_ONE}/xds", self.dump)
        yield Route(f"{_ONE}/stats", partial(self.page, EnvoySubject.STATS))
        yield Route(f"{_ONE}/clusters", partial(self.page, EnvoySubject.CLUSTERS))

    async def hold(self, request: Request) -> Response:
        """An agent waits for a question: the answer ends with it, or is asked for again."""
        text = await text_of(request, self._api.body_limit, _LARGEST)
        try:
            hello = decoded(text, LinkHello)
        except ValueError as error:
            raise bad_request("", f"not what an agent says: {error}") from None
        dataplane = _key(request)
        if not self._api.trusts_proxies:
            await self._must_be_there(dataplane)
        return _LinkResponse(self._links, dataplane, hello.subjects[:_SUBJECTS], partial(self._may_stay, request))

    def _may_stay(self, request: Request) -> bool:
        """Look again whether the token of an agent is still good for its proxy."""
        try:
            self._lasting.caller(request, f"{_ONE}/_link")
        except ApiError as error:
            traces = caller_of(request).traces
            log.info("envoy.link_ended", resource=str(_key(request)), reason=error.detail, **traces)
            return False
        return True

    async def _must_be_there(self, dataplane: Key) -> None:
        """Invented names would take the places of others. Raises `ApiError`, without what else is there."""
        world = self._api.state.loaded_world
        if (world is None or world.get(dataplane) is None) and (await self._api.state.current()).get(dataplane) is None:
            raise not_found(dataplane.type, dataplane.name, ())

    async def take(self, request: Request) -> Response:
        """An agent answers a question."""
        dataplane, id_ = _key(request), request.path_params["question"]
        try:
            with self._links.taking(dataplane, id_):
                self._links.answer(dataplane, id_, await self._taken(request))
        except NotAsked:
            raise _not_asked() from None
        return JSONResponse({})

    async def _taken(self, request: Request) -> EnvoyAnswer | EnvoyUnanswered:
        content = await _content(request)
        is_small = len(content) <= _SMALL and request.headers.get("content-encoding") != "gzip"
        return await self._api.works.questions.do(request, lambda _: _outcome(request, content), is_small=is_small)

    async def ask(self, request: Request) -> Response:
        """What an Envoy says."""
        subject = request.path_params["subject"]
        if subject not in set(EnvoySubject):
            raise not_found("question to an Envoy", subject, list(EnvoySubject))
        choice(request, "format", _FORMATS)
        question = _question(EnvoySubject(subject), request.query_params)
        answer = await self._answer(request, question)
        return InPieces(answer.content, media_type="application/json")

    async def dump(self, request: Request) -> Response:
        """All of its configuration, as Kuma answers it."""
        answer = await self._answer(request, EnvoyQuestion(EnvoySubject.CONFIG_DUMP))
        return InPieces(answer.content, media_type="application/json")

    async def page(self, subject: EnvoySubject, request: Request) -> Response:
        """Stats or clusters as Kuma answers them: text, unless somebody asks for JSON."""
        as_text = choice(request, "format", _FORMATS) != "json"
        question = replace(_question(subject, request.query_params), as_text=as_text)
        content = (await self._answer(request, question)).content
        if not as_text:
            return InPieces(content, media_type="application/json")
        return InPieces(str(msgspec.json.decode(content)), media_type="text/plain")

    async def diff(self, request: Request) -> Response:
        """Where what an Envoy has is not what it should have."""
        dataplane, questions = await self._dataplane(request), self._api.works.questions
        dumped: dict[str, bytes] = {}
        for type_, dumped_as in (DUMPED_TYPES | WARMING_TYPES).items():  # all together may be too much for one answer
            answer = await self._answer(request, EnvoyQuestion(EnvoySubject.CONFIG_DUMP, type=type_))
            dumped[dumped_as] = answer.content
        snapshot = await questions.wait(request, lambda: self._api.state.snapshot(dataplane, is_certified_client=False))
        standing = await questions.wait(request, lambda: self._api.observed.delivery(dataplane.key))
        refusals = {
            (type_.status.type_url, held.name): refusal.nack.text
            for stream in standing.streams
            for type_ in stream.types
            for refusal in type_.refusals
            for held in refusal.held
        }

        draining = {(resource.type_url, resource.name) for resource in standing.draining}

        def compared(checkpoint: Checkpoint) -> dict[str, Any]:
            try:
                dump = {name: dumped_entries(content) for name, content in dumped.items()}
                return compared_with_envoy(snapshot, {"configs": [dump]}, refusals, draining, checkpoint).data
            except NoConfigDump:
                raise _unanswered(f"what the agent of {dataplane.key} says is no config dump") from None

        return await questions.json(request, compared)

    async def log_level(self, request: Request) -> Response:
        """Let an Envoy log more, or less, for a time."""
        question = _level_question(await text_of(request, self._api.body_limit, _LARGEST))
        answer = await self._answer(request, question)
        log.info(
            "envoy.log_level",
            resource=str(_key(request)),
            envoy_level=question.level,
            seconds=question.seconds,
            **caller_of(request).traces,
        )
        return Response(answer.content, media_type="application/json")

    async def _dataplane(self, request: Request) -> Resource:
        key, world = _key(request), await self._api.state.current()
        resource = world.get(key)
        if resource is None:
            raise not_found(key.type, key.name, (known.name for known in world.table(key.type, key.mesh)))
        return resource

    async def _answer(self, request: Request, question: EnvoyQuestion) -> EnvoyAnswer:
        resource = await self._dataplane(request)
        dataplane = resource.key
        if is_grpc_client(resource):
            raise _unanswered(f"{dataplane} is a gRPC client without a proxy: there is no Envoy to ask")
        asking = self._api.envoys.ask
        try:
            return await self._api.works.questions.wait(request, lambda: asking(dataplane, question, _WITHIN))
        except NoAgent as absent:
            raise _unanswered(f"{absent}; {_AGENT}") from None
        except EnvoyUnanswered as unanswered:
            raise _unanswered(str(unanswered)) from None


class _LinkResponse(Response):
    """An answer that lasts: an empty line now and then, and a question at the end, if there is one."""

    def __init__(self, links: AgentLinks, dataplane: Key, subjects: list[str], may_stay: Judge) -> None:
        super().__init__(media_type="application/x-ndjson")
        del self.headers["content-length"]
        self._links, self._dataplane, self._subjects, self._may_stay = links, dataplane, subjects, may_stay

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def begin() -> None:
            nonlocal has_begun
            if not has_begun:
                has_begun = True
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})

        async def send_piece(piece: bytes, more: bool) -> None:  # noqa: FBT001  # as ASGI has it
            await begin()  # a question may wait for the link already
            await send({"type": "http.response.body", "body": piece, "more_body": more})

        try:
            async with self._links.held(self._dataplane, self._subjects, send_piece, self._may_stay):
                await begin()
                while (await receive())["type"] != "http.disconnect":
                    pass
        except LinksFull:
            detail = "this control plane holds no more links, or ends"
            full = ApiError(UNAVAILABLE, "No room", detail, headers=_PER_HALF_MINUTE)
            await full.response()(scope, receive, send)


def _key(request: Request) -> Key:
    return Key("Dataplane", request.path_params["mesh"], request.path_params["name"])


def _question(subject: EnvoySubject, query: QueryParams) -> EnvoyQuestion:
    filter_, type_ = query.get("filter", ""), query.get("type", "")
    if len(filter_) > LONGEST_FILTER:
        raise bad_request("filter", f"must have at most {LONGEST_FILTER} characters")
    if type_ and type_ not in DUMPED_TYPES:
        raise bad_request("type", f"there is no type `{type_[:_SUBJECTS]}`", f"write {', '.join(DUMPED_TYPES)}")
    return EnvoyQuestion(subject, filter=filter_, type=type_, as_text=query.get("format") == "text")


def dumped_entries(content: bytes) -> list[Any]:
    """Those of a dump of one type. Raises `NoConfigDump`."""
    dump = msgspec.json.decode(content)
    entries = dump.get("configs", []) if isinstance(dump, dict) else None
    if not isinstance(entries, list):
        raise NoConfigDump
    return entries


def _level_question(text: str) -> EnvoyQuestion:
    try:
        wanted = decoded(text, LogLevelRequest)
        seconds = Duration.parse(wanted.valid_for).seconds if wanted.valid_for else USUAL_LEVEL
    except ValueError as error:
        raise bad_request("", f"not a level of a log: {error}") from None
    if wanted.level not in LEVELS:
        raise bad_request("level", f"there is no level `{wanted.level[:_SUBJECTS]}`", f"write {', '.join(LEVELS)}")
    if not 0 < seconds <= LONGEST_LEVEL:
        raise bad_request("validFor", f"must be more than 0 and at most {LONGEST_LEVEL:g} s")
    return EnvoyQuestion(EnvoySubject.LOG_LEVEL, level=wanted.level, seconds=seconds)


async def _content(request: Request) -> bytes:
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > LARGEST_SENT:
            raise ApiError(TOO_LARGE, "Too large", f"an answer may have {LARGEST_SENT} bytes, compressed")
    return bytes(content)


def _outcome(request: Request, content: bytes) -> EnvoyAnswer | EnvoyUnanswered:
    """What an agent answers, without secrets: it has left them out, and is not trusted to have."""
    is_compressed = request.headers.get("content-encoding") == "gzip"
    try:
        word = _word(_unpacked(content) if is_compressed else content)
        if word.fault:
            return AgentFault(printable(word.fault[:_LONGEST_REASON]))
        return EnvoyAnswer(encoded(redacted(word.answer)))
    except (ValueError, zlib.error, RecursionError) as error:
        raise bad_request("", f"not the answer of an agent: {error}") from None


def _word(text: bytes) -> AgentWord:
    """Raises `ValueError`."""
    objects = text.count(b"{") + text.count(b"[")
    if objects > _MOST_OBJECTS:
        raise ValueError(f"it has more than {_MOST_OBJECTS} objects")
    if objects + text.count(b",") > _MOST_VALUES:
        raise ValueError(f"it has more than {_MOST_VALUES} values")
    return msgspec.json.decode(text, type=AgentWord)


def _unpacked(content: bytes) -> bytes:
    """Raises `ValueError` if it is longer than an answer may be."""
    unpacking = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    data = unpacking.decompress(content, LARGEST_ANSWER)
    if unpacking.unconsumed_tail or not unpacking.eof:
        raise ValueError(f"it is no compressed JSON of at most {LARGEST_ANSWER >> 20} MiB")
    return data


def _not_asked() -> ApiError:
    return ApiError(CONFLICT, "Not asked", "nobody has asked this, or the time for an answer is over")


def _unanswered(reason: str) -> ApiError:
    return ApiError(CONFLICT, "Envoy cannot be asked", reason)
