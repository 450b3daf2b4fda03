"""Everything that is to be found now, put together of those who know a part of it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from cp.api.collaborators import Collaborators
from cp.api.grpc_clients import certified_clients
from cp.insight.lint import in_order, lint
from cp.model.checkpoint import Checkpoint
from cp.model.names import Key
from cp.model.violation import Finding
from cp.policies import Policies
from cp.resources.world import World
from cp.serving.delivery import NackReport, finding, grouped
from cp.serving.trust_moves import TrustMove

T = TypeVar("T")


class Waiting(Protocol):
    """Waits for somebody else's answer, for as long as whoever asks may wait."""

    async def __call__(self, asking: Callable[[], Coroutine[Any, Any, T]]) -> T: ...


@dataclass(frozen=True, slots=True)
class FindingSources:
    """What was asked before anything is worked out."""

    world: World
    clients: Mapping[Key, bool]
    nack_reports: Sequence[NackReport]
    moves: Sequence[TrustMove]
    own: Sequence[Finding]


async def finding_sources(api: Collaborators, world: World, meshes: Iterable[str], waiting: Waiting) -> FindingSources:
    """Asks everybody. `meshes` are those of which it is told what goes on with mTLS."""
    clients = await waiting(lambda: certified_clients(api.observed, world))
    nack_reports = tuple(await waiting(api.observed.nack_reports))
    moves = await waiting(lambda: api.moves(world, meshes))
    own = tuple(api.own_findings())  # last: who did not answer just now is among them
    return FindingSources(world, clients, nack_reports, moves, own)


def findings_of(policies: Policies, sources: FindingSources, checkpoint: Checkpoint, now: float) -> list[Finding]:
    """All findings, the worst first; `now` is in seconds since 1970."""
    refused = map(finding, grouped(sources.nack_reports))
    waiting = (finding for move in sources.moves for finding in move.findings())
    of_world = lint(policies, sources.world, checkpoint, now, sources.clients)
    return list(in_order((*sources.own, *refused, *waiting, *of_world)))
