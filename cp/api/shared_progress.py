"""`SharedProgress`: several callers that ask the same at the same time wait for one evaluation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_JOINED_WITHIN: Final = 1.0
"""Seconds after which no further caller joins an evaluation: it knows the proxies that were there when it began."""


@dataclass(eq=False, slots=True)
class _Evaluation(Generic[T]):
    began: float
    task: asyncio.Task[None] | None = None
    readers: int = 0
    results: list[T] = field(default_factory=list)
    """The newest one, once there is one."""

    edition: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, results: AsyncIterator[T]) -> None:
        try:
            async for result in results:
                self.results, self.edition = [result], self.edition + 1
                self._tell()
                await asyncio.sleep(0)  # readers that wait take it before the next one replaces it
        finally:
            self._tell()

    def _tell(self) -> None:
        self.news.set()
        self.news = asyncio.Event()


class SharedProgress(Generic[T]):
    """Evaluations that are under way, by what was asked."""

    def __init__(self) -> None:
        self._evaluations: dict[Hashable, _Evaluation[T]] = {}

    async def results(self, question: Hashable, evaluate: Callable[[], AsyncIterator[T]]) -> AsyncIterator[T]:
        """The results of an evaluation as they come. A caller that is slow is given the newest."""
        evaluation, edition = self._joined(question, evaluate), 0
        evaluation.readers += 1
        try:
            while True:
                news = evaluation.news
                if evaluation.edition != edition:
                    edition = evaluation.edition
                    yield evaluation.results[0]
                elif evaluation.task is not None and evaluation.task.done():
                    evaluation.task.result()
                    return
                else:
                    await news.wait()
        finally:
            self._leave(question, evaluation)

    def _joined(self, question: Hashable, evaluate: Callable[[], AsyncIterator[T]]) -> _Evaluation[T]:
        loop = asyncio.get_running_loop()
        evaluation = self._evaluations.get(question)
        if evaluation is None or loop.time() - evaluation.began > _JOINED_WITHIN:
            evaluation = self._evaluations[question] = _Evaluation(loop.time())
            evaluation.task = loop.create_task(evaluation.run(evaluate()))
        return evaluation

    def _leave(self, question: Hashable, evaluation: _Evaluation[T]) -> None:
        evaluation.readers -= 1
        if evaluation.readers == 0:
            if evaluation.task is not None:
                evaluation.task.cancel()
            if self._evaluations.get(question) is evaluation:
                del self._evaluations[question]
