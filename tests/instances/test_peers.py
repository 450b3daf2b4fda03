"""One of the others that hangs, lies or stands wrongly in the roster is silent, and nobody else is."""

from __future__ import annotations

import asyncio
import http.server
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import cast

import pytest

from cp.serving.delivery import last_left
from cp.serving.instances import peers as peers_
from cp.serving.instances.members import LEASE, Members
from cp.serving.instances.peers import PeerAnswers, PeerClocks, Peers, SilentPeer
from cp.serving.instances.tokens import InstanceTokens
from cp.serving.workers.messages import owners_of, presences_of
from cp.store.roster import Instance, RosterEntry
from koguma.v1 import workers_pb2 as pb

OWNERS = pb.Request(owners=pb.Nothing())
ALIVE = pb.Frame(answer=pb.Answer(alive=pb.Nothing()))
NO_OWNERS = pb.Frame(answer=pb.Answer(owners=pb.Owners()))
LOST_WORKER = pb.Frame(answer=pb.Answer(owners=pb.Owners(), worker_lost_at=7.0))
OF_A_NEWER_ONE = pb.Frame(
    answer=pb.Answer(presences=pb.Presences(entries=[pb.Presences.Entry(presence=pb.Presence(state="Dozing"))]))
)


def instance(name: str, address: str) -> Instance:
    return Instance(name, "here", address, "", "0.1.0", datetime(2026, 1, 1, tzinfo=UTC), 0)


class Present:
    """Members that never come or go, and the tokens for them."""

    def __init__(self, others: Sequence[Instance], silence: float) -> None:
        self.others, self.silence = others, silence
        self.overdue: set[str] = set()
        self.lost: list[float] = []

    def note_lost_elsewhere(self, lost_at: float) -> None:
        self.lost.append(lost_at)

    async def others_present(self) -> Sequence[Instance]:
        return self.others

    async def entries(self) -> Sequence[RosterEntry]:
        return [RosterEntry(other, self.silence) for other in self.others]

    async def token(self, _audience: str) -> str:
        return "token"


@contextmanager
def asking(*others: Instance, silence: float = 0.0) -> Iterator[Peers]:
    with asking_as(Present(others, silence)) as peers:
        yield peers


@contextmanager
def asking_as(present: Present) -> Iterator[Peers]:
    with closing(Peers(cast("Members", present), cast("InstanceTokens", present), "here")) as peers:
        yield peers


