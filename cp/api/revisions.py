"""Revisions in the parameters of a request, and what was stored at them.

See record 0080.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from starlette.requests import Request

from cp.api.collaborators import Collaborators
from cp.api.errors import ApiError, bad_request
from cp.api.numbers import natural, shortened
from cp.model.moments import moment
from cp.model.names import Key
from cp.model.violation import Finding, Severity
from cp.store.at_rest import UNREADABLE
from cp.store.past import PastDocuments, RecentPast, recent_past, recent_past_of_changed
from cp.store.port import Contents, Outdated, Stored

AT: Final = "at"
"""The parameter of questions about what was stored at a revision."""

_OLD_KEY: Final = "if the key that it was encrypted with is still there, put it after the first one for a while"


def revision_of(request: Request, parameter: str) -> int | None:
    """The revision that a parameter names; None if it is not there."""
    text = request.query_params.get(parameter)
    if text is None:
        return None
    revision = natural(text)
    if revision is None:
        raise bad_request(parameter, f"`{shortened(text)}` is no revision", "koguma history lists them")
    return revision


async def past_since(request: Request, api: Collaborators, since: int, parameter: str) -> RecentPast:
    """What happened since a revision. A parameter gave it, which the answer names if there is no such revision."""
    contents = await api.contents(request)
    return await _read(request, api, partial(recent_past, api.store, contents, since), parameter)


async def past_of_changed(request: Request, api: Collaborators, since: int, parameter: str) -> RecentPast:
    """The same of what has changed since then alone."""
    return await _read(request, api, partial(recent_past_of_changed, api.store, since), parameter)


async def _read(
    request: Request, api: Collaborators, reading: Callable[[], Coroutine[Any, Any, RecentPast]], parameter: str
) -> RecentPast:
    try:
        return await api.works.resources.wait(request, reading)
    except Outdated as error:
        raise _not_kept(error, parameter) from None


async def contents_at(request: Request, api: Collaborators) -> Contents:
    """Everything that was stored at the revision that the request names."""
    revision = revision_of(request, AT)
    if revision is None:
        return await api.contents(request)
    past = await past_since(request, api, revision, AT)
    return await api.works.resources.do(request, lambda _: _contents(past, past.at(revision)))


def _contents(past: RecentPast, documents: PastDocuments) -> Contents:
    """The same as a store tells it. When each was last changed is not known, so it is as if nobody had."""
    known = {change.key: change.at for change in past.changes}
    known |= {stored.document.key: stored.created for stored in past.contents.stored}
    dated = (
        (document, moment(document.source.created) or known[key])
        for key, document in sorted(documents.documents.items())
    )
    stored = [Stored(document, documents.revision, made, made) for document, made in dated]
    return Contents(documents.revision, stored, tuple(map(_unreadable, sorted(documents.unreadable))))


def _unreadable(key: Key) -> Finding:
    return Finding(UNREADABLE, Severity.ERROR, key, "cannot be decrypted as it was then")


def without_contents(contents: Contents) -> Sequence[Key]:
    """What is stored at a revision and not told, as nothing of it can be decrypted."""
    keys = {finding.resource for finding in contents.findings if finding.code == UNREADABLE}
    return sorted(key for key in keys - {stored.document.key for stored in contents.stored} if key is not None)


def must_be_known(contents: Contents, key: Key) -> None:
    """Raises `ApiError` for what was there at a revision, but cannot be decrypted: it is not absent."""
    if key in without_contents(contents):
        raise bad_request(AT, f"{key} cannot be decrypted as it was at revision {contents.revision}", _OLD_KEY)


def _not_kept(error: Outdated, parameter: str) -> ApiError:
    if error.since > error.newest:
        return bad_request(parameter, f"there is no revision {error.since} yet", f"the newest is {error.newest}")
    reason = f"revision {error.since} is forgotten"
    hint = f"the oldest that is kept is {error.oldest} (KOGUMA_HISTORY_REVISIONS, KOGUMA_HISTORY_AGE)"
    return bad_request(parameter, reason, hint)
