"""The links that agents hold, and what is asked and answered over them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from cp.model.envoy_questions import (
    HEARTBEAT,
    AgentFault,
    EnvoyAnswer,
    EnvoyQuestion,
    EnvoySubject,
    NoAgent,
    SilentAgent,
)
from cp.model.names import Key
from cp.serving.agent_links import AgentLinks, LinksFull, NotAsked
from tests.support.waiting import eventually_on_loop

WEB, API = Key("Dataplane", "default", "web"), Key("Dataplane", "default", "api")
STATS = EnvoyQuestion(EnvoySubject.STATS, filter="^cluster")
SUBJECTS = ("stats",)
ANSWER = EnvoyAnswer(b"{}")


class Agent:
    """One that holds links, and has what it was sent on them."""

    def __init__(self, links: AgentLinks, dataplane: Key = WEB) -> None:
        self._links, self._dataplane = links, dataplane
        self.sent = b""
        self._over = asyncio.Event()

    async def _send(self, piece: bytes, more: bool) -> None:
        self.sent += piece
        if not more:
            self._over.set()

    @asynccontextmanager
    async def linked(self) -> AsyncIterator[None]:
        self._over.clear()
        async with self._links.held(self._dataplane, SUBJECTS, self._send):
            yield

    async def question(self) -> dict[str, Any]:
        """The next one."""
        self.sent = b""
        async with self.linked():
            await self.ended()
        question: dict[str, Any] = json.loads(self.sent)
        return question

    def has(self, sent: bytes) -> bool:
        return self.sent == sent

    async def ended(self) -> None:
        await self._over.wait()

    def answer(self, question: dict[str, Any], answer: EnvoyAnswer | AgentFault = ANSWER) -> None:
        self._links.answer(self._dataplane, question["id"], answer)


def play(scenario: Callable[[AgentLinks], Awaitable[None]], most: int = 10) -> None:
    async def timed() -> None:
        async with asyncio.timeout(10):
            await scenario(AgentLinks(most))

    asyncio.run(timed())


def test_a_question_ends_the_link_and_is_answered_once() -> None:
    async def scenario(links: AgentLinks) -> None:
        agent = Agent(links)
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(agent.question())
            await asyncio.sleep(0)
            answer = group.create_task(links.ask(WEB, STATS, 5))
            question = await asked
            assert (question["subject"], question["filter"]) == ("stats", "^cluster")
            assert 0 < question["within"] <= 5
            agent.answer(question)
        assert answer.result() is ANSWER
        with pytest.raises(NotAsked):
            agent.answer(question)

    play(scenario)


def test_nobody_answers_what_another_proxy_was_asked() -> None:
    async def scenario(links: AgentLinks) -> None:
        agent = Agent(links)
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(agent.question())
            await asyncio.sleep(0)
            answer = group.create_task(links.ask(WEB, STATS, 5))
            question = await asked
            for dataplane, id_ in ((API, question["id"]), (WEB, "0123456789abcdef")):
                with pytest.raises(NotAsked), links.taking(dataplane, id_):
                    pass
                with pytest.raises(NotAsked):
                    links.answer(dataplane, id_, EnvoyAnswer(b"forged"))
            agent.answer(question)
        assert answer.result() is ANSWER

    play(scenario)


def test_of_many_answers_to_a_question_one_is_read_at_a_time() -> None:
    async def scenario(links: AgentLinks) -> None:
        agent = Agent(links)
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(agent.question())
            await asyncio.sleep(0)
            answer = group.create_task(links.ask(WEB, STATS, 5))
            question = await asked
            id_ = question["id"]
            with links.taking(WEB, id_), pytest.raises(NotAsked), links.taking(WEB, id_):
                pass
            with links.taking(WEB, id_):  # what was read first was no answer
                agent.answer(question)
        assert answer.result() is ANSWER

    play(scenario)


def test_questions_wait_for_the_one_before_and_faults_are_told() -> None:
    async def scenario(links: AgentLinks) -> None:
        agent = Agent(links)

        async def answers() -> None:
            await agent.ended()
            assert links.count == 0
            agent.answer(json.loads(agent.sent))
            agent.answer(await agent.question(), AgentFault("too long"))

        async with agent.linked():
            questions = (links.ask(WEB, STATS, 5), links.ask(WEB, STATS, 5))
            first, second, _ = await asyncio.gather(*questions, answers(), return_exceptions=True)
        assert first is ANSWER
        assert str(second) == "too long"

    play(scenario)


def test_who_has_no_agent_is_told_so_at_once_and_who_is_silent_after_the_time() -> None:
    async def scenario(links: AgentLinks) -> None:
        with pytest.raises(NoAgent):
            await links.ask(WEB, STATS, 5)
        agent = Agent(links)
        async with agent.linked():
            with pytest.raises(AgentFault, match="older"):
                await links.ask(WEB, EnvoyQuestion(EnvoySubject.CERTS), 5)
            with pytest.raises(SilentAgent):
                await links.ask(WEB, STATS, 0.01)
        with pytest.raises(NotAsked):  # an answer that comes too late
            agent.answer(json.loads(agent.sent))

    play(scenario)


def test_a_newer_link_takes_the_place_of_an_older_one() -> None:
    async def scenario(links: AgentLinks) -> None:
        older, newer = Agent(links), Agent(links)
        async with older.linked(), newer.linked():
            await older.ended()
            assert older.sent == b""
            with pytest.raises(SilentAgent):
                await links.ask(WEB, STATS, 0.01)
            assert newer.sent

    play(scenario)


def test_a_link_ends_at_a_heartbeat_after_which_its_agent_may_not_stay() -> None:
    async def scenario(links: AgentLinks) -> None:
        ended, stays, now = asyncio.Event(), [True], asyncio.get_running_loop().time()

        async def send(_piece: bytes, more: bool) -> None:
            if not more:
                ended.set()

        async with links.held(WEB, SUBJECTS, send, lambda: stays[-1]):
            links.beat(now + HEARTBEAT)
            stays.append(False)
            assert not ended.is_set()
            links.beat(now + 2 * HEARTBEAT)
            await ended.wait()

    play(scenario)


def test_idle_links_are_told_that_somebody_is_there_and_end_one_day() -> None:
    async def scenario(links: AgentLinks) -> None:
        agent, now = Agent(links), asyncio.get_running_loop().time()
        async with agent.linked():
            links.beat(now + HEARTBEAT)
            await eventually_on_loop(lambda: agent.sent)
            links.beat(now + HEARTBEAT)
            links.beat(now + 301)
            await agent.ended()
            assert agent.sent == b"\n"

    play(scenario)


class DeafAgent(Agent):
    """One that reads nothing, so that nothing that it is sent ever ends."""

    attempts = 0

    async def _send(self, piece: bytes, more: bool) -> None:
        self.attempts += 1
        await asyncio.Event().wait()


def test_an_agent_that_reads_nothing_holds_up_nobody_else() -> None:
    async def scenario(links: AgentLinks) -> None:
        deaf, agent, now = DeafAgent(links, API), Agent(links), asyncio.get_running_loop().time()
        async with deaf.linked(), agent.linked():
            for beats in range(1, 4):
                links.beat(now + beats * 2 * HEARTBEAT)
                await eventually_on_loop(partial(agent.has, b"\n" * beats))
            assert deaf.attempts == 1
            links.beat(now + 301)  # a link that is old ends, whoever reads it
            await agent.ended()

    play(scenario)


def test_an_agent_that_reads_nothing_holds_up_neither_its_next_link_nor_the_end() -> None:
    async def scenario(links: AgentLinks) -> None:
        deaf, agent, newer = DeafAgent(links, API), Agent(links), Agent(links, API)
        async with AsyncExitStack() as held:
            async with links.kept():
                await held.enter_async_context(deaf.linked())
                await held.enter_async_context(agent.linked())
                with pytest.raises(SilentAgent):
                    await links.ask(API, STATS, 0.01)
                await held.enter_async_context(DeafAgent(links, API).linked())
                await held.enter_async_context(newer.linked())
                await held.enter_async_context(DeafAgent(links, API).linked())
            await newer.ended()
            await agent.ended()

    play(scenario)


def test_there_are_at_most_so_many_and_who_has_gone_leaves_room() -> None:
    async def scenario(links: AgentLinks) -> None:
        async with Agent(links).linked():
            with pytest.raises(LinksFull):
                await Agent(links, API).question()
            async with Agent(links).linked():  # in the place of the other
                assert links.count == 1
        links.beat(asyncio.get_running_loop().time() + 60)
        async with Agent(links, API).linked():
            assert links.count == 1

    play(scenario, most=1)


def test_of_many_who_come_at_once_no_more_get_a_place_than_there_are() -> None:
    async def scenario(links: AgentLinks) -> None:
        async with asyncio.TaskGroup() as group:
            agents = [Agent(links, Key("Dataplane", "default", f"web-{number}")) for number in range(9)]
            asked = [group.create_task(refused_or_held(agent)) for agent in agents]
            outcomes = [await each for each in asked]
        assert sorted(outcomes) == [False] * 6 + [True] * 3

    async def refused_or_held(agent: Agent) -> bool:
        try:
            async with agent.linked():
                await asyncio.sleep(0)
                return True
        except LinksFull:
            return False

    play(scenario, most=3)


def test_at_the_end_all_links_end_and_there_are_no_new_ones() -> None:
    async def scenario(links: AgentLinks) -> None:
        agent = Agent(links)
        async with links.kept():
            entered = agent.linked()
            await entered.__aenter__()
        await agent.ended()
        await entered.__aexit__(None, None, None)
        with pytest.raises(LinksFull):
            await agent.question()

    play(scenario)


def test_at_the_end_nobody_waits_for_an_agent_any_more() -> None:
    """What one was asked already, it can still answer."""

    async def scenario(links: AgentLinks) -> None:
        agent = Agent(links)

        async def given_up() -> None:
            with pytest.raises(NoAgent):
                await links.ask(WEB, STATS, 3600)

        async with asyncio.TaskGroup() as tasks:
            async with links.kept():
                reading = tasks.create_task(agent.question())
                await asyncio.sleep(0)
                asked = tasks.create_task(links.ask(WEB, STATS, 3600))
                waiting = tasks.create_task(given_up())
                question = await reading
            await waiting
            agent.answer(question)
        assert asked.result() is ANSWER

    play(scenario)


def test_who_breaks_off_is_gone_and_who_is_told_to_come_again_is_waited_for() -> None:
    async def scenario(links: AgentLinks) -> None:
        async with Agent(links).linked():
            pass
        with pytest.raises(NoAgent):
            await links.ask(WEB, STATS, 5)
        agent = Agent(links)
        async with agent.linked():
            links.beat(asyncio.get_running_loop().time() + 301)
            await agent.ended()

        async def answers() -> None:
            agent.answer(await agent.question())

        answer, _ = await asyncio.gather(links.ask(WEB, STATS, 5), answers())
        assert answer is ANSWER

    play(scenario)


def test_who_does_not_come_again_is_not_waited_for_any_longer() -> None:
    async def scenario(links: AgentLinks) -> None:
        now = asyncio.get_running_loop().time()
        agent = Agent(links)
        async with agent.linked():
            links.beat(now + 301)

        async def beat() -> None:
            links.beat(now + 302)

        outcome, _ = await asyncio.gather(links.ask(WEB, STATS, 5), beat(), return_exceptions=True)
        assert isinstance(outcome, NoAgent)

    play(scenario)


def test_one_proxy_has_few_questions_at_once() -> None:
    async def scenario(links: AgentLinks) -> None:
        async with Agent(links).linked():
            asking = (links.ask(WEB, STATS, 0.05) for _ in range(9))
            outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [SilentAgent] * 8 + [AgentFault]

    play(scenario)
