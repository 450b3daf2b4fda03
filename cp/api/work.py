"""`WorkQueue`: answers that take a while are worked out beside the event loop, so many at once, each for so long.

A thread cannot be ended from outside. So work looks at a checkpoint again and again, and stops there when its client
has gone or its time is over; until then it keeps its thread, and nothing else is begun in its place.

Work of one sort has a budget of time and memory, and callers have equal shares of its threads. While changes are on
their way to proxies, it waits at its checkpoints (`cp.precedence`). See records 0047 and 0095.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cp.api.answer_room import room_for
from cp.api.caller import caller_in
from cp.api.errors import TOO_MANY, UNAVAILABLE, ApiError, bad_request
from cp.api.fair_turns import FairTurns
from cp.api.shares import LOCAL, share_of
from cp.api.work_budget import TooMuchMemory, WorkBudget, budgeted
from cp.model.checkpoint import Allowance, Checkpoint, Stopped, TooLarge, checkpoint_set, never_stopped
from cp.model.source import OF_VALUES
from cp.precedence import Precedence, yielding
from cp.store.feed import tell

T = TypeVar("T")

_JSON: Final = "application/json"
_AT_ONCE: Final = 64
"""Elements of a list, or fields of a message, that are looked at together before they are written."""

_FEW: Final = 100
"""Values of a document that is small: faults in so many are found in about 20 ms."""

_SMALL: Final = 4096
"""Characters of a document that is small."""

LARGEST_ANSWER: Final = 64 * 1024 * 1024
"""Bytes of an answer, which is in memory as a whole before it is sent."""

_PIECE: Final = 256 * 1024

_BEGAN: Final = "koguma.began"
_RETRY: Final = {"retry-after": "1"}


class InPieces(Response):
    """An answer that may be large: it is handed on piece by piece, and others have their turn between them."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(self.body) <= _PIECE:
            await super().__call__(scope, receive, send)
            return
        try:
            with room_for(len(self.body), scope):
                await self._send(send)
        except ApiError as busy:
            await busy.response()(scope, receive, send)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        whole = memoryview(self.body)
        for begin in range(0, len(whole), _PIECE):
            piece = bytes(whole[begin : begin + _PIECE])
            await send({"type": "http.response.body", "body": piece, "more_body": begin + _PIECE < len(whole)})
            await asyncio.sleep(0)


_TWO: Final = WorkBudget(at_once=2)
_ONE: Final = WorkBudget(at_once=1)
"""Threads that compute take turns: more are not faster, and each makes the event loop wait for one turn more."""


def _nothing() -> None:
    """The work of a request that has been answered."""


@dataclass(slots=True, eq=False)
class _Work:
    """Something to be done in a thread, and its result."""

    do: Callable[[], Any]
    future: Future[Any]

    def run(self) -> None:
        """Do it, and let go of what it used before the request goes on with the result."""
        do, self.do = self.do, _nothing
        try:
            result = do()
        except BaseException as error:  # noqa: BLE001  # whoever waits for it raises it
            del do
            if error.__suppress_context__:
                error.__context__ = None  # its frames refer to the future, which refers to the error
            self.future.set_exception(error)
        else:
            del do
            self.future.set_result(result)


@dataclass(eq=False)
class CallerBusy(ApiError):
    """A caller has too many requests of one sort under way."""


