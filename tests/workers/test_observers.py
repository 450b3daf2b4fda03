"""What the workers of a control plane see together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

from cp.serving.delivery import FleetDelta
from cp.serving.workers.crew import Crew
from cp.serving.workers.messages import deltas_message, owners_message
from cp.serving.workers.observers import CombinedObserver
from koguma.v1 import workers_pb2 as pb


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


def test_a_proxy_is_connected_wherever_one_of_its_runs_is() -> None:
    observers = CombinedObserver(cast("Crew", TwoWorkers()))

    assert asyncio.run(observers.owners()) == {"default.a": frozenset({"one", "two"}), "default.b": frozenset()}
    assert asyncio.run(observers.dataplane_text("default.a", "two")) == "what two of default.a brought"


def test_each_worker_says_what_has_changed_since_the_version_that_is_known_of_it() -> None:
    observers = CombinedObserver(cast("Crew", TwoWorkers()))

    deltas = asyncio.run(observers.fleet({"x": 3, "y": 5}))

    assert [(delta.source, delta.version) for delta in deltas] == [("x", 3), ("y", 5)]
