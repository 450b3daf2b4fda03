"""The line of writes that a store follows, and when it is another one."""

from __future__ import annotations

from uuid import UUID

import pytest

from cp.store.postgres.rows import Head
from cp.store.postgres.timeline import LastWrite, Timeline

SEEN, OTHER = UUID(int=1), UUID(int=2)


@pytest.mark.parametrize(
    ("asked", "known", "revision", "number"),
    [
        (SEEN, SEEN, 5, 0),
        (SEEN, OTHER, 5, 1),
        (SEEN, None, 5, 0),
        (None, OTHER, 5, 0),
        (SEEN, SEEN, 4, 1),
        (SEEN, SEEN, 6, 0),
    ],
)
def test_timeline_begins_by_another_mark_or_lower_revision(
    asked: UUID | None, known: UUID | None, revision: int, number: int
) -> None:
    timeline = Timeline()
    timeline.seen = LastWrite(5, asked)
    head = Head(revision, 0, 0, 0, 0, 1, None, mark=UUID(int=3), known_mark=known)

    assert timeline.note(timeline.seen, head) == number
    assert timeline.seen.revision == revision


def test_timeline_ignores_answers_about_an_earlier_line() -> None:
    timeline = Timeline()
    timeline.seen = LastWrite(5, SEEN, number=1)

    assert timeline.note(LastWrite(9, OTHER, number=0), Head(9, 0, 0, 0, 0, 1, None)) is None
    assert timeline.seen == LastWrite(5, SEEN, number=1)
