"""The timeline: writes of people, and what became of each: whom it reached, how long that took, and who refused it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from cp.api.caller import ApiCaller, caller_of
from cp.api.collaborators import Collaborators
from cp.api.delivery_data import moment
from cp.api.past import PEOPLE_ALONE, history_page, size_of
from cp.api.revisions import revision_of
from cp.api.write_data import write_data
from cp.model.checkpoint import Checkpoint, checked
from cp.model.names import dataplane_key
from cp.serving.delivery import ChangeReach, CombinedReach, combined_reach
from cp.store.port import ChangeNote

_READ: Final = 1000
"""Changes that are read for one answer; those of one write come together."""


class TimelineHandler:
    """The handler."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators

    async def __call__(self, request: Request) -> Response:
        """The newest writes of people; `?before=REVISION` and `&size=20` for those before."""
        caller, before, size = caller_of(request), revision_of(request, "before"), size_of(request)
        work, questions = self._api.works.resources, self._api.works.questions
        page = await work.wait(request, partial(history_page, self._api, None, _READ, before, PEOPLE_ALONE))
        shown, last = _of_writes(page.changes, size)
        readable = await work.do(request, partial(_readable, shown, caller))
        revisions = {change.revision for change in readable}
        reaches = await questions.wait(request, lambda: self._api.observed.reaches(revisions))
        oldest, newest = await self._api.store.oldest(), await self._api.store.revision()
        is_all = len(shown) == len(page.changes)
        end, is_last = (page.end, page.is_last) if is_all else (last, False)
        following = None if is_last or end <= oldest + 1 else end

        def answer(checkpoint: Checkpoint) -> dict[str, Any]:
            writes = groupby(checked(readable, checkpoint), key=lambda change: change.revision)
            items = [_item(list(changes)[::-1], reaches, caller) for _, changes in writes]
            return {"items": items, "newest": newest, "oldest": oldest, "next": following}

        return await work.json(request, answer)


def _of_writes(changes: Sequence[ChangeNote], size: int) -> tuple[Sequence[ChangeNote], int]:
    """The changes of so many writes, and the revision of the last of these."""
    revisions = list(dict.fromkeys(change.revision for change in changes))[:size]
    last = revisions[-1] if revisions else 0
    return [change for change in changes if change.revision >= last], last


def _readable(changes: Iterable[ChangeNote], caller: ApiCaller, checkpoint: Checkpoint) -> list[ChangeNote]:
    return [change for change in checked(changes, checkpoint) if caller.may_read_key(change.key)]


def _item(changes: Sequence[ChangeNote], reaches: Sequence[Sequence[ChangeReach]], caller: ApiCaller) -> dict[str, Any]:
    """A write; whom it reached, only for those who may look into its meshes, and null where nobody knows."""
    item, revision = write_data(changes), changes[0].revision
    meshes = {change.key.mesh or change.key.name for change in changes}
    if not all(map(caller.may_inspect, meshes)):
        return item
    combined = combined_reach(revision, reaches)
    return item | {"reach": None if combined is None else _reach(combined, caller)}


def _reach(combined: CombinedReach, caller: ApiCaller) -> dict[str, Any]:
    """How long it took is told by moments: the difference is that of two clocks, where they are of two machines."""
    reach = combined.reach
    is_in_force = reach.waiting == reach.refusals == reach.failed == reach.limited == 0
    return {
        "revisions": [reach.previous_revision + 1, reach.revision],
        "published": moment(reach.published_at),
        "inForce": moment(reach.answered_at or reach.published_at) if is_in_force else None,
        "proxies": reach.proxies,
        "have": reach.have,
        "waiting": reach.waiting,
        "gone": reach.gone,
        "refusals": reach.refusals,
        "failed": reach.failed,
        "limited": reach.limited,
        "refused": [proxy for proxy in reach.refused if caller.may_inspect(dataplane_key(proxy).mesh)],
        "complete": combined.is_complete,
    }
