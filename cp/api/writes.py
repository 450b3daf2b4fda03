"""What holds for every write over HTTP: who may make it, which revision it has to find, and what it comes to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cp.access.keys import is_made_here
from cp.access.powers import JUDGED_BY_CHANGE
from cp.api.collaborators import Collaborators
from cp.api.errors import (
    FORBIDDEN,
    METHOD_NOT_ALLOWED,
    PRECONDITION_FAILED,
    TOLD,
    ApiError,
    RequestFault,
    bad_request,
)
from cp.api.numbers import shortened
from cp.model.document import Document
from cp.model.names import Key
from cp.model.secret_names import is_of_authority, is_trust_record
from cp.resources.initial_policies import is_initial
from cp.resources.labels import is_value
from cp.resources.rollout import ROLLOUT_KIND
from cp.store.port import ABSENT, Stored

REVISION_HEADER: Final = "koguma-revision"
"""The revision that a write made. It is not there where the write changed nothing."""

OWNER_HEADER: Final = "koguma-owner"
"""The run of a proxy that registers its Dataplane, or takes it away: nobody else's is."""

_MESH: Final = "Mesh"
_DATAPLANE: Final = "Dataplane"


def is_of_mesh(document: Document) -> bool:
    """Whether nobody wrote a document, but a control plane did for a Mesh."""
    is_own = is_made_here(document) or is_of_authority(document) or document.key.type == ROLLOUT_KIND
    return is_initial(document) or is_own


def derived_from(key: Key, before: Stored | None) -> int | None:
    """Return the revision that a write must find, as labels of a proxy, the engine of a Mesh or rights depend on it.

    Of other kinds it may be any.
    """
    if key.type not in JUDGED_BY_CHANGE | {_DATAPLANE, _MESH}:
        return None
    return ABSENT if before is None else before.revision


def must_be_run(owner: str, field: str) -> str:
    """The id of a run of a proxy, which is written as a label of its Dataplane: nobody makes that invalid so."""
    if not is_value(owner):
        hint = "use letters and digits, 63 at most, as `koguma dp run` does"
        raise bad_request(field, f"`{shortened(owner)}` is no id of a run of a proxy", hint)
    return owner


def outcome_of(before: Stored | None, document: Document) -> str:
    """What a write makes of a resource."""
    if before is None:
        return "Created"
    return "Unchanged" if before.document == document else "Updated"


def is_same(before: Stored | None, after: Document) -> bool:
    """Whether a write changes nothing: documents are equal wherever they stand, and these stand in one place."""
    return before is not None and before.document == after and before.document.source == after.source


def must_be_writable(api: Collaborators) -> None:
    if api.read_only:
        raise read_only("this control plane is set to be read only (KUMA_API_SERVER_READ_ONLY)")


def must_be_for_people(keys: Iterable[Key]) -> None:
    """Check that the control plane alone does not write it: who could would have proxies trust anybody."""
    keys = list(keys)
    if any(key.type == ROLLOUT_KIND for key in keys):
        hint = "`koguma apply --rollout` begins one, and `koguma rollout` pauses or aborts it"
        raise ApiError(FORBIDDEN, "Access denied", f"the control plane alone writes a {ROLLOUT_KIND}; {hint}")
    refusals = [
        f"{key} says whom proxies trust, and the control plane alone writes it" for key in keys if is_trust_record(key)
    ]
    if refusals:
        hint = "give the Mesh or the MeshIdentity another authority, and it follows"
        faults = tuple(RequestFault("", refusal) for refusal in refusals[:TOLD])
        raise ApiError(FORBIDDEN, "Access denied", f"{refusals[0]}; {hint}", faults)


def read_only(reason: str) -> ApiError:
    return ApiError(METHOD_NOT_ALLOWED, "Method not allowed", reason, headers={"allow": "GET, HEAD"})


def conflict(reason: str) -> ApiError:
    return ApiError(PRECONDITION_FAILED, "Conflict", reason)
