"""A write as it is told to machines: who made it, when, and what became of which resources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cp.api.past import named, word_of
from cp.model.moments import timestamp
from cp.store.port import ChangeNote

LISTED: Final = 100
"""Resources of one write that are named; of the others it is said how many they are."""


def write_data(changes: Sequence[ChangeNote]) -> dict[str, Any]:
    """The changes of one write, or those of them that somebody may read."""
    first = changes[0]
    return {
        "revision": first.revision,
        "time": timestamp(first.at),
        "author": first.author.name,
        "origin": first.author.origin,
        "resources": [{**named(change.key), "change": word_of(change)} for change in changes[:LISTED]],
        "more": max(0, len(changes) - LISTED),
    }
