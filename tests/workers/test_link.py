"""What two processes of a control plane say to each other, and what happens when it cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from socket import socket, socketpair

import pytest

from cp.serving.workers import link as link_module
from cp.serving.workers.link import LONGEST_FRAME, BrokenFrame, LinkClosed, LinkTimeout, ProcessLink
from cp.serving.workers.messages import RemoteError
from koguma.v1 import workers_pb2 as pb

WITHIN = 10

WAIT = pb.Request(nack_reports=pb.Nothing())
FAIL = pb.Request(metrics=pb.Nothing())
TIME_OUT = pb.Request(owners=pb.Nothing())


def echo(text: str, times: int = 1) -> pb.Request:
    return pb.Request(dataplane_text=pb.ProxyRun(proxy=text, owner=str(times)))


async def answer(request: pb.Request) -> pb.Answer:
    match request.WhichOneof("question"):
        case "dataplane_text":
            return pb.Answer(dataplane_text=request.dataplane_text.proxy * int(request.dataplane_text.owner))
        case "nack_reports":
            await asyncio.Event().wait()
        case "metrics":
            raise LookupError("half a character: \ud800")
        case "owners":
            raise TimeoutError("the disk")
    raise AssertionError(request)


def talk(test: Callable[[ProcessLink, asyncio.Task[None]], Awaitable[None]]) -> None:
    """One end asks, the other answers."""

    async def both() -> None:
        asking_end, answering_end = socketpair()
        asking, answering = (
            await ProcessLink.connect(asking_end, answer),
            await ProcessLink.connect(answering_end, answer),
        )
        async with asyncio.timeout(WITHIN), asyncio.TaskGroup() as group:
            listening = [group.create_task(link.listen()) for link in (asking, answering)]
            await test(asking, listening[1])
            for task in listening:
                task.cancel()

    asyncio.run(both())


def test_a_question_is_answered_while_others_wait_for_their_answers() -> None:
    async def test(link: ProcessLink, _: asyncio.Task[None]) -> None:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(link.ask(WAIT))
            await asyncio.sleep(0)
            answers = await asyncio.gather(*(link.ask(echo(text)) for text in "abc"))
            assert [answer.dataplane_text for answer in answers] == ["a", "b", "c"]
            waiting.cancel()

    talk(test)


def test_an_error_there_is_raised_here_with_its_class_and_its_text() -> None:
    async def test(link: ProcessLink, _: asyncio.Task[None]) -> None:
        with pytest.raises(RemoteError) as error:
            await link.ask(FAIL)
        assert (error.value.type, error.value.text) == ("LookupError", "half a character: \\ud800")

    talk(test)


def test_an_error_that_says_that_time_is_over_is_no_silence() -> None:
    async def test(link: ProcessLink, _: asyncio.Task[None]) -> None:
        with pytest.raises(RemoteError, match="TimeoutError: the disk"):
            await link.ask(TIME_OUT, within=WITHIN)
        with pytest.raises(LinkTimeout):
            await link.ask(WAIT, within=0.01)

    talk(test)


def test_who_waits_for_an_answer_learns_that_the_other_end_is_closed() -> None:
    async def test(link: ProcessLink, other_end: asyncio.Task[None]) -> None:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(_finds_it_closed(link))
            await asyncio.sleep(0)
            other_end.cancel()
            await waiting
        await _finds_it_closed(link)

    talk(test)


async def _finds_it_closed(link: ProcessLink) -> None:
    with pytest.raises(LinkClosed):
        await link.ask(WAIT)


def test_an_answer_that_is_too_long_is_an_error_and_the_link_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "LONGEST_FRAME", 1000)

    async def test(link: ProcessLink, _: asyncio.Task[None]) -> None:
        with pytest.raises(link_module.FrameTooLong, match=r"a frame of \d+ bytes: 1000 are the most"):
            await link.ask(echo("x" * 1000))
        with pytest.raises(RemoteError, match="FrameTooLong"):
            await link.ask(echo("x", times=1000))
        assert (await link.ask(echo("short"))).dataplane_text == "short"

    talk(test)


# --- what is no frame ---


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4) + content


BROKEN = {
    "too long": (
        (LONGEST_FRAME + 1).to_bytes(4),
        f"a frame of {LONGEST_FRAME + 1} bytes: {LONGEST_FRAME} are the most",
    ),
    "no message": (framed(b"\x80\x04\x95"), "a frame that is no message"),
    "text that is not UTF-8": (framed(b"\x12\x06\x32\x04\x0a\x02\xff\xfe"), "a frame that is no message"),
    "nothing in it": (framed(b""), "a frame with neither a request nor an answer"),
    "a number alone": (framed(b"\x08\x01"), "a frame with neither a request nor an answer"),
}


@pytest.mark.parametrize(("data", "reason"), BROKEN.values(), ids=BROKEN)
def test_what_is_no_frame_ends_the_link_with_the_reason(data: bytes, reason: str) -> None:
    async def receive(hostile: socket, end: socket) -> None:
        link = await ProcessLink.connect(end, answer)
        async with asyncio.timeout(WITHIN), asyncio.TaskGroup() as group:
            waiting = group.create_task(_finds_it_closed(link))
            await asyncio.sleep(0)
            hostile.sendall(data)
            with pytest.raises(BrokenFrame) as error:
                await link.listen()
            await waiting
        assert reason in str(error.value)
        assert await asyncio.to_thread(_read_all, hostile)  # our question, and then the end

    hostile, end = socketpair()
    with hostile:
        asyncio.run(receive(hostile, end))


def _read_all(end: socket) -> bytes:
    return b"".join(iter(lambda: end.recv(4096), b""))


def test_a_question_that_does_not_exist_is_answered_with_an_error() -> None:
    async def test(link: ProcessLink, _: asyncio.Task[None]) -> None:
        with pytest.raises(RemoteError, match="AssertionError"):
            await link.ask(pb.Request())

    talk(test)


def test_an_answer_that_nobody_waits_for_is_ignored() -> None:
    async def test(link: ProcessLink, _: asyncio.Task[None]) -> None:
        link._send(pb.Frame(number=99, answer=pb.Answer(dataplane_text="late")))
        link._send(pb.Frame(number=99, error=pb.Error(text="late")))
        assert (await link.ask(echo("on time"))).dataplane_text == "on time"

    talk(test)
