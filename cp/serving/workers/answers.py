"""What an observer of proxies answers to those who ask it with messages: a worker, and another control plane."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from cp.model.names import Key
from cp.serving.delivery import ChangeProgress, ChangeReach, Delivery, FleetDelta, NackReport, Presence
from cp.serving.workers.messages import (
    deltas_message,
    from_message,
    keys_of,
    nack_reports_message,
    owners_message,
    presences_message,
    reaches_message,
    to_message,
)
from koguma.v1 import workers_pb2 as pb


class AnsweringObserver(Protocol):
    """What proxies make of what they are served, here or in workers."""

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]: ...

    async def owners(self) -> Mapping[str, frozenset[str]]: ...

    async def dataplane_text(self, proxy: str, owner: str) -> str: ...

    async def delivery(self, dataplane: Key) -> Delivery: ...

    async def nack_reports(self) -> Iterable[NackReport]: ...

    async def fleet(self, versions: Mapping[str, int]) -> Sequence[FleetDelta]: ...

    async def reaches(self, revisions: Collection[int]) -> Sequence[Sequence[ChangeReach]]: ...

    async def final_progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> ChangeProgress: ...


async def answer_of(observer: AnsweringObserver, request: pb.Request) -> pb.Answer:
    """What an observer answers to a request about its proxies."""
    match request.WhichOneof("question"):
        case "presences":
            presences = await observer.presences(keys_of(request.presences.keys))
            answer = pb.Answer(presences=presences_message(presences))
        case "owners":
            answer = pb.Answer(owners=owners_message(await observer.owners()))
        case "dataplane_text":
            run = request.dataplane_text
            answer = pb.Answer(dataplane_text=await observer.dataplane_text(run.proxy, run.owner))
        case "delivery":
            answer = pb.Answer(delivery=to_message(await observer.delivery(from_message(request.delivery, Key))))
        case "nack_reports":
            answer = pb.Answer(nack_reports=nack_reports_message(await observer.nack_reports()))
        case _:
            answer = await _answer_about_all(observer, request)
    return answer


async def dated_answer_of(observer: AnsweringObserver, request: pb.Request, revision: Callable[[], int]) -> pb.Answer:
    """The same, with the revision that is served."""
    served = revision()  # before, so that what follows is of it at the least
    answer = await answer_of(observer, request)
    answer.revision = served
    if answer.HasField("presences"):  # where an earlier version looks for it
        answer.presences.revision = served
    return answer


async def _answer_about_all(observer: AnsweringObserver, request: pb.Request) -> pb.Answer:
    """What it answers to a question that names no proxy."""
    match request.WhichOneof("question"):
        case "fleet":
            answer = pb.Answer(fleet=deltas_message(await observer.fleet(request.fleet.versions)))
        case "reaches":
            answer = pb.Answer(reaches=reaches_message(await observer.reaches(request.reaches.revisions)))
        case "final_progress":
            scope = request.final_progress
            progress = await observer.final_progress(scope.revisions, keys_of(scope.resources), scope.within)
            answer = pb.Answer(final_progress=to_message(progress))
        case question:
            raise LookupError(f"nobody here answers the question {question}")
    return answer
