"""`EnvoyCounters`: the requests that an Envoy has answered, as it counts them itself, asked by way of its agent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Protocol

import msgspec

from cp.model.envoy_questions import EnvoyAnswer, EnvoyQuestion, EnvoySubject, EnvoyUnanswered
from cp.model.names import Key
from cp.serving.rollouts.conditions import RequestCounts
from cp.serving.rollouts.requests import NoCounts

_WITHIN: Final = 5.0
_LARGEST: Final = 512 * 1024
_REQUESTS: Final = ".downstream_rq_completed"
_ERRORS: Final = ".downstream_rq_5xx"
_QUESTION: Final = EnvoyQuestion(EnvoySubject.STATS, filter=r"^http\..*\.downstream_rq_(completed|5xx)$")
_NOT_FOR_WORKLOADS: Final = ("http.admin.", "http.metrics.")
"""What asks an Envoy about itself is no traffic."""


class _Stat(msgspec.Struct, frozen=True):
    name: str
    value: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Stats(msgspec.Struct, frozen=True):
    """As Envoy's admin interface writes them. Whoever answers may be anybody who has the proxy's token."""

    stats: list[_Stat]


class EnvoyQuestioner(Protocol):
    """Who asks Envoys. Raises `EnvoyUnanswered`."""

    async def ask(self, dataplane: Key, question: EnvoyQuestion, within: float) -> EnvoyAnswer: ...


class EnvoyCounters:
    """All requests to the listeners of a proxy: those of its own workload, and those of others to it."""

    def __init__(self, envoys: EnvoyQuestioner) -> None:
        self._envoys = envoys

    async def counts(self, dataplane: Key) -> RequestCounts:
        try:
            answer = await self._envoys.ask(dataplane, _QUESTION, _WITHIN)
            if len(answer.content) > _LARGEST:
                raise NoCounts(f"the Envoy of {dataplane} answers with more than {_LARGEST} bytes of counters")
            stats = msgspec.json.decode(answer.content, type=_Stats).stats
            return RequestCounts(_sum(stats, _REQUESTS), _sum(stats, _ERRORS))
        except EnvoyUnanswered as unanswered:
            raise NoCounts(str(unanswered)) from None
        except ValueError:
            raise NoCounts(f"the Envoy of {dataplane} answers with something else than counters") from None


def _sum(stats: Iterable[_Stat], ending: str) -> int:
    counted = (stat for stat in stats if not stat.name.startswith(_NOT_FOR_WORKLOADS))
    return sum(stat.value for stat in counted if stat.name.endswith(ending))
