"""What an Envoy says to what a write comes to, before a proxy is sent any of it. See record 0087."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import structlog
from starlette.requests import Request

from cp.api.caller import ApiCaller, caller_of
from cp.api.errors import TOLD, UNAVAILABLE, UNPROCESSABLE, ApiError, RequestFault
from cp.model.names import Key
from cp.model.wording import few
from cp.serving.delivery import PolicyPart
from cp.serving.preflight.blame import RefusedResource
from cp.serving.preflight.preflight import PreflightOutcome, UnseenResource
from cp.serving.preflight.scratch import EnvoyUnavailable

_TITLE: Final = "Refused in preflight"

log = structlog.get_logger()


def must_be_accepted(request: Request, outcome: PreflightOutcome) -> None:
    """Check that an Envoy takes the result of a write. Raises `ApiError` with its words.

    Resources that it NACKs without the write too are no reason to reject it. A caller who may not see what the proxies
    of a mesh are served learns that something is NACKed there, and no more.
    """
    if not outcome.refused:
        return
    caller = caller_of(request)
    logged = outcome.refused[0]
    log.warning("api.preflight_refused", resource=logged.name, reason=logged.reason, **caller.traces)
    refused = [resource for resource in outcome.refused if _may_know(caller, resource.dataplane)]
    if refused:
        first = refused[0]
        detail = f"Envoy {outcome.envoy} NACKs the {first.type} {first.name} that follow from it: {_reason(first)}"
    else:
        detail = f"Envoy {outcome.envoy} NACKs something that follows from it in a mesh that you may not look into"
    faults = tuple(_fault(resource, caller) for resource in refused[:TOLD])
    raise ApiError(UNPROCESSABLE, _TITLE, detail, faults)


def unavailable(request: Request, error: EnvoyUnavailable) -> ApiError:
    log.warning("api.preflight_failed", reason=str(error), **caller_of(request).traces)
    way_around = "`?preflight=false` (koguma: --no-preflight) writes without it"
    detail = f"the Envoy that is to be asked first is not available: {error}; {way_around}"
    return ApiError(UNAVAILABLE, "Preflight is not possible", detail)


def warnings_of(outcome: PreflightOutcome, caller: ApiCaller, not_compared: Iterable[str] = ()) -> Iterator[str]:
    """What an Envoy NACKs with or without the write, and what it was not asked about."""
    for older in outcome.refused_before:
        if _may_know(caller, older.dataplane):
            yield (
                f"Envoy {outcome.envoy} NACKs the {older.type} {older.name} of {older.dataplane.name} already before "
                f"this change: {older.reason}; the write passes, as proxies keep what they have"
            )
    yield from (f"not shown to an Envoy: {sentence}" for sentence in not_compared)
    for unseen in outcome.unseen:
        if _may_know(caller, unseen.dataplane):
            yield f"the {unseen.type} {unseen.name} were not shown to an Envoy: {unseen.reason}"
    for part in outcome.in_part:
        if _may_know(caller, part.dataplane):
            yield f"the {part.type} {part.name} were shown to an Envoy in part: {part.reason}"


def preflight_data(
    outcome: PreflightOutcome, caller: ApiCaller | None = None, not_compared: Sequence[str] = ()
) -> dict[str, Any]:
    """What an Envoy says, as JSON, and what nobody could work out to show it.

    Of meshes of which the caller may not see what proxies are served only numbers are told, and policies that he may
    not read are not named.
    """
    refused, refused_before = (
        [_refused(resource, caller) for resource in side if _may_know(caller, resource.dataplane)]
        for side in (outcome.refused, outcome.refused_before)
    )
    unseen, in_part = (
        [_unseen(resource) for resource in side if _may_know(caller, resource.dataplane)]
        for side in (outcome.unseen, outcome.in_part)
    )
    untold = {
        "refused": len(outcome.refused) - len(refused),
        "refusedBefore": len(outcome.refused_before) - len(refused_before),
        "notShown": len(outcome.unseen) - len(unseen),
        "shownInPart": len(outcome.in_part) - len(in_part),
    }
    return {
        "envoy": outcome.envoy,
        "shown": outcome.shown,
        "proxies": outcome.proxies,
        "refused": refused,
        "refusedBefore": refused_before,
        "notShown": unseen,
        "shownInPart": in_part,
        **({"notCompared": list(not_compared)} if not_compared else {}),
        **({"inMeshesNotTold": untold} if any(untold.values()) else {}),
    }


def _may_know(caller: ApiCaller | None, dataplane: Key) -> bool:
    return caller is None or caller.may_compare(dataplane.mesh)


def _unseen(unseen: UnseenResource) -> dict[str, Any]:
    return {
        "type": unseen.type,
        "name": unseen.name,
        "mesh": unseen.dataplane.mesh,
        "proxy": unseen.dataplane.name,
        "reason": unseen.reason,
    }


def _refused(refused: RefusedResource, caller: ApiCaller | None) -> dict[str, Any]:
    return {
        "type": refused.type,
        "name": refused.name,
        "mesh": refused.dataplane.mesh,
        "proxy": refused.dataplane.name,
        "reason": refused.reason,
        **({"reasonBefore": refused.earlier} if refused.earlier else {}),
        "policies": [
            *(_part(part) | {"written": True} for part in _readable(refused.written, caller)),
            *map(_part, _readable(refused.policies, caller)),
        ],
    }


def _readable(parts: Iterable[PolicyPart], caller: ApiCaller | None) -> list[PolicyPart]:
    return [part for part in parts if caller is None or caller.may_read_key(part.policy)]


def _part(part: PolicyPart) -> dict[str, Any]:
    place = {"file": part.file, "line": part.line} if part.file else {}
    return {"type": part.policy.type, "name": part.policy.name, "path": part.path, **place}


def _reason(refused: RefusedResource) -> str:
    if not refused.earlier:
        return refused.reason
    return f"{refused.reason}; NACKed already before this change, for another reason: {refused.earlier}"


def _fault(refused: RefusedResource, caller: ApiCaller) -> RequestFault:
    """Point to the document of the change that the resource is made of. Of stored policies only the names are given."""
    reason = f"{refused.type} {refused.name} of {refused.dataplane.name}: {_reason(refused)}"
    if written := _readable(refused.written, caller):
        first = written[0]
        return RequestFault(first.path, f"{first.policy}: {reason}", file=first.file, line=first.line)
    if stored := list(dict.fromkeys(str(part.policy) for part in _readable(refused.policies, caller))):
        reason = f"{reason}; the change writes none of the policies that this is made of: {few(stored)}"
    return RequestFault("", reason)
