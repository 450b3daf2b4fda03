"""What the workers of a control plane see together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import pytest

from cp.model.names import Key
from cp.serving.delivery import Delivery, FleetDelta, OwnRevision, Presence, ProxyState
from cp.serving.workers.crew import Crew
from cp.serving.workers.messages import deltas_message, owners_message, presences_message, to_message
from cp.serving.workers.observers import CombinedObserver
from koguma.v1 import workers_pb2 as pb

A = Key("Dataplane", "default", "a")


class TwoWorkers:
    """A crew of two, with what each of them answers."""

    async def ask(self, request: pb.Request) -> Mapping[int, pb.Answer]:
        if request.HasField("owners"):
            first = {"default.a": frozenset({"one"})}
            second = {"default.a": frozenset({"two"}), "default.b": frozenset[str]()}
            return {1: pb.Answer(owners=owners_message(first)), 2: pb.Answer(owners=owners_message(second))}
        if request.HasField("fleet"):
            versions = request.fleet.versions
            return {
                number: pb.Answer(fleet=deltas_message([FleetDelta(source, versions.get(source, 0), 7, True, ())]))
                for number, source in enumerate("xy", 1)
            }
        run = request.dataplane_text
        return {
            1: pb.Answer(dataplane_text=""),
            2: pb.Answer(dataplane_text=f"what {run.owner} of {run.proxy} brought"),
        }


@dataclass
class At:
    """A crew of two with a proxy that is in sync with what the second one serves."""

    revision: int

    async def ask(self, request: pb.Request) -> Mapping[int, pb.Answer]:
        online = Presence(ProxyState.ONLINE, 1.0, ())
        offline = Presence(ProxyState.OFFLINE, None, ())
        if request.HasField("delivery"):
            first, second = (pb.Answer(delivery=to_message(Delivery(A, each, ()))) for each in (offline, online))
        else:
            first, second = (pb.Answer(presences=presences_message({A: each})) for each in (offline, online))
        first.revision, second.revision = 7, self.revision
        return {1: first, 2: second}


def combined(crew: At | TwoWorkers) -> CombinedObserver:
    return CombinedObserver(cast("Crew", crew), lambda: OwnRevision(7, {6: 5.0}.get))


@pytest.mark.parametrize(
    ("revision", "state", "late"),
    [(6, ProxyState.OUT_OF_SYNC, ("worker 2 serves revision 6, and not 7",)), (7, ProxyState.ONLINE, ())],
)
def test_a_proxy_of_a_worker_that_is_behind_is_not_in_sync(
    revision: int, state: ProxyState, late: tuple[str, ...]
) -> None:
    observers = combined(At(revision))

    delivery = asyncio.run(observers.delivery(A))

    assert (delivery.presence.state, delivery.late) == (state, late)
    assert asyncio.run(observers.presences([A]))[A] == delivery.presence


def test_a_proxy_is_connected_wherever_one_of_its_runs_is() -> None:
    observers = combined(TwoWorkers())

    assert asyncio.run(observers.owners()) == {"default.a": frozenset({"one", "two"}), "default.b": frozenset()}
    assert asyncio.run(observers.dataplane_text("default.a", "two")) == "what two of default.a brought"


def test_each_worker_says_what_has_changed_since_the_version_that_is_known_of_it() -> None:
    observers = combined(TwoWorkers())

    deltas = asyncio.run(observers.fleet({"x": 3, "y": 5}))

    assert [(delta.source, delta.version) for delta in deltas] == [("x", 3), ("y", 5)]
