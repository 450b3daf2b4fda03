"""What an Envoy says to what a write comes to, before a proxy is sent any of it. See record 0087."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import structlog
from starlette.requests import Request

from cp.api.caller import ApiCaller, caller_of
from cp.api.errors import TOLD, UNAVAILABLE, UNPROCESSABLE, ApiError, RequestFault
from cp.model.names import Key
from cp.serving.preflight.preflight import PreflightOutcome, RefusedResource, UnseenResource
from cp.serving.preflight.scratch import EnvoyUnavailable

_TITLE: Final = "Refused in preflight"

log = structlog.get_logger()


def must_be_accepted(request: Request, outcome: PreflightOutcome) -> None:
    """Check that an Envoy takes what a write comes to. Raises `ApiError` with its words.

    Who may not see what the proxies of a mesh are served hears that something is refused there, and not what.
    """
    if not outcome.refused:
        return
    caller = caller_of(request)
    logged = outcome.refused[0]
    log.warning("api.preflight_refused", resource=logged.name, reason=logged.reason, **caller.traces)
    refused = [resource for resource in outcome.refused if _may_know(caller, resource.dataplane)]
    if refused:
        first = refused[0]
        detail = f"Envoy {outcome.envoy} refuses the {first.type} {first.name} that follow from it: {first.reason}"
    else:
        detail = f"Envoy {outcome.envoy} refuses something that follows from it in a mesh that you may not look into"
    faults = tuple(_fault(resource, caller) for resource in refused[:TOLD])
    raise ApiError(UNPROCESSABLE, _TITLE, detail, faults)


def unavailable(request: Request, error: EnvoyUnavailable) -> ApiError:
    log.warning("api.preflight_failed", reason=str(error), **caller_of(request).traces)
    way_around = "`?preflight=false` (koguma: --no-preflight) writes without it"
    detail = f"the Envoy that is to be asked first is not available: {error}; {way_around}"
    return ApiError(UNAVAILABLE, "Preflight is not possible", detail)


def warnings_of(outcome: PreflightOutcome, caller: ApiCaller, not_compared: Iterable[str] = ()) -> Iterator[str]:
    """What an Envoy was not asked about."""
    yield from (f"not shown to an Envoy: {sentence}" for sentence in not_compared)
    for unseen in outcome.unseen:
        if _may_know(caller, unseen.dataplane):
            yield f"the {unseen.type} {unseen.name} were not shown to an Envoy: {unseen.reason}"


def preflight_data(
    outcome: PreflightOutcome, caller: ApiCaller | None = None, not_compared: Sequence[str] = ()
) -> dict[str, Any]:
    """What an Envoy says, as JSON, and what nobody could work out to show it.

    Of meshes of which the caller may not see what proxies are served only numbers are told, and policies that he may
    not read are not named.
    """
    refused = [_refused(resource, caller) for resource in outcome.refused if _may_know(caller, resource.dataplane)]
    unseen = [_unseen(resource) for resource in outcome.unseen if _may_know(caller, resource.dataplane)]
    untold = {"refused": len(outcome.refused) - len(refused), "notShown": len(outcome.unseen) - len(unseen)}
    return {
        "envoy": outcome.envoy,
        "shown": outcome.shown,
        "proxies": outcome.proxies,
        "refused": refused,
        "notShown": unseen,
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
    policies = [part for part in refused.policies if caller is None or caller.may_read_key(part.policy)]
    return {
        "type": refused.type,
        "name": refused.name,
        "mesh": refused.dataplane.mesh,
        "proxy": refused.dataplane.name,
        "reason": refused.reason,
        "policies": [
            {
                "type": part.policy.type,
                "name": part.policy.name,
                "path": part.path,
                **({"file": part.file, "line": part.line} if part.file else {}),
            }
            for part in policies
        ],
    }


def _fault(refused: RefusedResource, caller: ApiCaller) -> RequestFault:
    """At the policy that is the likeliest, as far as the caller may know of it."""
    parts = [part for part in refused.policies if caller.may_read_key(part.policy)]
    reason = f"{refused.type} {refused.name} of {refused.dataplane.name}: {refused.reason}"
    if not parts:
        return RequestFault("", reason)
    first = parts[0]
    return RequestFault(first.path, f"{first.policy}: {reason}", file=first.file, line=first.line)
