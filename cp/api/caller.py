"""`ApiCaller`: who sends a request, and what may be done in its name.

See record 0060.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import structlog
from starlette.requests import Request
from starlette.types import Scope

from cp.access.receivers import new_sender
from cp.access.rights import INSPECTION, NOBODY, AccessDecision, AccessRequest, Rights, User, Verb, of_resource
from cp.access.tokens import DataplaneClaims, TokenRefused, must_admit
from cp.api.errors import CHALLENGE, FORBIDDEN, TOLD, UNAUTHORIZED, ApiError, RequestFault
from cp.identity.workloads import is_named_by_workload
from cp.model.document import Document
from cp.model.names import Key
from cp.model.registration import PROXY_AUTHOR
from cp.model.violation import Finding
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.store.port import Author

log = structlog.get_logger()

_LISTED: Final = 10
_CALLER: Final = "koguma.caller"


@dataclass(frozen=True, slots=True)
class ApiCaller:
    """Who sends a request. The rights are those that are in force when it comes."""

    user: User
    address: str
    rights: Rights
    proxy: DataplaneClaims | None = None
    """What the token says, if it is one of a proxy. It opens what the proxy needs of its own Dataplane, and no more."""

    @property
    def is_administrator(self) -> bool:
        return self.rights.is_administrator(self.user)

    def may_read(self, kind: str, mesh: str) -> bool:
        return self.rights.may(self.user, Verb.READ, kind, mesh).allowed

    def may_read_key(self, key: Key) -> bool:
        return self.decision(_permission(Verb.READ, key)).allowed

    def may_see_key(self, key: Key) -> bool:
        """Whether the caller may read or write something, and so be told of it."""
        return self.may_read_key(key) or self.decision(_permission(Verb.WRITE, key)).allowed

    def must_read_key(self, key: Key) -> None:
        self.must([self.decision(_permission(Verb.READ, key))])

    def may_inspect(self, mesh: str) -> bool:
        return self.may_read(INSPECTION, mesh)

    def must_inspect(self, meshes: Iterable[str]) -> None:
        """Check that the caller may look into some meshes. Raises `ApiError`."""
        self.must(self.decision(AccessRequest(Verb.READ, INSPECTION, mesh)) for mesh in sorted(meshes))

    def may_compare(self, mesh: str) -> bool:
        """Whether the caller may see what the proxies of a mesh are served."""
        return self.may_inspect(mesh) and self.may_read("Dataplane", mesh)

    def may_know(self, finding: Finding) -> bool:
        """Whether a finding is about a mesh that the caller may look into; of those about no mesh, into all."""
        key = finding.resource
        return self.may_inspect("" if key is None else _permission(Verb.READ, key).mesh)

    def must_write(self, documents: Iterable[Document]) -> None:
        """Check that all of some documents may be written. Raises `ApiError` with every one that may not."""
        self.must_write_keys(document.key for document in documents)

    def may_write_key(self, key: Key) -> bool:
        return self.decision(_permission(Verb.WRITE, key)).allowed

    def must_write_keys(self, keys: Iterable[Key]) -> None:
        permissions = dict.fromkeys(_permission(Verb.WRITE, key) for key in keys)
        self.must(self.decision(permission) for permission in permissions)

    def decision(self, permission: AccessRequest) -> AccessDecision:
        return self.rights.decision(self.user, permission)

    def must(self, decisions: Iterable[AccessDecision]) -> None:
        """Check that everything is allowed. Raises `ApiError` with every sentence that says what is not."""
        decisions = list(decisions)
        refusals = list(dict.fromkeys(decision.because for decision in decisions if not decision.allowed))
        if refusals:
            raise self._refused(refusals)
        for decision in decisions:
            if decision.is_tolerated:
                log.warning("access.tolerated", reason=decision.because, **self.traces)

    def proxy_decision(self, dataplane: Resource | None, key: Key, world: World | None) -> AccessDecision:
        """Whether the token of a proxy, if it is one, is good for a Dataplane."""
        if self.proxy is None:
            return AccessDecision(allowed=True, because=f"{self.user} is no proxy")
        sender = "" if world is None else new_sender(world, dataplane)
        refusal = self._token_refusal(dataplane, key, world, sender)
        if not refusal:
            return AccessDecision(allowed=True, because=f"the token is for {key}")
        tolerates = bool(sender) and self.rights.tolerates_unnamed
        is_tolerated = tolerates and not self._token_refusal(dataplane, key, world)
        return AccessDecision(is_tolerated, f"the token is not for {key}: {refusal}", is_tolerated)

    def _token_refusal(self, dataplane: Resource | None, key: Key, world: World | None, sender: str = "") -> str:
        """Return why the token of a proxy is not good for a Dataplane; empty if it is."""
        chooses = dataplane is not None and world is not None and is_named_by_workload(world, dataplane)
        try:
            if self.proxy is not None:
                must_admit(self.proxy, key, dataplane, is_named_by_workload=chooses, new_sender=sender)
        except TokenRefused as refused:
            return refused.reason
        return ""

    def as_of_any_service(self) -> ApiCaller:
        """The same proxy, whatever tags and workload its token names: its Dataplane is not there to have them."""
        proxy = None if self.proxy is None else replace(self.proxy, tags={}, workload="")
        return replace(self, proxy=proxy)

    def must_be_administrator(self, wish: str) -> None:
        if not self.is_administrator:
            raise self._refused([f"{self.user} may not {wish}, as only administrators may"])

    @property
    def traces(self) -> dict[str, Any]:
        """What the log says of the caller."""
        return {"caller": self.address, "user": self.user.name, "groups": logged_names(self.user.groups)}

    def author(self, way: str) -> Author:
        """Who makes a change, for the history."""
        proxy = "" if self.proxy is None else f"{PROXY_AUTHOR}{self.proxy.name or self.proxy.workload}"
        machine, _, _ = self.address.rpartition(":")
        return Author(proxy or _author_name(self.user), f"{way} from {machine}")

    def _refused(self, refusals: Sequence[str]) -> ApiError:
        more = f"; {len(refusals) - 1} more rights are missing" if len(refusals) > 1 else ""
        faults = tuple(RequestFault("", refusal) for refusal in refusals[:TOLD]) if more else ()
        if self.user == NOBODY:
            hint = (
                "send a token as `Authorization: Bearer …` (koguma: --token-file or KOGUMA_TOKEN_FILE; koguma dp: "
                "--dataplane-token-file)"
            )
            detail = f"{refusals[0]}{more}; {hint}"
            return ApiError(UNAUTHORIZED, "Authentication required", detail, faults, CHALLENGE)
        hint = "an administrator grants rights (KOGUMA_ACCESS_FILE)"
        hint = "a token of a proxy opens its own Dataplane alone" if self.proxy is not None else hint
        return ApiError(FORBIDDEN, "Access denied", f"{refusals[0]}{more}; {hint}", faults)


def _author_name(user: User) -> str:
    """The name of a user, as one where it is what others are called in the history: whoever makes tokens chooses it."""
    words = user.name.casefold().split()
    is_taken = words[:1] in (["proxy"], ["user"]) or words in (["control", "plane"], ["unknown"])
    return f"user {user.name}" if is_taken else user.name


def _permission(verb: Verb, key: Key) -> AccessRequest:
    return of_resource(verb, key.type, key.mesh, key.name)


def unauthenticated(reason: str) -> ApiError:
    """A token that opens nothing."""
    detail = f"the token is not accepted: {reason}"
    challenge = {"www-authenticate": f'{CHALLENGE["www-authenticate"]}, error="invalid_token"'}
    return ApiError(UNAUTHORIZED, "Authentication failed", detail, headers=challenge)


def enter(scope: Scope, caller: ApiCaller) -> None:
    """Note who sends a request."""
    scope[_CALLER] = caller


def caller_of(request: Request) -> ApiCaller:
    return caller_in(request.scope)


def caller_in(scope: Scope) -> ApiCaller:
    return cast("ApiCaller", scope[_CALLER])


def logged_names(names: Sequence[object]) -> list[str]:
    """Names for a line of the log: all, or the first ones with how many more there are."""
    more = len(names) - _LISTED
    shown = list(map(str, names[:_LISTED]))
    return [*shown, f"and {more} more"] if more > 0 else shown
