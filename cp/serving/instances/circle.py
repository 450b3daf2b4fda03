"""`InstanceCircle`: the control planes on one store as this one sees them, and its answers when they ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from time import time
from typing import Final

from google.protobuf.message import DecodeError

from cp.serving.agent_links import AgentLinks
from cp.serving.instances.envoy_links import outcome_here
from cp.serving.instances.members import Members
from cp.serving.instances.peers import ANSWERS_WITHIN, Peers, SilentPeer
from cp.serving.instances.tokens import InstanceTokens
from cp.serving.workers.answers import AnsweringObserver, dated_answer_of
from cp.serving.workers.messages import error_message, from_message, to_message
from cp.store.roster import Instance, RosterEntry
from koguma.v1 import workers_pb2 as pb

_OF_THE_GONE: Final = 2.0
"""Seconds in which a control plane has to answer that no longer reports to the store."""


class InstanceState(StrEnum):
    """Whether a control plane is there."""

    ONLINE = "Online"
    """It answers."""

    UNKNOWN = "Unknown"
    """It does not answer, and cannot be gone for long: what its proxies have is not known."""

    GONE = "Gone"
    """It does not answer, and has said nothing in the store for longer than a lease lasts."""


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """How far a control plane is."""

    revision: int
    """What it serves."""

    proxies: int
    """How many are connected to it."""


@dataclass(frozen=True, slots=True)
class InstanceStanding:
    """A control plane, and how it is."""

    instance: Instance
    state: InstanceState
    silence: float
    """For how many seconds it has said nothing in the store."""

    is_own: bool
    leads: bool
    """Whether it does the chores."""

    status: InstanceStatus | None = None
    """None: it does not answer."""

    reason: str = ""
    """Why not."""


class InstanceCircle:
    def __init__(  # noqa: PLR0913, PLR0917  # what it answers with
        self,
        members: Members,
        peers: Peers,
        tokens: InstanceTokens,
        own: AnsweringObserver,
        links: AgentLinks,
        revision: Callable[[], int],
    ) -> None:
        """`revision`: the one that we serve."""
        self._members, self._peers, self._tokens = members, peers, tokens
        self._own, self._links, self._revision = own, links, revision

    async def standings(self) -> Sequence[InstanceStanding]:
        """All that share the store, this one among them, the oldest first."""
        return await asyncio.gather(*map(self._standing, await self._members.entries()))

    async def let_in(self, token: str) -> None:
        """Check that the caller is one of the control planes. Raises `TokenRefused`."""
        await self._tokens.caller(token)

    async def answer(self, content: bytes) -> bytes:
        """What we answer to another control plane. Raises `ValueError` for what is no question."""
        try:
            request = pb.Request.FromString(content)
        except DecodeError:
            raise ValueError("not a question that control planes ask each other") from None
        return (await self._frame(request)).SerializeToString()

    async def _frame(self, request: pb.Request) -> pb.Frame:
        try:
            return pb.Frame(answer=await self._answer(request))
        except Exception as error:  # noqa: BLE001  # whoever asked is told, whatever it is
            return pb.Frame(error=error_message(error))

    async def _answer(self, request: pb.Request) -> pb.Answer:
        match request.WhichOneof("question"):
            case "alive":
                return pb.Answer(alive=pb.Nothing())
            case "status":
                return pb.Answer(status=to_message(await self._status()))
            case "envoy_question":
                return pb.Answer(envoy_question=await outcome_here(self._links, request.envoy_question))
            case _:
                answer = await dated_answer_of(self._own, request, self._revision)
                answer.worker_lost_at, answer.answered_at = self._members.worker_lost_at, time()
                return answer

    async def _status(self) -> InstanceStatus:
        return InstanceStatus(self._revision(), len(await self._own.owners()))

    async def _standing(self, member: RosterEntry) -> InstanceStanding:
        instance = member.instance
        is_own, leads = instance.id == self._members.id, instance.id == self._members.leader
        status: InstanceStatus | None = None
        reason = ""
        try:
            status = await (self._status() if is_own else self._status_of(member))
        except SilentPeer as silent:
            reason = str(silent)
        return InstanceStanding(instance, self._state(member, status), member.silence, is_own, leads, status, reason)

    async def _status_of(self, member: RosterEntry) -> InstanceStatus:
        is_gone = not self._members.may_serve(member)
        within = _OF_THE_GONE if is_gone else ANSWERS_WITHIN
        answer = await self._peers.ask_one(member.instance, pb.Request(status=pb.Nothing()), within, is_gone=is_gone)
        return from_message(answer.status, InstanceStatus)

    def _state(self, member: RosterEntry, status: InstanceStatus | None) -> InstanceState:
        if status is not None:
            return InstanceState.ONLINE
        return InstanceState.UNKNOWN if self._members.may_serve(member) else InstanceState.GONE
