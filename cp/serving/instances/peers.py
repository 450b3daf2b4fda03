"""`Peers`: asks the other control planes on the same store, over their HTTP API."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic, time
from typing import Final, Generic, TypeVar
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError

from cp.calling import OutgoingConnection, connection_to, ended_within
from cp.model.hosts import is_loopback
from cp.model.violation import Finding, Severity
from cp.serving.instances.members import LEASE, Members
from cp.serving.instances.tokens import InstanceTokens
from cp.serving.signing_keys import NoSigningKey
from cp.serving.workers.link import LONGEST_FRAME
from cp.store.port import Unusable
from cp.store.roster import Instance
from koguma.v1 import workers_pb2 as pb

T = TypeVar("T")

PATH: Final = "/_instances/_ask"
TOKEN_HEADER: Final = "koguma-instance-token"  # noqa: S105  # the name of a header

ANSWERS_WITHIN: Final = LEASE
"""Seconds. A control plane that needs longer would be taken for gone if it did not report to the store either."""

_THREADS: Final = 32
"""For each of the others, so that one that hangs keeps us from asking none of the rest. Each waits for one answer."""

_OK: Final = 200
_LONGEST_REASON: Final = 300


CODE: Final = "instance-silent"


_DRIFT: Final = 0.5
"""Seconds by which an answer may contradict the known difference of two clocks before it is measured anew."""


class SilentPeer(Exception):
    """A control plane does not answer. The text says why."""


@dataclass(frozen=True, slots=True)
class PeerAnswers(Generic[T]):
    """What other control planes answered."""

    given: Mapping[str, T]
    """By their ids."""

    silent: Mapping[str, str]
    """Why the others did not, by their ids."""

    names: Mapping[str, str]

    @property
    def silent_names(self) -> Sequence[str]:
        return [self.names[id_] for id_ in self.silent]


class PeerClocks:
    """How far the clocks of other machines are ahead of this one.

    A difference stays as it is until an answer contradicts it: moments that are converted do not change by themselves.
    """

    def __init__(self) -> None:
        self._ahead: dict[str, float] = {}

    def convert(self, peer: str, answer: pb.Answer, asked_at: float, heard_at: float) -> None:
        """Change moments of a peer's clock, by which it is judged which proxies will return, to those of ours."""
        if not answer.answered_at:  # an earlier version
            return
        ahead = self._measure(peer, answer.answered_at - heard_at, answer.answered_at - asked_at)
        if answer.worker_lost_at:
            answer.worker_lost_at -= ahead
        for record in (record for entry in answer.presences.entries for record in entry.presence.connections):
            record.since -= ahead
            record.answered_at -= ahead
            if record.HasField("until"):
                record.until -= ahead

    def _measure(self, peer: str, least: float, most: float) -> float:
        ahead = self._ahead.get(peer, 0.0)
        if not least - _DRIFT <= ahead <= most + _DRIFT:
            ahead = self._ahead[peer] = (least + most) / 2
        return ahead

    def keep_only(self, peers: Collection[str]) -> None:
        self._ahead = {peer: ahead for peer, ahead in self._ahead.items() if peer in peers}


