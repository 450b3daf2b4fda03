"""What the workers of a control plane see together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

from cp.serving.workers.crew import Crew
from cp.serving.workers.messages import owners_message
from cp.serving.workers.observers import CombinedObserver
from koguma.v1 import workers_pb2 as pb


class TwoWorkers:
    """A crew of two, with what each of them answers."""

    async def ask(self, request: pb.Request) -> Mapping[int, pb.Answer]:
        if request.HasField("owners"):
            first = {"default.a": frozenset({"one"})}
            second = {"default.a": frozenset({"two"}), "default.b": frozenset[str]()}
            return {1: pb.Answer(owners=owners_message(first)), 2: pb.Answer(owners=owners_message(second))}
        run = request.dataplane_text
        return {
            1: pb.Answer(dataplane_text=""),
            2: pb.Answer(dataplane_text=f"what {run.owner} of {run.proxy} brought"),
        }


def test_a_proxy_is_connected_wherever_one_of_its_runs_is() -> None:
    observers = CombinedObserver(cast("Crew", TwoWorkers()))

    assert asyncio.run(observers.owners()) == {"default.a": frozenset({"one", "two"}), "default.b": frozenset()}
    assert asyncio.run(observers.dataplane_text("default.a", "two")) == "what two of default.a brought"
