"""`AgentLinks`: the requests that agents hold open here, each of which is answered with a question for its Envoy.

An agent has one question at a time; further ones wait for it here. An answer is taken once, and only from the agent
that was asked. A question is

waiting      until the agent holds a link open (`waiting`)
under way    once it was sent, which ends that link: the agent answers in another request (`under_way`)
forgotten    once its answer has come or its time is over; one that waits, also once the agent has gone

See record 0085.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from random import Random
from secrets import token_hex
from typing import Final

from cp.model.envoy_questions import (
    HEARTBEAT,
    AgentFault,
    EnvoyAnswer,
    EnvoyQuestion,
    EnvoyUnanswered,
    NoAgent,
    SilentAgent,
)
from cp.model.names import Key
from cp.serving.background import in_background

_LONGEST: Final = 300.0
"""Seconds for which a link is held, then it is opened anew: who holds it shows its token again."""

_ABSENCE: Final = 5.0
"""Seconds for which an agent may be away that has just ended a link, to answer or to open the next."""

_TICK: Final = 1.0
_MOST_QUESTIONS: Final = 8
"""For one proxy, those that wait included."""

_ALIVE: Final = b"\n"

Send = Callable[[bytes, bool], Awaitable[None]]
"""Sends a piece of an answer, and says whether more will come."""

Judge = Callable[[], bool]
"""Whether whoever holds a link may still hold it."""


def _anybody() -> bool:
    return True


class LinksFull(Exception):
    """There are as many links as this control plane holds, or it ends."""


class NotAsked(Exception):
    """An answer to a question that nobody has asked, or whose time is over."""


@dataclass(eq=False, slots=True)
class HeldLink:
    """A request that an agent holds open."""

    send: Send
    may_stay: Judge
    beats_at: float
    ends_at: float
    is_over: bool = False
    unsent: bytes = b""
    has_news: asyncio.Event = field(default_factory=asyncio.Event)

    def beat(self, now: float) -> None:
        self.beats_at = now + HEARTBEAT
        if not self.is_over:
            self.unsent = _ALIVE  # also where the one before is not sent yet
            self.has_news.set()

    def end(self, last: bytes = b"") -> None:
        if not self.is_over:
            self.is_over = True
            self.unsent += last
            self.has_news.set()

    async def pass_on(self) -> None:
        """Send to the agent what there is for it. Nobody else waits for an agent that reads nothing."""
        has_more = True
        while has_more:
            await self.has_news.wait()
            self.has_news.clear()
            piece, self.unsent, has_more = self.unsent, b"", not self.is_over
            await self.send(piece, has_more)


@dataclass(eq=False, slots=True)
class _PendingQuestion:
    id: str
    question: EnvoyQuestion
    deadline: float
    answer: asyncio.Future[EnvoyAnswer]
    is_taken: bool = False
    """Whether an answer is being read."""


@dataclass(eq=False, slots=True)
class _ProxyQuestions:
    """What is asked of one proxy."""

    subjects: Collection[str] = ()
    link: HeldLink | None = None
    seen_at: float = 0.0
    """When its agent ended a link or answered, on the clock of the event loop."""

    waiting: deque[_PendingQuestion] = field(default_factory=deque)
    under_way: dict[str, _PendingQuestion] = field(default_factory=dict)

    def is_present(self, now: float) -> bool:
        return self.link is not None or bool(self.under_way) or now - self.seen_at < _ABSENCE

    def give_up(self, reason: EnvoyUnanswered) -> None:
        """Tell those who wait that nobody will answer."""
        for pending in self.waiting:
            if not pending.answer.done():
                pending.answer.set_exception(reason)

    def forget(self, pending: _PendingQuestion) -> None:
        self.under_way.pop(pending.id, None)
        with suppress(ValueError):
            self.waiting.remove(pending)


class AgentLinks:
    """Those of this control plane: one of each proxy, of at most so many proxies."""

    def __init__(self, most: int = 1000) -> None:
        self._most, self._chance = most, Random()  # noqa: S311  # it spreads load
        self._proxies: dict[Key, _ProxyQuestions] = {}
        self._is_closed = False

    @property
    def count(self) -> int:
        return sum(proxy.link is not None for proxy in self._proxies.values())

    async def ask(self, dataplane: Key, question: EnvoyQuestion, within: float) -> EnvoyAnswer:
        """Raises `EnvoyUnanswered`: `NoAgent` if none of our agents is connected here."""
        loop = asyncio.get_running_loop()
        proxy = self._present(dataplane, question, loop.time())
        pending = _PendingQuestion(token_hex(8), question, loop.time() + within, loop.create_future())
        proxy.waiting.append(pending)
        try:
            self._hand_over(proxy)
            async with asyncio.timeout(within):
                return await pending.answer
        except TimeoutError:
            raise SilentAgent(f"the agent of {dataplane} does not answer within {within:g} s") from None
        finally:
            proxy.forget(pending)

    def answer(self, dataplane: Key, id_: str, outcome: EnvoyAnswer | EnvoyUnanswered) -> None:
        """Raises `NotAsked`."""
        proxy = self._proxies.get(dataplane)
        pending = None if proxy is None else proxy.under_way.pop(id_, None)
        if proxy is None or pending is None or pending.answer.done():
            raise NotAsked
        proxy.seen_at = asyncio.get_running_loop().time()
        if isinstance(outcome, EnvoyAnswer):
            pending.answer.set_result(outcome)
        else:
            pending.answer.set_exception(outcome)

    @contextmanager
    def taking(self, dataplane: Key, id_: str) -> Iterator[None]:
        """While the block lasts nobody else can give an answer to the same question. Raises `NotAsked`."""
        proxy = self._proxies.get(dataplane)
        pending = None if proxy is None else proxy.under_way.get(id_)
        if pending is None or pending.is_taken:
            raise NotAsked
        pending.is_taken = True
        try:
            yield
        finally:
            pending.is_taken = False

    @asynccontextmanager
    async def held(
        self, dataplane: Key, subjects: Collection[str], send: Send, may_stay: Judge = _anybody
    ) -> AsyncIterator[None]:
        """A link for as long as the block lasts, in the place of an older one of this proxy.

        It is ended within a heartbeat once its agent may not stay: its token may be revoked meanwhile. Raises
        `LinksFull` before anything is sent.
        """
        self._must_have_place(dataplane)
        now = asyncio.get_running_loop().time()
        proxy = self._proxies.setdefault(dataplane, _ProxyQuestions())
        beats_at, ends_at = now + HEARTBEAT * self._chance.random(), now + _LONGEST * (1 - self._chance.random() / 2)
        link = HeldLink(send, may_stay, beats_at, ends_at)
        before, proxy.link, proxy.subjects = proxy.link, link, subjects
        try:
            if before is not None:
                before.end()
            self._hand_over(proxy)
            async with in_background(link.pass_on()):
                yield
        finally:
            if proxy.link is link:  # who has ended it by himself is gone
                proxy.link, proxy.seen_at = None, asyncio.get_running_loop().time() if link.is_over else -_ABSENCE
            link.is_over = True

    def _must_have_place(self, dataplane: Key) -> None:
        """Raises `LinksFull`. Who was there a moment ago still has a place."""
        if self._is_closed or (dataplane not in self._proxies and len(self._proxies) >= self._most):
            raise LinksFull

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Links are kept alive for as long as the block lasts, and ended with it.

        Questions that no agent has been handed are given up; those that one has can still be answered.
        """
        try:
            async with in_background(self._beats()):
                yield
        finally:
            self._is_closed = True
            for dataplane, proxy in list(self._proxies.items()):
                proxy.give_up(_no_agent(dataplane))
                if proxy.link is not None:
                    proxy.link.end()

    async def _beats(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self.beat(asyncio.get_running_loop().time())

    def beat(self, now: float) -> None:
        """Say on idle links that we are there, end those that are old, and forget who is gone."""
        for dataplane, proxy in list(self._proxies.items()):
            link = proxy.link
            if link is not None and now >= link.ends_at:
                link.end()
            elif link is not None and now >= link.beats_at:
                link.beat(now) if link.may_stay() else link.end()
            elif not proxy.is_present(now):
                self._proxies.pop(dataplane)
                proxy.give_up(_no_agent(dataplane))

    def _present(self, dataplane: Key, question: EnvoyQuestion, now: float) -> _ProxyQuestions:
        proxy = self._proxies.get(dataplane)
        if proxy is None or not proxy.is_present(now):
            raise _no_agent(dataplane)
        if question.subject.value not in proxy.subjects:
            raise AgentFault(f"the agent of {dataplane} is older, and does not know this question")
        if len(proxy.waiting) + len(proxy.under_way) >= _MOST_QUESTIONS:
            raise AgentFault(f"{_MOST_QUESTIONS} questions to {dataplane} are under way; ask again later")
        return proxy

    def _hand_over(self, proxy: _ProxyQuestions) -> None:
        """Give the next question to an agent that waits for one."""
        link = proxy.link
        if link is None or link.is_over or not proxy.waiting:
            return
        pending = proxy.waiting.popleft()
        proxy.under_way[pending.id] = pending
        proxy.link, proxy.seen_at = None, asyncio.get_running_loop().time()
        within = max(0.0, pending.deadline - asyncio.get_running_loop().time())
        line = {"id": pending.id, "within": round(within, 3), **asdict(pending.question)}
        link.end(json.dumps(line).encode() + b"\n")


def _no_agent(dataplane: Key) -> NoAgent:
    return NoAgent(f"no agent of {dataplane} is connected")
