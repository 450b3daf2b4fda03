"""What was stored at earlier revisions, worked out backwards from what is stored and the changes since.

See record 0080.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from cp.model.document import Document
from cp.model.names import Key
from cp.model.registration import unlabelled
from cp.store.port import Change, ChangeNote, Conflict, Contents, Outdated, Store
from cp.store.registrations import is_registration

T = TypeVar("T", Change, ChangeNote)

_MESH: Final = "Mesh"
_AT_ONCE: Final = 1000
"""Changes that are read at a time. A store serves others between."""

_ATTEMPTS: Final = 8
"""How often documents are read that somebody else writes meanwhile."""


@dataclass(frozen=True, slots=True)
class PastDocuments:
    """The documents of one revision."""

    revision: int
    documents: Mapping[Key, Document]
    unreadable: frozenset[Key] = frozenset()
    """Those of which nobody can tell how they were, because what a change put an end to cannot be decrypted."""

    uncertain: frozenset[Key] = frozenset()
    """Dataplanes that may have been different: proxies changed them next, and the log merges such changes."""


@dataclass(frozen=True, slots=True)
class RecentPast:
    """What is stored at a revision, or some of it, and every change to it since an earlier one, newest first."""

    contents: Contents
    since: int
    changes: Sequence[Change]

    @property
    def newest(self) -> int:
        return self.contents.revision

    def at(self, revision: int) -> PastDocuments:
        """The documents as they were when a revision had been written. It is between `since` and the newest."""
        documents = {stored.document.key: stored.document for stored in self.contents.stored}
        unreadable: set[Key] = set()
        uncertain: set[Key] = set()
        for change in self.changes:
            if change.revision <= revision:
                break
            (uncertain.add if _may_be_merged(change) else uncertain.discard)(change.key)
            if change.before is not None:
                documents[change.key] = change.before
                unreadable.discard(change.key)
            else:
                documents.pop(change.key, None)
                (unreadable.add if change.is_unreadable_before else unreadable.discard)(change.key)
        return PastDocuments(revision, documents, frozenset(unreadable), frozenset(uncertain))

    def changed_between(self, earlier: int, later: int) -> Sequence[Key]:
        """The documents that were written after a revision, up to another."""
        return tuple(dict.fromkeys(change.key for change in self.changes if earlier < change.revision <= later))


def _may_be_merged(change: Change) -> bool:
    """True if there may have been other contents between the two sides of a change: see `cp.store.registrations`."""
    if not is_registration([change]):
        return False
    before, after = (None if side is None else unlabelled(side).data for side in (change.before, change.after))
    return before != after


async def recent_past(store: Store, contents: Contents, since: int) -> RecentPast:
    """What happened since a revision. Raises `Outdated` if that is forgotten, or not yet there."""
    return RecentPast(contents, since, await _changes(store, since, contents.revision))


async def recent_past_of_changed(store: Store, since: int) -> RecentPast:
    """The same of what has changed since then, and of the Meshes that it is in: all else is not read.

    A Mesh that came or went concerns all that is in it, and then everything is read. What is read is of one revision:
    where somebody writes one of these documents meanwhile, it is read again. Raises `Conflict` if that has no end.
    """
    newest = await store.revision()
    changes = await _changes(store, since, newest)
    for _ in range(_ATTEMPTS):
        keys = {change.key for change in changes}
        if any(key.type == _MESH for key in keys):
            return await recent_past(store, await store.read(), since)
        keys |= {Key(_MESH, "", key.mesh) for key in keys if key.mesh}
        stored = await store.find(*keys)
        later = await _changes(store, newest, await store.revision())
        if not any(change.key in keys for change in later):
            return RecentPast(Contents(newest, tuple(stored.values())), since, changes)
        newest, changes = later[0].revision, [*later, *changes]
    raise Conflict(changes[0].key, since, newest)


async def _changes(store: Store, since: int, newest: int) -> list[Change]:
    """The changes after a revision up to another, newest first."""
    changes: list[Change] = []
    before = newest + 1
    while since < newest and before > since + 1:
        most = min(_AT_ONCE, before - since - 1)  # a revision has one change or more
        part = await whole_writes(partial(store.history, None), most, before)
        changes += (change for change in part if change.revision > since)
        before = part[-1].revision if part else 0
    oldest = await store.oldest()  # now, as it may have been forgotten while it was read
    if not oldest <= since <= newest:
        raise Outdated(since, oldest, newest)
    return changes


async def whole_writes(
    newest: Callable[[int, int | None], Awaitable[Sequence[T]]], limit: int, before: int | None = None
) -> Sequence[T]:
    """The newest changes, but all or none of what one write made. They are more than the limit if one write is."""
    while True:
        changes = await newest(limit + 1, before)
        if len(changes) <= limit:
            return changes
        whole = [change for change in changes if change.revision > changes[-1].revision]
        if whole:
            return whole
        limit += len(changes)