class Peers:
    """`name` is that of our machine."""

    def __init__(self, members: Members, tokens: InstanceTokens, name: str) -> None:
        self._members, self._tokens, self._name = members, tokens, name
        self._silent: Mapping[str, str] = {}
        self._asked_at = -LEASE
        self._clocks = PeerClocks()
        self._threads: dict[str, ThreadPoolExecutor] = {}
        """The threads that ask, by the id of the control plane asked; without one, for those that are probably gone."""

    def close(self) -> None:
        self._forget_all_but(())

    async def others_present(self) -> Sequence[Instance]:
        return await self._members.others_present()

    async def ask(self, request: pb.Request, read: Callable[[pb.Answer], T]) -> PeerAnswers[T]:
        """Ask all that may serve proxies. One whose answer cannot be read counts as silent."""
        peers = await self._members.others_present()
        outcomes = await asyncio.gather(*(self._outcome(peer, request, read) for peer in peers))
        by_id = dict(zip((peer.id for peer in peers), outcomes, strict=True))
        answers = PeerAnswers(
            {id_: outcome for id_, outcome in by_id.items() if not isinstance(outcome, SilentPeer)},
            {id_: str(outcome) for id_, outcome in by_id.items() if isinstance(outcome, SilentPeer)},
            {peer.id: name_of(peer) for peer in peers},
        )
        self._silent, self._asked_at = {answers.names[id_]: why for id_, why in answers.silent.items()}, monotonic()
        return answers

    def findings(self) -> Iterator[Finding]:
        """The control planes that did not answer, if they were asked just now."""
        if monotonic() - self._asked_at < LEASE:
            for name, why in self._silent.items():
                message = f"{name} does not answer, so what its proxies have and refuse is unknown: {why}"
                yield Finding(CODE, Severity.WARNING, None, message, hint="see `koguma inspect instances`")

    async def _outcome(self, peer: Instance, request: pb.Request, read: Callable[[pb.Answer], T]) -> T | SilentPeer:
        asked_at = time()
        try:
            answer = await self.ask_one(peer, request)
            self._clocks.convert(peer.id, answer, asked_at, time())
            self._members.note_lost_elsewhere(answer.worker_lost_at)
            return read(answer)
        except SilentPeer as silent:
            return silent
        except ValueError:
            return SilentPeer(f"{peer.address} answers what this version does not understand")

    async def ask_one(
        self, peer: Instance, request: pb.Request, within: float = ANSWERS_WITHIN, *, is_gone: bool = False
    ) -> pb.Answer:
        """Raises `SilentPeer` with the reason. Those that are probably gone are many, and wait for each other."""
        try:
            self._must_lead_elsewhere(peer)
            token = await self._tokens.token(peer.id)
            post = partial(_post, peer, token, request.SerializeToString(), within)
            async with asyncio.timeout(within):
                frame = await asyncio.get_running_loop().run_in_executor(
                    self._threads_for("" if is_gone else peer.id), post
                )
        except TimeoutError:
            raise SilentPeer(f"no answer from {peer.address} within {within:g} s") from None
        except ValueError as error:  # what stands in the roster is nothing that we wrote
            raise SilentPeer(f"{peer.address} is no address to ask at: {error}") from None
        except (NoSigningKey, Unusable) as error:
            raise SilentPeer(str(error)) from None
        return _answer(peer, request, frame)

    def _must_lead_elsewhere(self, peer: Instance) -> None:
        """Raises `SilentPeer` where an address would lead to ourselves, `ValueError` where it is none."""
        if is_loopback(urlsplit(peer.address).hostname or "") and peer.name != self._name:
            raise SilentPeer(f"{peer.address} is for {peer.name} alone: set KOGUMA_INSTANCE_ADDRESS there")

    def _threads_for(self, id_: str) -> ThreadPoolExecutor:
        if id_ not in self._threads:
            self._threads[id_] = ThreadPoolExecutor(_THREADS, thread_name_prefix="koguma-peers")
        return self._threads[id_]

    def _forget_all_but(self, ids: Collection[str]) -> None:
        self._clocks.keep_only(ids)
        for id_ in self._threads.keys() - ids:
            self._threads.pop(id_).shutdown(wait=False, cancel_futures=True)

    async def watch(self) -> None:
        """Ask those that do not report any longer, again and again, until cancelled."""
        while True:
            await asyncio.sleep(LEASE / 2)
            await self.find_overdue()

    async def find_overdue(self) -> None:
        """Ask those that no longer report to the store: they may have lost only the store, and still serve proxies."""
        entries = await self._members.entries()
        self._forget_all_but({"", *(entry.instance.id for entry in entries)})
        silent = [entry for entry in entries if entry.silence >= LEASE]
        answers = await asyncio.gather(*(self._is_alive(entry.instance) for entry in silent))
        self._members.overdue = {entry.instance.id for entry, alive in zip(silent, answers, strict=True) if alive}

    async def _is_alive(self, peer: Instance) -> bool:
        with suppress(SilentPeer):
            await self.ask_one(peer, pb.Request(alive=pb.Nothing()), is_gone=True)
            return True
        return False


def name_of(peer: Instance) -> str:
    """How a control plane is told of."""
    return f"instance {peer.name} ({peer.address})"


def _post(peer: Instance, token: str, content: bytes, timeout: float) -> pb.Frame:
    """Raises `SilentPeer`. In a thread of its own."""
    headers = {TOKEN_HEADER: token, "content-type": "application/x-protobuf"}
    try:
        connection = _connection(peer, timeout)
        with closing(connection), ended_within(connection, timeout):
            connection.request("POST", PATH, content, headers)
            answer = connection.getresponse()
            return _frame(peer, answer.status, answer.read(LONGEST_FRAME + 1))
    except (OSError, http.client.HTTPException) as error:
        raise SilentPeer(f"{peer.address}: {_reason(error)}") from None


def _connection(peer: Instance, timeout: float) -> OutgoingConnection:
    if urlsplit(peer.address).scheme != "https":
        return connection_to(peer.address, timeout)
    # What the roster says of the certificate is as good as all else in the store, which both of us believe.
    return connection_to(peer.address, timeout, ssl.create_default_context(cadata=peer.authority or None))


def _frame(peer: Instance, status: int, content: bytes) -> pb.Frame:
    if status != _OK:
        raise SilentPeer(f"{peer.address} answers {status}{_detail(content)}")
    if len(content) > LONGEST_FRAME:
        raise SilentPeer(f"{peer.address}: more than {LONGEST_FRAME} bytes")
    try:
        return pb.Frame.FromString(content)
    except DecodeError:
        raise SilentPeer(f"{peer.address} answers, and not as a control plane does") from None


def _answer(peer: Instance, request: pb.Request, frame: pb.Frame) -> pb.Answer:
    """What answers a request, and no other one."""
    if frame.HasField("error"):
        raise SilentPeer(frame.error.text or frame.error.type)
    if frame.answer.WhichOneof("answer") != request.WhichOneof("question"):
        raise SilentPeer(f"{peer.address} answers something else than it was asked")
    return frame.answer


def _detail(content: bytes) -> str:
    try:
        return f": {json.loads(content)['detail']}"[:_LONGEST_REASON]
    except (ValueError, KeyError, TypeError):
        return ""


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
