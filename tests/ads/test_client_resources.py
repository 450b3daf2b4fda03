"""What a client has that differs from its snapshot."""

from __future__ import annotations

from cp.ads.session.client_resources import ClientResources
from cp.ads.session.subscription import Subscription
from cp.translate.packing import ENDPOINTS, PackedResource
from cp.translate.snapshot import EMPTY, Snapshot, SnapshotPart
from tests.ads.content import endpoints

NAMES = [f"e{number:03}" for number in range(200)]


class CountingSnapshot(Snapshot):
    """A snapshot that counts how often one of its resources is looked up."""

    lookups = 0

    def get(self, type_url: str, name: str) -> PackedResource | None:
        self.lookups += 1
        return super().get(type_url, name)


def test_unsubscribing_one_by_one_has_linear_cost() -> None:
    subscription = Subscription(ENDPOINTS)
    subscription.add(frozenset(NAMES))
    resources = ClientResources(subscription, repeats_all=False, can_remove=True)
    leaving = CountingSnapshot(SnapshotPart(map(endpoints, NAMES)))
    resources.deviate({name: endpoints(name).version for name in NAMES})

    for name in NAMES:
        subscription.remove(frozenset({name}))
        resources.forget([name])
        assert resources.end_deviations(EMPTY, leaving, may_remove=False) == ([], [])

    assert leaving.lookups < 3 * len(NAMES)
    assert not resources.deviations


def test_new_deviation_is_ended_for_the_same_snapshot() -> None:
    subscription = Subscription(ENDPOINTS)
    subscription.add(frozenset(NAMES))
    resources = ClientResources(subscription, repeats_all=False, can_remove=True)
    snapshot = Snapshot(SnapshotPart(map(endpoints, NAMES)))
    resources.end_deviations(snapshot, EMPTY, may_remove=True)

    resources.deviate({"e007": "older", "gone": "1"})
    subscription.add(frozenset({"gone"}))
    updated, removed = resources.end_deviations(snapshot, EMPTY, may_remove=True)

    assert ([packed.name for packed in updated], removed) == (["e007"], ["gone"])
