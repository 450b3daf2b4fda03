"""What Envoys have counted of the calls in a graph: asked of a few proxies of each group, and of so many in all."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from cp.insight.graph import CallerGroup, MeshGraph
from cp.model.envoy_questions import EnvoyQuestion, EnvoySubject, EnvoyUnanswered
from cp.model.names import Key
from cp.serving.delivery import SEVERITY, ProxyState
from cp.serving.instances.envoy_links import EnvoyLinks

_OF_GROUP: Final = 2
_IN_ALL: Final = 40
_AT_ONCE: Final = 10
_WITHIN: Final = 5.0
"""Seconds that an Envoy has to answer."""

_COUNTED: Final = ("upstream_rq_total", "upstream_cx_total")
"""Requests; and connections, for what is no HTTP: Envoy counts none of its requests."""

_QUESTION: Final = EnvoyQuestion(EnvoySubject.STATS, filter=rf"^cluster\..*\.({'|'.join(_COUNTED)})$")
_ASKED_STATES: Final = frozenset(SEVERITY)

Requests: TypeAlias = Mapping[str, int]
"""How many requests, or connections, some proxies have sent by each cluster since they were started."""


@dataclass(frozen=True, slots=True)
class TrafficSample:
    """What some of the proxies of each group have counted."""

    at: float | None = None
    """Seconds since 1970; None: nobody was asked."""

    asked: int = 0
    answered: int = 0
    by_group: Sequence[Requests | None] = ()
    """None where none of a group has answered."""


class _Stat(msgspec.Struct, frozen=True):
    name: str = ""
    value: float | str = 0
    """Text where it is no counter."""


class _Stats(msgspec.Struct, frozen=True):
    stats: list[_Stat] = []


async def sampled(envoys: EnvoyLinks, graph: MeshGraph, states: Mapping[Key, ProxyState]) -> TrafficSample:
    """Ask some proxies of each group that calls somebody, the first groups first where there are too many."""
    chosen = list(_chosen(graph.groups, states))[:_IN_ALL]
    room = asyncio.Semaphore(_AT_ONCE)
    answers = await asyncio.gather(*(_counted(envoys, proxy, room) for _, proxy in chosen))
    by_group: list[Counter[str] | None] = [None] * len(graph.groups)
    for (number, _), counts in zip(chosen, answers, strict=True):
        if counts is not None:
            by_group[number] = (by_group[number] or Counter()) + counts
    answered = sum(counts is not None for counts in answers)
    return TrafficSample(time.time(), len(chosen), answered, by_group)


def _chosen(groups: Sequence[CallerGroup], states: Mapping[Key, ProxyState]) -> Iterator[tuple[int, Key]]:
    """One proxy of each group before the second of any."""
    for place in range(_OF_GROUP):
        for number, group in enumerate(groups):
            connected = [key for key in group.proxies if states.get(key) in _ASKED_STATES] if group.calls else []
            yield from ((number, key) for key in connected[place : place + 1])


async def _counted(envoys: EnvoyLinks, proxy: Key, room: asyncio.Semaphore) -> Counter[str] | None:
    """By the cluster, as Envoy calls it in its stats."""
    async with room:
        try:
            answer = await envoys.ask(proxy, _QUESTION, _WITHIN)
            stats = msgspec.json.decode(answer.content, type=_Stats)
        except (EnvoyUnanswered, msgspec.DecodeError):
            return None
    counts: Counter[str] = Counter()
    for stat in stats.stats:
        cluster, _, counter = stat.name.removeprefix("cluster.").rpartition(".")
        if counter in _COUNTED and not isinstance(stat.value, str):
            counts[cluster] = max(counts[cluster], int(stat.value))
    return counts
