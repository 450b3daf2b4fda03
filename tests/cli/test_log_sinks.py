"""Lines of access logs on their way to an address, which may be away, slow, or no address at all."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import pytest

from cp.agent.log_sinks import LogSinks, SinkLimits
from tests.support.line_sink import LineSink
from tests.support.waiting import eventually

QUICK = SinkLimits(kept=10_000, first_pause=0.01, longest_pause=0.05)


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def sinks(messages: list[str]) -> Iterator[LogSinks]:
    sinks = LogSinks(messages.append, QUICK)
    yield sinks
    sinks.close(0.1)


def lines(count: int, begin: int = 0) -> list[str]:
    return [f"line {number:04}" for number in range(begin, begin + count)]


def put(sinks: LogSinks, sink: LineSink, lines_to_send: list[str]) -> None:
    for line in lines_to_send:
        sinks.put(str(sink.address), f"{line}\n".encode())


def test_lines_arrive_in_their_order(sinks: LogSinks, messages: list[str]) -> None:
    with LineSink() as sink:
        put(sinks, sink, lines(500))

        eventually(lambda: sink.lines == lines(500))
        assert messages == []


def test_each_address_gets_its_own(sinks: LogSinks) -> None:
    with LineSink() as first, LineSink() as second:
        put(sinks, first, ["to one"])
        put(sinks, second, ["to other"])

        eventually(lambda: (first.lines, second.lines) == (["to one"], ["to other"]))


def test_what_is_written_while_an_address_is_away_arrives_later(sinks: LogSinks, messages: list[str]) -> None:
    sink = LineSink()
    put(sinks, sink, lines(50))
    eventually(lambda: "refused" in "".join(messages))

    with sink:
        eventually(lambda: sink.lines == lines(50))
        assert messages[-1].endswith("connected")


def test_an_address_that_comes_back_gets_what_follows(sinks: LogSinks) -> None:
    with LineSink() as sink:
        put(sinks, sink, ["before"])
        eventually(lambda: sink.lines == ["before"])
        sink.away()
        put(sinks, sink, lines(50))
        sink.open()

        eventually(lambda: sink.lines == ["before", *lines(50)])


def test_an_address_that_is_away_holds_up_no_other(sinks: LogSinks) -> None:
    away = LineSink()
    with LineSink() as sink:
        for line in lines(20):
            put(sinks, away, [line])
            put(sinks, sink, [line])

        eventually(lambda: sink.lines == lines(20))


def test_what_is_too_much_is_dropped_and_counted(sinks: LogSinks, messages: list[str]) -> None:
    sink = LineSink()
    put(sinks, sink, lines(3000))
    with sink:
        eventually(lambda: sink.lines == lines(1000))  # of ten bytes each
        dropped = [re.search(r"(\d+) (?:lines )?were dropped", message) for message in messages]
        assert sum(int(match[1]) for match in dropped if match) == 2000
        put(sinks, sink, ["afterwards"])
        eventually(lambda: sink.lines[-1] == "afterwards")


def test_a_line_that_was_sent_in_part_is_sent_again(messages: list[str]) -> None:
    """Somebody takes a part of a line, and no more, and then hangs up."""
    long = "x" * 30_000_000
    sinks = LogSinks(messages.append, SinkLimits(kept=100_000_000, first_pause=0.01))
    sink = LineSink()
    with socket.create_server(sink.address) as first:
        put(sinks, sink, [long])
        connection, _ = first.accept()
        assert connection.recv(10)
        connection.close()
    with sink:
        eventually(lambda: sink.lines == [long])
    sinks.close(0.1)


def test_at_the_end_what_is_left_is_sent(messages: list[str]) -> None:
    sinks = LogSinks(messages.append, QUICK)
    with LineSink() as sink:
        put(sinks, sink, lines(100))
        sinks.close(5)

        eventually(lambda: sink.lines == lines(100))
        assert messages == []


def test_at_the_end_it_is_said_what_was_not_sent(messages: list[str]) -> None:
    sinks = LogSinks(messages.append, QUICK)
    sink = LineSink()
    put(sinks, sink, lines(100))

    sinks.close(0.1)

    assert messages[-1] == f"access logs for {sink.address}: 100 lines were not sent"


@pytest.mark.parametrize("address", ["logs.internal", "logs.internal:http", ":5000"])
def test_what_is_no_address_is_said(sinks: LogSinks, messages: list[str], address: str) -> None:
    sinks.put(address, b"line\n")

    eventually(lambda: "this is no address: write HOST:PORT" in "".join(messages))
