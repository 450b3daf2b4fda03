"""When the store in PostgreSQL says that it cannot be read."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from structlog.testing import capture_logs

from cp.store.feed import RevisionSignal
from cp.store.port import StoreUnreachable, Unusable
from cp.store.postgres.contact import Contact
from cp.store.postgres.listener import RevisionListener

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
AWAY = "the store is away since 2026-01-01T12:00:00.000000Z: nothing listens there; what was read before stays in force"
UNREAD = AWAY.replace("is away", "is not read")
NOBODY: Any = None


def contact() -> Contact:
    return Contact(lambda: NOON)


def test_an_outage_ends_when_who_follows_comes_again_after_he_was_given_what_he_missed() -> None:
    lost = contact()
    with capture_logs() as lines, lost.reading() as reader:
        reader.given_at = lost.losses
        lost.lose(StoreUnreachable("nothing listens there"))
        assert lost.text == AWAY
        lost.regain()
        lost.note_reader(reader)
        assert lost.text == UNREAD, "what he was given is of the time before"
        reader.given_at = lost.losses
        assert lost.text == UNREAD, "he has not come again"
        lost.note_reader(reader)
        assert lost.text == ""

    assert [line["event"] for line in lines] == ["store.unreachable", "store.reachable"]


def test_an_outage_ends_at_once_where_nobody_follows() -> None:
    lost = contact()
    with lost.reading():
        lost.lose(StoreUnreachable("nothing listens there"))
        lost.regain()
        assert lost.text == UNREAD
    assert lost.text == ""

    lost.lose(StoreUnreachable("nothing listens there"))
    lost.regain()
    assert lost.text == ""


def test_who_looked_before_somebody_found_out_more_does_not_say_that_all_is_well() -> None:
    lost, found = contact(), iter([True, False])

    async def newest(_connection: object) -> int:
        if next(found):
            lost.lose(Unusable("of a newer version"))
        return 7

    async def scenario() -> None:
        listener = RevisionListener(NOBODY, newest, RevisionSignal(), lost)
        await listener._look(NOBODY)
        assert "of a newer version" in lost.text
        await listener._look(NOBODY)
        assert lost.text == ""

    asyncio.run(scenario())