class WorkQueue:
    """The threads for one sort of requests. Callers take turns, however many requests each of them has sent."""

    def __init__(self, name: str, budget: WorkBudget = _TWO, precedence: Precedence | None = None) -> None:
        self._budget = budget
        self._precedence = Precedence() if precedence is None else precedence
        self._threads = ThreadPoolExecutor(budget.at_once, thread_name_prefix=f"koguma-{name}")
        self._waiting: dict[str, deque[_Work]] = {}
        """The work of each caller that waits for a thread; the caller whose turn it is comes first."""

        self._running = 0
        self._under_way: Counter[str] = Counter()
        """How many requests each caller has."""

        self._is_closed = threading.Event()

    async def json(
        self, request: Request, function: Callable[[Checkpoint], Any], *, is_small: bool = False
    ) -> Response:
        """What a function returns, as an answer: JSON is written beside the event loop too, unless it is small."""
        body = await self.do(request, lambda checkpoint: json_of(function(checkpoint), checkpoint), is_small=is_small)
        return InPieces(body, media_type=_JSON)

    async def do(self, request: Request, function: Callable[[Checkpoint], T], *, is_small: bool = False) -> T:
        """What a function returns, that is called in a thread with its checkpoint.

        To hand something to a thread and wait for it takes longer than most documents take: what is small is done at
        once.
        """
        if is_small:
            return function(never_stopped)
        caller, stop = _caller(request), threading.Event()
        self._must_have_room(caller)
        try:
            return await self._in_time(request, asyncio.wrap_future(self._begin(function, stop, caller)))
        finally:
            stop.set()

    async def wait(self, request: Request, asking: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await work that runs elsewhere, under this queue's limits, deadline and checkpoint."""
        caller, stop = _caller(request), threading.Event()
        self._must_have_room(caller)
        self._under_way[caller] += 1
        try:
            with checkpoint_set(self._checkpoint(stop)):
                answer = asyncio.get_running_loop().create_task(asking())
            return await self._in_time(request, answer)
        finally:
            stop.set()
            self._leave(caller)

    def close(self) -> None:
        """Stop what is under way, at its next checkpoint."""
        self._is_closed.set()
        for work in chain.from_iterable(self._waiting.values()):
            work.future.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _must_have_room(self, caller: str) -> None:
        if self._is_closed.is_set():
            raise _ending()
        budget, of_caller = self._budget, self._under_way[caller]
        if caller != LOCAL and of_caller >= budget.of_caller:
            detail = f"{caller} has {of_caller} requests of this sort under way; wait for their answers"
            raise CallerBusy(TOO_MANY, "Too many requests", detail, headers=_RETRY)
        if self._under_way.total() >= budget.at_once + budget.waiting:
            raise busy(f"{self._under_way.total()} requests of this sort are under way already")

    async def _in_time(self, request: Request, answer: asyncio.Future[T]) -> T:
        leaving = asyncio.get_running_loop().create_task(_gone(request))
        try:
            either: set[asyncio.Future[Any]] = {answer, leaving}
            await asyncio.wait(either, timeout=self._left(request), return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return self._result(answer)
            if leaving.done():
                raise ClientDisconnect
            raise busy(f"the answer takes longer than {self._budget.seconds:g} s; ask for less at once")
        finally:
            leaving.cancel()
            answer.cancel()

    def _left(self, request: Request) -> float:
        """Seconds that a request has left, however often it asks for something to be worked out."""
        return max(0.0, began(request.scope) + self._budget.seconds - asyncio.get_running_loop().time())

    def _result(self, answer: asyncio.Future[T]) -> T:
        """What was worked out. What the end has stopped, or kept from being begun, is no fault."""
        try:
            return answer.result()
        except TooMuchMemory:
            limit = f"{self._budget.memory // (1024 * 1024)} MiB"
            raise busy(f"the answer takes more than {limit} of memory; ask for less at once") from None
        except (Stopped, asyncio.CancelledError):
            raise _ending() from None
        except TooLarge:
            raise _too_large() from None

    def _checkpoint(self, stop: threading.Event) -> Checkpoint:
        checkpoint = budgeted(lambda: stop.is_set() or self._is_closed.is_set(), self._budget.memory)
        return yielding(self._precedence, checkpoint)

    def _begin(self, function: Callable[[Checkpoint], T], stop: threading.Event, caller: str) -> Future[T]:
        def do() -> T:
            checkpoint = self._checkpoint(stop)
            checkpoint()
            with checkpoint_set(checkpoint):
                return function(checkpoint)

        loop, work = asyncio.get_running_loop(), _Work(do, Future())
        self._under_way[caller] += 1
        work.future.add_done_callback(lambda future: tell(loop, self._ended, caller, future))
        self._waiting.setdefault(caller, deque()).append(work)
        self._begin_next()
        return work.future

    def _begin_next(self) -> None:
        """Begin work while threads are free: of one caller after the other."""
        while self._running < self._budget.at_once and self._waiting:
            caller, waiting = next(iter(self._waiting.items()))
            work = waiting.popleft()
            del self._waiting[caller]
            if waiting:
                self._waiting[caller] = waiting
            if work.future.set_running_or_notify_cancel():
                self._running += 1
                self._threads.submit(work.run)

    def _ended(self, caller: str, future: Future[Any]) -> None:
        self._leave(caller)
        if not future.cancelled():
            self._running -= 1
        if not self._is_closed.is_set():
            self._begin_next()

    def _leave(self, caller: str) -> None:
        self._under_way[caller] -= 1
        self._under_way += Counter()  # forgets those who have none


def _caller(request: Request) -> str:
    """Whose requests count together."""
    return share_of(caller_in(request.scope), request.scope)


@dataclass(frozen=True, slots=True)
class WorkQueues:
    """Each sort has threads of its own, so that questions about a large mesh do not keep anybody from writing."""

    precedence: Precedence = field(default_factory=Precedence)
    """Of the delivery to proxies in this process, for which all others wait."""

    documents: WorkQueue = field(default_factory=lambda: WorkQueue("documents", _ONE))
    """Reading what is to be written, or only to be checked."""

    resources: WorkQueue = field(default_factory=lambda: WorkQueue("resources", _ONE))
    """Showing what is stored."""

    questions: WorkQueue = field(default_factory=lambda: WorkQueue("questions"))
    """What follows from it: rules, findings, explanations."""

    explanations: WorkQueue = field(default_factory=lambda: WorkQueue("explanations", _ONE))
    """Of calls, one after the other, as each takes what the last one worked out."""

    graphs: WorkQueue = field(default_factory=lambda: WorkQueue("graphs", _ONE))
    """Of whole meshes, for the same reason, and so that explanations do not wait for them."""

    plans: WorkQueue = field(default_factory=lambda: WorkQueue("plans", _ONE))
    """Of writes, for the same reason."""

    preflights: WorkQueue = field(default_factory=lambda: WorkQueue("preflights", _ONE))
    """Waiting for a turn of preflight, and for its Envoy."""

    turns: FairTurns = field(default_factory=FairTurns)
    """The turns of preflight."""

    @classmethod
    def beside(cls, precedence: Precedence) -> WorkQueues:
        """Queues whose questions wait for the delivery to proxies."""
        queue = partial(WorkQueue, budget=_ONE, precedence=precedence)
        return cls(
            precedence,
            documents=queue("documents"),
            resources=queue("resources"),
            questions=WorkQueue("questions", precedence=precedence),
            explanations=queue("explanations"),
            graphs=queue("graphs"),
            plans=queue("plans"),
            preflights=queue("preflights"),
        )

    def close(self) -> None:
        queues = (self.documents, self.resources, self.questions, self.explanations, self.graphs)
        for work in (*queues, self.plans, self.preflights):
            work.close()


def began(scope: Scope) -> float:
    """When a request was first asked this, by the clock of the event loop."""
    return float(scope.setdefault(_BEGAN, asyncio.get_running_loop().time()))


def is_small_text(text: str) -> bool:
    """Whether a text is read, and found valid or not, in a few milliseconds at the most."""
    return len(text) <= _SMALL and sum(map(text.count, OF_VALUES)) <= _FEW


def is_small(data: Any) -> bool:
    """Whether plain data is shown in a few milliseconds at the most. It looks at so many values and no more."""
    unseen, values, size = [data], 0, 0
    while unseen and values <= _FEW and size <= _SMALL:
        value = unseen.pop()
        values += 1
        size += len(value) if isinstance(value, Sized) else 0
        if isinstance(value, Mapping) and len(value) <= _FEW:
            unseen += (*value, *value.values())
        elif isinstance(value, list | tuple):
            unseen += value[:_FEW]
    return not unseen and values <= _FEW and size <= _SMALL


def json_of(data: Any, checkpoint: Checkpoint) -> bytes:
    """Data as JSON. It is written in pieces, because no other thread runs while one is written."""
    try:
        return b"".join(_of_few_bytes(_pieces(data, checkpoint), Allowance(LARGEST_ANSWER)))
    except TooLarge:
        raise _too_large() from None


def _of_few_bytes(pieces: Iterable[bytes], allowance: Allowance) -> Iterator[bytes]:
    for piece in pieces:
        allowance.take(len(piece))
        yield piece


def _pieces(data: Any, checkpoint: Checkpoint) -> Iterator[bytes]:
    checkpoint()
    if not isinstance(data, dict | list) or is_small(data):
        yield encoded(data)
    elif isinstance(data, dict):
        yield from _pieces_of_message(data, checkpoint)
    else:
        yield from _pieces_of_list(data, checkpoint)


def _pieces_of_message(data: Mapping[Any, Any], checkpoint: Checkpoint) -> Iterator[bytes]:
    between = b"{"
    for name, value in data.items():
        yield between + encoded(str(name)) + b":"
        yield from _pieces(value, checkpoint)
        between = b","
    yield b"}"


def _pieces_of_list(data: list[Any], checkpoint: Checkpoint) -> Iterator[bytes]:
    """Some elements at a time where they are small, as most long lists are of numbers or names."""
    between = b"["
    for begin in range(0, len(data), _AT_ONCE):
        items = data[begin : begin + _AT_ONCE]
        if is_small(items):
            checkpoint()
            yield between + encoded(items)[1:-1]
        else:
            for item in items:
                yield between
                yield from _pieces(item, checkpoint)
                between = b","
        between = b","
    yield b"]"


def encoded(data: Any) -> bytes:
    """Data as JSON, in one go."""
    try:
        return msgspec.json.encode(data)
    except (OverflowError, TypeError):  # a number that takes more than 64 bits
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


async def _gone(request: Request) -> None:
    """Returns when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _too_large() -> ApiError:
    limit = f"{LARGEST_ANSWER // (1024 * 1024)} MiB"
    hint = "ask for less, such as with `?size=10`, or for a plan of fewer changes"
    return bad_request("size", f"the answer has more than {limit}", hint)


def _ending() -> ApiError:
    return ApiError(UNAVAILABLE, "Stopping", "this control plane is ending; ask again", headers=_RETRY)


def busy(reason: str) -> ApiError:
    """The answer to a request that is to be sent again a little later."""
    return ApiError(UNAVAILABLE, "Too busy", reason, headers=_RETRY)
