"""`POST /tokens/dataplane`, `/tokens/user` and `/tokens/zone`: new tokens. The answer is the token as it is.

Neither an error nor the log has a token in it. The log has its id, by which it can be revoked (record 0058).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import structlog
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from cp.access.issue import (
    DataplaneTokenRequest,
    TokenRequest,
    TooLong,
    UserTokenRequest,
    ZoneTokenRequest,
    new_token,
    request_of,
)
from cp.access.keys import Purpose
from cp.access.rights import DATAPLANE_TOKEN, USER_TOKEN, ZONE_TOKEN, AccessRequest, Verb
from cp.api.body import decoded, text_of
from cp.api.caller import caller_of
from cp.api.collaborators import Collaborators
from cp.api.errors import BAD_REQUEST, FORBIDDEN, UNAVAILABLE, ApiError, RequestFault, bad_request
from cp.model.duration import Duration
from cp.model.violation import Violation
from cp.resources.world import World
from cp.serving.signing_keys import NoSigningKey, SigningKeys
from cp.settings import variable

T = TypeVar("T", bound=TokenRequest)

_LARGEST: Final = 8 * 1024
"""Bytes of a request. What is asked for ends in a token, which is short."""

_TITLE: Final = "Could not issue a token"

log = structlog.get_logger()


_SETTINGS: Final[Mapping[Purpose, str]] = {
    "dataplane": variable("issues_dataplane_tokens"),
    "user": variable("issues_user_tokens"),
    "zone": variable("issues_zone_tokens"),
}
"""The setting that says whether tokens are issued."""


_KINDS: Final[Mapping[Purpose, str]] = {"dataplane": DATAPLANE_TOKEN, "user": USER_TOKEN, "zone": ZONE_TOKEN}


def must_have_right(request: Request, purpose: Purpose, mesh: str) -> None:
    """Check that the caller may make such a token. Raises `ApiError`."""
    caller = caller_of(request)
    caller.must([caller.decision(AccessRequest(Verb.WRITE, _KINDS[purpose], mesh))])


class TokenHandler:
    """The handler of requests for tokens. The right to one is asked for in one place, with its purpose and mesh."""

    def __init__(
        self,
        collaborators: Collaborators,
        must_be_allowed: Callable[[Request, Purpose, str], None] = must_have_right,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._api, self._must_be_allowed, self._clock = collaborators, must_be_allowed, clock
        self._keys = SigningKeys(collaborators.store, collaborators.kinds)

    @property
    def routes(self) -> Iterator[Route]:
        yield Route("/tokens/dataplane", self.dataplane, methods=["POST"])
        yield Route("/tokens/user", self.user, methods=["POST"])
        yield Route("/tokens/zone", self.zone, methods=["POST"])

    async def dataplane(self, request: Request) -> Response:
        return await self._issue(request, DataplaneTokenRequest)

    async def user(self, request: Request) -> Response:
        return await self._issue(request, UserTokenRequest)

    async def zone(self, request: Request) -> Response:
        return await self._issue(request, ZoneTokenRequest)

    async def _issue(self, request: Request, schema: type[TokenRequest]) -> Response:
        self._must_be_issued_here(schema.purpose)
        wanted = _wanted(schema, await text_of(request, self._api.body_limit, _LARGEST))
        self._must_be_allowed(request, wanted.purpose, wanted.mesh_name)
        if not self._api.state.is_ready:
            raise ApiError(UNAVAILABLE, "Not ready", "the store is being read; ask again", headers={"retry-after": "1"})
        world = await self._api.state.current()
        if wanted.mesh_name and world.mesh(wanted.mesh_name) is None:
            raise _invalid([Violation("mesh", f"there is no Mesh `{wanted.mesh_name}`")])
        token_id = str(uuid.uuid4())
        token = await self._sign(world, wanted, token_id)
        self._log(request, wanted, token_id)
        return PlainTextResponse(token, headers={"cache-control": "no-store"})

    async def _sign(self, world: World, wanted: TokenRequest, token_id: str) -> str:
        try:
            key = await self._keys.key(world, wanted.purpose, wanted.mesh_name)
            return new_token(wanted, key, now=self._clock(), token_id=token_id)
        except NoSigningKey as error:
            raise ApiError(UNAVAILABLE, _TITLE, str(error)) from None
        except TooLong as error:
            raise bad_request("", str(error), title=_TITLE) from None

    def _must_be_issued_here(self, purpose: Purpose) -> None:
        if purpose not in self._api.issued_tokens:
            detail = (
                f"this control plane issues no such tokens ({_SETTINGS[purpose]}); sign them with --signing-key-path"
            )
            raise ApiError(FORBIDDEN, _TITLE, detail)

    def _log(self, request: Request, wanted: TokenRequest, token_id: str) -> None:
        claims = {name.lower(): value for name, value in wanted.claims.items() if value}
        lifetime = str(Duration(int(wanted.lifetime * 1_000_000_000)))
        log.info(
            "token.issued",
            purpose=wanted.purpose,
            id=token_id,
            valid_for=lifetime,
            claims=claims,
            **caller_of(request).traces,
        )


def _wanted(schema: type[T], text: str) -> T:
    try:
        data = decoded(text, object)
    except ValueError as error:
        raise bad_request("", f"the body is not what a token should say: {error}", title=_TITLE) from None
    wanted, faults = request_of(schema, data)
    if wanted is None or faults:
        raise _invalid(faults)
    return wanted


def _invalid(violations: Sequence[Violation]) -> ApiError:
    faults = tuple(RequestFault(violation.path, violation.message, violation.hint) for violation in violations)
    return ApiError(BAD_REQUEST, _TITLE, "; ".join(map(str, violations)), faults)
