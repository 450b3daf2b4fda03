"""What a client asked for, of a part that many have."""

from __future__ import annotations

from cp.ads.session.subscription import Subscription
from cp.translate.packing import ENDPOINTS
from cp.translate.snapshot import Snapshot, SnapshotPart
from tests.ads.content import endpoints

NAMES = [f"e{number:02}" for number in range(40)]


def subscription(*names: str) -> Subscription:
    asked = Subscription(ENDPOINTS)
    asked.names = frozenset(names)
    return asked


def test_a_part_that_is_asked_for_as_a_whole_goes_on_being_so() -> None:
    part = SnapshotPart(map(endpoints, NAMES))
    asked = subscription(*NAMES, "of-its-own")

    for newer in (part, part.updated([endpoints("e07", 1)]), part.updated([endpoints("e07", 2)])):
        (batch,) = asked.batches_of(Snapshot(newer))
        assert batch is newer.whole(ENDPOINTS)
        assert newer.names(ENDPOINTS) is part.names(ENDPOINTS)


def test_who_asks_for_less_gets_less_of_the_same_part() -> None:
    part = SnapshotPart(map(endpoints, NAMES))
    asked = subscription(*NAMES)
    asked.batches_of(Snapshot(part))

    asked.names = frozenset(NAMES[:3])

    (batch,) = asked.batches_of(Snapshot(part))
    assert [packed.name for packed in batch] == NAMES[:3]


def test_a_part_with_more_in_it_is_another() -> None:
    asked = subscription(*NAMES)
    asked.batches_of(Snapshot(SnapshotPart(map(endpoints, NAMES))))

    (batch,) = asked.batches_of(Snapshot(SnapshotPart(map(endpoints, [*NAMES, "one-more"]))))

    assert batch.names == frozenset(NAMES)