@contextmanager
def answering(content: Callable[[], bytes]) -> Iterator[str]:
    """The address of somebody who answers each question with that."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            body = content()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Nobody reads it."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=partial(server.serve_forever, 0.01))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(20)


def owners(peers: Peers) -> PeerAnswers[object]:
    return asyncio.run(peers.ask(OWNERS, lambda answer: owners_of(answer.owners)))


@pytest.mark.parametrize(
    "address", ["http://a:99999", "http://[::1", "http://a..b:1", "nonsense", "", "http://a\x01:80"]
)
def test_who_stands_wrongly_in_the_roster_is_silent_alone(address: str) -> None:
    with answering(NO_OWNERS.SerializeToString) as good, asking(instance("x", good), instance("y", address)) as peers:
        answers = owners(peers)

    assert answers.given == {"x": {}}
    assert list(answers.silent) == ["y"]


def test_answers_report_lost_workers() -> None:
    with answering(LOST_WORKER.SerializeToString) as address:
        present = Present([instance("x", address)], 0.0)
        with asking_as(present) as peers:
            owners(peers)

    assert present.lost == [7.0]


@pytest.mark.parametrize("ahead", [0.0, 3600.0, -3600.0])
def test_lost_worker_is_dated_by_the_clock_here(ahead: float) -> None:
    lost_at = time.time() + ahead - 100.0

    def answer() -> bytes:
        of_owners = pb.Answer(owners=pb.Owners(), worker_lost_at=lost_at, answered_at=time.time() + ahead)
        return pb.Frame(answer=of_owners).SerializeToString()

    with answering(answer) as address:
        present = Present([instance("x", address)], 0.0)
        began = time.time()
        with asking_as(present) as peers:
            for _ in range(3):
                owners(peers)
        took = time.time() - began

    assert len(set(present.lost)) == 1, "each answer tells of the same loss"
    assert abs(lost_at - ahead - present.lost[0]) <= took


@pytest.mark.parametrize("ahead", [0.0, 3600.0])
def test_moment_at_which_a_proxy_left_is_one_of_the_clock_here(ahead: float) -> None:
    began = time.time()
    left = pb.ConnectionRecord(since=began + ahead - 9, until=began + ahead - 3)
    entry = pb.Presences.Entry(presence=pb.Presence(state="Offline", connections=[left]))

    def answer() -> bytes:
        presences = pb.Presences(entries=[entry])
        return pb.Frame(answer=pb.Answer(presences=presences, answered_at=time.time() + ahead)).SerializeToString()

    with answering(answer) as address, asking(instance("x", address)) as peers:
        given = asyncio.run(peers.ask(pb.Request(presences=pb.Keys()), lambda given: presences_of(given.presences)))
    (presence,) = given.given["x"].values()
    assert abs((last_left(presence) or 0.0) - (began - 3)) <= time.time() - began


def test_answers_that_take_long_leave_a_clock_as_it_is_known() -> None:
    clocks, lost = PeerClocks(), list[float]()
    for asked, told, heard in [
        (100.0, 100.1, 108.0),
        (200.0, 207.9, 208.0),
        (300.0, 3900.0, 300.2),
        (400.0, 4001, 402),
    ]:
        answer = pb.Answer(worker_lost_at=50.0, answered_at=told)
        clocks.convert("x", answer, asked, heard)
        lost.append(answer.worker_lost_at)
    assert lost == pytest.approx([50.0, 50.0, 50.0 - 3599.9, 50.0 - 3599.9])
    clocks.keep_only(())
    clocks.convert("x", answer := pb.Answer(worker_lost_at=50.0), 500.0, 501.0)
    assert answer.worker_lost_at == 50.0, "an earlier version tells no moment"


def test_who_answers_something_else_is_silent() -> None:
    with answering(ALIVE.SerializeToString) as address, asking(instance("x", address)) as peers:
        assert owners(peers).silent == {"x": f"{address} answers something else than it was asked"}
        with pytest.raises(SilentPeer):
            asyncio.run(peers.ask_one(instance("x", address), pb.Request(status=pb.Nothing())))


def test_who_answers_what_only_a_newer_version_understands_is_silent() -> None:
    with answering(OF_A_NEWER_ONE.SerializeToString) as address, asking(instance("x", address)) as peers:
        answers = asyncio.run(peers.ask(pb.Request(presences=pb.Keys()), lambda answer: presences_of(answer.presences)))

    assert answers.silent == {"x": f"{address} answers what this version does not understand"}


def test_however_many_are_gone_few_threads_ask_whether_they_are() -> None:
    asking_threads = set[threading.Thread]()

    def answer() -> bytes:
        asking_threads.update(each for each in threading.enumerate() if each.name.startswith("koguma-peers"))
        return ALIVE.SerializeToString()

    with answering(answer) as address:
        gone = [instance(str(number), address) for number in range(100)]
        with asking(*gone, silence=LEASE) as peers:
            asyncio.run(peers.find_overdue())

    assert 0 < len(asking_threads) <= peers_._THREADS


def test_nobody_waits_behind_somebody_who_hangs() -> None:
    """However many questions he has not answered."""
    hanging = threading.Event()
    asked = threading.Semaphore(0)

    def never() -> bytes:
        asked.release()
        hanging.wait(20)
        return NO_OWNERS.SerializeToString()

    async def scenario(peers: Peers, slow: Instance, good: Instance) -> pb.Answer:
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(peers.ask_one(slow, OWNERS, 20)) for _ in range(100)]
            await asyncio.to_thread(asked.acquire)
            answer = await peers.ask_one(good, OWNERS, 5)
            hanging.set()
            for task in waiting:
                task.cancel()
        return answer

    with ExitStack() as stack:
        slow = instance("slow", stack.enter_context(answering(never)))
        good = instance("good", stack.enter_context(answering(NO_OWNERS.SerializeToString)))
        peers = stack.enter_context(asking(slow, good))
        stack.callback(hanging.set)
        assert asyncio.run(scenario(peers, slow, good)).owners == pb.Owners()
