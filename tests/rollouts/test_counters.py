"""What an Envoy counts, as an agent answers it."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from cp.model.envoy_questions import EnvoyAnswer, EnvoyQuestion, EnvoySubject, EnvoyUnanswered, NoAgent
from cp.model.names import Key
from cp.serving.rollouts.conditions import RequestCounts
from cp.serving.rollouts.counters import EnvoyCounters
from cp.serving.rollouts.requests import NoCounts

WEB = Key("Dataplane", "default", "web")
STATS = {
    "http.admin.downstream_rq_completed": 500,
    "http.metrics.downstream_rq_5xx": 7,
    "http.backend.downstream_rq_completed": 100,
    "http.backend.downstream_rq_5xx": 3,
    "http.localhost_80.downstream_rq_completed": 11,
    "http.localhost_80.downstream_rq_5xx": 1,
    "http.backend.downstream_rq_4xx": 50,
    "cluster.backend.upstream_rq_5xx": 90,
}


class FakeEnvoy:
    """An Envoy that filters its stats, or an agent that has no answer."""

    def __init__(self, content: bytes | None = None, fault: EnvoyUnanswered | None = None) -> None:
        self._content, self._fault = content, fault

    async def ask(self, dataplane: Key, question: EnvoyQuestion, within: float) -> EnvoyAnswer:
        assert (dataplane, question.subject, within > 0) == (WEB, EnvoySubject.STATS, True)
        if self._fault is not None:
            raise self._fault
        matching = ({"name": name, "value": value} for name, value in STATS.items() if re.search(question.filter, name))
        return EnvoyAnswer(self._content or json.dumps({"stats": list(matching)}).encode())


def counts(envoy: FakeEnvoy) -> RequestCounts:
    return asyncio.run(EnvoyCounters(envoy).counts(WEB))


def test_requests_to_all_listeners_count_but_those_about_the_envoy_itself() -> None:
    assert counts(FakeEnvoy()) == RequestCounts(111, 4)


def test_without_an_agent_there_are_none_and_it_is_said_why() -> None:
    with pytest.raises(NoCounts, match="no agent of web is connected"):
        counts(FakeEnvoy(fault=NoAgent("no agent of web is connected")))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"stats": 7}',
        b'{"stats": [{"name": "http.a.downstream_rq_5xx"}]}',
        b"x",
        b'{"stats": [{"name": "http.a.downstream_rq_5xx", "value": -1}]}',
        b'{"stats": [{"name": "http.a.downstream_rq_5xx", "value": %s}]}' % (b"9" * 4300),
        b'{"stats": [{"name": "http.a.downstream_rq_5xx", "value": "%s"}]}' % (b"9" * 4300),
        b'{"stats": [{"name": "http.a.downstream_rq_5xx", "value": 1e400}]}',
    ],
)
def test_an_answer_without_counters_is_none(content: bytes) -> None:
    with pytest.raises(NoCounts, match="something else than counters"):
        counts(FakeEnvoy(content or b"{}"))


def test_an_answer_that_would_take_long_to_read_is_not_read() -> None:
    with pytest.raises(NoCounts, match="more than 524288 bytes"):
        counts(FakeEnvoy(b" " * 600_000))
