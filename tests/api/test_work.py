"""Work for requests has a budget: in number, in waiting, in time; and it stops when nobody waits for it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect, Request

from cp.access.rights import Rights, Subjects, User
from cp.api.caller import ApiCaller, enter
from cp.api.errors import ApiError
from cp.api.work import InPieces, WorkQueue, _pieces, is_small, is_small_text, json_of
from cp.api.work_budget import TooMuchMemory, WorkBudget, budgeted
from cp.model.checkpoint import Allowance, Checkpoint, Stopped, never_stopped, pass_checkpoint
from cp.precedence import Precedence, yielding

WITHIN = 20


def on_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


class Client:
    """Stays until it leaves."""

    def __init__(self, name: str = "ann") -> None:
        self.left = asyncio.Event()
        self._caller = ApiCaller(User(name), "192.0.2.1:1", Rights(Subjects()))

    @property
    def request(self) -> Request:
        async def receive() -> dict[str, str]:
            await self.left.wait()
            return {"type": "http.disconnect"}

        scope = {"type": "http", "client": ("192.0.2.1", 1), "headers": []}
        enter(scope, self._caller)
        return Request(scope, receive)


class Long:
    """Work that goes on until it is stopped at a checkpoint."""

    def __init__(self) -> None:
        self.begun, self.stopped = threading.Event(), threading.Event()

    def __call__(self, checkpoint: Checkpoint) -> None:
        self.begun.set()
        try:
            while True:
                checkpoint()
        except Stopped:
            self.stopped.set()
            raise

    async def until(self, event: threading.Event) -> None:
        assert await asyncio.to_thread(event.wait, WITHIN)


@contextmanager
def work(**budget: Any) -> Iterator[WorkQueue]:
    made = WorkQueue("test", WorkBudget(**budget))
    try:
        yield made
    finally:
        made.close()


@on_a_loop
async def test_what_is_worked_out_is_answered() -> None:
    with work() as there:
        assert (await there.json(Client().request, lambda _: {"a": [1, 2]})).body == b'{"a":[1,2]}'


@on_a_loop
async def test_a_refusal_is_passed_on() -> None:
    def refuse(_checkpoint: Checkpoint) -> None:
        raise ApiError(400, "no", "no")

    with work() as there, pytest.raises(ApiError, match="no"):
        await there.do(Client().request, refuse)


@on_a_loop
async def test_work_stops_when_its_client_has_gone() -> None:
    client, long = Client(), Long()
    with work() as there:
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(outcome(there, client, long))
            await long.until(long.begun)
            client.left.set()
            await long.until(long.stopped)
        assert isinstance(asked.result(), ClientDisconnect)


@on_a_loop
async def test_work_stops_when_its_time_is_over() -> None:
    long = Long()
    with work(seconds=0.05) as there:
        refused = await outcome(there, Client(), long)
        await long.until(long.stopped)

    assert isinstance(refused, ApiError)
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")


@on_a_loop
async def test_who_comes_when_too_many_wait_is_sent_away() -> None:
    first, second = Long(), Long()
    with work(at_once=1, waiting=1) as there:
        async with asyncio.TaskGroup() as group:
            clients = [Client(), Client()]
            group.create_task(outcome(there, clients[0], first))
            await first.until(first.begun)
            group.create_task(outcome(there, clients[1], second))
            await asyncio.sleep(0)
            refused = await outcome(there, Client(), lambda _: None)
            for client in clients:
                client.left.set()

        assert isinstance(refused, ApiError)
        assert refused.status == 503
        await first.until(first.stopped)
        assert not second.begun.is_set()
        assert await there.do(Client().request, lambda _: 1) == 1


@on_a_loop
async def test_callers_take_turns() -> None:
    order: list[str] = []
    first = Long()
    with work(at_once=1) as there:
        async with asyncio.TaskGroup() as group:
            client = Client()
            group.create_task(outcome(there, client, first))
            await first.until(first.begun)
            for name in ("ann", "ann", "ann", "bob", "carl"):
                group.create_task(outcome(there, Client(name), partial(noted, order, name)))
                await asyncio.sleep(0)
            client.left.set()

    assert order == ["ann", "bob", "carl", "ann", "ann"]


@on_a_loop
async def test_caller_with_too_many_requests_is_rejected() -> None:
    long = Long()
    with work(at_once=1, of_caller=2) as there:
        async with asyncio.TaskGroup() as group:
            clients = [Client(), Client()]
            for client in clients:
                group.create_task(outcome(there, client, long))
            await long.until(long.begun)
            rejected = await outcome(there, Client(), lambda _: 1)
            other = group.create_task(outcome(there, Client("bob"), lambda _: 1))
            for client in clients:
                client.left.set()
        assert await there.do(Client().request, lambda _: 2) == 2

    assert (rejected.status, rejected.headers["retry-after"], other.result()) == (429, "1", 1)
    assert "user ann has 2 requests of this sort under way" in str(rejected)


def test_work_that_takes_too_much_memory_ends() -> None:
    sizes = iter([100, 100, 160])

    checkpoint = budgeted(lambda: False, 50, lambda: next(sizes))
    checkpoint()
    with pytest.raises(TooMuchMemory):  # noqa: PT012  # memory is measured now and then
        while True:
            checkpoint()


@on_a_loop
async def test_too_much_memory_is_answered_with_503() -> None:
    def grow(checkpoint: Checkpoint) -> None:
        held = []
        while True:
            held.append(bytearray(b"x" * 1024 * 1024))
            checkpoint()

    with work(memory=32 * 1024 * 1024) as there:
        rejected = await outcome(there, Client(), grow)

    assert rejected.status == 503
    assert "takes more than 32 MiB of memory" in str(rejected)


@on_a_loop
async def test_stages_pass_the_checkpoint_of_their_work() -> None:
    """In the thread of the queue, and in threads of tasks that the queue only awaits."""

    def passing() -> None:
        begun.set()
        try:
            while True:
                pass_checkpoint()
        except Stopped:
            stopped.set()
            raise

    with work() as there:
        for waits in (True, False):
            client, begun, stopped = Client(), threading.Event(), threading.Event()
            async with asyncio.TaskGroup() as group:
                if waits:
                    asked = group.create_task(awaited(there, client, lambda: asyncio.to_thread(passing)))
                else:
                    asked = group.create_task(outcome(there, client, lambda _: passing()))
                assert await asyncio.to_thread(begun.wait, WITHIN)
                client.left.set()
                assert await asyncio.to_thread(stopped.wait, WITHIN)
            assert isinstance(asked.result(), ClientDisconnect)


def test_work_waits_for_delivery_and_goes_on_meanwhile() -> None:
    precedence, passed = Precedence(), 0

    def count() -> None:
        nonlocal passed
        passed += 1

    checkpoint = yielding(precedence, count)
    with precedence.claimed():
        began = time.monotonic()
        while time.monotonic() - began < 0.3:
            checkpoint()
        in_delivery = passed
    assert in_delivery > 0
    passed, began = 0, time.monotonic()
    while time.monotonic() - began < 0.3:
        checkpoint()
    assert passed > in_delivery, "while nothing is delivered, it does not wait"


@on_a_loop
async def test_work_that_is_under_way_at_the_end_stops() -> None:
    long = Long()
    with work() as there:
        async with asyncio.TaskGroup() as group:
            group.create_task(outcome(there, Client(), long))
            await long.until(long.begun)
            there.close()
            await long.until(long.stopped)


@on_a_loop
async def test_a_request_has_one_time_for_all_that_is_worked_out_for_it() -> None:
    client, began = Client().request, asyncio.get_running_loop().time()
    client.scope["koguma.began"] = began - 59.9
    first, second = Long(), Long()
    with work(seconds=60.0) as there:
        for long in (first, second):
            with pytest.raises(ApiError, match="longer than 60 s"):
                await asyncio.wait_for(there.do(client, long), WITHIN)
            if long is first:
                await long.until(long.stopped)
        assert client.scope["koguma.began"] == began - 59.9


@on_a_loop
async def test_the_time_of_a_request_begins_with_it() -> None:
    client = Client().request
    with work() as there:
        await there.do(client, lambda _: 1)
        began = client.scope["koguma.began"]
        await there.do(client, lambda _: 1)

    assert client.scope["koguma.began"] == began <= asyncio.get_running_loop().time()


@on_a_loop
async def test_who_asks_at_the_end_is_told_so() -> None:
    """Whether it was under way, waited or came later."""
    long = Long()
    with work(at_once=1) as there:
        async with asyncio.TaskGroup() as group:
            begun = group.create_task(outcome(there, Client(), long))
            await long.until(long.begun)
            waiting = group.create_task(outcome(there, Client(), lambda _: 1))
            await asyncio.sleep(0)
            there.close()
        later = await outcome(there, Client(), lambda _: 1)

    refused = [begun.result(), waiting.result(), later]
    assert [(one.status, one.title) for one in refused] == [(503, "Stopping")] * 3


@on_a_loop
async def test_who_waits_for_others_counts_and_ends_too() -> None:
    client, ended = Client(), asyncio.Event()

    async def ask() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with work(at_once=1, waiting=0) as there:
        asked = asyncio.get_running_loop().create_task(there.wait(client.request, ask))
        await asyncio.sleep(0)
        refused = await outcome(there, Client(), lambda _: None)
        client.left.set()
        with pytest.raises(ClientDisconnect):
            await asked
        await asyncio.wait_for(ended.wait(), WITHIN)
        assert await there.do(Client().request, lambda _: 1) == 1

    assert isinstance(refused, ApiError)
    assert refused.status == 503


async def outcome(there: WorkQueue, client: Client, function: Callable[[Checkpoint], Any]) -> Any:
    try:
        return await there.do(client.request, function)
    except Exception as error:  # noqa: BLE001  # whatever it is, it is looked at
        return error


def noted(order: list[str], name: str, _: Checkpoint) -> None:
    order.append(name)


async def awaited(there: WorkQueue, client: Client, asking: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    try:
        return await there.wait(client.request, asking)
    except Exception as error:  # noqa: BLE001  # whatever it is, it is looked at
        return error


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


@given(st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)))
def test_what_is_written_in_pieces_is_what_is_written_at_once(data: Any) -> None:
    assert json.loads(json_of(data, never_stopped)) == json.loads(json.dumps(data))


def test_a_long_answer_has_many_checkpoints() -> None:
    passed = 0

    def count() -> None:
        nonlocal passed
        passed += 1

    json_of({"items": [{"a": 1}] * 1000}, count)

    assert passed > 1000


def test_no_piece_of_an_answer_is_large_however_deep_it_is() -> None:
    """No other thread runs while one is written."""
    deep: Any = {"items": [{"name": "x" * 50, "to": list(range(100))} for _ in range(1000)]}
    for _ in range(8):
        deep = [deep]

    assert max(map(len, _pieces(deep, never_stopped))) < 8 * 1024
    assert json.loads(json_of(deep, never_stopped)) == deep


def test_what_becomes_too_large_while_it_is_made_is_refused_as_what_is_too_large() -> None:
    async def refused() -> Any:
        work = WorkQueue("large")
        ended = await outcome(work, Client(), lambda _: Allowance(10).take(11))
        work.close()
        return ended

    error = asyncio.run(refused())

    assert isinstance(error, ApiError)
    assert (error.status, "ask for less" in str(error)) == (400, True)


def test_what_is_small_is_done_where_it_is_asked_for_and_everything_else_in_a_thread() -> None:
    async def threads() -> tuple[int, int]:
        work, request = WorkQueue("small"), Client().request
        at_once = await work.do(request, lambda _: threading.get_ident(), is_small=True)
        handed_over = await work.do(request, lambda _: threading.get_ident())
        work.close()
        return at_once, handed_over

    at_once, handed_over = asyncio.run(threads())

    assert at_once == threading.get_ident() != handed_over


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"name": "a", "spec": {"to": [{"default": {"idleTimeout": "5s"}}]}}, True),
        ({"spec": [1] * 100}, False),
        ({"spec": {f"{number}": {} for number in range(100)}}, False),
        ({"spec": "a" * 5000}, False),
        ({"a" * 5000: 1}, False),
        ({"spec": [[[1] * 30] * 30] * 30}, False),
    ],
)
def test_data_is_small_if_there_are_few_values_in_it_and_few_characters(data: Any, expected: bool) -> None:
    assert is_small(data) is expected
    assert is_small_text(json.dumps(data)) is expected


def test_a_large_answer_is_handed_on_in_pieces() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError

    body = bytes(3_000_000)
    asyncio.run(InPieces(body)({"type": "http", "method": "GET"}, receive, send))

    parts = [message["body"] for message in sent[1:]]
    assert (b"".join(parts), [message["more_body"] for message in sent[1:]][-2:]) == (body, [True, False])
    assert max(map(len, parts)) <= 256 * 1024


def test_an_answer_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cp.api.work.LARGEST_ANSWER", 1024)

    with pytest.raises(ApiError, match="ask for less"):
        json_of(["x" * 100] * 20, never_stopped)
    assert json_of(["x" * 100] * 5, never_stopped)
